"""Every operation, fuzzed from the service's own document.

The cases come from schemathesis through its Python API, so that they are drawn by one test of ours for each operation
and sent in this process, over a store in memory: its pytest plugin, which hides what goes wrong while
tests are collected, stays off. Its own checks judge the answers too: they know which of the invalid
cases became valid on the wire.
"""

from __future__ import annotations

from typing import Any

import pytest
import requests
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from schemathesis import Response
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.fuzz.cases import Case, can_be_invalid, document_of, invalid, likely, operations, prepared, valid
from tests.fuzz.judge import judge
from tests.fuzz.world import World
from tests.support.client import Answer

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    negative_data_rejection,
]

SLOW = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large, HealthCheck.large_base_example]

fuzzed = settings(max_examples=10, derandomize=True, database=None, deadline=None, suppress_health_check=SLOW)

each_operation = pytest.mark.parametrize("operation", operations())
each_fallible = pytest.mark.parametrize("operation", [each for each in operations() if can_be_invalid(each)])


@each_operation
@fuzzed
@given(data=st.data())
def test_a_valid_request_gets_a_documented_answer(operation: str, data: st.DataObject) -> None:
    answered(World(), operation, data.draw(valid(operation)))


@each_fallible
@fuzzed
@given(data=st.data())
def test_an_invalid_request_is_refused(operation: str, data: st.DataObject) -> None:
    case = data.draw(invalid(operation))
    body = _bytes(prepared(case))
    assume(not body or body.strip())  # white space alone is an empty body, which may be valid
    answered(World(), operation, case)


@each_operation
@fuzzed
@given(data=st.data())
def test_a_valid_request_about_what_is_there_gets_a_documented_answer(operation: str, data: st.DataObject) -> None:
    world = World()
    for case in data.draw(st.lists(likely(operation), min_size=1, max_size=3)):
        answered(world, operation, case)


def answered(world: World, operation: str, case: Case) -> Answer:
    request = prepared(case)
    headers: dict[str, Any] = dict(request.headers)
    answer = world.ask(str(request.method), request.path_url, _bytes(request), headers)
    judge(document_of(operation), answer)
    expected = [not_a_server_error] if answer.status == 504 else []  # a request that nobody answers
    checks = [check for check in CHECKS if check not in expected]
    case.validate_response(_as_seen(request, answer), checks=checks)
    return answer


def _bytes(request: requests.PreparedRequest) -> bytes:
    body = request.body or b""
    raw = body.encode() if isinstance(body, str) else body
    assert isinstance(raw, bytes)
    return raw


def _as_seen(request: requests.PreparedRequest, answer: Answer) -> Response:
    headers = {name.lower(): [value] for name, value in answer.headers.items()}
    return Response(answer.status, headers, answer.raw, request, elapsed=0.0, verify=False)
