"""Responses when the store fails, or when the service has a defect."""

from __future__ import annotations

import logging
import random
from typing import Any

import pytest

from chalicelib import VERSION
from chalicelib.core.base.errors import StoreUnavailable
from chalicelib.core.store import Keys
from chalicelib.doors import dispatch
from chalicelib.doors.dispatch import DoorError
from chalicelib.doors.http.exchange import Response, refusal
from tests.support.client import Answer, Client, Group, Json, Topic, bodies, receipts
from tests.support.clock import Clock
from tests.support.troubled_store import (
    Trouble,
    TroubledStore,
    broken,
    from_request,
    throttled_queue,
    unavailable,
    unknown,
)

REQUESTS = [
    ("GET", "/topics", None),
    ("PUT", "/topics/others", {}),
    ("GET", "/topics/orders", None),
    ("DELETE", "/topics/orders", None),
    ("POST", "/topics/orders/messages", {"messages": [{"body": "a"}]}),
    ("POST", "/topics/orders/requests", {"body": "a", "wait_ms": 0}),
    ("POST", "/topics/orders/transactions", {"messages": [{"body": "a"}]}),
    ("GET", "/topics/orders/messages", None),
    ("GET", "/topics/orders/messages/0123456789abcdef000", None),
    ("GET", "/topics/orders/groups", None),
    ("PUT", "/topics/orders/groups/others", {}),
    ("PUT", "/topics/orders/groups/billing", {"paused": True}),
    ("GET", "/topics/orders/groups/billing", None),
    ("DELETE", "/topics/orders/groups/billing", None),
    ("POST", "/topics/orders/groups/billing/pop", {}),
    ("POST", "/topics/orders/groups/billing/ack", {"receipts": "taken"}),
    ("POST", "/topics/orders/groups/billing/nack", {"receipts": "taken"}),
    ("POST", "/topics/orders/groups/billing/extend", {"receipts": "taken", "invisible_ms": 5}),
    ("POST", "/topics/orders/groups/billing/reset", {"to": "latest"}),
    ("GET", "/health", None),
]
WRITES = [request for request in REQUESTS if request[0] != "GET"]
POP_WITH_ACK = ("POST", "/topics/orders/groups/billing/pop", {"ack": "taken"})


@pytest.fixture
def taken(topic: Topic, group: Group) -> list[str]:
    topic.produce("a", "b")
    return receipts(group.take_one())


def ask(client: Client, method: str, path: str, body: dict[str, Any] | None, taken: list[str]) -> Answer:
    sent = {name: taken if value == "taken" else value for name, value in body.items()} if body else body
    return client.ask(method, path, sent)


def demand_unavailable(answer: Answer) -> dict[str, Any]:
    assert answer.problem == (503, "StoreUnavailable")
    assert int(answer.headers["Retry-After"]) >= 1
    body: dict[str, Any] = answer.json
    return body


def test_a_bad_message_is_refused_as_such_while_the_store_is_away(topic: Topic, store: TroubledStore) -> None:
    topic.produce("a")
    store.before = unavailable("read")
    answer = topic.client.post(f"{topic.path}/messages", messages=[{"body": "b", "queue": 7}])
    assert answer.problem == (400, "InvalidField")


# -- the store is not available ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("method", "path", "body"), REQUESTS)
def test_a_store_that_throttles_everything_is_503_and_nothing_has_changed(
    store: TroubledStore, client: Client, taken: list[str], method: str, path: str, body: dict[str, Any] | None
) -> None:
    before = snapshot(store)
    store.before = unavailable("read", "write", "write_together", "put_all", "remove_all")
    trouble = demand_unavailable(ask(client, method, path, body, taken))
    if method == "GET":
        assert "outcome" not in trouble
    assert snapshot(store) == before


@pytest.mark.parametrize("number", range(1, 8))
@pytest.mark.parametrize(("method", "path", "body"), [*WRITES, POP_WITH_ACK])
def test_a_call_that_fails_after_a_change_has_an_unknown_outcome(
    store: TroubledStore,
    client: Client,
    topic: Topic,
    taken: list[str],
    method: str,
    path: str,
    body: dict[str, Any] | None,
    number: int,
) -> None:
    topic.produce(random.Random(1).randbytes(50_000).hex())
    before = snapshot(store)
    store.before = from_request(number)
    answer = ask(client, method, path, body, taken)
    if answer.status == 503:
        assert (demand_unavailable(answer).get("outcome") == "unknown") == (snapshot(store) != before)


