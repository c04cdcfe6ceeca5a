"""In a broadcast group every consumer gets every message, and what one does no other sees."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.core.base.limits import DAY_MS, HOUR_MS, IDLE_CONSUMER_MS, RECEIPT_CHARS_MAX
from tests.support.client import Client, Group, Json, Topic, bodies, failed, offsets
from tests.support.clock import Clock

KEPT = 365 * DAY_MS


@pytest.fixture
def topic(client: Client) -> Topic:
    """A topic of one queue, which keeps its messages for long."""
    topic = client.topic("orders")
    assert client.put(topic.path, retention_ms=KEPT).status == 200
    return topic


@pytest.fixture
def group(topic: Topic) -> Group:
    return topic.group("caches", mode="broadcast")


class Consumer:
    """One consumer of the group."""

    def __init__(self, group: Group, name: str) -> None:
        self.group = group
        self.name = name

    def pop(self, **fields: Any) -> Json:
        return self.group.pop(consumer_id=self.name, **fields)

    def take(self, count: int, **fields: Any) -> list[Json]:
        return self.group.take(count, consumer_id=self.name, **fields)

    def gets_nothing(self) -> bool:
        return not self.pop()["messages"]


@pytest.fixture
def ann(group: Group) -> Consumer:
    return Consumer(group, "ann")


@pytest.fixture
def bob(group: Group) -> Consumer:
    return Consumer(group, "bob")


# -- the mode ---------------------------------------------------------------------------------------------------------


def test_a_group_is_clustering_unless_it_says_otherwise(topic: Topic, group: Group) -> None:
    assert topic.group("shared").progress()["mode"] == "clustering"
    assert topic.group("null", mode=None).progress()["mode"] == "clustering"
    assert group.progress()["mode"] == "broadcast"


def test_the_mode_cannot_be_changed_later(topic: Topic, group: Group) -> None:
    answer = group.client.put(group.path, mode="clustering", invisible_ms=77)
    assert answer.problem == (400, "InvalidField")
    assert all(word in answer.json["detail"] for word in ("'mode'", "'caches'", '"broadcast"', '"clustering"'))
    assert group.progress()["invisible_ms"] == 30_000
    assert topic.client.put(topic.group("shared").path, mode="broadcast").problem == (400, "InvalidField")
    group.change(mode="broadcast", invisible_ms=77)
    assert (group.progress()["mode"], group.progress()["invisible_ms"]) == ("broadcast", 77)


def test_a_group_made_again_may_have_another_mode(topic: Topic, group: Group, ann: Consumer) -> None:
    topic.produce("a")
    elsewhere = group.seen_by(topic.client.another())
    old = ann.take(1)
    group.delete()
    again = topic.group("caches")
    assert bodies(again.take(1)) == ["a"]
    assert again.pop()["messages"] == elsewhere.pop()["messages"] == []
    assert failed(again.ack(*old)) == ["ReceiptInvalid"]
    again.delete()
    third = topic.group("caches", mode="broadcast")
    assert bodies(elsewhere.take(1, consumer_id="bob")) == bodies(third.take(1, consumer_id="ann")) == ["a"]


@pytest.mark.parametrize("knows", [False, True])
def test_a_pop_must_say_whose_it_is_and_acks_nothing_when_it_does_not(group: Group, ann: Consumer, knows: bool) -> None:
    group.topic.produce("a")
    receipt = ann.take(1)[0]["receipt"]
    client = group.client if knows else group.client.another()
    answer = client.post(f"{group.path}/pop", ack=[receipt])
    assert answer.problem == (400, "InvalidField")
    assert "'consumer_id'" in answer.json["detail"]
    assert group.totals()[1] == 1


# -- every consumer gets every message --------------------------------------------------------------------------------


def test_every_consumer_gets_every_message(group: Group, ann: Consumer, bob: Consumer) -> None:
    group.topic.produce("a", "b")
    first = ann.take(1)
    assert bodies(bob.take(2)) == ["a", "b"]
    assert bodies(ann.take(1)) == ["b"]
    assert group.ack(*first)["acked"] == 1
    group.topic.produce("c")
    assert bodies(bob.take(1)) == bodies(ann.take(1)) == bodies(Consumer(group, "new").take(3)[2:]) == ["c"]
    assert ann.gets_nothing()
    assert bob.gets_nothing()


def test_every_consumer_gets_every_message_over_queues_and_instances(client: Client) -> None:
    topic = client.topic("wide", queues=4)
    group = topic.group("caches", mode="broadcast")
    sent = {f"m{number}" for number in range(40)}
    for body in sorted(sent):
        topic.produce(body, queue=int(body[1:]) % 4)
    instances = [group, group.seen_by(client.another()), group.seen_by(client.another().another())]
    got: dict[str, list[str]] = {"ann": [], "bob": [], "eve": []}
    for turn in range(60):
        for name, seen in got.items():
            instance = instances[(turn + len(name) + len(seen)) % 3]
            taken = instance.pop(consumer_id=name, max_messages=3)["messages"]
            seen += bodies(taken)
            if taken and name != "eve":
                assert instance.ack(*taken)["acked"] == len(taken)
    assert [sorted(seen) for seen in got.values()] == [sorted(sent)] * 3
    assert group.totals() == (0, 40, 0, 0)


def test_any_text_can_be_a_consumer(group: Group) -> None:
    names = ["ann", "Ann", "a#b", "ä" * 128, "\N{SNOWMAN}", " ", "000", "\x7f", "settings"]
    group.topic.produce("a")
    taken = [Consumer(group, name).take(1)[0] for name in names]
    assert all(len(each["receipt"]) <= RECEIPT_CHARS_MAX for each in taken)
    assert group.totals() == (0, len(names), 0, 0)
    assert group.ack(*taken)["acked"] == len(names)


def test_a_consumer_that_does_not_ack_gets_its_messages_again(
    clock: Clock, group: Group, ann: Consumer, bob: Consumer
) -> None:
    group.topic.produce("a", "b")
    assert group.ack(*ann.take(2))["acked"] == 2
    lost = bob.take(2)
    clock.sleep(30_000)
    again = bob.take(2)
    assert [each["attempt"] for each in again] == [2, 2]
    assert ann.gets_nothing()
    assert failed(group.ack(lost[0])) == ["LeaseLost"]
    assert group.ack(*again)["acked"] == 2
    assert group.totals() == (0, 0, 0, 0)


def test_a_new_consumer_begins_at_the_start_of_the_group(topic: Topic, clock: Clock) -> None:
    topic.produce("a")
    clock.sleep(1_000)
    groups = [
        topic.group(f"g{place}", mode="broadcast", start=start) for place, start in enumerate(["latest", clock.ms])
    ]
    topic.produce("b")
    clock.sleep(DAY_MS)
    topic.produce("c")
    for group in groups:
        for name in "ann", "bob":
            assert bodies(Consumer(group, name).take(2)) == ["b", "c"]


def test_an_ack_rides_in_the_pop_of_its_consumer_and_of_another(group: Group, ann: Consumer, bob: Consumer) -> None:
    group.topic.produce("a", "b")
    mine, yours = ann.take(1), bob.take(1)
    answer = ann.pop(ack=[mine[0]["receipt"], yours[0]["receipt"]])
    assert (answer["acked"], bodies(answer["messages"])) == (2, ["b"])
    assert bodies(bob.take(1)) == ["b"]
    assert group.totals() == (0, 2, 0, 0)


def test_an_attempt_is_known_per_consumer(group: Group, ann: Consumer, bob: Consumer) -> None:
    group.topic.produce("a", "b")
    first = ann.take(1, attempt_id="x")
    other = bob.take(1, attempt_id="x")
    assert first[0]["receipt"] != other[0]["receipt"]
    assert ann.take(1, attempt_id="x") == first
    assert group.seen_by(group.client.another()).take(1, consumer_id="bob", attempt_id="x") == other


def test_the_cap_on_messages_in_flight_holds_for_each_consumer(topic: Topic) -> None:
    group = topic.group("few", mode="broadcast", max_in_flight=1)
    topic.produce("a", "b")
    for name in "ann", "bob":
        answer = Consumer(group, name).pop()
        assert (bodies(answer["messages"]), answer["limited"]) == (["a"], "in_flight")


# -- settling ---------------------------------------------------------------------------------------------------------


def test_a_receipt_settles_for_its_own_consumer_only(group: Group, ann: Consumer, bob: Consumer) -> None:
    group.topic.produce("a")
    mine, _ = ann.take(1), bob.take(1)
    assert group.ack(*mine)["acked"] == 1
    assert group.totals() == (0, 1, 0, 0)
    assert failed(group.nack(*mine)) == ["LeaseLost"]
    other = group.topic.group("other", mode="broadcast")
    assert failed(other.ack(*mine)) == ["ReceiptInvalid"]


def test_a_nack_brings_a_message_back_to_its_consumer(clock: Clock, group: Group, ann: Consumer, bob: Consumer) -> None:
    group.topic.produce("a")
    mine, _ = ann.take(1), bob.take(1)
    assert group.nack(*mine, delay_ms=500)["nacked"] == 1
    assert group.totals() == (0, 1, 1, 0)
    assert ann.gets_nothing()
    clock.sleep(500)
    assert bob.gets_nothing()
    again = ann.take(1)
    assert (again[0]["attempt"], offsets(again)) == (2, [0])


def test_an_extension_is_of_one_consumer(clock: Clock, group: Group, ann: Consumer, bob: Consumer) -> None:
    group.topic.produce("a")
    mine, _ = ann.take(1), bob.take(1)
    extended = group.extend(*mine, invisible_ms=60_000)["extended"]
    clock.sleep(30_000)
    assert ann.gets_nothing()
    assert len(bob.take(1)) == 1
    assert group.ack(extended[0]["new_receipt"])["acked"] == 1
    assert failed(group.extend(*mine)) == ["LeaseLost"]


def letters(group: Group) -> list[Any]:
    """As they lie in the table."""
    store = group.client.store
    items = [
        item for partition, held in store._items.items() if partition.startswith("dead#") for item in held.values()
    ]
    return sorted((item["sk"], item["reason"], item["attempts"]) for item in items)


def test_two_consumers_can_each_give_up_the_same_message(group: Group, ann: Consumer, bob: Consumer) -> None:
    group.topic.produce("a", "b")
    mine, yours = ann.take(2), bob.take(1)
    assert group._post("bury", receipts=[mine[0]["receipt"]], reason="ann's")["buried"] == 1
    assert group.totals() == (1, 2, 0, 1)
    assert group._post("bury", receipts=[yours[0]["receipt"]], reason="bob's")["buried"] == 1
    assert group.totals() == (1, 1, 0, 2)
    assert sorted(reason for _, reason, _ in letters(group)) == ["ann's", "bob's"]
    assert failed(group.ack(mine[0], yours[0])) == ["LeaseLost"] * 2
    assert bodies(bob.take(1)) == ["b"]


def test_attempts_are_counted_per_consumer(topic: Topic, clock: Clock) -> None:
    group = topic.group("twice", mode="broadcast", max_attempts=2)
    ann, bob = Consumer(group, "ann"), Consumer(group, "bob")
    topic.produce("a")
    for _ in range(2):
        ann.take(1)
        clock.sleep(30_000)
    assert ann.gets_nothing()
    assert group.totals() == (0, 0, 0, 1)
    first = bob.take(1)
    assert first[0]["attempt"] == 1
    group.nack(*first, delay_ms=0)
    assert group.nack(*bob.take(1))["nacked"] == 1
    assert group.totals() == (0, 0, 0, 2)
    assert bob.gets_nothing()


# -- dead letters -----------------------------------------------------------------------------------------------------


@pytest.fixture
def dead(group: Group, ann: Consumer, bob: Consumer) -> list[Json]:
    """Both gave up `a`, ann also `b`."""
    group.topic.produce("a", "b")
    mine, yours = ann.take(2), bob.take(1)
    for taken in mine, yours:
        group._post("bury", receipts=[each["receipt"] for each in taken])
    listed: list[Json] = group.client.get(f"{group.path}/dead").json["messages"]
    return listed


def test_the_dead_of_all_consumers_are_one_list(group: Group, dead: list[Json]) -> None:
    assert bodies(dead) == ["a", "a", "b"]
    paged: list[Json] = []
    token: list[str] = []
    while not paged or token:
        page = group.client.get(f"{group.path}/dead", limit=1, **({"next": token.pop()} if token else {})).json
        paged += page["messages"]
        token = [page["next"]] if page["next"] else []
    assert paged == dead
    for wrong in "MDow.x", "MDow.", ".":
        assert group.client.get(f"{group.path}/dead", next=wrong).problem == (400, "InvalidField")


@pytest.mark.parametrize("is_named", [False, True])
def test_a_redrive_brings_each_back_to_the_consumer_that_failed(
    group: Group, ann: Consumer, bob: Consumer, dead: list[Json], is_named: bool
) -> None:
    new = Consumer(group, "new")
    group.ack(*new.take(2))
    named = {"message_ids": [dead[0]["message_id"]]} if is_named else {}
    assert group._post("dead/redrive", **named) == {"redriven": 2 if is_named else 3, "remaining": int(is_named)}
    back = ann.take(1 if is_named else 2)
    assert [each["attempt"] for each in back] == [1] * len(back)
    assert bodies(bob.take(2)) == ["a", "b"]
    assert new.gets_nothing()
    assert ann.gets_nothing()
    assert group.totals() == (0, len(back) + 2, 0, int(is_named))


def test_the_dead_of_a_forgotten_consumer_can_be_redriven_or_purged(
    clock: Clock, group: Group, ann: Consumer, dead: list[Json]
) -> None:
    clock.sleep(IDLE_CONSUMER_MS + 1)
    assert sweep(group) == 2
    assert group._post("dead/redrive", message_ids=[dead[2]["message_id"]]) == {"redriven": 1, "remaining": 2}
    assert group.client.delete(f"{group.path}/dead").json == {"purged": 2}
    assert bodies(ann.take(2)) == ["a", "b"]
    assert ann.gets_nothing()
    assert group.totals() == (0, 2, 0, 0)


def test_a_cursor_that_counted_dead_letters_goes_with_them(clock: Clock, group: Group, dead: list[Json]) -> None:
    clock.sleep(IDLE_CONSUMER_MS + 1)
    assert (sweep(group), cursors(group)) == (2, 2)
    group.client.delete(f"{group.path}/dead")
    assert (sweep(group), cursors(group)) == (0, 0)


def test_more_letters_of_one_message_than_one_transaction_removes(group: Group) -> None:
    group.topic.produce("a")
    for number in range(100):
        taken = Consumer(group, f"c{number}").take(1)
        group._post("bury", receipts=[taken[0]["receipt"]])
    assert group._post("dead/redrive") == {"redriven": 100, "remaining": 0}
    assert group.totals() == (100, 0, 0, 0)


# -- progress ---------------------------------------------------------------------------------------------------------


def test_progress_sums_over_consumers(clock: Clock, group: Group, ann: Consumer, bob: Consumer) -> None:
    stored = clock.ms
    group.topic.produce("a", "b", "c")
    assert group.totals() == (3, 0, 0, 0)
    clock.sleep(1_000)
    group.topic.produce("d")
    group.ack(*ann.take(3))
    clock.sleep(1_000)
    bob.take(1)
    assert group.totals() == (1 + 3, 1, 0, 0)
    assert group.queue() == {
        "queue": 0,
        "committed_offset": 0,
        "next_offset": 1,
        "end_offset": 4,
        "ready": 4,
        "in_flight": 1,
        "oldest_ready_at_ms": stored,
        "last_pop_at_ms": stored + 2_000,
        "last_consumer_id": "bob",
    }
    clock.sleep(1_000)
    ann.take(1)
    assert group.queue()["last_consumer_id"] == "ann"


def test_progress_knows_queues_that_no_consumer_has_read(client: Client) -> None:
    topic = client.topic("orders", queues=2)
    group = topic.group("copies", mode="broadcast")
    topic.produce("a", queue=0)
    for consumer in ("ann", "bob"):
        assert group.pop(consumer_id=consumer)["messages"]
    assert [queue["last_consumer_id"] is None for queue in group.progress()["queues"]] == [False, True]


def test_with_no_consumer_it_stands_where_the_first_will_begin(topic: Topic) -> None:
    topic.produce("a")
    latest = topic.group("latest", mode="broadcast", start="latest")
    topic.produce("b")
    queue = latest.queue()
    assert (queue["committed_offset"], queue["next_offset"], queue["ready"]) == (1, 1, 1)
    assert (queue["last_pop_at_ms"], queue["last_consumer_id"]) == (None, None)


def test_a_page_of_groups_has_the_totals(topic: Topic, group: Group, ann: Consumer, bob: Consumer) -> None:
    topic.group("shared")
    topic.produce("a")
    ann.take(1)
    bob.take(1)
    Consumer(group, "eve").take(1)
    listed = topic.client.get(f"{topic.path}/groups", limit=1).json
    rest = topic.client.get(f"{topic.path}/groups", limit=1, next=listed["next"]).json
    found = [
        (each["group"], each["mode"], each["ready"], each["in_flight"]) for each in listed["groups"] + rest["groups"]
    ]
    assert found == [("caches", "broadcast", 0, 3), ("shared", "clustering", 1, 0)]
    assert rest["next"] is None


# -- reset ------------------------------------------------------------------------------------------------------------


def test_a_reset_moves_every_consumer_and_voids_their_leases(group: Group, ann: Consumer, bob: Consumer) -> None:
    group.topic.produce("a", "b")
    mine, yours = ann.take(1), bob.take(2)
    group.ack(yours[0])
    assert group.reset("earliest")["ready"] == 4
    assert failed(group.ack(*mine, *yours)) == ["LeaseLost"] * 3
    assert failed(group.nack(*yours)) == ["LeaseLost"] * 2
    assert bodies(ann.take(2)) == bodies(bob.take(2)) == ["a", "b"]
    assert group.reset({"queue": 0, "offset": 1})["ready"] == 2
    assert bodies(ann.take(1)) == bodies(bob.take(1)) == ["b"]


def test_a_reset_reaches_the_queues_that_a_consumer_has_not_read(client: Client) -> None:
    topic = client.topic("wide", queues=3)
    group = topic.group("caches", mode="broadcast")
    ann = Consumer(group, "ann")
    topic.produce("warm", queue=1)
    group.ack(*ann.take(1))
    topic.produce("a", queue=0)
    assert group.reset("latest")["ready"] == 0
    assert ann.gets_nothing()
    topic.produce("b", queue=0)
    assert bodies(ann.take(1)) == ["b"]


def test_a_new_consumer_begins_at_the_start_after_a_reset_too(group: Group, ann: Consumer, bob: Consumer) -> None:
    group.topic.produce("a")
    group.ack(*ann.take(1))
    group.reset("latest")
    assert ann.gets_nothing()
    assert bodies(bob.take(1)) == ["a"]


# -- forgetting -------------------------------------------------------------------------------------------------------


def sweep(group: Group) -> int:
    service = group.client.api.service
    topic = service.env.catalogue.current_topic(group.topic.name)
    return service.cursors.consumers.forget_idle(
        topic, service.env.catalogue.group(topic, group.name), group.client.clock.ms
    )


def cursors(group: Group) -> int:
    items = group.client.store._items
    return sum(sk.startswith("cursor#") for pk, held in items.items() if pk.startswith("group#") for sk in held)


@pytest.mark.parametrize("is_swept", [False, True])
def test_a_consumer_is_forgotten_after_seven_idle_days(
    clock: Clock, group: Group, ann: Consumer, bob: Consumer, is_swept: bool
) -> None:
    group.topic.produce("a", "b")
    group.ack(*ann.take(2))
    yours = bob.take(1)
    clock.sleep(IDLE_CONSUMER_MS)
    assert (sweep(group), ann.gets_nothing()) == (0, True)
    clock.sleep(1)
    if is_swept:
        assert sweep(group) == 1
        assert sweep(group) == 0
    assert group.totals() == (0, 0, 0, 0)
    again = bob.take(2)
    assert [each["attempt"] for each in again] == [1, 1]
    assert ann.gets_nothing()
    assert group.totals() == (0, 2, 0, 0)
    assert failed(group.ack(*yours)) == ["LeaseLost"]
    assert group.ack(*again)["acked"] == 2


def test_a_receipt_of_a_forgotten_consumer_is_lost(clock: Clock, group: Group, ann: Consumer, bob: Consumer) -> None:
    group.topic.produce("a")
    mine, yours = ann.take(1), bob.take(1)
    clock.sleep(IDLE_CONSUMER_MS - 1)
    bob.pop()
    clock.sleep(2)
    assert sweep(group) == 1
    assert failed(group.ack(*mine)) == ["LeaseLost"]
    assert failed(group._post("bury", receipts=[mine[0]["receipt"]])) == ["LeaseLost"]
    assert failed(group.ack(*yours, *mine)) == ["LeaseLost", "LeaseLost"]
    group.delete()
    assert group.client.post(f"{group.path}/ack", receipts=[mine[0]["receipt"]]).problem == (404, "GroupNotFound")


def test_an_acked_receipt_is_lost_too_once_its_consumer_is_forgotten(
    client: Client, clock: Clock, group: Group, ann: Consumer
) -> None:
    """Whatever the instance knows that acked it."""
    group.topic.produce("a", "b")
    acked, _ = ann.take(2)
    assert failed(group.ack(acked)) == []
    clock.sleep(IDLE_CONSUMER_MS + 1)
    assert sweep(group.seen_by(client.another())) == 1
    assert failed(group.ack(acked)) == ["LeaseLost"]


def test_the_same_attempt_of_a_consumer_that_was_forgotten_is_another(
    clock: Clock, group: Group, ann: Consumer
) -> None:
    group.topic.produce("a")
    old = ann.take(1, attempt_id="x")
    clock.sleep(IDLE_CONSUMER_MS + 1)
    new = ann.take(1, attempt_id="x")
    assert new[0]["receipt"] != old[0]["receipt"]
    assert failed(group.ack(*old)) == ["LeaseLost"]
    assert group.ack(*new)["acked"] == 1


@pytest.mark.parametrize("is_paused", [False, True])
def test_a_consumer_that_finds_nothing_for_long_is_not_idle(
    clock: Clock, group: Group, ann: Consumer, is_paused: bool
) -> None:
    group.topic.produce("a")
    group.ack(*ann.take(1))
    group.change(paused=is_paused)
    for _ in range(9):
        clock.sleep(DAY_MS)
        assert ann.gets_nothing()
    group.change(paused=False)
    assert sweep(group) == 0
    assert ann.gets_nothing()


def test_a_consumer_is_forgotten_in_all_queues_whichever_it_read_last(client: Client, clock: Clock) -> None:
    topic = client.topic("wide", queues=3)
    assert client.put(topic.path, retention_ms=KEPT).status == 200
    group = topic.group("caches", mode="broadcast")
    ann = Consumer(group, "ann")
    for queue in range(3):
        topic.produce("old", queue=queue)
        group.ack(*ann.take(1))
        clock.sleep(6 * DAY_MS)
    assert ann.gets_nothing()
    clock.sleep(IDLE_CONSUMER_MS + 1)
    assert group.totals() == (3, 0, 0, 0)
    assert sorted(each["queue"] for _ in range(3) for each in ann.take(1)) == [0, 1, 2]


def test_dead_letters_outlive_their_consumer(clock: Clock, group: Group, ann: Consumer) -> None:
    group.topic.produce("a", "b")
    mine = ann.take(2)
    group._post("bury", receipts=[mine[0]["receipt"]])
    clock.sleep(IDLE_CONSUMER_MS + 1)
    assert group.totals() == (2, 0, 0, 1)
    assert (sweep(group), sweep(group)) == (1, 0)
    assert group.totals() == (2, 0, 0, 1)
    assert bodies(ann.take(2)) == ["a", "b"]
    assert failed(group.ack(mine[1])) == ["LeaseLost"]
    assert group.totals() == (0, 2, 0, 1)


def test_a_reset_leaves_the_forgotten_forgotten(clock: Clock, group: Group, ann: Consumer) -> None:
    group.topic.produce("a")
    group.ack(*ann.take(1))
    clock.sleep(IDLE_CONSUMER_MS + 1)
    group.reset("latest")
    assert bodies(ann.take(1)) == ["a"]


def test_a_pop_looks_for_nobody_else(group: Group, ann: Consumer) -> None:
    group.topic.produce("a")
    for number in range(300):
        Consumer(group, f"c{number}").take(1)
    fresh = group.seen_by(group.client.another())
    fresh.pop(consumer_id="ann")
    group.topic.produce("more")
    meter = group.client.store.meter
    before = meter.copy()
    assert fresh.take(1, consumer_id="ann")
    assert meter.since(before).read_units <= 3


def test_deleting_the_group_removes_the_cursors_of_all(group: Group) -> None:
    group.topic.produce("a")
    for number in range(250):
        Consumer(group, f"c{number}").take(1)
    assert cursors(group) == 250
    group.delete()
    assert cursors(group) == 0


def test_a_pop_within_the_hour_notes_nothing(clock: Clock, group: Group, ann: Consumer) -> None:
    group.topic.produce("a")
    group.ack(*ann.take(1))
    meter = group.client.store.meter
    clock.sleep(HOUR_MS)
    before = meter.copy()
    assert ann.gets_nothing()
    assert meter.since(before).write_units == 0
    clock.sleep(1)
    assert ann.gets_nothing()
    assert meter.since(before).write_units == 1


def test_an_ordered_group_keeps_the_order_for_each_consumer(topic: Topic) -> None:
    group = topic.group("steps", mode="broadcast", ordered=True)
    ann, bob = Consumer(group, "ann"), Consumer(group, "bob")
    topic.produce("a", "b")
    held = ann.take(1)
    assert ann.gets_nothing()
    assert group.ack(*bob.take(1))["acked"] == 1
    assert bodies(bob.take(1)) == ["b"]
    group.ack(*held)
    assert bodies(ann.take(1)) == ["b"]


def test_the_rate_is_of_all_consumers_together(topic: Topic) -> None:
    group = topic.group("slow", mode="broadcast", rate_limit=2)
    topic.produce("a", "b", "c")
    Consumer(group, "ann").take(1)
    Consumer(group, "bob").take(1)
    answer = Consumer(group, "eve").pop()
    assert (answer["messages"], answer["limited"]) == ([], "rate")
