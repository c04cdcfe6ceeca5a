"""A dedup id stands for one message, whichever caller repeats it, and whatever response was lost."""

from __future__ import annotations

import random
from typing import Any

import pytest

from chalicelib.core.base.errors import StoreUnavailable
from chalicelib.core.base.limits import DEDUP_MS, TRANSACTION_ITEMS_MAX
from tests.store.strict import StrictStore
from tests.support.client import Client, Topic, bodies
from tests.support.troubled_store import Trouble, TroubledStore, throttled_queue, unavailable, unknown

BIG = random.Random(1).randbytes(3_000).hex()


@pytest.mark.parametrize("body", ["a", BIG])
def test_the_same_id_is_stored_once_and_answered_with_the_first_result(topic: Topic, body: str) -> None:
    [first] = topic.produce(body, dedup_id="x")
    assert topic.produce("something else", dedup_id="x") == [first]
    assert Topic(topic.client.another(), "orders").produce("b", dedup_id="x", key="k") == [first]
    [stored] = topic.read()["messages"]
    assert (stored["body"], stored["message_id"], stored["offset"]) == (body, first["message_id"], 0)


def test_a_dedup_id_is_no_part_of_the_message(topic: Topic) -> None:
    topic.produce("a", dedup_id="x")
    assert "dedup_id" not in topic.read()["messages"][0]


def test_ids_of_different_topics_have_nothing_to_do_with_each_other(client: Client, topic: Topic) -> None:
    other = client.topic("other")
    topic.produce("a", dedup_id="x")
    other.produce("b", dedup_id="x")
    topic.delete()
    again = client.topic("orders")
    again.produce("c", dedup_id="x")
    assert (bodies(other.read()["messages"]), bodies(again.read()["messages"])) == (["b"], ["c"])


def test_an_id_may_hold_any_text(topic: Topic) -> None:
    ids = ["x", "X", "x ", "#", "\u00e9", "e\u0301", "\U0001f600" * 128, " ", "\n"]
    for each in ids:
        topic.produce(each, dedup_id=each)
    assert bodies(topic.read()["messages"]) == ids


def test_after_five_minutes_an_id_stands_for_a_new_message(topic: Topic) -> None:
    topic.produce("a", dedup_id="x")
    topic.client.clock.sleep(DEDUP_MS - 1)
    topic.produce("b", dedup_id="x")
    topic.client.clock.sleep(1)
    topic.produce("c", dedup_id="x")
    topic.produce("d", dedup_id="x")
    assert bodies(topic.read()["messages"]) == ["a", "c"]