@pytest.mark.parametrize(("method", "path", "body"), WRITES)
def test_a_write_whose_answer_is_lost_is_503_with_outcome_unknown(
    store: TroubledStore, client: Client, taken: list[str], method: str, path: str, body: dict[str, Any] | None
) -> None:
    store.after = unknown("write", "write_together")
    trouble = demand_unavailable(ask(client, method, path, body, taken))
    assert trouble["outcome"] == "unknown"


@pytest.mark.parametrize(("method", "path", "body"), REQUESTS)
def test_the_service_works_again_once_the_store_does(
    store: TroubledStore, client: Client, taken: list[str], method: str, path: str, body: dict[str, Any] | None
) -> None:
    store.before = unavailable("read", "write", "write_together")
    ask(client, method, path, body, taken)
    store.before = unavailable()
    assert ask(client, method, path, body, taken).status in (200, 201, 202, 204, 404)


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("PUT", "/topics/others", {"queues": 2}, 200),
        ("PUT", "/topics/orders/groups/others", {}, 200),
        ("PUT", "/topics/orders/groups/billing", {"paused": True}, 200),
        ("DELETE", "/topics/orders", None, 204),
        ("DELETE", "/topics/orders/groups/billing", None, 204),
        ("POST", "/topics/orders/groups/billing/ack", {"receipts": "taken"}, 200),
        ("POST", "/topics/orders/groups/billing/reset", {"to": "earliest"}, 200),
    ],
)
def test_repeating_a_request_whose_answer_was_lost_ends_where_it_should(
    store: TroubledStore, client: Client, taken: list[str], method: str, path: str, body: Any, status: int
) -> None:
    store.after = unknown("write", "write_together")
    ask(client, method, path, body, taken)
    store.after = unavailable()
    answers = [ask(client, method, path, body, taken) for _ in range(4)]
    if method == "DELETE":
        assert {answer.status for answer in answers} <= {204, 404}
        assert answers[-1].status == 404
    else:
        assert answers[-1].status == status


def test_a_produce_whose_payload_could_not_be_stored_has_stored_nothing(
    store: TroubledStore, client: Client, topic: Topic
) -> None:
    store.before = unavailable("put_all")
    answer = client.post(f"{topic.path}/messages", messages=[{"body": random.Random(1).randbytes(50_000).hex()}])
    assert "outcome" not in demand_unavailable(answer)
    store.before = unavailable()
    assert topic.read()["messages"] == []


def test_a_produce_with_an_unknown_outcome_stores_all_or_nothing(
    store: TroubledStore, client: Client, topic: Topic
) -> None:
    path = f"{topic.path}/messages"
    store.after = unknown("write")
    assert demand_unavailable(client.post(path, messages=[{"body": "a"}]))["outcome"] == "unknown"
    store.after, store.before = unavailable(), unknown("write")
    assert demand_unavailable(client.post(path, messages=[{"body": "b"}]))["outcome"] == "unknown"
    store.before = unavailable()
    topic.produce("c")
    assert bodies(topic.read()["messages"]) == ["a", "c"]


def test_messages_leased_by_a_failed_pop_come_back_by_themselves(
    store: TroubledStore, client: Client, topic: Topic, group: Group
) -> None:
    topic.produce("a")
    group.ack(group.take_one())
    topic.produce("b")
    store.after = unknown("write")
    assert demand_unavailable(client.post(f"{group.path}/pop"))["outcome"] == "unknown"
    store.after = unavailable()
    assert group.totals() == (0, 1, 0, 0)
    client.clock.sleep(30_000)
    assert group.take_one()["attempt"] == 2


def test_messages_whose_payload_a_pop_could_not_read_come_back(
    store: TroubledStore, client: Client, topic: Topic, group: Group
) -> None:
    topic.produce("a")
    group.ack(group.take_one())
    topic.produce(random.Random(1).randbytes(50_000).hex())
    store.before = _failing_payload
    demand_unavailable(client.post(f"{group.path}/pop"))
    store.before = unavailable()
    assert group.totals() == (0, 0, 1, 0)
    client.clock.sleep(1_000)
    assert group.take_one()["attempt"] == 1


