"""Queues of SQS clients: the record, and its topic and group, which come and go with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from chalicelib.api import Api
from chalicelib.core.base.errors import StoreUnavailable, TopicNotFound
from chalicelib.core.base.limits import METADATA_AGE_MS_MAX
from chalicelib.doors.sqs.registry import Change, GroupUnfit, NewQueue, QueueGone, Standing, TopicStands, queues_of
from local.memory.store import MemoryStore
from tests.support.clock import Clock
from tests.support.instances import instance
from tests.support.troubled_store import TroubledStore, unavailable, unknown

OWN = NewQueue("orders", "orders", {"queues": 2}, "orders", {"invisible_ms": 5_000}, {"DelaySeconds": "1"}, {"a": "b"})
SUBSCRIBED = NewQueue("billing", "orders", None, "billing", {}, {}, {}, "latest")


@pytest.fixture
def store() -> TroubledStore:
    return TroubledStore()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def api(store: MemoryStore, clock: Clock) -> Api:
    return instance(store, clock)


@pytest.fixture
def other(store: MemoryStore, clock: Clock) -> Api:
    return instance(store, clock, 1)


def make(api: Api, wanted: NewQueue = OWN) -> Standing | None:
    return queues_of(api.service).make(wanted)


def find(api: Api, name: str = "orders") -> Standing:
    return queues_of(api.service).find(name)


def delete(api: Api, name: str = "orders") -> None:
    queues_of(api.service).delete(name)


def gives(attributes: Mapping[str, str], group: Mapping[str, Any], topic: Mapping[str, Any]) -> Callable[..., Change]:
    """A change to these attributes and settings."""
    return lambda standing: Change(attributes, standing.queue.tags, group, topic)


def is_there(api: Api, name: str = "orders") -> bool:
    try:
        queues_of(api.service).current(name)
    except QueueGone:
        return False
    return True


def topics(api: Api) -> list[str]:
    return [topic["topic"] for topic in api.list_topics({})["topics"]]


def test_a_queue_is_made_with_its_topic_and_its_group(api: Api, clock: Clock) -> None:
    assert make(api) is None
    standing = find(api)
    assert (standing.topic.queues, standing.group.invisible_ms, standing.group.max_in_flight) == (2, 5_000, 20_000)
    queue = standing.queue
    assert (queue.attributes, queue.tags, queue.created_at_ms) == ({"DelaySeconds": "1"}, {"a": "b"}, clock.ms)
    api.produce("orders", {"messages": [{"body": "one"}]})
    assert [message["body"] for message in api.pop("orders", "orders", {})["messages"]] == ["one"]


def test_what_is_made_twice_is_the_same_queue(api: Api, other: Api) -> None:
    make(api)
    again = make(other, replace(OWN, attributes={}))
    assert again is not None
    assert again.queue == find(api).queue


def test_of_two_who_make_it_at_once_one_does(api: Api, other: Api, store: TroubledStore) -> None:
    made: list[Standing | None] = []

    def meanwhile(verb: str, _about: object) -> None:
        if verb == "write_together":
            store.before = unavailable()
            made.append(make(other))

    store.before = meanwhile
    stood = make(api)
    assert made == [None]
    assert stood is not None
    assert stood.queue == find(other).queue
    assert topics(api) == ["orders"]


def test_a_queue_whose_making_got_no_answer_stands_whole(api: Api, store: TroubledStore) -> None:
    store.after = unknown("write_together")
    with pytest.raises(StoreUnavailable):
        make(api)
    store.after = unavailable()
    assert make(api) is not None


def test_a_queue_is_not_made_over_a_topic_that_stands(api: Api) -> None:
    api.put_topic("orders", {})
    with pytest.raises(TopicStands):
        make(api)
    assert not is_there(api)


@pytest.mark.parametrize(("start", "bodies"), [("earliest", ["old", "new"]), ("latest", ["new"])])
def test_a_subscribed_queue_is_one_more_group_of_its_topic(api: Api, start: str, bodies: list[str]) -> None:
    make(api)
    api.produce("orders", {"messages": [{"body": "old", "queue": 0}]})
    assert make(api, replace(SUBSCRIBED, start=start)) is None
    api.produce("orders", {"messages": [{"body": "new", "queue": 0}]})
    assert [message["body"] for message in api.pop("orders", "billing", {})["messages"]] == bodies
    assert find(api, "billing").topic.id == find(api).topic.id
    assert not find(api, "billing").queue.owns_topic


def test_a_queue_of_a_topic_that_is_not_there_is_not_made(api: Api) -> None:
    with pytest.raises(TopicNotFound):
        make(api, SUBSCRIBED)
    assert not is_there(api, "billing")


def test_a_group_that_stands_becomes_a_queue_and_keeps_its_place(api: Api) -> None:
    api.put_topic("orders", {"queues": 1})
    api.put_group("orders", "billing", {"max_in_flight": 7})
    api.produce("orders", {"messages": [{"body": "old"}]})
    make(api, SUBSCRIBED)
    group = find(api, "billing").group
    assert (group.max_in_flight, group.settle_by) == (7, "message")
    assert [message["body"] for message in api.pop("orders", "billing", {})["messages"]] == ["old"]


def test_two_queues_may_take_the_same_group_at_once(api: Api, other: Api, store: TroubledStore) -> None:
    api.put_topic("orders", {})
    api.put_group("orders", "billing", {})

    def meanwhile(verb: str, _about: object) -> None:
        if verb == "write_together":
            store.before = unavailable()
            make(other, replace(SUBSCRIBED, name="audit"))

    store.before = meanwhile
    make(api, SUBSCRIBED)
    assert find(api, "billing").group.id == find(api, "audit").group.id


@pytest.mark.parametrize("unfit", [{"mode": "broadcast"}, {"push": {"url": "https://shop.example/"}}])
def test_a_group_from_which_nobody_pops_together_becomes_no_queue(api: Api, unfit: dict[str, object]) -> None:
    api.put_topic("orders", {})
    api.put_group("orders", "billing", unfit)
    with pytest.raises(GroupUnfit):
        make(api, SUBSCRIBED)


def test_a_queue_takes_its_topic_and_its_group_along(api: Api, store: MemoryStore) -> None:
    make(api)
    api.produce("orders", {"messages": [{"body": "one"}]})
    delete(api)
    assert not is_there(api)
    assert [pk for pk in store.partitions() if not pk.startswith("log#")] == []
    make(api)
    assert api.pop("orders", "orders", {})["messages"] == []


def test_a_topic_with_another_group_stays_for_a_queue_made_again(api: Api) -> None:
    make(api)
    make(api, SUBSCRIBED)
    api.produce("orders", {"messages": [{"body": "old", "queue": 0}]})
    delete(api)
    assert (topics(api), is_there(api, "billing")) == (["orders"], True)
    make(api, replace(OWN, topic_settings={"queues": 2, "retention_ms": 60_000}))
    api.produce("orders", {"messages": [{"body": "new", "queue": 0}]})
    bodies = {
        name: [each["body"] for each in api.pop("orders", name, {})["messages"]] for name in ("orders", "billing")
    }
    assert bodies == {"orders": ["new"], "billing": ["old", "new"]}
    assert (find(api).topic.retention_ms, find(api).queue.owns_topic) == (60_000, True)


def test_a_queue_made_again_does_not_get_what_waited_in_its_topic(api: Api, clock: Clock) -> None:
    make(api)
    make(api, SUBSCRIBED)
    api.produce("orders", {"messages": [{"body": "old", "delay_ms": 5_000}]})
    delete(api)
    make(api)
    api.produce("orders", {"messages": [{"body": "new", "delay_ms": 5_000}]})
    clock.ms += 5_000
    bodies = {
        name: [each["body"] for each in api.pop("orders", name, {"fill": True})["messages"]]
        for name in ("orders", "billing")
    }
    assert (bodies["orders"], sorted(bodies["billing"])) == (["new"], ["new", "old"])


def test_a_topic_that_others_kept_keeps_its_number_of_queues(api: Api) -> None:
    make(api)
    make(api, SUBSCRIBED)
    delete(api)
    with pytest.raises(TopicStands):
        make(api, replace(OWN, topic_settings={"queues": 3}))


@pytest.mark.parametrize("order", [("orders", "billing"), ("billing", "orders")])
def test_the_last_of_its_queues_takes_the_topic_along(api: Api, order: tuple[str, str]) -> None:
    make(api)
    make(api, SUBSCRIBED)
    for name in order:
        assert topics(api) == ["orders"]
        delete(api, name)
    assert topics(api) == []


def test_a_topic_that_was_made_over_json_outlives_its_queues(api: Api) -> None:
    api.put_topic("orders", {})
    make(api, SUBSCRIBED)
    delete(api, "billing")
    assert topics(api) == ["orders"]


@pytest.mark.parametrize("over_json", [False, True])
def test_a_group_that_comes_while_a_queue_goes_keeps_its_topic(
    api: Api, other: Api, store: TroubledStore, over_json: bool
) -> None:
    make(api)

    def meanwhile(verb: str, _about: object) -> None:
        if verb == "write_together":
            store.before = unavailable()
            if over_json:
                other.put_group("orders", "billing", {})
            else:
                make(other, SUBSCRIBED)

    store.before = meanwhile
    delete(api)
    assert not is_there(api)
    assert [group["group"] for group in api.list_groups("orders", {})["groups"]] == ["billing"]


def test_of_two_who_delete_it_at_once_both_have(api: Api, other: Api, store: TroubledStore) -> None:
    make(api)

    def meanwhile(verb: str, _about: object) -> None:
        if verb == "write_together":
            store.before = unavailable()
            delete(other)
            make(other)

    store.before = meanwhile
    delete(api)
    assert is_there(api), "the one that was made since then stays"


@pytest.mark.parametrize("is_made_again", [False, True])
def test_without_its_topic_a_queue_is_gone(api: Api, other: Api, store: MemoryStore, is_made_again: bool) -> None:
    make(api)
    find(other)
    api.delete_topic("orders")
    if is_made_again:
        api.put_topic("orders", {})
    with pytest.raises(QueueGone):
        queues_of(other.service).current("orders")
    assert "sqs-queues" not in store.partitions()


@pytest.mark.parametrize("is_made_again", [False, True])
def test_without_its_group_a_queue_is_gone(api: Api, store: MemoryStore, is_made_again: bool) -> None:
    make(api)
    make(api, SUBSCRIBED)
    api.delete_group("orders", "billing")
    if is_made_again:
        api.put_group("orders", "billing", {})
    assert (is_there(api, "billing"), is_there(api)) == (False, True)
    assert make(api, SUBSCRIBED) is None


def test_an_instance_hears_of_a_change_within_five_seconds(api: Api, other: Api, clock: Clock) -> None:
    make(api)
    assert find(other).queue.attributes == {"DelaySeconds": "1"}
    queues_of(api.service).change("orders", gives({"DelaySeconds": "9"}, {}, {}))
    assert find(api).queue.attributes == {"DelaySeconds": "9"}, "at once, where it was made"
    clock.ms += METADATA_AGE_MS_MAX
    assert find(other).queue.attributes == {"DelaySeconds": "1"}
    clock.ms += 1
    assert find(other).queue.attributes == {"DelaySeconds": "9"}


def test_an_instance_knows_at_once_that_it_has_delayed_a_message(api: Api, store: MemoryStore) -> None:
    make(api)
    assert not find(api).topic.delays
    api.produce("orders", {"messages": [{"body": "later", "delay_ms": 1_000}]})
    assert find(api).topic.delays
    before = store.meter.copy()
    assert find(api).topic.delays
    assert store.meter.since(before).round_trips == 0


def test_a_call_that_finds_the_topic_gone_tries_the_queue_made_again(api: Api, other: Api) -> None:
    make(api)
    find(other)
    delete(api)
    make(api)

    def pop(standing: Standing) -> str:
        if standing.topic.id != find(api).topic.id:
            raise TopicNotFound("it was made again")
        return standing.topic.id

    assert queues_of(other.service).serve("orders", pop) == find(api).topic.id


def test_a_change_is_of_record_group_and_topic_together(api: Api, clock: Clock, store: TroubledStore) -> None:
    make(api)
    clock.ms += 1_000
    change = gives({"DelaySeconds": "9"}, {"invisible_ms": 1}, {"retention_ms": 60_000})
    store.before = unavailable("write_together")
    with pytest.raises(StoreUnavailable):
        queues_of(api.service).change("orders", change)
    standing = queues_of(api.service).current("orders")
    assert (standing.queue.version, standing.group.invisible_ms) == (0, 5_000)
    store.before = unavailable()
    queues_of(api.service).change("orders", change)
    standing = find(api)
    assert (standing.queue.attributes, standing.queue.changed_at_ms) == ({"DelaySeconds": "9"}, clock.ms)
    assert (standing.group.invisible_ms, standing.topic.retention_ms) == (1, 60_000)
    assert standing.queue.created_at_ms == clock.ms - 1_000


def test_a_change_that_meets_another_one_is_thought_over(api: Api, other: Api, store: TroubledStore) -> None:
    make(api)

    def also(name: str) -> Callable[[Standing], Change]:
        return lambda standing: Change({**standing.queue.attributes, name: "1"}, {}, {}, {})

    def meanwhile(verb: str, _about: object) -> None:
        if verb == "write":
            store.before = unavailable()
            queues_of(other.service).change("orders", also("theirs"))

    store.before = meanwhile
    queues_of(api.service).change("orders", also("ours"))
    assert find(api).queue.attributes == {"DelaySeconds": "1", "theirs": "1", "ours": "1"}


def test_queues_are_listed_by_name_and_beginning_a_page_at_a_time(api: Api) -> None:
    for name in ("b-1", "a", "b-2", "_b", "b-3"):
        topic = name.replace("_", "q.")
        make(api, NewQueue(name, topic, {}, topic, {}, {}, {}))
    queues = queues_of(api.service)

    def names(prefix: str, limit: int, after: str = "") -> tuple[list[str], bool]:
        found, rest = queues.page(prefix, limit, after)
        return [queue.name for queue in found], rest is not None

    assert names("", 10) == (["_b", "a", "b-1", "b-2", "b-3"], False)
    assert names("b-", 2) == (["b-1", "b-2"], True)
    assert names("b-", 2, "b-2") == (["b-3"], False)
    assert names("b-", 2, "a") == (["b-1", "b-2"], True)


def test_the_queue_that_is_known_costs_no_read(api: Api, other: Api, store: MemoryStore) -> None:
    make(api)
    before = store.meter.copy()
    queues_of(other.service).named("orders")
    assert store.meter.since(before).read_units == 0.5
    find(other)
    before = store.meter.copy()
    queues_of(other.service).named("orders")
    find(other)
    assert store.meter.since(before).round_trips == 0
