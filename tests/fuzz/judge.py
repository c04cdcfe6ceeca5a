"""Checks that every answer must pass."""

from __future__ import annotations

import re
from typing import Any

from chalicelib.doors.http.exchange import MEDIA_TYPE, PROBLEMS
from tests.support import documented
from tests.support.client import Answer

UNPROVOKED = {500, 503}
"""Documented, but a sound service on a sound store has no reason for them."""


def judge(operation: dict[str, Any], answer: Answer) -> None:
    """Fails unless the operation's document knows the answer in full, and it is no defect. A success and an error
    alike have just the fields that the document names."""
    assert answer.status not in UNPROVOKED, answer.json
    documented.check(operation, answer.status, answer.headers, answer.json)
    if answer.status >= 400:
        _judge_problem(answer)


def judge_unrouted(answer: Answer) -> None:
    """The same for what no operation answers: a method that the path does not have."""
    assert answer.problem == (405, "MethodNotAllowed")
    assert answer.headers["Allow"]


def _judge_problem(answer: Answer) -> None:
    status, code = answer.problem
    assert answer.headers["Content-Type"] == MEDIA_TYPE
    assert (status, answer.json["title"]) == PROBLEMS[code]
    assert answer.json["type"].endswith(code)
    assert "\n" not in answer.json["detail"]
    assert not re.search(r"Traceback|object at 0x|Error\(", answer.json["detail"])
