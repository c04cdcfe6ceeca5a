"""Time and failure over the real routes, on each store: what the other modules show in detail on the one in memory."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from threading import Thread
from typing import Any
from uuid import uuid4

import pytest

from chalicelib import wiring
from chalicelib.api import Demand
from chalicelib.core.base.errors import StoreUnavailable, TransactionEnded
from chalicelib.core.base.limits import ENTRY_LATE_MS, HEARD_MS
from chalicelib.core.store import Outcome, Store
from chalicelib.core.store.dynamodb.expressions import outbox_put
from chalicelib.core.store.dynamodb.store import DynamoStore
from chalicelib.core.table.writes import Item, Write
from chalicelib.push.outside import ConsumerResponse
from tests.store.conftest import TABLE, dynoxide_store, memory_store, moto_store, transact
from tests.support.client import Client, Group, Json, Topic, bodies, failed
from tests.support.clock import Clock
from tests.support.consumer import Consumer
from tests.support.orders import noise
from tests.support.repeating_store import RepeatingStore
from tests.support.troubled_store import Trouble, throttled_queue, unavailable

__all__ = ["dynoxide_store", "memory_store", "moto_store"]

HOUR_MS = 3_600_000


@pytest.fixture(scope="session")
def repeating_store() -> Store:
    return RepeatingStore(keeps_blobs=True)


@pytest.fixture(params=["memory", "repeating", "moto", "dynoxide"])
def store(request: pytest.FixtureRequest) -> Store:
    found: Store = request.getfixturevalue(f"{request.param}_store")
    return found


@pytest.fixture
def client(store: Store) -> Iterator[Client]:
    """Tests share a store, and must not draw the same ids."""
    yield Client(store, seed=uuid4().int)  # type: ignore[arg-type]
    wiring.use(None)


@pytest.fixture
def topic(client: Client) -> Topic:
    return client.topic(f"t{uuid4().hex}")


@pytest.fixture
def group(topic: Topic) -> Group:
    return topic.group("billing", backoff_ms=[1_000, 5_000], max_attempts=3)


def waiting(topic: Topic) -> list[str]:
    return bodies(topic.client.get(f"{topic.path}/delayed").json["messages"])


def counted(topic: Topic) -> int:
    count: int = topic.client.get(f"{topic.path}/waiting").json["waiting"]
    return count


def cancel(topic: Topic, message: Json) -> Any:
    answer = topic.client.delete(f"{topic.path}/delayed/{message['message_id']}")
    return answer.json if answer.status == 200 else answer.problem


def test_a_delayed_message_is_listed_and_counted_then_comes_on_time(topic: Topic, group: Group, clock: Clock) -> None:
    (sent,) = topic.produce("later", delay_ms=HOUR_MS)
    assert (sent["offset"], sent["deliver_at_ms"], waiting(topic)) == (None, clock.ms + HOUR_MS, ["later"])
    assert counted(topic) == 1
    clock.sleep(HOUR_MS - 1)
    assert group.pop()["messages"] == []
    clock.sleep(1)
    assert group.take_one()["message_id"] == sent["message_id"]
    assert cancel(topic, sent) == (409, "AlreadyDelivered")
    assert (counted(topic), waiting(topic)) == (0, [])


def test_a_cancelled_message_never_comes(topic: Topic, group: Group, clock: Clock) -> None:
    (sent,) = topic.produce("later", delay_ms=1_000)
    assert cancel(topic, sent) == {"cancelled": True}
    assert cancel(topic, sent) == (404, "MessageNotFound")
    clock.sleep(1_000)
    assert group.pop()["messages"] == []


@pytest.mark.parametrize("by_retry", [False, True])
def test_a_pop_that_waits_wakes_when_something_is_due(topic: Topic, group: Group, clock: Clock, by_retry: bool) -> None:
    topic.produce("a", delay_ms=0 if by_retry else 5_000)
    if by_retry:
        group.nack(group.take_one(), delay_ms=5_000)
    due_ms = clock.ms + 5_000
    assert bodies(group.take(1, wait_ms=20_000)) == ["a"]
    assert due_ms <= clock.ms <= due_ms + 20


def test_sweeps_deliver_and_bury_though_nobody_pops(client: Client, topic: Topic, clock: Clock) -> None:
    group = topic.group("billing", max_attempts=1, invisible_ms=1_000)
    topic.produce("leased")
    group.take_one()
    topic.produce("due", delay_ms=1_000)
    clock.sleep(1_000)
    assert client.api.service.sweeps.forward().done >= 1
    assert client.api.service.sweeps.revive().done >= 1
    assert group.totals() == (1, 0, 0, 1)


def test_retries_wait_as_the_group_says_or_as_the_nack_does(topic: Topic, group: Group, clock: Clock) -> None:
    (sent,) = topic.produce("a", properties={"x": "y"})
    other = topic.group("other")
    for wait_ms, own in ((1_000, {}), (77, {"delay_ms": 77})):
        group.nack(group.take_one(), reason="no", **own)
        clock.sleep(wait_ms - 1)
        assert group.pop()["messages"] == []
        clock.sleep(1)
    last = group.take_one()
    assert (last["attempt"], last["message_id"], last["properties"]) == (3, sent["message_id"], {"x": "y"})
    group.nack(last, reason="never")
    assert group.totals() == (0, 0, 0, 1)
    assert other.take_one()["attempt"] == 1


def test_dead_letters_are_listed_redriven_buried_and_purged(client: Client, topic: Topic, group: Group) -> None:
    sent = topic.produce(*"abc")
    taken = group.take(3)
    buried = client.post(f"{group.path}/bury", receipts=[each["receipt"] for each in taken], reason="bad")
    assert buried.json == {"buried": 3, "failed": []}
    letters = client.get(f"{group.path}/dead", limit=2).json
    rest = client.get(f"{group.path}/dead", limit=2, next=letters["next"]).json
    found = letters["messages"] + rest["messages"]
    assert sorted(each["message_id"] for each in found) == sorted(each["message_id"] for each in sent)
    assert {(each["reason"], each["attempts"], each["queue"]) for each in found} == {("bad", 1, 0)}
    chosen = client.post(f"{group.path}/dead/redrive", message_ids=[sent[0]["message_id"]])
    assert chosen.json == {"redriven": 1, "remaining": 2}
    again = group.take_one()
    assert (again["body"], again["attempt"], again["offset"]) == ("a", 1, 0)
    assert client.delete(f"{group.path}/dead").json == {"purged": 2}
    assert group.totals() == (0, 1, 0, 0)


def test_redriving_all_brings_all_back(client: Client, topic: Topic, group: Group) -> None:
    topic.produce(*"ab")
    client.post(f"{group.path}/bury", receipts=[each["receipt"] for each in group.take(2)])
    assert client.post(f"{group.path}/dead/redrive").json == {"redriven": 2, "remaining": 0}
    assert sorted(bodies(group.take(1) + group.take(1))) == ["a", "b"]


def test_an_ordered_queue_waits_for_what_failed_until_that_is_dead(topic: Topic, clock: Clock) -> None:
    group = topic.group("ordered", ordered=True, backoff_ms=[1_000], max_attempts=2)
    topic.produce(*"abc")
    first = group.take(2)
    group.ack(first[1])
    group.nack(first[0])
    assert group.pop()["messages"] == []
    clock.sleep(1_000)
    again = group.take(2)
    assert [(each["body"], each["attempt"]) for each in again] == [("a", 2), ("c", 1)]
    group.nack(*again)
    clock.sleep(1_000)
    assert bodies(group.take(1)) == ["c"]
    assert group.totals()[3] == 1


def test_every_consumer_of_a_broadcast_group_gets_everything(client: Client, topic: Topic) -> None:
    group = topic.group("all", mode="broadcast")
    topic.produce(*"ab")
    for consumer in ("one", "two"):
        group.ack(*group.take(2, consumer_id=consumer))
    assert group.pop(consumer_id="one")["messages"] == []
    assert client.post(f"{group.path}/pop").problem == (400, "InvalidField")


@pytest.mark.parametrize(
    "wanted", [{"tags": ["good"]}, {"expression": "tag == 'good' && properties.region == 'eu' && key == 'k'"}]
)
def test_one_pop_looks_through_a_thousand_that_do_not_match(topic: Topic, wanted: Json) -> None:
    group = topic.group("choosy", filter=wanted)
    for _ in range(4):
        topic.produce(*["bad"] * 256, tag="bad")
    topic.produce("wanted", tag="good", key="k", properties={"region": "eu"})
    assert bodies(group.take(1)) == ["wanted"]
    assert group.totals() == (0, 1, 0, 0)


def test_the_cap_in_flight_and_the_rate_hold(client: Client, topic: Topic, clock: Clock) -> None:
    topic.produce(*["a"] * 200)
    capped = topic.group("capped", max_in_flight=3)
    assert len(capped.pop()["messages"]) == 3
    assert capped.pop()["limited"] == "in_flight"
    rated = topic.group("rated", rate_limit=20)
    instances = [rated.seen_by(client), rated.seen_by(Client(client.store, clock, client.seed + 7))]
    got = 0
    for _ in range(30):
        got += sum(len(each.pop(max_messages=5)["messages"]) for each in instances)
        clock.sleep(100)
    least = 0.2 if isinstance(client.store, RepeatingStore) else 0.8  # a repeat takes permits twice
    assert least * 60 <= got <= 1.2 * 60
    rated.change(rate_limit=1)
    assert rated.pop(max_messages=100)["limited"] == "rate"


def test_a_reset_voids_what_is_leased(topic: Topic, group: Group, clock: Clock) -> None:
    topic.produce(*"ab")
    held = group.take(2)
    group.nack(held[1])
    assert group.reset("earliest")["ready"] == 2
    assert failed(group.ack(held[0])) == ["LeaseLost"]
    assert bodies(group.take(2)) == ["a", "b"]
    clock.sleep(5_000)
    assert group.totals() == (0, 2, 0, 0)


def test_one_dedup_id_sent_by_many_at_once_is_stored_once(client: Client, topic: Topic, group: Group) -> None:
    apis = [Client(client.store, client.clock, client.seed + number).api for number in range(1, 5)]
    message: Json = {"messages": [{"body": "once", "dedup_id": "id"}]}
    ids: list[str] = []
    threads = [
        Thread(target=lambda api=api: ids.append(api.produce(topic.name, message)["messages"][0]["message_id"]))
        for api in apis
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ids.append(topic.produce("again", dedup_id="id")[0]["message_id"])
    assert ids == [ids[0]] * 5
    assert len(group.pop()["messages"]) == 1


def test_messages_are_found_by_key_and_end_with_their_retention(client: Client, clock: Clock) -> None:
    name = f"t{uuid4().hex}"
    assert client.put(f"/topics/{name}", queues=2, index_keys=True, retention_ms=60_000).status == 201
    topic = Topic(client, name)
    topic.produce("a", "b", key="k")
    topic.produce("other", key="l")
    topic.produce("later", key="k", delay_ms=30_000)
    assert bodies(topic.read(key="k")["messages"]) == ["a", "b"]
    group = topic.group("billing")
    clock.sleep(60_000)
    assert bodies(group.take(1)) == ["later"]
    assert bodies(topic.read(key="k")["messages"]) == ["later"]
    clock.sleep(60_000)
    assert topic.read(key="k")["messages"] == []


def test_queues_come_and_leave_and_return(client: Client, topic: Topic, clock: Clock) -> None:
    group = topic.group("slow")
    assert client.put(topic.path, queues=8).json["queues"] == 8
    topic.produce(*[{"body": str(queue), "queue": queue} for queue in range(8)])
    assert client.put(topic.path, queues=1).json["draining"] == [*range(1, 8)]
    clock.sleep(HEARD_MS + ENTRY_LATE_MS + 1)
    client.api.service.sweeps.check()
    assert client.put(topic.path, queues=8).problem == (409, "QueuesDraining")
    taken = [message for _ in range(8) for message in group.take(1)]
    assert sorted(bodies(taken)) == [str(queue) for queue in range(8)]
    group.ack(*taken)
    client.api.service.sweeps.check()
    assert len(topic.details()["queue_offsets"]) == 1
    assert sorted(bodies(topic.read()["messages"])) == sorted(bodies(taken))
    assert client.put(topic.path, queues=8).status == 200
    assert [made["offset"] for made in topic.produce("again", queue=7)] == [1]
    assert bodies(group.take(1)) == ["again"]
    topic.delete()


def test_an_alarm_sends_a_message_when_it_is_raised_and_when_it_clears(
    client: Client, topic: Topic, clock: Clock
) -> None:
    group = topic.group("billing", alarm={"ready": 2})
    client.put("/topics/decant.alarms")
    own = {"expression": f"key == '{topic.name}/billing'"}
    desk = Topic(client, "decant.alarms").group(topic.name, start="latest", filter=own)
    topic.produce("a", "b")
    for state, ready in (("raised", 2), ("cleared", 0)):
        clock.sleep(1_000)
        client.api.service.sweeps.check()
        client.api.service.sweeps.check()
        assert group.progress()["alarm_state"] == state
        told = desk.take_one()
        assert (told["tag"], json.loads(told["body"])["ready"]) == (state, ready)
        assert desk.pop(ack=[told["receipt"]])["messages"] == []
        group.pop()  # what is leased is not ready


class Throttled:
    """A store, of which some writes are throttled."""

    def __init__(self, inner: Store) -> None:
        self.trouble: Trouble = unavailable()
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def write(self, write: Write) -> Item:
        if trouble := self.trouble("write", write):
            raise trouble
        return self._inner.write(write)

    def write_each(self, writes: Sequence[Write]) -> list[Outcome]:
        return [self._outcome_of(write) for write in writes]

    def _outcome_of(self, write: Write) -> Outcome:
        trouble = self.trouble("write", write)
        return trouble if isinstance(trouble, StoreUnavailable) else self._inner.write_each([write])[0]


def test_an_unkeyed_message_goes_to_another_queue_while_one_is_throttled(store: Store, clock: Clock) -> None:
    throttled = Throttled(store)
    client = Client(throttled, clock, seed=uuid4().int)  # type: ignore[arg-type]
    topic = client.topic(f"t{uuid4().hex}", queues=2)
    queue = topic.produce("a")[0]["queue"]
    throttled.trouble = throttled_queue(queue)
    assert topic.produce("b")[0]["queue"] == 1 - queue
    batch = [{"body": "not stored", "queue": queue}, {"body": "c"}]
    partly = client.post(f"{topic.path}/messages", messages=batch)
    assert (partly.status, partly.json["messages"][1]["queue"]) == (207, 1 - queue)
    throttled.trouble = unavailable()
    assert topic.produce("d")[0]["queue"] == 1 - queue
    group = topic.group("billing")
    found = [bodies(group.pop()["messages"]) for _ in range(3)]
    assert sorted(found) == [[], ["a"], ["b", "c", "d"]]


def test_a_message_sent_in_a_callers_transaction_is_delivered_on_commit(
    store: Store, client: Client, topic: Topic, group: Group
) -> None:
    item = client.api.outbox_item(topic.name, {"body": "paid", "key": "k"})
    assert group.pop()["messages"] == []
    if isinstance(store, DynamoStore):
        transact(store, [outbox_put(TABLE, item)])
    else:
        store.put_all([item])
    message = group.take_one()
    assert (message["body"], message["key"], message["attempt"]) == ("paid", "k", 1)
    group.ack(message)
    assert group.totals() == (0, 0, 0, 0)


def begun(topic: Topic, *messages: Json, **fields: Any) -> str:
    answer = topic.client.post(f"{topic.path}/transactions", messages=list(messages), **fields)
    assert answer.status == 201, answer.json
    transaction_id: str = answer.json["transaction_id"]
    return transaction_id


def decided(topic: Topic, transaction_id: str, verb: str) -> Any:
    answer = topic.client.post(f"{topic.path}/transactions/{transaction_id}/{verb}")
    return answer.json if answer.status == 200 else answer.problem


def undecided(topic: Topic) -> list[str]:
    return [each["transaction_id"] for each in topic.client.get(f"{topic.path}/transactions").json["transactions"]]


def test_a_full_transaction_comes_whole_when_it_is_committed(client: Client) -> None:
    topic = client.topic(f"t{uuid4().hex}", queues=3)
    group = topic.group("billing")
    batch: list[Json] = [{"body": f"{number}".ljust(3_000, "x"), "queue": number % 3} for number in range(32)]
    half = begun(topic, *batch)
    assert (group.pop()["messages"], undecided(topic)) == ([], [half])
    placed = decided(topic, half, "commit")["messages"]
    assert [(each["queue"], each["offset"]) for each in placed] == [(number % 3, number // 3) for number in range(32)]
    came = [each for _ in range(3) for each in group.pop(max_messages=32)["messages"]]
    assert sorted(bodies(came)) == sorted(bodies(batch))
    assert decided(topic, half, "commit") == {"messages": placed}
    assert decided(topic, half, "rollback") == (409, "TransactionEnded")
    assert undecided(topic) == []


def test_a_transaction_that_is_rolled_back_or_forgotten_never_comes(topic: Topic, group: Group, clock: Clock) -> None:
    dropped, late = begun(topic, {"body": "a" * 3_000}), begun(topic, {"body": "b"}, rollback_after_ms=1_000)
    assert decided(topic, dropped, "rollback") == {}
    clock.sleep(1_000)
    assert undecided(topic) == []
    assert decided(topic, late, "commit") == decided(topic, dropped, "commit") == (409, "TransactionEnded")
    assert (decided(topic, late, "rollback"), group.pop()["messages"]) == ({}, [])
    assert decided(topic, "unknown", "commit") == (404, "TransactionNotFound")


def test_checks_of_two_instances_share_what_is_undecided(client: Client, topic: Topic, clock: Clock) -> None:
    halves = [begun(topic, {"body": "a", "queue": 0}, check_after_ms=1_000) for _ in range(4)]
    clock.sleep(1_000)
    apis = [client.api, Client(client.store, clock, client.seed + 3).api]
    told: list[str] = []
    threads = [
        Thread(
            target=lambda api=api: told.extend(
                each["transaction_id"] for each in api.check_transactions(topic.name, {"max": 2})["transactions"]
            )
        )
        for api in apis
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    told += [each["transaction_id"] for each in client.api.check_transactions(topic.name)["transactions"]]
    assert sorted(told) == sorted(halves), "the slower one may have met only some that were left"
    assert client.api.check_transactions(topic.name)["transactions"] == []


def test_of_a_commit_and_a_rollback_at_once_one_wins(client: Client, topic: Topic, group: Group) -> None:
    apis = [Client(client.store, client.clock, client.seed + number).api for number in range(1, 4)]
    for _ in range(5):
        half = begun(topic, {"body": "a"}, {"body": "b"})
        verbs = [apis[0].commit_transaction, apis[1].rollback_transaction, apis[2].commit_transaction]
        told: list[Any] = []

        def decide(act: Any, half: str = half, told: list[Any] = told) -> None:
            try:
                told.append(act(topic.name, half))
            except TransactionEnded:
                told.append(None)

        threads = [Thread(target=decide, args=(verb,)) for verb in verbs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        committed = [answer for answer in told if answer]
        came = group.pop()["messages"]
        group.ack(*came) if came else None
        assert bodies(came) == (["a", "b"] if committed else [])
        assert told.count(None) == (1 if committed else 2)
        assert all(answer == committed[0] for answer in committed)


def test_a_group_is_pushed_and_a_failing_consumer_slows_down(client: Client, topic: Topic, clock: Clock) -> None:
    consumer = Consumer([ConsumerResponse(500)])
    pushing = Client(client.store, clock, uuid4().int, consumer.outside())
    group = Topic(pushing, topic.name).group("called", push={"url": "https://a.example/", "batch": 2}, backoff_ms=[900])
    secret_id = pushing.post(f"{group.path}/push/secrets").json["secret_id"]
    topic.produce("a", "b", "c")
    began_ms = clock.ms
    pushing.api.service.pushing.run(topic.name)
    assert consumer.bodies == [["a", "b"], ["a", "b"], ["c"]]
    assert clock.ms >= began_ms + 900
    assert all("webhook-signature" in call.headers for call in consumer.calls)
    assert group.totals() == (0, 0, 0, 0)
    assert pushing.delete(f"{group.path}/push/secrets/{secret_id}").status == 204


def test_a_request_is_answered_through_another_instance_or_times_out(topic: Topic, group: Group, clock: Clock) -> None:
    other = group.seen_by(topic.client.another())
    answers: list[Any] = []

    def answer() -> None:
        request = other.take_one()
        path = f"/requests/{request['correlation_id']}/reply"
        answers.extend(other.client.post(path, body=body, receipt=request["receipt"]) for body in ("4", "4", "5"))

    clock.at(clock.ms + 300, answer)
    asked = topic.client.post(f"{topic.path}/requests", body="2 + 2?")
    assert asked.json["reply"]["body"] == "4"
    assert asked.json["reply"]["replied_at_ms"] <= clock.ms <= asked.json["reply"]["replied_at_ms"] + 30
    assert [each.json.get("acked", each.json.get("code")) for each in answers] == [1, 1, "AlreadyReplied"]
    assert group.totals() == (0, 0, 0, 0)
    late = topic.client.post(f"{topic.path}/requests", body="and now?", timeout_ms=500)
    assert late.problem == (504, "ReplyTimeout")
    path = f"/requests/{late.json['correlation_id']}"
    clock.set_back_ms = 500
    assert other.client.post(f"{path}/reply", body="late").problem == (410, "RequestExpired")
    assert other.client.get(path).problem == (504, "ReplyTimeout")


def test_a_reply_of_any_size_comes_out_as_it_went_in(topic: Topic) -> None:
    for size in (1, 300_000, 1_000_000):
        correlation_id = topic.client.post(f"{topic.path}/requests", body="a", wait_ms=0).json["correlation_id"]
        body = noise(1, size, size)[0]
        assert topic.client.post(f"/requests/{correlation_id}/reply", body=body, properties={"é": ""}).status == 201
        reply = topic.client.another().get(f"/requests/{correlation_id}").json["reply"]
        assert (reply["body"], reply["properties"]) == (body, {"é": ""})


def test_a_full_queue_refuses_and_takes_again_once_it_is_drained(client: Client, topic: Topic, group: Group) -> None:
    assert client.put(topic.path, max_depth=2).status == 200
    client.clock.sleep(6_000)
    topic.produce("a")
    topic.produce("b", dedup_id="b")
    refused = client.post(f"{topic.path}/messages", messages=[{"body": "c", "key": "k"}])
    assert refused.problem == (429, "QueueFull")
    again = client.post(f"{topic.path}/messages", messages=[{"body": "b", "dedup_id": "b"}, {"body": "c"}])
    assert (again.status, again.json["messages"][0]["offset"]) == (207, 1)
    group.ack(*group.take(2))
    client.clock.sleep(1_000)
    assert topic.produce("c")[0]["offset"] == 2


def test_a_zone_is_taken_over_when_its_consumers_are_gone_and_given_back(client: Client, clock: Clock) -> None:
    name = f"t{uuid4().hex}"
    assert client.put(f"/topics/{name}", queues=2, zones={"a": [0], "b": [1]}).status == 201
    topic = Topic(client, name)
    group = topic.group("billing")
    assert {message["queue"] for message in topic.produce(*["x"] * 9, zone="b")} == {1}
    group.take_one(zone="b")
    assert group.pop(zone="a")["messages"] == []
    clock.sleep(5_000)
    group.take_one(zone="a")
    group.take_one(zone="a")
    group.take_one(zone="b")
    assert group.pop(zone="a")["messages"] == []


def test_a_traced_message_tells_who_had_it(topic: Topic, group: Group) -> None:
    assert topic.client.put(topic.path, trace=True).status == 200
    topic.client.clock.sleep(HEARD_MS)
    (sent,) = topic.produce("a")
    group.nack(group.take_one(consumer_id="ann"), reason="no stock", delay_ms=0)
    trace = topic.client.get(f"{topic.path}/messages/{sent['message_id']}/trace").json
    [told] = trace["groups"]
    assert (told["state"], told["attempts"]) == ("ready", 1)
    assert [(event["event"], event.get("consumer_id")) for event in told["events"]] == [
        ("popped", "ann"),
        ("nacked", None),
    ]


def test_a_log_line_tells_what_the_store_charged(topic: Topic, group: Group) -> None:
    topic.produce("first")
    lines: list[str] = []
    topic.client.api.service.telemetry.log_to(lines.append)
    topic.produce("a")
    group.take(2)
    produced, popped = map(json.loads, lines)
    assert produced["store_calls"] == 1
    assert produced["write_units"] in (1, 0.5, 2)  # moto only estimates, and a repeat costs as much again
    assert popped["store_calls"] >= 2
    assert popped["read_units"] > 0


def test_a_token_is_made_rotated_and_deleted_on_every_store(client: Client) -> None:
    guarded = Client(client.store, client.clock, client.seed + 7, demand=Demand(requests=True))
    old = guarded.make_token()
    path = f"/tokens/{old.split('_')[1]}"
    guarded.token = old
    new = guarded.post(f"{path}/rotate", old_valid_ms=1_000).json["token"]
    got = [token for token in guarded.get("/tokens", limit=1_000).json["tokens"] if token["token_id"] in path]
    assert got == [guarded.get(path).json]
    assert [outcome(guarded, token) for token in (old, new, old[:-4] + "AAAA")] == [200, 200, 401]
    client.clock.sleep(1_000)
    assert [outcome(guarded, token) for token in (old, new)] == [401, 200]
    guarded.token = new
    assert [guarded.delete(path).status, guarded.delete(path).status] == [204, 401]


def outcome(guarded: Client, token: str) -> int:
    return guarded.ask("GET", "/topics", query={"limit": 1}, authorization=f"Bearer {token}").status
