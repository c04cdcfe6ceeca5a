"""Calls that must see what was stored a moment ago see it, though the replicas that weak reads may come from lag."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from random import Random
from unittest.mock import patch

import pytest

from chalicelib.core.base.errors import GroupNotFound, QueueFull, StoreUnavailable
from chalicelib.core.base.limits import DAY_MS, HOUR_MS, INLINE_BYTES_MAX, SECOND_MS
from chalicelib.core.delays.promoter import DecisionChain
from chalicelib.core.store import Read
from chalicelib.core.table import keys
from chalicelib.core.table.writes import Item, Write
from tests.support.client import ALL_RIGHTS, Client, Group, Json, Topic, bodies, receipts
from tests.support.clock import Clock
from tests.support.instances import instance, with_messages
from tests.support.late_store import LateStore
from tests.support.orders import noise


class World:
    """Until `look`, only strong reads see changes, except a topic of two queues with one old message and one that
    waits, its groups, and a topic for dead messages."""

    def __init__(self) -> None:
        self.store = LateStore()
        self.client = Client(self.store)
        self.clock = self.client.clock
        assert self.client.put("/topics/orders", queues=2, index_keys=True, max_depth=1_000).status == 201
        self.topic, self.graves = Topic(self.client, "orders"), self.client.topic("graves")
        self.group, self.mourner = self.topic.group("billing", start="latest"), self.graves.group("mourner")
        self.moved = self.topic.group("moved", start="latest", dead_letters={"topic": "graves"})
        self.everyone = self.topic.group("everyone", mode="broadcast", start="latest")
        self.topic.produce("old", queue=0)
        [self.waiting] = self.topic.produce("waiting", delay_ms=DAY_MS, queue=1)
        for group in (self.group, self.moved):
            group.reset("now")
        self.store.fall_behind()
        self.past, self.store.past = self.store.past, None

    def look(self) -> Client:
        """Another instance that reads from now on."""
        self.store.past = self.past
        return self.client.another()

    def cancel(self, client: Client, message: Json) -> int:
        return client.delete(f"{self.topic.path}/delayed/{message['message_id']}").status


@pytest.fixture
def world() -> World:
    return World()


def bury(group: Group, *messages: Json, client: Client | None = None) -> None:
    answer = (client or group.client).post(f"{group.path}/bury", receipts=receipts(*messages))
    assert answer.json == {"buried": len(messages), "failed": []}


@contextmanager
def dying_in(step: str) -> Iterator[None]:
    """The caller that carries out a decision dies."""
    with patch.object(DecisionChain, step, side_effect=StoreUnavailable("died")):
        yield


# -- logs -------------------------------------------------------------------------------------------------------------


def test_ends_of_logs_and_resets_to_an_instant_count_the_newest(world: World) -> None:
    world.clock.sleep(1_000)
    world.topic.produce("a", "b", queue=1)
    other = world.look()
    ends = [queue["end_offset"] for queue in other.get(world.topic.path).json["queue_offsets"]]
    assert ends == [1, 2]
    Group(other, Topic(other, "orders"), "billing").reset({"at_ms": world.clock.now() + 1})
    assert world.group.queue(1)["committed_offset"] == 2


def test_a_reset_reaches_a_consumer_that_has_just_come(world: World) -> None:
    world.topic.produce("a", queue=0)
    assert bodies(world.everyone.pop(consumer_id="ann")["messages"]) == ["old", "a"]
    world.everyone.seen_by(world.look()).reset("now")
    world.store.past = None
    world.topic.produce("b", queue=0)
    world.clock.sleep(60_000)
    assert bodies(world.everyone.pop(consumer_id="ann")["messages"]) == ["b"]


def test_a_token_is_found_as_soon_as_it_is_made(world: World) -> None:
    token_id = world.client.post("/tokens", name="a", rights=[ALL_RIGHTS]).json["token_id"]
    assert world.look().get(f"/tokens/{token_id}").status == 200


# -- pops -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["clustering", "broadcast"])
def test_a_pop_of_a_group_that_was_deleted_a_moment_ago_fails(mode: str) -> None:
    store, clock = LateStore(), Clock()
    api = with_messages(store, clock, 2, mode=mode)
    ask = {"max_messages": 1, "consumer_id": "ann"}
    api.pop("t", "g", ask)
    store.fall_behind()
    past, store.past = store.past, None
    instance(store, clock, seed=2).delete_group("t", "g")
    store.past = past
    with pytest.raises(GroupNotFound):
        api.pop("t", "g", ask)


def test_a_topic_whose_deletion_has_just_begun_takes_no_messages(world: World) -> None:
    other = world.client.another()
    assert other.get(world.topic.path).status == 200  # which it remembers
    world.store.remove_all([keys.topic("orders")])
    world.store.past = world.past
    answer = other.post(f"{world.topic.path}/messages", messages=[{"body": "a"}])
    assert answer.problem == (404, "TopicNotFound")


# -- dead letters -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fields", [{}, {"consumer_id": "ann"}])
def test_letters_are_listed_and_redriven(world: World, fields: Json) -> None:
    group = world.everyone if fields else world.group
    group.pop(**fields)
    first, _ = world.topic.produce("a", "b", queue=1)
    bury(group, *group.take(2, **fields))
    other = world.look()
    assert bodies(other.get(f"{group.path}/dead").json["messages"]) == ["a", "b"]
    redrive = f"{group.path}/dead/redrive"
    assert other.post(redrive, message_ids=[first["message_id"]]).json == {"redriven": 1, "remaining": 1}
    assert other.post(redrive).json == {"redriven": 1, "remaining": 0}


def test_a_new_consumer_gets_nothing_that_waited_at_a_purge() -> None:
    """It begins as the settings say, of which its instance knows."""
    client = Client(store := LateStore())
    topic = client.topic("orders")
    group = topic.group("everyone", mode="broadcast")
    other = group.seen_by(client.another())
    topic.produce("old")
    topic.produce("waiting", delay_ms=DAY_MS)
    assert bodies(other.pop(consumer_id="bob")["messages"]) == ["old"]
    store.fall_behind()
    group.reset("now")
    other.ack(other.take_one(consumer_id="ann"))
    store.past = None
    client.clock.sleep(DAY_MS)
    assert other.pop(consumer_id="ann")["messages"] == []


def test_a_lost_message_is_dead_though_its_log_is_read_as_it_was(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.topic.produce(*noise(1, 2 * INLINE_BYTES_MAX), queue=0)
    for pk in [pk for pk in world.store._items if pk.startswith("payload#")]:
        del world.store._items[pk]
    read = world.store.read

    def from_then_on(reads: Sequence[Read]) -> list[list[Item]]:
        if any("payload#" in repr(each) for each in reads):
            world.look()
        return read(reads)

    monkeypatch.setattr(world.store, "read", from_then_on)
    group = world.group.seen_by(world.client.another())
    assert group.pop()["messages"] == []
    assert group.totals()[3] == 1


def test_letters_are_purged_although_others_redrive_some(world: World) -> None:
    world.topic.produce("a", "b", queue=1)
    bury(world.group, *world.group.take(2))
    [letter] = world.client.get(f"{world.group.path}/dead", limit=1).json["messages"]
    other = world.look()
    together = world.store.write_together

    def after_another(writes: Sequence[Write]) -> None:
        world.store.write_together = together  # type: ignore[method-assign]
        path = f"{world.group.path}/dead/redrive"
        assert world.client.post(path, message_ids=[letter["message_id"]]).json["redriven"] == 1
        together(writes)

    world.store.write_together = after_another  # type: ignore[method-assign]
    assert other.delete(f"{world.group.path}/dead").json == {"purged": 1}


def test_a_message_dies_again_after_a_reset(world: World) -> None:
    world.topic.produce("a", queue=1)
    bury(world.group, world.group.take_one())
    world.group.reset("earliest")
    messages = [world.group.take_one() for _ in range(2)]
    bury(world.group, *messages, client=world.look())


def test_a_dead_message_moves_with_its_body(world: World) -> None:
    body = Random(1).randbytes(2_000).hex()
    world.topic.produce(body, queue=1)
    message = world.moved.take_one()
    bury(world.moved, message, client=world.look())
    world.store.past = None
    assert bodies(world.mourner.drained()) == [body]


# -- delayed messages -------------------------------------------------------------------------------------------------


def test_messages_that_wait_are_listed_counted_and_cancelled(world: World) -> None:
    [message] = world.topic.produce("a", delay_ms=1_000, queue=1)
    other = world.look()
    assert bodies(other.get(f"{world.topic.path}/delayed").json["messages"]) == ["a", "waiting"]
    assert other.get(f"{world.topic.path}/waiting").json["waiting"] == 2
    assert [world.cancel(other, message) for _ in range(2)] == [200, 404]


def test_what_was_delivered_cannot_be_cancelled(world: World) -> None:
    made = []
    for body in "ab":
        made += world.topic.produce(body, delay_ms=1_000, queue=1)
        world.clock.sleep(1_000)
        world.group.take_one()
    other = world.look()
    assert [world.cancel(other, message) for message in made] == [409, 409]
    assert world.cancel(other, world.waiting) == 200


@pytest.mark.parametrize("earlier", [0, 70])
def test_a_delivery_that_was_only_decided_is_carried_out_first(world: World, earlier: int) -> None:
    """Also if more than one read brings has become due earlier, by a clock that is behind."""
    world.topic.produce({"body": "a", "key": "k"}, delay_ms=SECOND_MS, queue=1)
    world.clock.sleep(SECOND_MS)
    with dying_in("carry_out"):
        assert world.client.post(f"{world.group.path}/pop").status == 503
    world.clock.set_back_ms = SECOND_MS - 1
    if earlier:
        world.topic.produce(*["earlier"] * earlier, delay_ms=1, queue=1)
    world.clock.set_back_ms = 0
    world.clock.sleep(HOUR_MS)
    for number in range(3):  # further segments
        world.topic.produce(Random(number).randbytes(200).hex(), queue=1)
    other = world.look()
    assert world.cancel(other, world.waiting) == 200
    world.store.past = None
    assert bodies(other.get(f"{world.topic.path}/messages", queue=1).json["messages"]).count("a") == 1
    assert bodies(other.get(f"{world.topic.path}/messages", key="k").json["messages"]) == ["a"]


def test_a_delivery_that_has_ended_but_for_its_removal_is_not_repeated(world: World) -> None:
    world.topic.produce("a", delay_ms=1_000, queue=1)
    world.clock.sleep(1_000)
    with dying_in("remove"):
        assert world.client.post(f"{world.group.path}/pop").status == 503
    other = world.look()
    assert world.cancel(other, world.waiting) == 200
    world.store.past = None
    assert bodies(other.get(f"{world.topic.path}/messages", queue=1).json["messages"]) == ["a"]


def test_a_cancel_that_was_only_decided_is_carried_out_first(world: World) -> None:
    [message] = world.topic.produce("a", delay_ms=1_000, queue=1)
    with dying_in("carry_out"):
        assert world.cancel(world.client, message) == 503
    assert world.cancel(world.look(), world.waiting) == 200
    world.store.past = None
    world.clock.sleep(2 * DAY_MS)
    assert world.group.pop()["messages"] == []


# -- decisions about what was sent before -----------------------------------------------------------------------------


def test_a_transaction_is_decided_once_and_a_repeat_gets_the_same(world: World) -> None:
    path = f"{world.topic.path}/transactions"
    begun = [world.client.post(path, messages=[{"body": body}]).json["transaction_id"] for body in "abc"]
    committed = world.client.post(f"{path}/{begun[1]}/commit")
    assert world.client.post(f"{path}/{begun[2]}/rollback").status == 200
    world.clock.sleep(HOUR_MS)
    other = world.look()
    assert [each["transaction_id"] for each in other.post(f"{path}/check").json["transactions"]] == begun[:1]
    first, *others = [other.post(f"{path}/{each}/commit") for each in begun]
    assert (first.status, [answer.json for answer in others[:1]], others[1].status) == (200, [committed.json], 409)


def test_a_transaction_whose_payload_is_lost_cannot_be_committed(world: World) -> None:
    path = f"{world.topic.path}/transactions"
    begun = world.client.post(path, messages=[{"body": Random(1).randbytes(2_000).hex()}]).json["transaction_id"]
    payloads = [key for key in world.store._items if key.startswith("payload#")]
    for key in payloads:
        del world.store._items[key]
    assert world.look().post(f"{path}/{begun}/commit").problem == (503, "StoreUnavailable")


def test_a_reply_may_be_repeated_when_it_is_too_late_for_one(world: World) -> None:
    asked = world.client.post(f"{world.topic.path}/requests", body="a", wait_ms=0, timeout_ms=1_000)
    path = f"/requests/{asked.json['correlation_id']}/reply"
    assert world.client.post(path, body="b").status == 201
    world.clock.sleep(1_000)
    assert world.look().post(path, body="b").status == 201


def test_a_dedup_id_is_known_again_though_its_queue_is_full(world: World) -> None:
    [made] = world.topic.produce({"body": "a", "dedup_id": "d"}, queue=1)
    other = world.look()
    with patch("chalicelib.core.producing.depths.Depths.full", return_value={1: QueueFull("full")}):
        assert Topic(other, "orders").produce({"body": "a", "dedup_id": "d"}, queue=1) == [made]
