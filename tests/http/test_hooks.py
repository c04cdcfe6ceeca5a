"""Hooks before and after a send, and the trace that messages carry."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from chalicelib import hooks as hooks_module
from chalicelib import wiring
from chalicelib.core.base.errors import InvalidField, StoreUnavailable
from chalicelib.core.base.message import Message
from chalicelib.core.producing.hooks import SendHooks
from chalicelib.hooks import on_send
from tests.support.client import Client, Topic, bodies
from tests.support.hooks import refuse_secrets
from tests.support.troubled_store import TroubledStore, throttled_queue, unavailable

Calls = list[tuple[Any, ...]]


@pytest.fixture
def hooks(client: Client) -> SendHooks:
    return client.api.service.producing.hooks


@pytest.fixture
def calls(hooks: SendHooks) -> Calls:
    """The arguments of the hooks, bodies in place of messages."""
    found: Calls = []
    hooks.before.append(lambda topic, messages: found.append(("before", topic, texts(messages))))
    hooks.after.append(lambda topic, messages, outcome: found.append(("after", topic, texts(messages), outcome)))
    return found


def texts(messages: Sequence[Message]) -> list[str]:
    return [message.body.decode() for message in messages]


def fail(*_about: Any) -> None:
    raise RuntimeError("the inside of a hook")


def test_hooks_are_called_once_before_and_once_after_a_send(topic: Topic, calls: Calls) -> None:
    made = topic.produce("a", "b")
    [before, (*about, outcome)] = calls
    assert before == ("before", "orders", ["a", "b"])
    assert about == ["after", "orders", ["a", "b"]]
    assert [each.message_id for each in outcome] == [each["message_id"] for each in made]


def test_nothing_is_stored_when_a_hook_before_is_called(topic: Topic, hooks: SendHooks) -> None:
    seen: list[list[Any]] = []
    hooks.before.append(lambda *_: seen.append(topic.client.api.read_messages("orders", {})["messages"]))
    topic.produce("a")
    assert seen == [[]]


def test_a_hook_before_refuses_a_send_and_hooks_after_see_it(topic: Topic, hooks: SendHooks, calls: Calls) -> None:
    hooks.before.append(refuse_secrets)
    answer = topic.client.post(f"{topic.path}/messages", messages=[{"body": "a"}, {"body": "b", "tag": "secret"}])
    assert answer.problem == (400, "InvalidField")
    assert "secret" in answer.json["detail"]
    assert topic.read()["messages"] == []
    assert isinstance(calls[-1][-1], InvalidField)
    topic.produce("c")
    assert bodies(topic.read()["messages"]) == ["c"]


def test_a_malformed_request_is_no_send(topic: Topic, calls: Calls) -> None:
    topic.client.post(f"{topic.path}/messages", messages=[{"body": ""}])
    topic.client.post("/topics/nowhere/messages", messages=[{"body": "a"}])
    assert calls == []


def test_hooks_after_see_a_send_that_failed(store: TroubledStore, topic: Topic, calls: Calls) -> None:
    store.before = unavailable("write")
    topic.client.post(f"{topic.path}/messages", messages=[{"body": "a"}])
    assert isinstance(calls[-1][-1], StoreUnavailable)


def test_hooks_after_see_what_failed_of_a_batch(store: TroubledStore, client: Client) -> None:
    topic = client.topic("pairs", queues=2)
    outcomes: list[Any] = []
    client.api.service.producing.hooks.after.append(lambda _topic, _messages, outcome: outcomes.append(outcome))
    store.before = throttled_queue(1)
    batch = [{"body": "a", "queue": 0}, {"body": "b", "queue": 1}]
    assert client.post(f"{topic.path}/messages", messages=batch).status == 207
    [[first, second]] = outcomes
    assert (first.error, first.offset, second.offset) == (None, 0, None)
    assert isinstance(second.error, StoreUnavailable)


def test_a_hook_after_that_fails_is_logged_and_changes_no_answer(
    topic: Topic, hooks: SendHooks, calls: Calls, caplog: pytest.LogCaptureFixture
) -> None:
    hooks.after.insert(0, fail)
    with caplog.at_level(logging.ERROR):
        topic.produce("a")
        refused = topic.client.post(f"{topic.path}/messages", messages=[{"body": "a", "queue": 9}])
    assert refused.problem == (400, "InvalidField")
    assert len(calls) == 2
    logged = [(record.getMessage(), str(record.exc_info[1])) for record in caplog.records if record.exc_info]
    assert logged == [("a hook after a send to orders failed", "the inside of a hook")]


def test_a_hook_before_that_fails_is_a_defect_and_nothing_is_stored(topic: Topic, hooks: SendHooks) -> None:
    hooks.before.append(fail)
    assert topic.client.post(f"{topic.path}/messages", messages=[{"body": "a"}]).problem == (500, "Internal")
    assert topic.read()["messages"] == []


@pytest.fixture
def embedded(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("DECANT_STORE", "memory")
    monkeypatch.setattr(wiring, "parts", wiring.Parts(open_memory=lambda _: TroubledStore()))
    wiring.use(None)
    yield
    wiring.use(None)


@pytest.mark.usefixtures("embedded")
def test_hooks_are_registered_where_the_process_begins_or_later() -> None:
    calls: list[str] = []
    on_send(before=lambda *_: calls.append("before"))
    api = wiring.api()
    on_send(after=lambda *_: calls.append("after"))
    api.put_topic("t", {})
    api.produce("t", {"messages": [{"body": "a"}]})
    assert calls == ["before", "after"]


# -- traces -----------------------------------------------------------------------------------------------------------

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def traces(topic: Topic, header: str, *messages: dict[str, Any]) -> list[str | None]:
    """The traces of the messages."""
    answer = topic.client.ask("POST", f"{topic.path}/messages", {"messages": [*messages]}, traceparent=header)
    assert answer.status == 200
    return [each["properties"].get("traceparent") for each in topic.read()["messages"]]


def test_each_message_carries_the_trace_of_its_request(topic: Topic) -> None:
    assert traces(topic, PARENT, {"body": "a"}, {"body": "b", "properties": {"x": "y"}}) == [PARENT] * 2
    assert topic.read()["messages"][1]["properties"] == {"x": "y", "traceparent": PARENT}


def test_a_message_that_has_a_trace_of_its_own_keeps_it(topic: Topic) -> None:
    assert traces(topic, PARENT, {"body": "a", "properties": {"traceparent": "mine"}}) == ["mine"]


def test_a_message_with_no_room_for_it_goes_without(topic: Topic) -> None:
    assert traces(topic, PARENT, {"body": "a", "properties": {"x": "y" * 16_380}}) == [None]


def test_without_the_header_there_is_no_trace(topic: Topic) -> None:
    topic.produce("a")
    assert topic.read()["messages"][0]["properties"] == {}


@pytest.mark.parametrize("header", ["cc-" + PARENT[3:], "cc-" + PARENT[3:] + "-what.comes.later"])
def test_a_trace_of_a_later_version_is_taken_too(topic: Topic, header: str) -> None:
    assert traces(topic, header, {"body": "a"}) == [header]


@pytest.mark.parametrize(
    "header",
    [
        "",
        "00",
        PARENT.upper(),
        PARENT[:-1],
        PARENT + "-",
        PARENT + "-more",
        "ff" + PARENT[2:],
        "cc" + PARENT[2:] + "more",
        f"00-{'0' * 32}-00f067aa0ba902b7-01",
        f"00-4bf92f3577b34da6a3ce929d0e0e4736-{'0' * 16}-01",
        PARENT.replace("-", "_"),
        "00-4bf92f3577b34da6a3ce929d0e0e473g-00f067aa0ba902b7-01",
    ],
)
def test_a_malformed_header_is_ignored(topic: Topic, header: str) -> None:
    assert traces(topic, header, {"body": "a"}) == [None]


def test_programs_import_what_they_were_promised_from_one_module() -> None:
    assert {*hooks_module.__all__} == {"AfterSend", "BeforeSend", "errors", "on_send", "outbox_item"}
    assert all(hasattr(hooks_module, name) for name in hooks_module.__all__)
