"""Which paths and methods there are, and that each answers everything that the document says it can."""

from __future__ import annotations

import json
import logging
import re
from itertools import product
from typing import get_args

import pytest

from app import app
from chalicelib.api import OPERATIONS, Demand
from chalicelib.api.messages import MESSAGES_PATH
from chalicelib.api.operation import Right
from chalicelib.doors.http import openapi
from chalicelib.doors.http.application import SQS_PATHS
from chalicelib.doors.http.door import respond
from local.server import request_of
from tests.http.provoked import Provoked
from tests.support import documented
from tests.support.client import Client

ANSWERS = [
    (each["operationId"], int(status)) for each in documented.operations().values() for status in each["responses"]
]
PATHS = openapi.document()["paths"]
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
KNOWN = {path: {*map(str.upper, known), *(["HEAD"] if "get" in known else [])} for path, known in PATHS.items()}


def _named(path: str) -> str:
    """The path with names and ids in it."""
    return re.sub(r"{\w+}", "x", path.replace("{topic}", "orders").replace("{group}", "billing"))


def test_routes_and_documented_operations_are_the_same() -> None:
    routes = {(method, path) for path, methods in app.routes.items() for method in methods if path not in SQS_PATHS}
    assert routes - {("DELETE", MESSAGES_PATH)} == {
        (method, path) for path, known in KNOWN.items() for method in known
    }, "that is an ack over MQ"


def test_who_may_only_read_changes_nothing() -> None:
    reading = {operation.name for operation in OPERATIONS.values() if operation.right in ("read", "anyone")}
    getting = {operation.name for operation in OPERATIONS.values() if operation.method == "GET"}
    getting -= {"list_tokens", "get_token"}
    assert reading == getting - {"get_reply"}, "who asks also ends the request, at its deadline"
    assert {operation.right for operation in OPERATIONS.values()} == set(get_args(Right))


def test_warnings_reach_the_log() -> None:
    """Chalice gives the app's logger, which is ours, a level of its own."""
    assert logging.getLogger("decant").isEnabledFor(logging.WARNING)


def test_the_service_serves_its_own_document(client: Client) -> None:
    assert client.get("/openapi.json").json == openapi.document()


def test_a_method_that_a_path_lacks_is_405_and_lists_the_allowed_ones(client: Client) -> None:
    for path, known in KNOWN.items():
        for method in METHODS:
            if method not in known:
                answer = client.ask(method, _named(path))
                assert answer.problem == (405, "MethodNotAllowed"), f"{method} {path}"
                assert answer.headers["Allow"] == ", ".join(sorted(known))


@pytest.mark.parametrize("path", [path for path, known in KNOWN.items() if "HEAD" in known])
def test_head_is_answered_as_get_is(client: Client, path: str) -> None:
    client.topic("orders").group("billing")
    got, headed = (client.ask(method, _named(path)) for method in ("GET", "HEAD"))
    assert (headed.status, headed.headers) == (got.status, got.headers)


def test_head_needs_the_rights_of_get(client: Client) -> None:
    guarded = Client(client.store, client.clock, demand=Demand(requests=True))
    assert guarded.ask("HEAD", "/topics").problem == (401, "Unauthenticated")
    assert guarded.ask("HEAD", "/health").status == 200


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/"),
        ("GET", "/topic"),
        ("GET", "/topics/orders/groups/billing/progress"),
    ],
)
def test_a_path_of_a_later_release_is_none(method: str, path: str) -> None:
    assert asked(method, path) == (404, "NotFound")


@pytest.mark.parametrize("spoiled", ["{}/", "{}//", "/{}", "//x{}"])
def test_a_path_with_a_slash_too_many_is_none(client: Client, spoiled: str) -> None:
    client.topic("orders").group("billing")
    for path, method in product(PATHS, METHODS):
        spoiled_path = spoiled.format(_named(path))
        assert asked(method, spoiled_path) == (404, "NotFound"), f"{method} {spoiled_path}"
    assert client.get("/topics/orders").json["groups"] == ["billing"]


@pytest.mark.parametrize(
    "path", ["/topics//messages", "/topics//groups/billing", "/topics/orders/groups//pop", "/topics/orders/messages//"]
)
def test_an_empty_name_in_a_path_makes_it_none(client: Client, path: str) -> None:
    for method in METHODS:
        assert asked(method, path) == (404, "NotFound")


def test_slashes_in_a_query_are_no_slashes_in_the_path(client: Client) -> None:
    assert client.ask("GET", "/topics?next=//").problem == (400, "InvalidField")


def asked(method: str, path: str) -> tuple[int, str]:
    """Status and code of a problem."""
    response = respond(request_of(method, path, {}, None))
    return response.status, json.loads(response.text)["code"]


@pytest.mark.parametrize(("operation", "status"), ANSWERS)
def test_every_documented_answer_can_be_provoked(operation: str, status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    provoked = Provoked(monkeypatch)
    if status == 409:
        provoked.make_too_late(operation)
    provoked.prepare(operation, status)
    answer = (provoked.refused if status in (401, 403) else provoked.answer)(operation, status)
    assert answer.status == status
    assert status < 400 or answer.problem[0] == status


def test_a_group_that_is_not_there_is_not_found_by_any_operation(monkeypatch: pytest.MonkeyPatch) -> None:
    provoked = Provoked(monkeypatch)
    for operation, (method, path, body) in provoked.requests.items():
        if "/billing" in path and operation != "putGroup":
            answer = provoked.client.ask(method, path.replace("/billing", "/others"), body)
            assert answer.problem == (404, "GroupNotFound"), operation


@pytest.mark.parametrize("operation", sorted({operation for operation, _ in ANSWERS}))
def test_a_malformed_value_anywhere_is_a_documented_400(operation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    provoked = Provoked(monkeypatch)
    method, path, _ = provoked.requests[operation]
    ask = provoked.client.ask
    assert ask(method, path, raw=b"{").problem == (400, "InvalidJson")
    assert ask(method, path, {"limt": 1}).problem == (400, "UnknownField")
    assert ask(method, path, query={"limt": 1}).problem == (400, "UnknownField")
    assert ask(method, path, query={"limt": [1, 2]}).problem == (400, "InvalidField")
