"""Functions that `chalice deploy` makes, which have no settings and no rights: they are of no stage."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import app
from chalicelib import wiring
from chalicelib.core.base.errors import Internal
from chalicelib.settings import WITHOUT_STAGE
from infra.stage import STAGES, read_stage
from local.memory.opening import open_memory
from tests.support import aws_events, events
from tests.support.events import FRONTS, Sent

CHALICE = json.loads((Path(app.__file__).parent / ".chalice/config.json").read_text())
DIRECT = ("produce", "pop", "ack", "nack", "extend", "bury", "request", "reply")
SCHEDULED = ("revive", "forward", "expire", "check", "push_all", "move", "export")

SCHEDULE = dict.fromkeys(("version", "account", "region", "detail", "detail-type", "source", "time", "id", "resources"))


@pytest.fixture(autouse=True)
def _deployed_by_chalice(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("DECANT_STACK", "DECANT_ACCESS", "AWS_CHALICE_CLI_MODE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_LAMBDA_FUNCTION_NAME", f"{CHALICE['app_name']}-dev")
    wiring.use(None)
    yield
    wiring.use(None)


@pytest.mark.parametrize("front", FRONTS.values(), ids=FRONTS)
def test_each_request_is_told_what_to_do(front: Any) -> None:
    for sent in (Sent("GET", "/health"), Sent("POST", "/topics/orders/messages", '{"messages": [{"body": "a"}]}')):
        answer = app.app(front(sent), None)
        problem = json.loads(answer["body"])
        assert (answer["statusCode"], problem["detail"]) == (500, WITHOUT_STAGE)


def test_so_is_a_client_of_sqs() -> None:
    target = {"X-Amz-Target": "AmazonSQS.ListQueues", "Content-Type": "application/x-amz-json-1.0"}
    answer = app.app(events.url(Sent("POST", "/", "{}", None, **target)), None)
    assert (answer["statusCode"], WITHOUT_STAGE in answer["body"]) == (500, True)


@pytest.mark.parametrize("name", DIRECT)
def test_so_is_who_invokes_a_function(name: str) -> None:
    answer = getattr(app, name)({"topic": "orders", "group": "billing"}, None)
    assert answer["error"]["detail"] == WITHOUT_STAGE


def test_so_is_who_asks_for_a_sweep_or_a_push() -> None:
    for name in SCHEDULED:
        assert app.sweep({"sweep": name}, None)["error"]["detail"] == WITHOUT_STAGE
    assert app.push({"topic": "orders", "is_staying": False}, None)["error"]["detail"] == WITHOUT_STAGE


@pytest.mark.parametrize("name", SCHEDULED)
def test_the_schedule_fails_with_the_same_sentence(name: str) -> None:
    with pytest.raises(Internal, match="`chalice deploy` cannot deploy Decant"):
        getattr(app, name)(SCHEDULE, None)


def test_a_source_of_events_keeps_its_records() -> None:
    with pytest.raises(Internal, match="`chalice deploy` cannot deploy Decant"):
        app.ingest(aws_events.event(), aws_events.Context(60_000))


def test_the_commands_of_chalice_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """`chalice local` and `chalice package` do not run in Lambda."""
    monkeypatch.delenv("AWS_LAMBDA_FUNCTION_NAME")
    monkeypatch.setenv("AWS_CHALICE_CLI_MODE", "true")
    monkeypatch.setenv("DECANT_STORE", "memory")
    monkeypatch.setattr(wiring.parts, "open_memory", open_memory)
    assert app.app(events.rest(Sent("GET", "/health")), None)["statusCode"] == 200


def test_what_chalice_deploys_meets_no_stage() -> None:
    """Names of chalice begin with those of its app and stage, names of ours with that of the stack."""
    for path in STAGES.glob("*.yaml"):
        for stage in (*CHALICE["stages"], path.stem):
            assert not f"{CHALICE['app_name']}-{stage}-pop".startswith(read_stage(path.stem).stack)