def test_a_pop_that_could_not_read_says_so_though_others_have_nothing(
    store: TroubledStore, client: Client, clock: Clock
) -> None:
    topic = client.topic("orders", queues=2)
    group = topic.group("billing")
    other = group.seen_by(client.another())
    topic.produce(random.Random(1).randbytes(50_000).hex(), queue=0)
    clock.sleep(1)
    topic.produce("x", queue=1)

    taken: list[Json] = []

    def meanwhile(verb: str, about: Any) -> Exception | None:
        trouble = _failing_payload(verb, about)
        if trouble and not taken:
            store.before = unavailable()
            taken.append(other.take_one())
            store.before = meanwhile
        return trouble

    store.before = meanwhile
    demand_unavailable(client.post(f"{group.path}/pop"))


def test_a_pop_goes_on_to_the_next_queue_however_long_the_first_took(
    store: TroubledStore, client: Client, clock: Clock
) -> None:
    topic = client.topic("orders", queues=2)
    group = topic.group("billing")
    other = group.seen_by(client.another())
    for queue in (0, 1):
        topic.produce("a", queue=queue)
        clock.sleep(1)

    def meanwhile(verb: str, about: Any) -> None:
        if verb == "write" and "cursor#" in about.key.sk:
            store.before = unavailable()
            other.take_one()
            clock.sleep(2_000)

    store.before = meanwhile
    assert group.take_one()["queue"] == 1


def test_an_attempt_that_failed_is_repeated_and_loses_nothing(
    store: TroubledStore, client: Client, topic: Topic, group: Group
) -> None:
    topic.produce("a", "b", "c")
    group.ack(group.take_one())
    store.after = unknown("write")
    demand_unavailable(client.post(f"{group.path}/pop", attempt_id="x"))
    store.after = unavailable()
    assert [(each["body"], each["attempt"]) for each in group.take(2, attempt_id="x")] == [("b", 1), ("c", 1)]


def test_an_ack_that_fails_in_one_of_two_queues_is_503_and_repeatable(store: TroubledStore, client: Client) -> None:
    topic = client.topic("orders", queues=2)
    group = topic.group("billing")
    for queue in (0, 1):
        topic.produce("a", queue=queue)
    held = receipts(group.take_one(), group.take_one())
    store.before = _failing_cursor(0)
    assert demand_unavailable(client.post(f"{group.path}/ack", receipts=held))["outcome"] == "unknown"
    store.before = unavailable()
    assert group.ack(*held) == {"acked": 2, "failed": []}
    assert group.totals() == (0, 0, 0, 0)


# -- one of several queues fails --------------------------------------------------------------------------------------


@pytest.fixture
def two_queues(client: Client) -> Topic:
    return client.topic("pairs", queues=2)


BATCH = [{"body": "a", "queue": 0}, {"body": "b", "queue": 1}, {"body": "c", "queue": 0}, {"body": "d", "queue": 1}]


@pytest.mark.parametrize("prefer", ["", "return=minimal"])
def test_a_produce_that_fails_in_one_of_two_queues_is_207_with_results(
    store: TroubledStore, client: Client, two_queues: Topic, prefer: str
) -> None:
    store.before = throttled_queue(1)
    answer = client.ask("POST", f"{two_queues.path}/messages", {"messages": BATCH}, prefer=prefer)
    assert answer.status == 207
    first, second, third, fourth = answer.json["messages"]
    assert [(each["queue"], each["offset"]) for each in (first, third)] == [(0, 0), (0, 1)]
    for each in (second, fourth):
        assert each == {"error": {"code": "StoreUnavailable", "detail": "the store throttled"}}
    store.before = unavailable()
    assert bodies(two_queues.read()["messages"]) == ["a", "c"]


