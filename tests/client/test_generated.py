"""The generated parts of the client are those of today's contract, and none is missing."""

from __future__ import annotations

import inspect
import json
from typing import Any

import pytest

import decant
from chalicelib.api import OPERATIONS
from chalicelib.core.base import errors as service_errors
from chalicelib.doors.http.exchange import PROBLEMS
from chalicelib.doors.http.openapi import document
from decant import calls, errors, operations
from decant.api import Api, AsyncApi
from decant.calls import Call, Repeat
from tests.client.generate import files

SHARED: dict[str, Any] = document()["components"]["parameters"]
PARAMETERS = {each["name"]: each for each in SHARED.values()}


def _entry(name: str) -> Any:
    operation = OPERATIONS[name]
    return document()["paths"][operation.path][operation.method.lower()]


def _example(name: str) -> tuple[list[str], dict[str, Any]]:
    """The names and the fields of the document's own example of a request."""
    operation = OPERATIONS[name]
    names = [PARAMETERS[part]["example"] for part in operation.path_names]
    body = _entry(name).get("requestBody")
    return names, dict(body["content"]["application/json"]["example"]) if body else {}


def test_the_generated_files_are_those_of_the_document() -> None:
    stale = [path.name for path, text in files().items() if path.read_text() != text]
    assert stale == [], "run python -m tests.client.generate"


@pytest.mark.parametrize("name", OPERATIONS)
def test_each_operation_builds_its_documented_request(name: str) -> None:
    names, fields = _example(name)
    call: Call[Any] = getattr(operations, name)(*names, **fields)
    sent = calls.request(call)
    assert (sent.method, call.path) == (OPERATIONS[name].method, OPERATIONS[name].path)
    assert sent.target == call.path.format_map(dict(zip(OPERATIONS[name].path_names, names, strict=True)))
    assert (json.loads(sent.body) if sent.body else {}) == fields


@pytest.mark.parametrize("name", OPERATIONS)
def test_each_operation_is_a_method_of_both_faces(name: str) -> None:
    seen: list[Call[Any]] = []
    names, fields = _example(name)

    def call(call: Call[Any]) -> Any:
        seen.append(call)

    for kind in (Api, AsyncApi):
        method = getattr(kind(call), name)
        method(*names, **fields)
        assert method.__doc__ == getattr(operations, name).__doc__
        assert inspect.signature(method) == inspect.signature(getattr(operations, name))
    assert seen == [getattr(operations, name)(*names, **fields)] * 2


def test_each_parameter_of_a_query_is_an_argument() -> None:
    for name, operation in OPERATIONS.items():
        if operation.method == "GET":
            named = [SHARED[part["$ref"].rpartition("/")[2]] for part in _entry(name).get("parameters", ())]
            query = {part["name"] for part in named if part["in"] == "query"}
            assert query <= set(inspect.signature(getattr(operations, name)).parameters)


def test_an_operation_without_its_fields_does_not_build() -> None:
    with pytest.raises(TypeError, match="messages"):
        operations.produce("orders")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="queus"):
        operations.put_topic("orders", queus=8)  # type: ignore[call-arg]


def test_null_is_sent_only_where_it_is_a_value() -> None:
    assert operations.put_group("orders", "billing", max_attempts=None).body == {"max_attempts": None}
    assert operations.put_group("orders", "billing", rate_limit=None).body is None
    assert operations.put_group("orders", "billing").body is None


def test_the_package_has_its_names_and_no_others() -> None:
    assert {"Decant", "AsyncDecant", "Topic", "Message", "Retry", "Bury", "Sent", "Reply", "QueueFull"} <= {
        *dir(decant)
    }
    assert all(getattr(decant, name) is not None for name in dir(decant))
    with pytest.raises(AttributeError, match="Decan'"):
        _ = decant.Decan  # type: ignore[attr-defined]


def test_each_code_has_an_error_of_its_own() -> None:
    assert errors.PROBLEMS.keys() == PROBLEMS.keys()
    for code, (status, _) in PROBLEMS.items():
        error = errors.problem_of(status, {"code": code, "detail": "so"})
        assert type(error).__name__ == error.code == code
        assert getattr(decant, code) is type(error)
        assert type(error).__doc__ is not None
        assert getattr(service_errors, code).__doc__ is not None


REPEATED = {"ack", "nack", "bury", "extend", "reply", "commit_transaction", "rollback_transaction"}


def test_a_call_is_always_repeated_only_where_its_repeat_changes_nothing() -> None:
    for name, operation in OPERATIONS.items():
        names, fields = _example(name)
        fields = {field: value for field, value in fields.items() if field != "attempt_id"}
        call = getattr(operations, name)(*names, **fields)
        is_always = operation.method != "POST" or name in REPEATED
        assert call.repeat is (Repeat.ALWAYS if is_always else Repeat.IF_UNSENT), name


def test_a_produce_is_repeated_if_each_message_has_a_dedup_id() -> None:
    with_id: Any = {"body": "a", "dedup_id": "1"}
    without: Any = {"body": "a"}
    assert operations.produce("orders", messages=[with_id, with_id]).repeat is Repeat.ALWAYS
    assert operations.produce("orders", messages=[with_id, without]).repeat is Repeat.IF_UNSENT
    assert operations.pop("orders", "billing", attempt_id="a").repeat is Repeat.ALWAYS
