"""The checks of replies find violations, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.history.examples import broken
from tests.history.facts import Fetched, Replied
from tests.history.history import OFF_MS, History
from tests.history.requests import ALREADY, EXPIRED, NOT_FOUND, REPLY, TIMEOUT, WAITING

DEADLINE_MS = 2_000
ACCEPTED = Replied("c", "yes", 100, DEADLINE_MS, 120, "ok")
GOT = Fetched("c", "a", 50, 130, REPLY, "yes")
TIMED_OUT = Fetched("c", "a", 50, DEADLINE_MS, TIMEOUT)


def judged(*facts: Replied | Fetched) -> set[str]:
    history = History(stale_ms=100)
    history.replied = [fact for fact in facts if isinstance(fact, Replied)]
    history.fetched = [fact for fact in facts if isinstance(fact, Fetched)]
    return broken(history)


@pytest.mark.parametrize(
    ("facts", "wrong"),
    [
        ([ACCEPTED, GOT, replace(ACCEPTED, began_ms=3_000, at_ms=3_010)], set()),
        ([ACCEPTED, replace(ACCEPTED, reply="no", outcome=ALREADY)], set()),
        ([replace(ACCEPTED, outcome="unknown"), GOT], set()),
        ([TIMED_OUT, replace(ACCEPTED, began_ms=2_100, at_ms=2_110, outcome=EXPIRED)], set()),
        ([ACCEPTED, replace(GOT, outcome=WAITING, reply=None)], set()),
        ([GOT], {"a_request_has_one_reply_for_ever"}),
        ([ACCEPTED, replace(GOT, id="d")], {"a_request_has_one_reply_for_ever"}),
        ([ACCEPTED, replace(ACCEPTED, reply="no")], {"a_request_has_one_reply_for_ever"}),
        ([TIMED_OUT, ACCEPTED], {"a_time_out_is_final"}),
        (
            [replace(TIMED_OUT, at_ms=1_999 - OFF_MS), replace(ACCEPTED, outcome="unknown")],
            {"a_reply_comes_in_time_or_never"},
        ),
        ([replace(ACCEPTED, began_ms=2_001 + OFF_MS, at_ms=9_000)], {"a_reply_comes_in_time_or_never"}),
        ([replace(ACCEPTED, outcome=EXPIRED)], {"a_reply_comes_in_time_or_never"}),
        (
            [ACCEPTED, replace(GOT, began_ms=300, at_ms=310, outcome=WAITING, reply=None)],
            {"an_accepted_reply_is_there"},
        ),
        ([ACCEPTED, replace(GOT, outcome=NOT_FOUND, reply=None)], {"an_accepted_reply_is_there"}),
        ([replace(ACCEPTED, outcome=ALREADY)], {"an_accepted_reply_is_there"}),
    ],
)
def test_a_request_has_one_reply_in_time_or_none(facts: list[Replied | Fetched], wrong: set[str]) -> None:
    assert judged(*facts) == wrong
