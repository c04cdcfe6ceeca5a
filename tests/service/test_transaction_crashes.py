"""Decisions of transactions by clocks that are behind, and writes that arrive when the opposite was decided."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from chalicelib.core.base.errors import TransactionEnded, TransactionNotFound
from chalicelib.core.consuming.request import Pop
from chalicelib.core.store import Keys
from chalicelib.core.table.writes import Item, Refused
from chalicelib.core.transactions.half import Begin, TransactionId, Undecided
from chalicelib.service import Service
from tests.support.stopping import Stage, die_after, finish, requests_of, stop_after

_LARGE = 3_000


class Scene(Stage):
    """A topic of two queues with a transaction that is due for a check: messages in both, a large one among them."""

    def __init__(self) -> None:
        super().__init__()
        service = self.instance()
        self.topic, _ = service.admin.topics.put("t", {"queues": 2})
        service.admin.groups.put(self.topic, "g", {})
        self.id = self.begin(service)
        key = TransactionId.parse(self.id)
        assert key
        self.topic = service.env.catalogue.current_topic("t")
        self.key, self.decided_key = key.key(self.topic.id), key.decided_key(self.topic.id)
        self.now += 100

    def begin(self, service: Service) -> str:
        batch = [{"body": self.noise(size), "queue": number % 2} for number, size in enumerate((10, 10, _LARGE))]
        ask = Begin(batch, check_after_ms=100, rollback_after_ms=50_000)
        return str(service.transactions.decisions.begin(self.topic, ask).id)

    def item(self) -> Item:
        [item] = self.store.read([Keys([self.key])])[0]
        return item

    def commit(self, stop: Callable[[], None] = lambda: None) -> list[tuple[str | None, int | None]] | None:
        """Where the messages are; None: the transaction was rolled back."""
        try:
            results = self.instance(stop).transactions.decisions.commit(self.topic, self.id)
        except TransactionEnded:
            return None
        return [(each.message_id, each.offset) for each in results]

    def roll_back(self) -> bool:
        try:
            self.instance().transactions.decisions.roll_back(self.topic, self.id)
        except TransactionEnded:
            return False
        return True

    def count(self) -> int:
        """How many messages come."""
        self.now += 1_000
        service = self.instance()
        service.sweeps.forward()
        return len(service.consuming.pop(self.topic, "g", Pop(256, 600_000, fill=True)).deliveries)


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_a_caller_whose_clock_is_behind_finishes_a_commit(scene: Scene) -> None:
    for request in range(1, requests_of(scene.copy().commit) + 1):
        fresh = scene.copy()
        die_after(fresh.commit, request)
        fresh.now -= 50
        told = fresh.commit()
        fresh.now += 100
        service = fresh.instance()
        service.transactions.decisions.commit(fresh.topic, fresh.begin(service))
        assert told
        assert None not in [offset for _, offset in told]
        assert fresh.commit() == told


@pytest.mark.parametrize("is_committed", [True, False])
def test_a_transaction_that_came_back_late_is_not_decided_again(scene: Scene, is_committed: bool) -> None:
    """The store recognizes a late repeat of the write that began it. If it did not, the record would still stand."""
    item = scene.item()
    assert scene.commit() if is_committed else scene.roll_back()
    scene.store.put_all([item])
    assert (scene.commit() is None) is not is_committed
    assert scene.roll_back() is not is_committed
    scene.store.remove_all([scene.key])
    assert scene.count() == (3 if is_committed else 0)


def test_a_late_begin_does_not_undo_a_check(scene: Scene) -> None:
    item, checks = scene.item(), scene.instance().transactions.checks
    assert len(checks.check(scene.topic, 1, 0)) == 1
    with pytest.raises(Refused):
        scene.store.write_together([Undecided.of(item).begin(scene.topic)])
    assert checks.check(scene.topic, 1, 0) == []


def test_a_commit_delivers_nothing_after_the_record_of_a_rollback_expired(scene: Scene) -> None:
    told = []
    running = stop_after(lambda stop: told.append(scene.commit(stop)), 2)  # it has read the item and the payload
    assert scene.roll_back()
    scene.store.remove_all([scene.decided_key])
    finish(running, goes_on=True)
    assert told == []  # nobody knows of it any more
    assert scene.count() == 0


def test_an_unknown_transaction_leaves_nothing(scene: Scene) -> None:
    decisions = scene.instance().transactions.decisions
    for decide in (decisions.commit, decisions.roll_back):
        with pytest.raises(TransactionNotFound):
            decide(scene.topic, f"{'0' * 16}b1")
    assert not [pk for pk, items in scene.store._items.items() if pk.startswith("decided#") and items]