def test_a_failed_entry_whose_outcome_is_unknown_says_so(
    store: TroubledStore, client: Client, two_queues: Topic
) -> None:
    store.after = throttled_queue(0, outcome="unknown")
    answer = client.post(f"{two_queues.path}/messages", messages=BATCH)
    assert answer.status == 207
    assert [each.get("error", {}).get("outcome") for each in answer.json["messages"]] == ["unknown", None] * 2


def test_when_all_queues_fail_the_answer_is_503(store: TroubledStore, client: Client, two_queues: Topic) -> None:
    store.before = unavailable("write")
    assert "outcome" not in demand_unavailable(client.post(f"{two_queues.path}/messages", messages=BATCH))
    store.before = unavailable()
    assert two_queues.read()["messages"] == []


def test_a_produce_that_may_have_stored_something_has_an_unknown_outcome(
    store: TroubledStore, client: Client, two_queues: Topic
) -> None:
    store.before, store.after = throttled_queue(0), throttled_queue(1, outcome="unknown")
    answer = client.post(f"{two_queues.path}/messages", messages=BATCH)
    assert demand_unavailable(answer)["outcome"] == "unknown"


# -- a defect ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("method", "path", "body"), REQUESTS)
def test_a_defect_is_500_with_an_id_from_the_log_and_no_internals(
    store: TroubledStore,
    client: Client,
    taken: list[str],
    caplog: pytest.LogCaptureFixture,
    method: str,
    path: str,
    body: dict[str, Any] | None,
) -> None:
    store.before = broken("the secret inside")
    with caplog.at_level(logging.ERROR):
        answer = ask(client, method, path, body, taken)
    assert answer.problem == (500, "Internal")
    assert set(answer.json) == {"type", "title", "status", "code", "detail"}
    assert b"secret" not in answer.raw
    assert b"RuntimeError" not in answer.raw
    logged = [record for record in caplog.records if record.exc_info and "the secret inside" in str(record.exc_info[1])]
    assert len(logged) == 1
    defect = logged[0].getMessage().split()[-1]
    assert len(defect) >= 16
    assert defect in answer.json["detail"]


def test_two_defects_have_two_ids(store: TroubledStore, client: Client) -> None:
    store.before = broken("the inside")
    assert client.get("/topics").json["detail"] != client.get("/topics").json["detail"]


# -- health -----------------------------------------------------------------------------------------------------------


def test_health_says_whether_the_store_answers(store: TroubledStore, client: Client) -> None:
    assert (client.get("/health").status, client.get("/health").json) == (200, {"status": "ok", "version": VERSION})
    store.before = unavailable("read")
    demand_unavailable(client.get("/health"))


def snapshot(store: TroubledStore) -> dict[str, Any]:
    return {pk: dict(items) for pk, items in store._items.items() if items}


def _failing_cursor(queue: int) -> Trouble:
    def trouble(verb: str, about: Any) -> Exception | None:
        is_it = verb == "write" and about.key.sk.startswith("cursor#") and about.key.sk.endswith(f"#{queue:03}")
        return StoreUnavailable("the store throttled") if is_it else None

    return trouble


def test_a_queue_whose_keys_cannot_be_read_does_not_hold_up_others(store: TroubledStore, client: Client) -> None:
    topic = client.topic("keyed", queues=2)
    group = topic.group("g", ordered="key")
    topic.produce(random.Random(1).randbytes(3_000).hex(), queue=0)
    store.before = _failing_payload
    assert client.post(f"{group.path}/pop").status == 503
    topic.produce("small", queue=1)
    assert [message["body"] for message in group.take(1)] == ["small"]
    store.before = unavailable()
    assert len(group.take(1)[0]["body"]) == 6_000


def _failing_payload(verb: str, about: Any) -> Exception | None:
    wanted = [key for read in about if isinstance(read, Keys) for key in read.keys] if verb == "read" else []
    is_it = any(key.pk.startswith("payload#") for key in wanted)
    return StoreUnavailable("the store throttled") if is_it else None


def test_an_error_of_another_door_is_a_defect(caplog: pytest.LogCaptureFixture) -> None:
    def strays() -> Response:
        raise DoorError("QueueDoesNotExist", "no queue")

    refused = dispatch.guarded(strays, refusal)
    assert (refused.status, "QueueDoesNotExist" in refused.text) == (500, False)
    assert "no queue" in caplog.text
