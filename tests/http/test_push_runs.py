"""Which calls a run of pushed groups makes, when it pauses and ends, and what wakes it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from chalicelib.core.base import deadline
from chalicelib.core.base.errors import StoreUnavailable
from chalicelib.core.consuming import claim
from chalicelib.push.courier import Courier
from chalicelib.push.dispatcher import RUN_MS
from chalicelib.push.outside import ConsumerResponse
from tests.http.pushed import URL, client, consumer, group, run
from tests.support.client import Client, Group, Json, Topic
from tests.support.clock import START_MS, Clock
from tests.support.consumer import OK, Call, Consumer, failing
from tests.support.troubled_store import TroubledStore, unavailable

__all__ = ["client", "consumer", "group"]


def test_the_next_call_goes_by_a_push_that_is_new(topic: Topic, group: Group, consumer: Consumer) -> None:
    def changed(_call: Call) -> ConsumerResponse:
        consumer.react = None
        group.change(push={"url": URL, "batch": 1})
        topic.produce("b", "c")
        return OK

    topic.produce("a")
    consumer.react = changed
    run(group)
    assert consumer.bodies == [["a"], ["b"], ["c"]]


def test_a_slot_that_is_one_too_many_makes_no_further_call(topic: Topic, consumer: Consumer, client: Client) -> None:
    group = topic.group("billing", push={"url": URL, "batch": 1, "concurrency": 2})
    under_way: list[int] = []
    seen: list[int] = []

    def called(_call: Call) -> ConsumerResponse:
        under_way.append(1)
        seen.append(len(under_way))
        if len(seen) == 1:
            run(group.seen_by(client.another()))  # has the second slot
        elif len(seen) == 2:
            group.change(push={"url": URL, "batch": 1})
        under_way.pop()
        return OK

    topic.produce("a", "b", "c")
    consumer.react = called
    run(group)
    assert seen == [1, 2, 1]


def test_filters_rates_and_delays_are_those_of_the_group(topic: Topic, consumer: Consumer, clock: Clock) -> None:
    group = topic.group("billing", push={"url": URL}, rate_limit=1, filter={"tags": ["x"]})
    topic.produce("a", "b", "c", tag="x")
    topic.produce("no", tag="y")
    topic.produce("later", tag="x", delay_ms=8_000)
    run(group, is_staying=True)
    assert consumer.bodies == [["a"], ["b"], ["c"], ["later"]]
    assert clock.now() < START_MS + 10_000


def test_an_ordered_group_calls_with_no_later_message_before_a_failed_one(
    topic: Topic, consumer: Consumer, clock: Clock
) -> None:
    group = topic.group("billing", push={"url": URL, "batch": 1, "concurrency": 5}, ordered=True, backoff_ms=[1_000])
    topic.produce("a", "b", "c")
    consumer.answers = [ConsumerResponse(200), ConsumerResponse(500)]
    run(group)
    assert consumer.bodies == [["a"], ["b"], ["b"], ["c"]]


@pytest.mark.parametrize(
    ("ordered", "sent", "ready", "later"),
    [("key", {"a2": "a", "b1": "b"}, ["b1"], ["a1", "a2"]), (False, {"a2": "a"}, ["a2"], ["a1"])],
)
def test_a_message_that_failed_holds_up_its_key_at_most(
    topic: Topic, consumer: Consumer, clock: Clock, ordered: Any, sent: Json, ready: list[str], later: list[str]
) -> None:
    group = topic.group("billing", push={"url": URL}, ordered=ordered, backoff_ms=[30_000])
    [first] = topic.produce({"body": "a1", "key": "a"})
    consumer.answers = [failing({"itemIdentifier": first["message_id"]})]
    run(group)
    topic.produce(*({"body": body, "key": key} for body, key in sent.items()))
    run(group)
    assert (consumer.bodies, clock.now() < START_MS + 30_000) == ([["a1"], ready], True)
    run(group, is_staying=True)
    assert consumer.bodies[2:] == [later]


def test_a_run_passes_whatever_a_filter_rejects(
    topic: Topic, group: Group, consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claim, "PASSED_MAX", 1)  # then the next pop goes on
    group.change(filter={"tags": ["x"]})
    for _ in range(5):
        topic.produce(*["no"] * 256, tag="y")
    topic.produce("a", tag="x")
    run(group, is_staying=True)
    assert consumer.bodies == [["a"]]


def test_what_is_due_in_a_queue_is_called_while_another_is_held_up(consumer: Consumer, client: Client) -> None:
    topic = client.topic("orders", queues=2)
    group = topic.group("billing", ordered=True)
    topic.produce("held", queue=0)
    group.take_one(invisible_ms=40_000)
    for queue, delay_ms in enumerate((1_000, 1_001)):
        topic.produce(f"due{queue}", queue=queue, delay_ms=delay_ms)
    client.clock.sleep(2_000)
    group.change(push={"url": URL})
    run(group, is_staying=True)
    assert consumer.bodies[0] == ["due1"]
    assert consumer.calls[0].messages[0]["invisible_until_ms"] < START_MS + 30_000


def test_a_run_that_finds_the_rate_used_up_waits_for_it(topic: Topic, consumer: Consumer, clock: Clock) -> None:
    group = topic.group("billing", rate_limit=0.2)
    topic.produce("a", "b")
    group.ack(group.take_one())
    group.change(push={"url": URL})
    run(group)
    assert (consumer.bodies, clock.now()) == ([["b"]], START_MS + 5_000)


@pytest.mark.parametrize(
    "settings", [{"ordered": True}, {"ordered": "key"}, {"max_in_flight": 1}, {"rate_limit": 0.01}]
)
def test_a_run_takes_no_slot_for_what_the_group_holds_back(
    store: TroubledStore, topic: Topic, consumer: Consumer, settings: Any
) -> None:
    """A message is leased, or the rate is used up: nothing can be called, however often the run looks."""
    group = topic.group("billing", **settings)
    topic.produce("a", "b", key="k")
    group.take_one()
    group.change(push={"url": URL})
    before = store.meter.write_units
    run(group)
    assert consumer.calls == []
    assert store.meter.write_units - before <= 2


def test_a_consumer_that_fails_is_called_less_and_less(topic: Topic, consumer: Consumer, clock: Clock) -> None:
    group = topic.group("billing", push={"url": URL, "concurrency": 9}, backoff_ms=[10_000, 20_000, 90_000])
    topic.produce(*map(str, range(100)))
    at: list[int] = []

    def fail(_call: Any) -> ConsumerResponse:
        at.append(clock.now() - START_MS)
        return ConsumerResponse(500)

    consumer.react = fail
    while clock.now() < START_MS + 200_000:
        run(group, is_staying=True)
        clock.sleep(500)
    assert [later - sooner for sooner, later in zip(at, at[1:], strict=False)] == [
        *(10_000, 20_000),
        *(60_000, 60_000, 60_000),
    ]


def test_the_pause_begins_anew_after_a_success(topic: Topic, consumer: Consumer, clock: Clock) -> None:
    group = topic.group("billing", push={"url": URL, "batch": 1}, backoff_ms=[1_000, 40_000])
    topic.produce("a", "b", "c")
    at: list[int] = []

    def answer(_call: Any) -> ConsumerResponse:
        at.append(clock.now() - START_MS)
        return ConsumerResponse(500 if len(at) in (1, 3) else 200)

    consumer.react = answer
    run(group)
    assert consumer.bodies[:3] == [["a"], ["a"], ["b"]]
    assert at == [0, 1_000, 1_000, 2_000, 2_000]


def test_other_groups_are_called_while_one_pauses(topic: Topic, group: Group, consumer: Consumer) -> None:
    other = topic.group("shipping", push={"url": "https://ship.example/"})
    consumer.react = lambda call: ConsumerResponse(500 if call.url == URL else 200)
    topic.produce("a", "b")
    run(group)
    assert other.totals() == (0, 0, 0, 0)
    assert group.totals()[2] == 2


# -- a run ----------------------------------------------------------------------------------------------------------


def test_a_run_begins_no_call_when_its_time_is_over_and_settles_the_last(
    topic: Topic, group: Group, consumer: Consumer, clock: Clock
) -> None:
    group.change(push={"url": URL, "batch": 1})
    topic.produce("a", "b")

    def answer(_call: Call) -> ConsumerResponse:
        clock.sleep(RUN_MS)
        return OK

    consumer.react = answer
    run(group)
    assert (consumer.bodies, group.totals()) == ([["a"]], (1, 0, 0, 0))


@pytest.mark.parametrize("settings", [{"paused": True}, {"push": {}}])
def test_a_group_that_is_paused_or_pushed_no_more_is_not_called_again(
    store: TroubledStore, topic: Topic, group: Group, consumer: Consumer, settings: Any
) -> None:
    def answer(_call: Call) -> ConsumerResponse:
        group.change(**settings)
        return OK

    topic.produce(*map(str, range(11)))
    before = store.meter.write_units
    consumer.react = answer
    run(group)
    assert (len(consumer.calls), group.totals()) == (1, (1, 0, 0, 0))
    assert store.meter.write_units - before == 7  # no slot is taken a second time


def test_a_run_meets_a_group_that_was_made_again_without_a_push(topic: Topic, group: Group, consumer: Consumer) -> None:
    def answer(_call: Call) -> ConsumerResponse:
        group.delete()
        topic.group("billing")
        return OK

    topic.produce("a")
    consumer.react = answer
    run(group)
    assert len(consumer.calls) == 1


class Nested:
    """A crew whose tasks run at once, each within the one that starts it. `most`: how many were under way."""

    def __init__(self) -> None:
        self.now = self.most = 0

    def start(self, task: Callable[[], None]) -> None:
        self.now += 1
        self.most = max(self.most, self.now)
        task()
        self.now -= 1

    def join(self) -> None: ...


@pytest.mark.parametrize(("messages", "callers"), [(1, 1), (2, 2), (3, 3), (9, 3)])
def test_a_run_has_as_many_callers_as_are_of_use(
    store: TroubledStore, consumer: Consumer, messages: int, callers: int
) -> None:
    crew = Nested()
    client = Client(store, outside=consumer.outside(lambda: crew))
    topic = client.topic("orders")
    group = topic.group("billing", push={"url": URL, "batch": 1, "concurrency": 3})
    topic.produce(*["a"] * messages)
    run(group)
    assert (crew.most, len(consumer.calls)) == (callers, messages)


# -- waking ---------------------------------------------------------------------------------------------------------


def test_a_produce_wakes_the_push_at_most_once_a_second(
    topic: Topic, group: Group, consumer: Consumer, clock: Clock
) -> None:
    consumer.woken.clear()
    topic.produce("a")
    topic.produce("b")
    clock.sleep(999)
    topic.produce("c")
    assert consumer.woken == [("orders", False)]
    clock.sleep(1)
    topic.produce("d")
    assert consumer.woken == [("orders", False)] * 2


def test_a_call_that_has_no_time_left_wakes_nobody(
    client: Client, topic: Topic, group: Group, consumer: Consumer, clock: Clock
) -> None:
    clock.sleep(1_000)
    consumer.woken.clear()
    service = client.api.service
    found = service.env.catalogue.current_topic("orders")
    with deadline.ending(clock.uptime()):
        service.stored(found)
    assert consumer.woken == []
    service.stored(found)
    assert consumer.woken == [("orders", False)]


def test_whatever_makes_messages_ready_wakes_the_push(
    topic: Topic, group: Group, consumer: Consumer, clock: Clock
) -> None:
    half = topic.client.post(f"{topic.path}/transactions", messages=[{"body": "a"}]).json["transaction_id"]
    dying = topic.client.topic("other")
    dying.produce("a")
    failing = dying.group("failing", dead_letters={"topic": topic.name})
    ways: dict[str, Json] = {
        f"{failing.path}/bury": {"receipts": [failing.take_one()["receipt"]]},
        f"{topic.path}/transactions/{half}/commit": {},
        f"{topic.path}/requests": {"body": "a", "wait_ms": 0},
        f"{group.path}/dead/redrive": {},
        f"{group.path}/reset": {"to": "earliest"},
    }
    for path, body in ways.items():
        clock.sleep(1_000)
        consumer.woken.clear()
        assert topic.client.post(path, **body).status < 300
        assert consumer.woken == [("orders", False)], path


def test_a_pushed_request_has_what_its_reply_needs(topic: Topic, group: Group, consumer: Consumer) -> None:
    asked = topic.client.post(f"{topic.path}/requests", body="a", wait_ms=0).json
    run(group)
    [message] = consumer.calls[0].messages
    assert message["correlation_id"] == asked["correlation_id"]
    assert message["reply_by_ms"] == START_MS + 3_000


def test_a_produce_without_pushed_groups_wakes_nobody(topic: Topic, consumer: Consumer) -> None:
    topic.group("popped")
    topic.produce("a")
    assert consumer.woken == []


def test_a_push_that_is_set_is_woken_at_once(topic: Topic, consumer: Consumer) -> None:
    topic.produce("a")
    group = topic.group("billing", push={"url": URL})
    assert consumer.woken == [("orders", False)]
    group.change(push={"url": URL})
    assert consumer.woken == [("orders", False)] * 2


def test_the_sweep_wakes_topics_whose_pushed_groups_have_something_to_do(client: Client, consumer: Consumer) -> None:
    for name in ("quiet", "orders"):
        client.topic(name).group("billing", push={"url": URL})
    client.post("/topics/orders/messages", messages=[{"body": "a"}])
    consumer.woken.clear()
    service = client.api.service
    assert service.sweeps.push(service.outside.wake).as_json() == {"seen": 1, "done": 1}
    assert consumer.woken == [("orders", True)]


def test_a_run_sees_what_came_while_wakes_were_held_back(
    topic: Topic, group: Group, consumer: Consumer, clock: Clock
) -> None:
    clock.at(START_MS + 1_000, lambda: topic.produce("late"))
    run(group)
    assert consumer.bodies == [["late"]]


@pytest.mark.parametrize("settings", [{"backoff_ms": [10]}, {"rate_limit": 100}])
def test_it_sees_that_too_after_it_has_waited_for_a_retry_or_the_rate(
    topic: Topic, consumer: Consumer, clock: Clock, settings: Any
) -> None:
    topic.group("billing", push={"url": URL, "batch": 100}, **settings)
    topic.produce(*(["a"] * 120))
    consumer.answers = [ConsumerResponse(500)] if "backoff_ms" in settings else []
    clock.at(START_MS + 1_200, lambda: topic.produce("late"))
    topic.client.api.service.pushing.run("orders")
    assert consumer.bodies[-1] == ["late"]


def test_a_run_of_a_deleted_topic_ends(topic: Topic, group: Group) -> None:
    topic.delete()
    run(group)


@pytest.mark.parametrize("has_topic", [True, False])
def test_a_run_ends_quietly_when_what_it_serves_is_deleted(
    topic: Topic, group: Group, consumer: Consumer, caplog: pytest.LogCaptureFixture, has_topic: bool
) -> None:
    def delete(_call: Call) -> ConsumerResponse:
        other = group.seen_by(topic.client.another())
        other.delete() if has_topic else other.client.delete(topic.path)
        return OK

    topic.produce("a", "b")
    consumer.react = delete
    run(group, is_staying=True)
    assert (len(consumer.calls), caplog.records) == (1, [])


def test_a_run_ends_quietly_when_its_topic_is_deleted_while_it_delivers(
    topic: Topic, group: Group, clock: Clock, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    promoter = topic.client.api.service.delays.promoter
    decide = promoter._decide

    def meanwhile(*asked: Any) -> int:
        topic.client.another().delete(topic.path)
        return decide(*asked)

    monkeypatch.setattr(promoter, "_decide", meanwhile)
    topic.produce("a", delay_ms=1_000)
    clock.sleep(1_000)
    run(group)
    assert caplog.records == []


def test_a_defect_ends_the_push_of_its_group_alone_and_is_logged(
    topic: Topic, group: Group, store: TroubledStore, consumer: Consumer, caplog: pytest.LogCaptureFixture
) -> None:
    topic.group("audit", push={"url": URL})
    topic.produce("a")
    is_its = re.compile("group#.*#billing").search
    store.before = lambda verb, about: RuntimeError("a defect") if verb == "write" and is_its(str(about)) else None
    run(group)
    assert (len(consumer.calls), caplog.messages) == (1, ["the push to group billing has failed"])
    caplog.clear()


def test_a_defect_in_a_call_is_a_failed_call_that_holds_nothing(
    topic: Topic, consumer: Consumer, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    group = topic.group("billing", push={"url": URL}, backoff_ms=[5_000])
    topic.produce("a")

    def once(_call: Call) -> ConsumerResponse:
        consumer.react = None
        raise ImportError("partially initialized module")

    consumer.react = once
    run(group)
    assert [call.messages[0]["attempt"] for call in consumer.calls] == [1, 2]
    assert START_MS + 5_000 <= clock.now() < START_MS + 15_000
    assert group.totals() == (0, 0, 0, 0)
    assert caplog.messages == ["a call to group billing has failed"]
    caplog.clear()


def test_messages_that_cannot_be_signed_are_given_back(
    topic: Topic, group: Group, consumer: Consumer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    topic.produce("a")

    def no_keys(*_asked: Any) -> Any:
        raise StoreUnavailable("the signing key was removed")

    monkeypatch.setattr(Courier, "send", no_keys)
    run(group)
    assert group.totals() == (1, 0, 0, 0)
    monkeypatch.undo()
    run(group)
    assert [call.messages[0]["attempt"] for call in consumer.calls] == [1]
    assert caplog.messages == ["the push to group billing stops for now: the signing key was removed"]


def test_a_run_that_cannot_read_its_topic_ends_and_says_so(
    topic: Topic, group: Group, store: TroubledStore, caplog: pytest.LogCaptureFixture
) -> None:
    store.before = unavailable("read")
    run(group)
    assert [record.message for record in caplog.records] == ["no push in topic orders: the store throttled"]
