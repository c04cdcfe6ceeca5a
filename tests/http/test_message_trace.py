"""A message's trace: where it stands in each group and, in a topic with `trace`, how it got there."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.api import Demand
from chalicelib.core.base import deadline
from chalicelib.core.base.limits import HOP_MS_MIN, TAKEOVERS_MAX
from chalicelib.core.consuming import events
from chalicelib.core.cursors import retries
from chalicelib.core.reading import trace
from tests.support.client import Client, Group, Json, Topic, failed
from tests.support.clock import START_MS, Clock
from tests.support.consumer import Consumer
from tests.support.troubled_store import TroubledStore, unavailable, unknown


@pytest.fixture
def topic(client: Client) -> Topic:
    assert client.put("/topics/orders", queues=1, trace=True).json["trace"] is True
    return Topic(client, "orders")


@pytest.fixture
def group(topic: Topic) -> Group:
    return topic.group("billing", max_attempts=2)


def traced(topic: Topic, message: Json) -> Json:
    answer = topic.client.get(f"{topic.path}/messages/{message['message_id']}/trace")
    assert answer.status == 200, answer.json
    told: Json = answer.json
    return told


def standing(group: Group, message: Json) -> Json:
    [own] = [each for each in traced(group.topic, message)["groups"] if each["group"] == group.name]
    found: Json = own
    return found


def told(group: Group, message: Json) -> list[str]:
    return [event["event"] for event in standing(group, message)["events"]]


def test_a_trace_tells_everything_in_its_order(topic: Topic, group: Group, clock: Clock) -> None:
    topic.group("audit")
    (sent,) = topic.produce("a")
    clock.sleep(100)
    first = group.take_one(consumer_id="ann", invisible_ms=1_000)
    clock.sleep(100)
    group.nack(first, reason="no stock", delay_ms=500)
    clock.sleep(500)
    again = group.take_one(consumer_id="bob", invisible_ms=1_000)
    clock.sleep(100)
    group.ack(again)
    popped = {"event": "popped", "at_ms": START_MS + 100, "attempt": 1, "consumer_id": "ann"}
    popped_again = {"event": "popped", "at_ms": START_MS + 700, "attempt": 2, "consumer_id": "bob"}
    assert traced(topic, sent) == {
        "message_id": sent["message_id"],
        "topic": "orders",
        "queue": 0,
        "offset": 0,
        "stored_at_ms": START_MS,
        "traced": True,
        "complete": True,
        "groups": [
            {"group": "audit", "consumer_id": None, "state": "ready", "attempts": None, "until_ms": None, "events": []},
            {
                "group": "billing",
                "consumer_id": None,
                "state": "settled",
                "attempts": None,
                "until_ms": None,
                "events": [
                    {**popped, "invisible_until_ms": START_MS + 1_100},
                    {"event": "nacked", "at_ms": START_MS + 200, "attempt": 1, "reason": "no stock"},
                    {**popped_again, "invisible_until_ms": START_MS + 1_700},
                    {"event": "acked", "at_ms": START_MS + 800, "attempt": 2},
                ],
            },
        ],
    }


def test_each_state_is_told(topic: Topic, group: Group, clock: Clock) -> None:
    (sent,) = topic.produce("a")
    names = ("state", "attempts", "until_ms")

    def state() -> list[Any]:
        return [standing(group, sent)[name] for name in names]

    assert state() == ["ready", None, None]
    first = group.take_one(invisible_ms=1_000)
    assert state() == ["in_flight", 1, clock.ms + 1_000]
    group.nack(first, delay_ms=60_000)
    assert state() == ["retrying", 1, clock.ms + 60_000]
    clock.sleep(60_000)
    assert state() == ["ready", 1, None]
    group.nack(group.take_one(), reason="still no stock")
    assert state() == ["dead", 2, None]
    dead = {"event": "dead", "at_ms": clock.ms, "attempt": 2, "reason": "still no stock"}
    assert standing(group, sent)["events"][-1] == dead
    topic.client.post(f"{group.path}/dead/redrive")
    assert state() == ["ready", 0, None]
    group.ack(group.take_one())
    assert state() == ["settled", None, None]


def test_a_dead_message_that_a_reset_makes_ready_is_told_as_ready(topic: Topic, group: Group) -> None:
    (sent,) = topic.produce("a")
    topic.client.post(f"{group.path}/bury", receipts=[group.take_one()["receipt"]])
    group.reset("earliest")
    assert standing(group, sent)["state"] == "ready"
    group.take_one()
    assert standing(group, sent)["state"] == "in_flight"


def test_a_lease_that_expires_for_good_is_told_as_dead(topic: Topic, clock: Clock) -> None:
    group = topic.group("strict", max_attempts=1)
    (sent,) = topic.produce("a")
    group.take_one(invisible_ms=1)
    clock.sleep(1)
    assert group.pop()["messages"] == []
    assert [event.get("reason") for event in standing(group, sent)["events"]] == [None, "the lease expired"]
    assert told(group, sent) == ["popped", "dead"]


def test_extending_burying_and_acks_in_pops_are_told(topic: Topic, group: Group) -> None:
    one, other = topic.produce("a", "b")
    taken = group.take(2)
    [longer] = group.extend(taken[0])["extended"]
    assert standing(group, one)["events"][-1]["invisible_until_ms"] == longer["invisible_until_ms"]
    group.pop(ack=[longer["new_receipt"]])
    topic.client.post(f"{group.path}/bury", receipts=[taken[1]["receipt"]], reason="poison")
    assert told(group, one) == ["popped", "extended", "acked"]
    assert told(group, other) == ["popped", "buried", "dead"]
    assert standing(group, other)["events"][1]["reason"] == "poison"


def test_a_trace_tells_of_each_lease_of_a_pop_when_it_ends(topic: Topic, store: TroubledStore, clock: Clock) -> None:
    group = topic.group("billing", invisible_ms=1_000)
    sent = topic.produce(*["a"] * 2 * (TAKEOVERS_MAX + 1))
    taken = [group.take_one() for _ in sent]
    group.ack(*taken[1::2])
    clock.sleep(1_000)
    store.before = lambda verb, _about: clock.sleep(1) if verb == "write" else None
    again = group.take(TAKEOVERS_MAX + 1)
    first, last = again[0], again[-1]
    assert first["invisible_until_ms"] < last["invisible_until_ms"]
    for message in (first, last):
        assert standing(group, message)["events"][-1]["invisible_until_ms"] == message["invisible_until_ms"]


def test_what_is_done_with_a_part_of_a_later_delivery_is_told_of_that(topic: Topic, clock: Clock) -> None:
    group = topic.group("g", settle_by="message", invisible_ms=1_000)
    sent, _ = topic.produce("a", "b")
    old, _ = group.take(2)
    clock.sleep(1_000)
    group.take(2)
    [longer] = group.extend(old)["extended"]
    group.ack(longer["new_receipt"])
    events = standing(group, sent)["events"]
    assert [event["attempt"] for event in events if event["event"] == "acked"] == [2]


@pytest.mark.parametrize(
    ("verb", "about"), [("ack", {}), ("nack", {}), ("bury", {}), ("extend", {"invisible_ms": 60_000})]
)
def test_an_old_receipt_that_counts_is_told_as_the_delivery_it_ends(
    topic: Topic, clock: Clock, verb: str, about: Json
) -> None:
    group = topic.group("g", settle_by="message", invisible_ms=1_000)
    sent, _ = topic.produce("a", "b")
    old, _ = group.take(2)
    clock.sleep(1_000)
    group.take(2)
    topic.client.post(f"{group.path}/{verb}", receipts=[old["receipt"]], **about)
    assert standing(group, sent)["events"][2]["attempt"] == 2


def test_a_receipt_that_does_not_count_is_no_event(topic: Topic, group: Group, clock: Clock) -> None:
    (sent,) = topic.produce("a")
    old = group.take_one(invisible_ms=1)
    clock.sleep(1)
    group.take_one()
    assert failed(group.ack(old)) == ["LeaseLost"]
    assert told(group, sent) == ["popped", "popped"]


def test_calls_about_many_messages_tell_each(topic: Topic, group: Group) -> None:
    sent = topic.produce(*map(str, range(256)))
    taken = group.take(256)
    group.ack(*taken[100:200])
    for number, expected in (
        (0, ["popped"]),
        (100, ["popped", "acked"]),
        (199, ["popped", "acked"]),
        (200, ["popped"]),
    ):
        assert told(group, sent[number]) == expected


def test_a_retry_in_a_page_is_found(topic: Topic, group: Group, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "PARKED_MAX", 1)
    monkeypatch.setattr(retries, "RETRY_PAGE_LEASES", 2)
    monkeypatch.setattr(retries.surplus, "__defaults__", (1,))
    sent = topic.produce(*map(str, range(8)))
    for number, message in enumerate(group.take(8)):
        group.nack(message, delay_ms=60_000 + number)
    assert [standing(group, message)["state"] for message in sent] == ["retrying"] * 8
    assert standing(group, sent[-1])["until_ms"] == clock.ms + 60_007


def test_consumers_of_a_broadcast_group_are_told_apart(topic: Topic) -> None:
    group = topic.group("screens", mode="broadcast")
    (sent,) = topic.produce("a")
    group.ack(group.take_one(consumer_id="ann"))
    group.take_one(consumer_id="bob")
    entries = [each for each in traced(topic, sent)["groups"] if each["group"] == "screens"]
    told = {each["consumer_id"]: (each["state"], [event["event"] for event in each["events"]]) for each in entries}
    assert told == {"ann": ("settled", ["popped", "acked"]), "bob": ("in_flight", ["popped"])}


def test_a_push_is_told(topic: Topic) -> None:
    consumer = Consumer()
    pushing = Client(topic.client.store, topic.client.clock, 2, consumer.outside())
    group = Topic(pushing, topic.name).group("called", push={"url": "https://shop.example/"})
    (sent,) = topic.produce("a")
    pushing.api.service.pushing.run(topic.name)
    assert [event.get("consumer_id") for event in standing(group, sent)["events"]] == ["push", None]
    assert told(group, sent) == ["popped", "acked"]


def test_who_called_is_told(topic: Topic, group: Group) -> None:
    (sent,) = topic.produce("a")
    guarded = Client(topic.client.store, topic.client.clock, 2, demand=Demand(requests=True))
    guarded.token = guarded.make_token()
    holder = Group(guarded, Topic(guarded, topic.name), group.name)
    group.nack(group.take_one(), delay_ms=0)
    holder.ack(holder.take_one())
    token_id = guarded.token.split("_")[1]
    events = standing(group, sent)["events"]
    assert [event.get("caller") for event in events] == [None, None, token_id, token_id]


def test_without_the_setting_the_state_alone_is_told(client: Client) -> None:
    topic = client.topic("plain")
    group = topic.group("billing")
    (sent,) = topic.produce("a")
    group.take_one()
    assert traced(topic, sent)["traced"] is False
    assert (standing(group, sent)["state"], told(group, sent)) == ("in_flight", [])
    assert client.put("/topics/plain", trace=True).status == 200
    client.clock.sleep(60_000)
    group.ack(group.take_one())
    assert told(group, sent) == ["popped", "acked"]


def test_a_message_that_is_none_has_no_trace(topic: Topic) -> None:
    for message_id in ("nothing", "0" * 19):
        answer = topic.client.get(f"{topic.path}/messages/{message_id}/trace")
        assert answer.problem == (404, "MessageNotFound")


# -- trouble and bounds -----------------------------------------------------------------------------------------------


def defect(verb: str, _about: Any) -> Exception | None:
    return RuntimeError("a defect") if verb == "put_all" else None


@pytest.mark.parametrize("trouble", [unavailable("put_all"), unknown("put_all"), defect])
def test_a_note_that_fails_fails_nothing(topic: Topic, group: Group, store: TroubledStore, trouble: Any) -> None:
    (sent,) = topic.produce("a")
    store.before = trouble
    group.nack(group.take_one(), delay_ms=0)
    group.ack(group.take_one())
    store.before = unavailable()
    assert (standing(group, sent)["state"], told(group, sent)) == ("settled", [])


def test_a_defect_that_leaves_a_gap_is_logged(
    topic: Topic, group: Group, store: TroubledStore, caplog: pytest.LogCaptureFixture
) -> None:
    topic.produce("a")
    store.before = defect
    group.take_one()
    assert caplog.messages == ["what happened to messages of topic orders was not noted"]


def test_a_note_written_twice_is_told_once(topic: Topic, group: Group, store: TroubledStore) -> None:
    written: list[Any] = []
    store.after = lambda verb, about: written.append(about) if verb == "put_all" else None
    (sent,) = topic.produce("a")
    group.take_one()
    for items in [*written]:
        store.put_all(items)
    assert told(group, sent) == ["popped"]


def test_what_is_beyond_the_bounds_is_said(topic: Topic, group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    (sent,) = topic.produce("a")
    topic.group("second")
    monkeypatch.setattr(trace, "GROUP_DETAILS_MAX", 1)
    assert [each["group"] for each in traced(topic, sent)["groups"]] == ["billing"]
    assert traced(topic, sent)["complete"] is False
    monkeypatch.setattr(trace, "GROUP_DETAILS_MAX", 2)
    assert traced(topic, sent)["complete"] is True
    monkeypatch.setattr(trace, "EVENTS_MAX", 1)
    taken = group.take_one()
    topic.client.clock.sleep(1)
    group.nack(taken)
    assert (told(group, sent), traced(topic, sent)["complete"]) == (["popped"], False)


def test_notes_go_with_the_retention(topic: Topic, group: Group, store: TroubledStore, clock: Clock) -> None:
    written: list[Any] = []
    store.after = lambda verb, about: written.extend(about) if verb == "put_all" else None
    topic.produce("a")
    group.take_one()
    [note] = written
    assert note["group"] == "billing"
    assert note["ttl"] * 1_000 > clock.ms + topic.details()["retention_ms"] + 86_400_000
    assert events.PAGE_OFFSETS == 128


def test_a_note_takes_no_time_from_its_call(topic: Topic, group: Group, store: TroubledStore, clock: Clock) -> None:
    """Not even one whose outcome is in doubt: the message that a pop has leased waits for it."""
    left_ms: list[int] = []

    def told(verb: str, _about: Any) -> None:
        if verb == "put_all":
            left_ms.append(deadline.give_up_at_ms(clock.uptime(), in_doubt=True) - clock.uptime())

    store.before = told
    topic.produce("a")
    group.take_one()
    assert left_ms == [HOP_MS_MIN]


def test_a_pop_that_passes_all_of_a_traced_topic_is_empty(topic: Topic) -> None:
    group = topic.group("billing", filter={"tags": ["paid"]})
    topic.produce("a")
    assert group.pop()["messages"] == []
