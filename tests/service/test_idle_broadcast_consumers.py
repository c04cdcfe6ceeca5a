"""An idle consumer of a broadcast group is forgotten: each of its cursors is forgotten wholly or not at all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest

from chalicelib.api import Api
from chalicelib.core.base.limits import DAY_MS, HOUR_MS, IDLE_CONSUMER_MS
from chalicelib.core.base.runtime import system
from chalicelib.core.store import Outcome
from chalicelib.core.table.writes import Add, Item, Key, Remove, RemoveItem, Set, Write
from tests.history.history import SKEW_MS
from tests.support.clock import Clock
from tests.support.instances import instance
from tests.support.repeating_store import RepeatingStore

QUEUES = 3
Place = tuple[int, int]


class Died(BaseException):
    """The function was killed."""


class Watched(RepeatingStore):
    """Kills the caller after some writes, and lets something happen before the next write that `when` waits for."""

    def __init__(self) -> None:
        super().__init__()
        self.writes_left: int | None = None
        self.when: Callable[[Write], bool] | None = None
        self.happens: Callable[[], object] = lambda: None

    def write(self, write: Write) -> Item:
        if self.when and self.when(write):
            self.when = None
            self.happens()
        self._count()
        return super().write(write)

    def write_each(self, writes: Sequence[Write]) -> list[Outcome]:
        """One after the other, so that it can die between them."""
        found: list[Outcome] = []
        for write in writes:
            if self.when and self.when(write):
                self.when = None
                self.happens()
            self._count()
            found += super().write_each([write])
        return found

    def _count(self) -> None:
        if self.writes_left is not None:
            if not self.writes_left:
                raise Died
            self.writes_left -= 1


def forgets(write: Write) -> bool:
    return RemoveItem() in write.effects or Remove(("at",)) in write.effects


def moves(write: Write) -> bool:
    return Set(("leases",), {}) in write.effects


def notes(write: Write) -> bool:
    return len(write.effects) == 1 and isinstance(write.effects[0], Set) and write.effects[0].path == ("at",)


def claims(write: Write) -> bool:
    return any(isinstance(effect, Add) and effect.path == ("claims",) for effect in write.effects)


@pytest.fixture
def store() -> Watched:
    return Watched()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def api(store: Watched, clock: Clock) -> Api:
    return prepared(store, clock)


def prepared(store: Watched, clock: Clock, apart_ms: int = HOUR_MS, given_up: int = 1) -> Api:
    """Ann has read all three queues, the first one last, and given up what is in one of them."""
    api = instance(store, clock)
    api.put_topic("t", {"queues": QUEUES, "retention_ms": 365 * DAY_MS})
    api.put_group("t", "g", {"mode": "broadcast"})
    for queue in reversed(range(QUEUES)):
        api.produce("t", {"messages": [{"body": "x", "queue": queue}] * 2})
        taken = take(api, 1)
        if queue == given_up:
            api.bury("t", "g", {"receipts": taken})
        else:
            api.ack("t", "g", {"receipts": taken})
        clock.ms += apart_ms
    return api


def take(api: Api, turns: int) -> list[str]:
    """Receipts."""
    asked = {"consumer_id": "ann", "max_messages": 2}
    answers = [api.pop("t", "g", asked) for _ in range(turns)]
    return [each["receipt"] for answer in answers for each in answer["messages"]]


def places(api: Api) -> Counter[Place]:
    asked = {"consumer_id": "ann", "max_messages": 2}
    answers = [api.pop("t", "g", asked) for _ in range(QUEUES + 1)]
    return Counter((each["queue"], each["offset"]) for answer in answers for each in answer["messages"])


def sweep(api: Api, now: int, topic: str = "t") -> int:
    found = api.service.env.catalogue.current_topic(topic)
    return api.service.cursors.consumers.forget_idle(found, api.service.env.catalogue.group(found, "g"), now)


def stored(store: Watched) -> list[Key]:
    return [Key(pk, sk) for pk, partition in store._items.items() for sk in partition]


EVERYTHING = Counter({(queue, offset): 1 for queue in range(QUEUES) for offset in range(2)})


@pytest.mark.parametrize("by_sweep", [False, True])
def test_a_caller_that_dies_while_forgetting_leaves_it_to_the_next(by_sweep: bool) -> None:
    for writes in range(QUEUES + 2):
        store, clock = Watched(), Clock()
        mine = prepared(store, clock)
        clock.ms += IDLE_CONSUMER_MS + 1
        store.writes_left = writes
        with suppress(Died):
            if by_sweep:
                sweep(mine, clock.ms)
            else:
                take(mine, 1)
                continue  # that it had claimed before it died is not what this is about
        store.writes_left = None
        assert mine.get_group("t", "g")["dead"] == 2
        assert places(instance(store, clock, 9)) == EVERYTHING, writes
        assert mine.get_group("t", "g")["dead"] == 2


def test_a_deletion_is_finished_though_the_next_clock_is_behind() -> None:
    for writes in range(QUEUES + 1):
        store, clock = Watched(), Clock()
        api = prepared(store, clock, apart_ms=SKEW_MS + 1)
        clock.ms += IDLE_CONSUMER_MS - SKEW_MS
        store.writes_left = writes
        with suppress(Died):
            sweep(api, clock.ms)
        store.writes_left = None
        clock.ms -= SKEW_MS
        assert places(instance(store, clock, 9)) == (EVERYTHING if writes else Counter()), writes


def test_a_cursor_forgotten_as_its_consumer_returns_loses_no_other_message() -> None:
    """All cursors have the same time, and the clock of the pop is behind: then some queues continue, others start
    over."""
    for writes in range(QUEUES + 1):
        store, clock = Watched(), Clock()
        api = prepared(store, clock, apart_ms=0)
        clock.ms += IDLE_CONSUMER_MS + 1
        store.writes_left = writes
        with suppress(Died):
            sweep(api, clock.ms)
        store.writes_left = None
        clock.ms -= SKEW_MS
        for queue in range(QUEUES):
            api.produce("t", {"messages": [{"body": "new", "queue": queue}]})
        later = instance(store, clock, 9)
        found = places(later) + places(later)
        new = Counter({(queue, 2): 1 for queue in range(QUEUES)})
        assert found - EVERYTHING == new, writes
        assert len(found - new) == 2 * writes, writes


@pytest.mark.parametrize("given_up", [0, 1])
def test_a_pop_that_comes_at_the_same_time_wins(store: Watched, clock: Clock, given_up: int) -> None:
    """Whether the newest cursor, that of queue 0, is removed or begins again since it counts dead letters."""
    api = prepared(store, clock, given_up=given_up)
    other_clock = Clock()
    other_clock.ms = clock.ms - HOUR_MS + IDLE_CONSUMER_MS
    store.when, store.happens = forgets, lambda: take(instance(store, other_clock, 5), 1)
    assert sweep(api, other_clock.ms + 1) == 0
    clock.ms = other_clock.ms + 1
    assert places(instance(store, clock, 9)) == Counter()


def test_a_message_that_dies_as_its_consumer_is_forgotten_is_counted(store: Watched, clock: Clock, api: Api) -> None:
    api.produce("t", {"messages": [{"body": "new", "queue": 0}]})
    held = {"receipts": take(api, 1)}
    clock.ms += IDLE_CONSUMER_MS + 1
    store.when, store.happens = forgets, lambda: instance(store, clock, 5).bury("t", "g", held)
    sweep(api, clock.ms)
    letters = api.list_dead("t", "g", {})["messages"]
    assert api.get_group("t", "g")["dead"] == len(letters) == 3


def test_a_pop_that_comes_too_late_starts_over(store: Watched, clock: Clock, api: Api) -> None:
    clock.ms += IDLE_CONSUMER_MS - HOUR_MS
    store.when, store.happens = notes, lambda: sweep(instance(store, clock, 5), clock.ms + 1)
    assert places(api) == EVERYTHING


def test_a_claim_that_finds_the_cursor_gone_starts_over(store: Watched, clock: Clock, api: Api) -> None:
    """As after a function that was frozen for days."""
    api.produce("t", {"messages": [{"body": "new", "queue": 0}]})
    store.when, store.happens = claims, lambda: sweep(instance(store, clock, 5), clock.ms + 2 * IDLE_CONSUMER_MS)
    assert places(api) == EVERYTHING + Counter({(0, 2): 1})


def test_two_sweeps_that_forget_at_once_do_no_harm(store: Watched, clock: Clock, api: Api) -> None:
    clock.ms += IDLE_CONSUMER_MS + 1
    store.when, store.happens = forgets, lambda: sweep(instance(store, clock, 5), clock.ms)
    assert places(api) == EVERYTHING
    assert sweep(api, clock.ms) == 0
    assert places(api) == Counter()


def test_a_reset_that_meets_the_forgetting_leaves_a_new_consumer(store: Watched, clock: Clock, api: Api) -> None:
    clock.ms += IDLE_CONSUMER_MS + 1
    store.when, store.happens = forgets, lambda: instance(store, clock, 5).reset_group("t", "g", {"to": "latest"})
    assert sweep(api, clock.ms) == 1
    api.reset_group("t", "g", {"to": "latest"})
    assert places(api) == EVERYTHING


def test_forgetting_that_meets_a_reset_leaves_a_new_consumer(store: Watched, clock: Clock, api: Api) -> None:
    later = clock.ms + 2 * IDLE_CONSUMER_MS
    store.when, store.happens = moves, lambda: sweep(instance(store, clock, 5), later)
    api.reset_group("t", "g", {"to": "latest"})
    assert places(api) == EVERYTHING


def test_a_queue_that_only_a_reset_has_touched_is_forgotten_too(store: Watched, clock: Clock) -> None:
    api = instance(store, clock)
    api.put_topic("t", {"queues": QUEUES, "retention_ms": 365 * DAY_MS})
    api.put_group("t", "g", {"mode": "broadcast"})
    api.produce("t", {"messages": [{"body": "x", "queue": queue} for queue in range(QUEUES)] * 2})
    take(api, 1)
    popped_at_ms = clock.ms
    clock.ms += DAY_MS
    queues = api.reset_group("t", "g", {"to": "latest"})["queues"]
    assert [(each["last_consumer_id"], each["last_pop_at_ms"]) for each in queues] == [("ann", popped_at_ms)] * QUEUES
    clock.ms += IDLE_CONSUMER_MS + 1
    store.writes_left = 1
    with suppress(Died):
        sweep(api, clock.ms)
    store.writes_left = None
    assert places(instance(store, clock, 9)) == EVERYTHING


@pytest.mark.parametrize("given_up", [0, 1])
def test_a_group_is_deleted_while_its_consumers_are_forgotten(store: Watched, clock: Clock, given_up: int) -> None:
    """Whether the newest cursor counts dead letters or not."""
    api = prepared(store, clock, given_up=given_up)
    store.when, store.happens = forgets, lambda: instance(store, clock, 5).delete_group("t", "g")
    found = api.service.env.catalogue.current_topic("t")
    group = api.service.env.catalogue.group(found, "g")
    api.service.cursors.consumers.forget_idle(found, group, clock.ms + 2 * IDLE_CONSUMER_MS)
    assert not any(key.sk.startswith("cursor#") for key in stored(store))


@pytest.mark.parametrize("returns", [True, False])
def test_retries_that_wait_in_a_page_go_with_their_consumer(
    store: Watched, clock: Clock, api: Api, returns: bool
) -> None:
    api.produce("t", {"messages": [{"body": "new", "queue": 0}]})
    api.nack("t", "g", {"receipts": take(api, 1), "delay_ms": 30 * DAY_MS})
    found = api.service.env.catalogue.current_topic("t")
    for cursor in api.service.cursors.consumers.all(found, api.service.env.catalogue.group(found, "g")):
        api.service.cursors.retries.put_away(cursor, most=0)
    clock.ms += 2 * HOUR_MS
    if returns:
        store.when, store.happens = forgets, lambda: take(instance(store, clock, 5), 1)
    sweep(api, clock.ms + 2 * IDLE_CONSUMER_MS)
    assert any(key.pk.startswith("retry#") for key in stored(store)) is returns


# -- in memory and on an emulator -------------------------------------------------------------------------------------


class TestInMemoryAndOnAnEmulator:
    @pytest.fixture(params=["memory", "dynoxide"])
    def store(self, request: pytest.FixtureRequest) -> Any:
        return request.getfixturevalue(f"{request.param}_store")

    def test_each_of_three_gets_everything_until_it_is_forgotten(self, instance: Callable[[], Api], topic: str) -> None:
        api = instance()
        api.put_topic(topic, {"queues": 4})
        api.put_group(topic, "g", {"mode": "broadcast"})
        for queue in range(4):
            api.produce(topic, {"messages": [{"body": f"{queue}-{number}", "queue": queue} for number in range(10)]})

        def consume(name: str) -> Counter[str]:
            own, seen = instance(), Counter[str]()
            while messages := own.pop(topic, "g", {"consumer_id": name, "max_messages": 3})["messages"]:
                seen.update(each["body"] for each in messages)
                receipts = [each["receipt"] for each in messages]
                assert own.ack(topic, "g", {"receipts": receipts})["acked"] == len(receipts)
            return seen

        def all_three() -> list[Counter[str]]:
            with ThreadPoolExecutor(6) as pool:  # two instances for each
                halves = list(pool.map(consume, ["ann", "ann", "bob", "bob", "eve", "eve"]))
            return [halves[0] + halves[1], halves[2] + halves[3], halves[4] + halves[5]]

        everything = Counter(f"{queue}-{number}" for queue in range(4) for number in range(10))
        assert all_three() == [everything] * 3
        assert api.get_group(topic, "g")["lag"] == 0
        assert sweep(api, system().now(), topic) == 0
        assert sweep(api, system().now() + 8 * DAY_MS, topic) == 3
        assert all_three() == [everything] * 3
        assert api.reset_group(topic, "g", {"to": "earliest"})["ready"] == 3 * 40
        assert all_three() == [everything] * 3
        api.delete_group(topic, "g")