def test_the_five_minutes_count_from_the_first_request_not_its_repeats(topic: Topic) -> None:
    for _ in range(3):
        topic.produce("a", dedup_id="x")
        topic.client.clock.sleep(DEDUP_MS // 2)
    assert bodies(topic.read()["messages"]) == ["a", "a"]


# -- batches ----------------------------------------------------------------------------------------------------------


def test_the_second_message_with_an_id_in_a_batch_gets_the_first_result() -> None:
    topic = Client(StrictStore()).topic("orders", queues=3)
    first, _, *others = topic.produce(
        *({"body": "a", "dedup_id": "x", "queue": 1}, {"body": "b"}),
        *({"body": "c", "dedup_id": "x", "queue": queue} for queue in (1, 2)),
    )
    assert others == [first, first]
    assert first["queue"] == 1
    assert sorted(bodies(topic.read()["messages"])) == ["a", "b"]


def test_a_batch_stores_new_messages_only_and_repeats_earlier_answers(topic: Topic) -> None:
    first = topic.produce(*[{"body": str(number), "dedup_id": str(number)} for number in range(0, 10, 2)])
    results = topic.produce(
        *[{"body": str(number), "dedup_id": str(number)} for number in range(10)], {"body": "plain"}
    )
    assert results[0:10:2] == first
    assert [each["offset"] for each in results] == [0, 5, 1, 6, 2, 7, 3, 8, 4, 9, 10]
    stored = topic.read()["messages"]
    assert [each["message_id"] for each in sorted(results, key=lambda each: each["offset"])] == [
        each["message_id"] for each in stored
    ]
    assert bodies(stored) == ["0", "2", "4", "6", "8", "1", "3", "5", "7", "9", "plain"]


def test_a_whole_batch_can_be_repeated(client: Client) -> None:
    topic = client.topic("orders", queues=4)
    batch = [{"body": str(number), "dedup_id": str(number), "key": str(number)} for number in range(256)]
    first = topic.produce(*batch)
    before = client.store.meter.copy()
    assert topic.produce(*batch) == first
    assert client.store.meter.since(before).round_trips <= 4 * 4
    assert len(topic.read(limit=1000)["messages"]) == 256


def test_more_ids_than_one_transaction_takes_are_stored_once_too() -> None:
    topic = Client(StrictStore()).topic("orders")
    batch = [{"body": str(number), "dedup_id": str(number)} for number in range(2 * TRANSACTION_ITEMS_MAX + 7)]
    first = topic.produce(*batch)
    assert [each["offset"] for each in first] == list(range(len(batch)))
    assert topic.produce(*reversed(batch)) == first[::-1]


def test_messages_without_an_id_are_stored_each_time() -> None:
    topic = Client(StrictStore()).topic("orders")
    for _ in range(2):
        topic.produce({"body": "a", "dedup_id": "x"}, {"body": "b"})
    assert bodies(topic.read()["messages"]) == ["a", "b", "b"]


# -- what is lost on the way ------------------------------------------------------------------------------------------


def lost_reply(number: int) -> Trouble:
    """The answer to the request of this number is lost, counted from 0, and so are all after it."""
    seen = iter(range(10**9))

    def trouble(_verb: str, _about: Any) -> Exception | None:
        return StoreUnavailable("no answer", outcome="unknown") if next(seen) >= number else None

    return trouble


BATCHES = {
    "one": [{"body": "a", "dedup_id": "x"}],
    "one with a payload": [{"body": BIG, "dedup_id": "x"}],
    "several": [{"body": str(number), "dedup_id": str(number)} for number in range(5)],
    "with a plain one": [{"body": "a", "dedup_id": "x"}, {"body": BIG, "dedup_id": "y"}],
    "two queues": [{"body": "a", "dedup_id": "x", "queue": 0}, {"body": "b", "dedup_id": "y", "queue": 1}],
}


@pytest.mark.parametrize("fault", ["before", "after"])
@pytest.mark.parametrize("number", range(8))
@pytest.mark.parametrize("batch", BATCHES.values(), ids=BATCHES.keys())
@pytest.mark.parametrize("is_other_instance", [False, True])
def test_a_produce_that_failed_anywhere_is_repeated_and_stored_once(
    store: TroubledStore, client: Client, batch: list[dict[str, Any]], number: int, fault: str, is_other_instance: bool
) -> None:
    topic = client.topic("orders", queues=2)
    topic.produce("warm", queue=0)
    setattr(store, fault, lost_reply(number))
    client.post(f"{topic.path}/messages", messages=batch)
    setattr(store, fault, unavailable())
    again = Topic(client.another(), "orders") if is_other_instance else topic
    first = again.produce(*batch)
    assert again.produce(*batch) == first
    stored = {each["message_id"]: each["body"] for each in topic.read()["messages"]}
    assert sorted(stored.values()) == sorted([each["body"] for each in batch] + ["warm"])
    assert [stored[each["message_id"]] for each in first] == [each["body"] for each in batch]


def test_a_caller_that_is_helped_meanwhile_gives_the_same_answer(
    store: TroubledStore, client: Client, topic: Topic
) -> None:
    other = Topic(client.another(), "orders")
    helped: list[Any] = []

    def meanwhile(verb: str, about: Any) -> None:
        if verb == "write" and about.key.pk.startswith("log#") and not helped:
            helped.append(None)
            helped[0] = other.produce("b", dedup_id="x")
            for number in range(40):
                other.produce(f"{number:050}")

    store.before = meanwhile
    assert topic.produce("a", dedup_id="x") == helped[0]
    assert bodies(topic.read()["messages"]).count("a") == 1
    assert "b" not in bodies(topic.read()["messages"])


def test_an_append_that_fails_after_its_record_has_an_unknown_outcome(
    store: TroubledStore, client: Client, topic: Topic
) -> None:
    store.before = throttled_queue(0)
    for _ in range(2):  # the second tries to finish the append of the first
        answer = client.post(f"{topic.path}/messages", messages=[{"body": "a", "dedup_id": "x"}])
        assert answer.problem == (503, "StoreUnavailable")
        assert answer.json["outcome"] == "unknown"


def test_all_that_shares_an_entry_with_a_dedup_id_has_an_unknown_outcome(store: TroubledStore, client: Client) -> None:
    topic = client.topic("orders", queues=2)
    store.before = throttled_queue(0)
    batch = [{"body": "a", "dedup_id": "x", "queue": 0}, {"body": "b", "queue": 0}, {"body": "c", "queue": 1}]
    *failed, _ = client.post(f"{topic.path}/messages", messages=batch).json["messages"]
    assert [each["error"]["outcome"] for each in failed] == ["unknown"] * 2


def test_a_record_that_surely_failed_stores_nothing_and_is_known_to_fail(
    store: TroubledStore, client: Client, topic: Topic
) -> None:
    store.before = unavailable("write")
    answer = client.post(f"{topic.path}/messages", messages=[{"body": "a", "dedup_id": "x"}])
    assert answer.problem == (503, "StoreUnavailable")
    assert "outcome" not in answer.json
    store.before = unavailable()
    assert topic.read()["messages"] == []


def test_a_plain_message_that_failed_beside_a_repeat_is_known_to_fail(store: TroubledStore, topic: Topic) -> None:
    first = topic.produce("a", dedup_id="x")
    store.before = throttled_queue(0)
    batch = [{"body": "a", "dedup_id": "x"}, {"body": "b"}]
    answer = topic.client.post(f"{topic.path}/messages", messages=batch)
    assert answer.json["messages"] == [*first, {"error": {"code": "StoreUnavailable", "detail": "the store throttled"}}]


def test_a_topic_that_is_deleted_does_not_get_a_log_again_by_a_repeat(
    store: TroubledStore, client: Client, topic: Topic
) -> None:
    other = Topic(client.another(), "orders")
    store.after = unknown("write")
    client.post(f"{topic.path}/messages", messages=[{"body": "a", "dedup_id": "x"}])
    store.after = unavailable()
    other.delete()
    answer = client.post(f"{topic.path}/messages", messages=[{"body": "a", "dedup_id": "x"}])
    assert answer.problem == (404, "TopicNotFound")
    segments = [item for pk, items in store._items.items() if pk.startswith("log#") for item in items.values()]
    assert [each["closed"] and each["entries"] for each in segments] == [[]]


# -- messages that wait -----------------------------------------------------------------------------------------------


def test_a_delayed_message_waits_once_and_is_delivered_once(topic: Topic) -> None:
    group = topic.group("billing")
    [first] = topic.produce("a", dedup_id="x", delay_ms=5_000)
    assert topic.produce("b", dedup_id="x", delay_ms=9_000) == [first]
    assert topic.produce("c", dedup_id="x") == [first]
    topic.client.clock.sleep(20_000)
    assert bodies(group.pop()["messages"]) == ["a"]
    assert topic.produce("d", dedup_id="x", delay_ms=1) == [first]
    topic.client.clock.sleep(20_000)
    assert group.pop()["messages"] == []


def test_an_id_of_a_message_in_the_log_is_taken_for_delayed_ones_too(topic: Topic) -> None:
    [first] = topic.produce("a", dedup_id="x")
    assert topic.produce("b", dedup_id="x", delay_ms=5_000) == [first]
    assert topic.client.get(f"{topic.path}/delayed").json["messages"] == []


@pytest.mark.parametrize("number", range(6))
@pytest.mark.parametrize("fault", ["before", "after"])
def test_a_delayed_produce_that_failed_anywhere_is_repeated_and_waits_once(
    store: TroubledStore, topic: Topic, number: int, fault: str
) -> None:
    batch = [{"body": "a", "dedup_id": "x", "delay_ms": 5_000}, {"body": BIG, "dedup_id": "y", "delay_ms": 5_000}]
    setattr(store, fault, lost_reply(number))
    topic.client.post(f"{topic.path}/messages", messages=batch)
    setattr(store, fault, unavailable())
    first = topic.produce(*batch)
    assert topic.produce(*batch) == first
    waiting = topic.client.get(f"{topic.path}/delayed").json["messages"]
    assert {each["message_id"] for each in waiting} == {each["message_id"] for each in first}
    assert len(waiting) == 2


# -- order in one request ---------------------------------------------------------------------------------------------


def test_no_message_overtakes_one_whose_first_request_was_cut_short(topic: Topic, store: TroubledStore) -> None:
    store.before = throttled_queue(0)
    assert topic.client.post("/topics/orders/messages", messages=[{"body": "a", "dedup_id": "x"}]).status == 503
    store.before = _once(throttled_queue(0))
    another = Topic(topic.client.another(), "orders")
    batch = [{"body": "a", "dedup_id": "x"}, {"body": "b", "dedup_id": "y"}]
    assert another.client.post("/topics/orders/messages", messages=batch).status == 503
    assert topic.read()["messages"] == []
    another.produce(*batch)
    assert bodies(topic.read()["messages"]) == ["a", "b"]


def test_no_message_overtakes_those_of_another_transaction(topic: Topic, store: TroubledStore) -> None:
    batch = [{"body": str(number), "dedup_id": str(number)} for number in range(2 * TRANSACTION_ITEMS_MAX)]
    store.before = _once(unavailable("write_together"))
    assert topic.client.post("/topics/orders/messages", messages=batch).status == 503
    assert topic.read()["messages"] == []
    topic.produce(*batch)
    assert bodies(topic.read(limit=1_000)["messages"]) == [message["body"] for message in batch]


def _once(trouble: Trouble) -> Trouble:
    """The first request that meets the trouble is the last."""
    met: list[Exception] = []

    def once(verb: str, about: Any) -> Exception | None:
        error = None if met else trouble(verb, about)
        met.extend([error] if error else [])
        return error

    return once
