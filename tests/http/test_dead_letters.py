"""Dead letters: listed, redriven, purged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import pytest

from chalicelib.core.base.limits import DEAD_MS, HOUR_MS, MESSAGE_JSON_BYTES_MAX, REASON_CHARS_MAX
from chalicelib.core.base.message import carried_bytes
from chalicelib.core.cursors.retries import PARKED_MAX
from chalicelib.core.dead_letters import queue as dead_letter_queue
from chalicelib.core.dead_letters.queue import PURGED_TOGETHER_MAX, REDRIVEN_LEASES_MAX
from chalicelib.core.store import Keys, Read
from chalicelib.core.table.writes import Item, Key
from tests.store.strict import StrictStore
from tests.support.client import Client, Group, Json, Topic, bodies, failed, offsets, receipts
from tests.support.clock import Clock


def dead(group: Group, **query: Any) -> Json:
    answer = group.client.get(f"{group.path}/dead", **query)
    assert answer.status == 200, answer.json
    page: Json = answer.json
    return page


def redrive(group: Group, *message_ids: str) -> tuple[int, int]:
    """Redrives these messages, or all of them."""
    body = {"message_ids": list(message_ids)} if message_ids else {}
    answer = group.client.post(f"{group.path}/dead/redrive", **body)
    assert answer.status == 200, answer.json
    return answer.json["redriven"], answer.json["remaining"]


def purge(group: Group) -> int:
    answer = group.client.delete(f"{group.path}/dead")
    assert answer.status == 200, answer.json
    purged: int = answer.json["purged"]
    return purged


def before_reading(client: Client, kind: str, act: Callable[[], object]) -> None:
    """Somebody acts just before the store reads an item of this kind, once."""
    read = client.store.read

    def reading(reads: Sequence[Read]) -> list[list[Item]]:
        if any(kind in key.pk + key.sk for asked in reads if isinstance(asked, Keys) for key in asked.keys):
            client.store.read = read  # type: ignore[method-assign]
            act()
        return read(reads)

    client.store.read = reading  # type: ignore[method-assign]


def bury(group: Group, *messages: Json, reason: str = "") -> None:
    answer = group.client.post(f"{group.path}/bury", receipts=receipts(*messages), reason=reason)
    assert answer.json == {"buried": len(messages), "failed": []}


# -- the list ---------------------------------------------------------------------------------------------------------


def test_the_list_has_whole_messages_and_how_they_died(topic: Topic, group: Group, clock: Clock) -> None:
    stored = topic.produce({"body_base64": "3q2+7w==", "key": "k", "tag": "t", "properties": {"a": "b"}})[0]
    assert dead(group) == {"messages": [], "next": None}
    group.nack(group.take_one(), delay_ms=0)
    clock.sleep(5)
    bury(group, group.take_one(), reason="no such customer")
    assert dead(group)["messages"] == [
        {
            **group.client.get(f"{topic.path}/messages/{stored['message_id']}").json,
            "attempts": 2,
            "reason": "no such customer",
            "dead_at_ms": clock.now(),
        }
    ]


def test_the_list_is_paged_by_queue_and_offset_and_a_page_never_repeats(client: Client) -> None:
    topic = client.topic("many", queues=3)
    group = topic.group("billing")
    for queue in (2, 0, 1):
        topic.produce(*"abcde", queue=queue)
        bury(group, *group.take(5)[::2])
    everything = dead(group)["messages"]
    assert [(each["queue"], each["offset"]) for each in everything] == [(q, o) for q in range(3) for o in (0, 2, 4)]
    first = dead(group, limit=4)
    redrive(group, first["messages"][0]["message_id"], everything[4]["message_id"])
    second = dead(group, limit=4, next=first["next"])
    assert [*first["messages"], *second["messages"]] == [each for each in everything if each != everything[4]]
    assert second["next"] is None


@pytest.mark.parametrize(("count", "body"), [(9, "x" * 600_000), (198, '"' * 6_500)])
def test_a_page_of_large_messages_stays_within_a_response(topic: Topic, group: Group, count: int, body: str) -> None:
    for _ in range(3):
        topic.produce(*[body] * (count // 3))
    while messages := group.pop(max_messages=count)["messages"]:
        bury(group, *messages, reason="\0" * REASON_CHARS_MAX)
    seen, query = [], {"limit": count}
    while query:
        page = group.client.get(f"{group.path}/dead", **query)
        assert carried_bytes(page.raw) < MESSAGE_JSON_BYTES_MAX
        seen += page.json["messages"]
        query = {"limit": count, "next": page.json["next"]} if page.json["next"] else {}
    assert offsets(seen) == [*range(count)]
    assert len(page.json["messages"]) < count


def test_a_message_that_is_longer_than_a_page_is_a_page(topic: Topic, group: Group) -> None:
    topic.produce('"' * 1_400_000, "next")
    bury(group, group.take_one(), group.take_one())
    assert offsets(dead(group)["messages"]) == [0]


def test_a_page_has_no_less_for_large_messages_that_live(client: Client) -> None:
    topic = client.topic("two", queues=2)
    group = topic.group("billing")
    topic.produce("dead", queue=0)
    for _ in range(2):
        topic.produce("x" * 3_000_000, queue=0)
    topic.produce("lives", "dead", "dead", queue=1)
    taken: list[Json] = []
    while messages := group.pop(max_messages=10)["messages"]:
        taken += messages
    bury(group, *(each for each in taken if each["body"] == "dead"))
    page = dead(group)
    assert ([each["body"] for each in page["messages"]], page["next"]) == (["dead"] * 3, None)


def test_pages_leave_out_no_message_beside_large_ones(topic: Topic, group: Group) -> None:
    for number in range(3):
        topic.produce(str(number), "x" * 2_700_000)
        small, _ = group.take(2)
        bury(group, small)
    seen, page = [], dead(group)
    while page["next"]:
        seen += page["messages"]
        page = dead(group, next=page["next"])
    assert bodies([*seen, *page["messages"]]) == ["0", "1", "2"]


def test_a_letter_whose_message_is_in_the_log_no_more_is_left_out(topic: Topic, group: Group, client: Client) -> None:
    for number in range(10):
        topic.produce(Random(number).randbytes(300).hex())
    bury(group, *group.take(10))
    log = next(pk for pk in client.store._items if pk.startswith("log#"))
    first = min(client.store._items[log])
    client.store.remove_all([Key(log, first)])
    seen = dead(group.seen_by(client.another()))
    assert seen["next"] is None
    assert offsets(seen["messages"]) == list(range(int(min(client.store._items[log])), 10))


# -- redriving --------------------------------------------------------------------------------------------------------


def test_a_redriven_message_comes_again_as_if_for_the_first_time(topic: Topic, clock: Clock) -> None:
    group, other = topic.group("twice", max_attempts=2), topic.group("other")
    stored = topic.produce("a")[0]
    other.ack(other.take_one())
    for _ in range(2):
        for attempt in (1, 2):
            message = group.take_one()
            assert (message["attempt"], message["message_id"]) == (attempt, stored["message_id"])
            group.nack(message, delay_ms=0, reason="again")
        assert group.totals() == (0, 0, 0, 1)
        assert redrive(group) == (1, 0)
        assert group.totals() == (1, 0, 0, 0)
        assert dead(group)["messages"] == []
    group.ack(group.take_one())
    assert group.totals() == (0, 0, 0, 0)
    assert other.pop()["messages"] == []


def test_a_message_that_may_be_tried_once_is_redriven_too(topic: Topic, clock: Clock) -> None:
    group = topic.group("once", max_attempts=1)
    topic.produce("a")
    for _ in range(3):
        assert group.take_one(invisible_ms=1_000)["attempt"] == 1
        clock.sleep(1_000)
        assert group.pop()["messages"] == []
        assert redrive(group) == (1, 0)


def test_named_messages_are_redriven_and_the_others_stay(topic: Topic, group: Group) -> None:
    topic.produce(*"abcde")
    bury(group, *group.take(5))
    ids = [each["message_id"] for each in dead(group)["messages"]]
    assert redrive(group, ids[3], ids[1], ids[3]) == (2, 3)
    assert bodies(group.take(2)) == ["b", "d"]
    assert offsets(dead(group)["messages"]) == [0, 2, 4]


@pytest.mark.parametrize("sizes", [(1, 1, 1), (300_000,)])
def test_a_dead_message_that_was_delayed_is_redriven_by_its_id(
    topic: Topic, group: Group, clock: Clock, sizes: tuple[int, ...]
) -> None:
    topic.produce("before")
    sent = topic.produce(*["x" * size for size in sizes], delay_ms=100)
    clock.sleep(100)
    bury(group, *group.take(1), *group.take(len(sizes)))
    chosen = sent[-1]["message_id"]
    assert redrive(group, chosen) == (1, len(sizes))
    assert group.take_one()["message_id"] == chosen
    refused = group.client.post(f"{group.path}/dead/redrive", message_ids=[chosen])
    assert refused.problem == (404, "MessageNotFound")


def test_an_id_that_is_not_among_the_dead_is_named_and_nothing_is_redriven(topic: Topic, group: Group) -> None:
    first, second = topic.produce(*"ab")
    bury(group, group.take_one())
    strange = f"{'0' * 16}{first['message_id'][16:]}"
    for message_id in (second["message_id"], strange, "x", "0" * 17 + "91"):
        answer = group.client.post(f"{group.path}/dead/redrive", message_ids=[first["message_id"], message_id])
        assert answer.problem == (404, "MessageNotFound")
        assert message_id in answer.json["detail"]
    assert group.totals() == (1, 0, 0, 1)


def test_a_dead_message_of_a_queue_that_another_has_added_is_redriven(
    topic: Topic, group: Group, client: Client
) -> None:
    assert group.pop()["messages"] == []
    other = client.another()
    other.put(topic.path, queues=2)
    other.post(f"{topic.path}/messages", messages=[{"body": "a", "queue": 1}])
    taken = group.seen_by(other).take_one()
    bury(group.seen_by(other), taken)
    assert redrive(group, taken["message_id"])[0] == 1


@pytest.mark.parametrize("is_reset", [False, True])
def test_a_redrive_meets_a_message_that_dies_again(
    topic: Topic, group: Group, client: Client, clock: Clock, is_reset: bool
) -> None:
    topic.produce("a")
    bury(group, group.take_one())
    other, together = group.seen_by(client.another()), client.store.write_together

    def revive() -> None:
        if is_reset:
            other.reset("earliest")
        else:
            redrive(other)
            clock.sleep(1)
        again = other.take_one()

        def meanwhile(writes: Any) -> None:
            client.store.write_together = together  # type: ignore[method-assign]
            bury(other, again)
            together(writes)

        client.store.write_together = meanwhile  # type: ignore[method-assign]

    before_reading(client, "cursor#", revive)
    redrive(group)
    assert bodies(group.take(1)) == ["a"]


def test_a_group_may_be_deleted_while_its_messages_die(topic: Topic, client: Client, clock: Clock) -> None:
    group, together = topic.group("g", max_attempts=1), client.store.write_together
    topic.produce("a")
    group.take_one(invisible_ms=1)
    clock.sleep(1)

    def meanwhile(writes: Any) -> None:
        client.store.write_together = together  # type: ignore[method-assign]
        together(writes)
        group.seen_by(client.another()).delete()

    client.store.write_together = meanwhile  # type: ignore[method-assign]
    assert client.post(f"{group.path}/pop").problem == (404, "GroupNotFound")


def test_a_receipt_from_before_a_redrive_settles_nothing(topic: Topic, group: Group, client: Client) -> None:
    topic.produce(*"ab")
    old, _ = group.take(2)
    bury(group, old)
    redrive(group)
    for seen in (group, group.seen_by(client.another())):
        for settle in (seen.ack, seen.nack, seen.extend):
            assert failed(settle(old)) == ["LeaseLost"]
    new = group.take_one()
    assert failed(group.ack(old)) == ["LeaseLost"]
    assert group.ack(new)["acked"] == 1


def test_a_late_ack_of_what_another_has_acked_after_its_redrive_is_refused(
    topic: Topic, group: Group, client: Client
) -> None:
    topic.produce("a")
    old = group.take_one()
    bury(group, old)
    redrive(group)
    group.ack(group.take_one())
    assert failed(group.seen_by(client.another()).ack(old)) == ["LeaseLost"]


def test_a_late_ack_beside_one_of_what_dies_meanwhile_is_refused(topic: Topic, client: Client, clock: Clock) -> None:
    group = topic.group("g", settle_by="delivery", invisible_ms=1_000)
    topic.produce(*"abc")
    first, second, third = (group.take_one() for _ in range(3))
    bury(group, third)
    group.ack(first)
    clock.sleep(1_000)
    again = group.take_one(invisible_ms=60_000)
    another = group.seen_by(client.another())
    before_reading(client, "cursor#", lambda: bury(group.seen_by(client.another()), again))
    assert [failure["receipt"] for failure in another.ack(first, second)["failed"]] == [second["receipt"]]


def test_a_late_ack_beside_a_redrive_does_not_take_the_message_for_acked(
    topic: Topic, group: Group, client: Client, clock: Clock
) -> None:
    topic.produce(*"ab")
    old = group.take_one()
    bury(group, old)
    clock.sleep(3_600_000)
    group.ack(group.take_one())  # forgets the witness
    another = group.seen_by(client.another())
    before_reading(client, "dead#", lambda: redrive(group.seen_by(client.another())))
    assert failed(another.ack(old)) == ["LeaseLost"]
    assert group.take_one()["body"] == "a"


def test_neighbours_share_a_lease_and_thousands_are_redriven_in_one_call(topic: Topic, clock: Clock) -> None:
    group = topic.group("bulk", max_in_flight=20_000)
    for _ in range(12):
        topic.produce(*["x"] * 256)
        bury(group, *group.take(256))
    assert redrive(group) == (12 * 256, 0)
    assert group.totals() == (12 * 256, 0, 0, 0)
    came = [each["offset"] for _ in range(12) for each in group.take(256)]
    assert came == list(range(12 * 256))


def test_a_redrive_takes_what_the_cursor_has_room_for_and_leaves_the_rest(
    topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    leases_max = REDRIVEN_LEASES_MAX // 4  # to die one by one takes long
    monkeypatch.setattr(dead_letter_queue, "REDRIVEN_LEASES_MAX", leases_max)
    group = topic.group("bulk", max_in_flight=20_000)
    count = 2 * leases_max + 300  # of which every second dies
    while topic.details()["queue_offsets"][0]["end_offset"] < count:
        topic.produce(*["x"] * 200)
        taken = group.take(200)
        bury(group, *taken[::2])
        group.ack(*taken[1::2])
    done, left = redrive(group)
    assert leases_max - 100 < done <= leases_max
    assert left == count // 2 - done
    assert redrive(group) == (0, left)
    while taken := group.pop(max_messages=256)["messages"]:
        group.ack(*taken)
    assert redrive(group) == (left, 0)
    assert len(group.take(left)) == left


def test_a_queue_without_room_leaves_no_message_of_the_next(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letter_queue, "REDRIVEN_LEASES_MAX", 3)
    topic = client.topic("two", queues=2)
    group = topic.group("billing")
    topic.produce(*"abcde", queue=0)
    in_first = group.take(5)
    topic.produce(*["x"] * (PURGED_TOGETHER_MAX + 2), queue=1)
    bury(group, *in_first[::2], *group.take(PURGED_TOGETHER_MAX + 2))
    group.ack(*in_first[1::2])
    assert redrive(group) == (PURGED_TOGETHER_MAX + 4, 1)
    assert redrive(group) == (0, 1)


def test_the_queue_behind_one_without_room_is_redriven(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letter_queue, "REDRIVEN_LEASES_MAX", 3)
    topic = client.topic("two", queues=2)
    group = topic.group("billing")
    topic.produce(*["x"] * (2 * PURGED_TOGETHER_MAX + 2), queue=0)
    taken = group.take(2 * PURGED_TOGETHER_MAX + 2)
    topic.produce("y", queue=1)
    bury(group, *taken[::2], group.take_one())
    group.ack(*taken[1::2])
    redrive(group)
    assert {each["queue"] for each in dead(group)["messages"]} == {0}


@pytest.mark.parametrize("is_named", [False, True])
def test_one_call_ends_in_time_and_says_what_is_left(
    topic: Topic, group: Group, client: Client, clock: Clock, is_named: bool
) -> None:
    sent = topic.produce(*["x"] * 256)
    bury(group, *group.take(256))
    together = client.store.write_together

    def slow(writes: Any) -> None:
        clock.sleep(DEAD_MS)
        together(writes)

    client.store.write_together = slow  # type: ignore[method-assign]
    named = [each["message_id"] for each in sent] if is_named else []
    assert redrive(group, *named) == (2 * PURGED_TOGETHER_MAX, 256 - 2 * PURGED_TOGETHER_MAX)
    assert purge(group) == 256 - 2 * PURGED_TOGETHER_MAX


def test_no_request_is_larger_than_dynamodb_takes(clock: Clock) -> None:
    client = Client(StrictStore(), clock)
    topic = client.topic("strict")
    group = topic.group("billing", max_attempts=1)
    for _ in range(2):
        topic.produce(*["x"] * 200)
        taken = group.take(200)
        bury(group, *taken[::2])
        for each in taken[1::2]:
            group.nack(each)
        group.reset("latest")
    assert redrive(group) == (400, 0)
    for _ in range(2):
        bury(group, *group.take(200))
    assert purge(group) == 400


# -- after a reset ----------------------------------------------------------------------------------------------------


def test_a_redrive_does_not_repeat_messages_that_a_reset_made_ready(topic: Topic, group: Group) -> None:
    topic.produce(*"abc")
    bury(group, *group.take(3))
    group.reset("earliest")
    leased = group.take_one()
    nacked = group.take_one()
    group.nack(nacked, delay_ms=1_000)
    assert group.totals() == (1, 1, 1, 3)
    assert redrive(group) == (3, 0)
    assert group.totals() == (1, 1, 1, 0)
    assert bodies(group.pop()["messages"]) == ["c"]
    assert group.ack(leased)["acked"] == 1


def test_a_redrive_does_not_repeat_a_message_whose_retry_page_comes_back(
    topic: Topic, group: Group, client: Client, clock: Clock
) -> None:
    topic.produce(*["x"] * (PARKED_MAX + 1))
    bury(group, *group.take(PARKED_MAX + 1))
    group.reset("earliest")
    taken = group.take(PARKED_MAX + 1)
    for message in taken:
        group.nack(message, delay_ms=HOUR_MS)

    clock.sleep(HOUR_MS - 1)

    def bring_back() -> None:
        clock.sleep(1)
        group.seen_by(client.another()).take(PARKED_MAX + 1)

    before_reading(client, "retry#", bring_back)
    assert redrive(group, *(message["message_id"] for message in taken)) == (PARKED_MAX + 1, 0)
    assert sum(group.totals()) == PARKED_MAX + 1


def test_a_redrive_of_old_and_new_letters_repeats_nothing_in_a_page(topic: Topic, group: Group) -> None:
    topic.produce(*["x"] * (PARKED_MAX + 3))
    bury(group, group.take(PARKED_MAX + 3)[-2])
    group.reset("earliest")
    first, *others, last = group.take(PARKED_MAX + 3)
    bury(group, first, last)
    for message in others:
        group.nack(message, delay_ms=HOUR_MS)
    assert redrive(group) == (3, 0)
    assert group.totals() == (2, 0, PARKED_MAX + 1, 0)


def test_a_message_settled_after_a_reset_is_still_dead_and_redrivable(topic: Topic, group: Group) -> None:
    topic.produce("a")
    bury(group, group.take_one())
    group.reset("earliest")
    group.ack(group.take_one())
    assert group.totals() == (0, 0, 0, 1)
    assert redrive(group) == (1, 0)
    assert bodies(group.take(1)) == ["a"]


def test_a_message_that_dies_twice_counts_once(topic: Topic, group: Group, clock: Clock) -> None:
    topic.produce(*"ab")
    bury(group, group.take_one(), reason="first")
    group.reset("earliest")
    clock.sleep(5)
    bury(group, *group.take(2), reason="second")
    assert group.totals() == (0, 0, 0, 2)
    assert [each["reason"] for each in dead(group)["messages"]] == ["second"] * 2
    assert redrive(group) == (2, 0)
    assert group.totals() == (2, 0, 0, 0)


def test_a_message_that_dies_again_while_its_letter_is_purged_counts_once(
    topic: Topic, group: Group, client: Client
) -> None:
    topic.produce("a")
    bury(group, group.take_one())
    group.reset("earliest")
    again, other, together = group.take_one(), group.seen_by(client.another()), client.store.write_together

    def meanwhile(writes: Any) -> None:
        client.store.write_together = together  # type: ignore[method-assign]
        assert purge(other) == 1
        together(writes)

    client.store.write_together = meanwhile  # type: ignore[method-assign]
    bury(group, again)
    assert group.totals() == (0, 0, 0, 1)


# -- purging ----------------------------------------------------------------------------------------------------------


def test_purged_messages_are_gone_and_stay_settled(topic: Topic, group: Group) -> None:
    topic.produce(*["x"] * 200)
    bury(group, *group.take(200))
    assert purge(group) == 200
    assert purge(group) == 0
    assert group.totals() == (0, 0, 0, 0)
    assert dead(group) == {"messages": [], "next": None}
    assert redrive(group) == (0, 0)
    assert group.pop()["messages"] == []
    assert len(topic.read(limit=200)["messages"]) == 200


def test_a_group_may_be_deleted_while_its_letters_are_purged(topic: Topic, group: Group, client: Client) -> None:
    topic.produce("a")
    bury(group, group.take_one())
    together = client.store.write_together

    def meanwhile(writes: Any) -> None:
        client.store.write_together = together  # type: ignore[method-assign]
        group.seen_by(client.another()).delete()
        together(writes)

    client.store.write_together = meanwhile  # type: ignore[method-assign]
    assert client.delete(f"{group.path}/dead").problem == (404, "GroupNotFound")


def test_a_purge_without_a_cursor_ends_in_time(topic: Topic, group: Group, client: Client, clock: Clock) -> None:
    topic.produce("a")
    bury(group, group.take_one())
    together, items = client.store.write_together, client.store._items
    client.store.remove_all([Key(pk, sk) for pk in items for sk in items[pk] if sk.startswith("cursor#")])

    def slowly(writes: Any) -> None:
        clock.sleep(DEAD_MS)
        together(writes)

    client.store.write_together = slowly  # type: ignore[method-assign]
    assert purge(group) == 0
