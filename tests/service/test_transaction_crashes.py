"""Callers that begin and decide transactions, stopped after any of their requests: each transaction is decided once,
its messages come all together and once or never, and every answer is true."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import islice, product
from typing import Self

import pytest

from chalicelib.core.base.errors import TransactionEnded, TransactionNotFound
from chalicelib.core.consuming.request import Pop
from chalicelib.core.store import Keys
from chalicelib.core.table.writes import Refused
from chalicelib.core.transactions.half import Begin, TransactionId, Undecided
from chalicelib.service import Service
from tests.support.stopping import Stage, Work, die_after, finish, requests_of, stop_after

_LARGE = 3_000
_ROLLBACK_AFTER_MS = 50_000


class Scene(Stage):
    """A topic of two queues with a transaction that is due for a check: messages in both queues, a large one among
    them."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[str] = []
        service = self.instance()
        self.topic, _ = service.admin.topics.put("t", {"queues": 2})
        service.admin.groups.put(self.topic, "g", {})
        self.id = self.begin(service, "first")
        self.topic = service.env.catalogue.current_topic("t")
        self.now += 100

    def copy(self) -> Self:
        other = super().copy()
        other.told = []
        return other

    def begin(self, service: Service, name: str) -> str:
        sizes = (10, 10, _LARGE)
        batch = [
            {"body": f"{name} {self.random.randbytes(size).hex()}", "queue": number % 2}
            for number, size in enumerate(sizes)
        ]
        ask = Begin(batch, check_after_ms=100, rollback_after_ms=_ROLLBACK_AFTER_MS)
        return str(service.transactions.decisions.begin(self.topic, ask).id)

    def commit(self, service: Service) -> None:
        """Writes down the answer, where there is one."""
        try:
            results = service.transactions.decisions.commit(self.topic, self.id)
        except TransactionEnded:
            self.told.append("rolled back")
        else:
            self.told.append("committed " + " ".join(f"{each.message_id}@{each.offset}" for each in results))

    def roll_back(self, service: Service) -> None:
        try:
            service.transactions.decisions.roll_back(self.topic, self.id)
        except TransactionEnded:
            self.told.append("committed")
        else:
            self.told.append("rolled back")

    def verdict(self) -> list[str]:
        """The violations once everything that was committed has come, and the rest was rolled back."""
        service = self.instance()
        self.now += 1_000
        service.sweeps.forward()
        came: dict[str, list[str]] = {}
        while got := service.consuming.pop(self.topic, "g", Pop(256, 600_000)).deliveries:
            for each in got:
                name = each.stored.message.body.decode().split()[0]
                came.setdefault(name, []).append(f"{each.stored.message_id}@{each.stored.offset}")
        self.now += _ROLLBACK_AFTER_MS
        self.commit(service)
        self.roll_back(service)
        self.now += 3_600_000
        service.sweeps.expire()
        wrong = [] if came.keys() <= {"first"} else [f"came without a commit: {came}"]
        first = came.get("first", [])
        places = sorted(first)
        if len(first) not in (0, 3) or max(Counter(first).values(), default=0) > 1:
            wrong.append(f"came in part or twice: {first}")
        verdicts = {told.split()[0] for told in self.told}
        if verdicts != ({"committed"} if first else {"rolled"}):
            wrong.append(f"{len(first)} came, and told was {self.told}")
        if any(sorted(told.split()[1:]) != places for told in self.told if told.startswith("committed ")):
            wrong.append(f"at {places}, and told was {self.told}")
        page, _ = service.transactions.checks.page(self.topic, 100, None)
        return wrong + [f"{each.transaction.id} is undecided" for each in page]


Operation = Callable[[Scene, Service], object]

OPERATIONS: dict[str, Operation] = {
    "commit": lambda scene, service: scene.commit(service),
    "rollback": lambda scene, service: scene.roll_back(service),
    "check": lambda scene, service: service.transactions.checks.check(scene.topic, 10, 0),
    "begin": lambda scene, service: scene.begin(service, "second"),
    "pop": lambda scene, service: service.consuming.pop(scene.topic, "g", Pop(2, 1_000)),
}
FIRSTS = ("commit", "rollback", "check")
SHARE = 5
"""One in so many pairs of requests is tried: an odd number, so that the first both dies and goes on."""


def work(scene: Scene, name: str) -> Work:
    return lambda stop: OPERATIONS[name](scene, scene.instance(stop))


def after_two(scene: Scene, names: tuple[str, str], requests: tuple[int, int], goes_on: bool) -> list[str]:
    """The first stops after its request, the second runs to its own and dies. The first dies there too, or goes on."""
    fresh = scene.copy()
    running = stop_after(work(fresh, names[0]), requests[0])
    die_after(work(fresh, names[1]), requests[1])
    finish(running, goes_on)
    return fresh.verdict()


@pytest.fixture(scope="module")
def scene() -> Scene:
    return Scene()


def test_the_scene_itself_is_clean(scene: Scene) -> None:
    assert scene.copy().verdict() == []
    committed = scene.copy()
    committed.commit(committed.instance())
    assert committed.verdict() == []
    assert [told.split()[0] for told in committed.told] == ["committed"] * 3


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_caller_that_dies_after_any_request_leaves_nothing_wrong(scene: Scene, name: str) -> None:
    for request in range(1, requests_of(work(scene.copy(), name)) + 1):
        fresh = scene.copy()
        die_after(work(fresh, name), request)
        assert fresh.verdict() == [], f"{name}, dead after request {request}"


@pytest.mark.parametrize("first", FIRSTS)
def test_two_callers_may_each_stop_after_any_request(scene: Scene, first: str) -> None:
    for second in ("commit", "rollback", "check", "pop"):
        # one more than it makes: it runs to its end
        points = product(
            range(1, requests_of(work(scene.copy(), first)) + 1), range(1, requests_of(work(scene.copy(), second)) + 2)
        )
        for requests, goes_on in islice(product(points, (False, True)), 0, None, SHARE):
            wrong = after_two(scene, (first, second), requests, goes_on)
            assert wrong == [], f"{first} and {second}, at {requests}; goes on: {goes_on}"


def test_a_commit_may_be_helped_by_pops_anywhere_on_its_way(scene: Scene) -> None:
    for request in range(1, requests_of(work(scene.copy(), "commit")) + 1):
        fresh = scene.copy()
        running = stop_after(work(fresh, "commit"), request)
        fresh.instance().consuming.pop(fresh.topic, "g", Pop(1, 1_000))
        finish(running, goes_on=True)
        assert fresh.told[0].startswith("committed ")
        assert "None" not in fresh.told[0]
        assert fresh.verdict() == []


def test_a_caller_whose_clock_is_behind_finishes_a_commit(scene: Scene) -> None:
    for request in range(1, requests_of(work(scene.copy(), "commit")) + 1):
        fresh = scene.copy()
        die_after(work(fresh, "commit"), request)
        fresh.now -= 50
        fresh.commit(fresh.instance())
        fresh.now += 100
        service = fresh.instance()
        service.transactions.decisions.commit(fresh.topic, fresh.begin(service, "second"))
        fresh.commit(service)
        assert "None" not in fresh.told[-1]
        assert set(fresh.told) == {fresh.told[-1]}


def test_a_late_decision_changes_nothing(scene: Scene) -> None:
    """Each write of a decision arrives once more, after the opposite has been decided."""
    for late, other in (("commit", "rollback"), ("rollback", "commit")):
        fresh = scene.copy()
        running = stop_after(work(fresh, late), 3 if late == "commit" else 1)  # the next request decides
        OPERATIONS[other](fresh, fresh.instance())
        finish(running, goes_on=True)
        assert fresh.verdict() == []


def test_a_transaction_that_came_back_late_is_not_decided_again(scene: Scene) -> None:
    """The store recognizes a late repeat of the write that began it. If it did not, the record would still stand."""
    key = TransactionId.parse(scene.id)
    assert key
    [partition] = [items for pk, items in scene.store._items.items() if pk == key.key(scene.topic.id).pk]
    (item,) = partition.values()
    for name in ("commit", "rollback"):
        fresh = scene.copy()
        OPERATIONS[name](fresh, fresh.instance())
        fresh.store.put_all([item])
        fresh.commit(fresh.instance())
        fresh.roll_back(fresh.instance())
        fresh.store.remove_all([key.key(fresh.topic.id)])
        assert fresh.verdict() == []


def test_a_late_begin_does_not_undo_a_check(scene: Scene) -> None:
    fresh = scene.copy()
    key = TransactionId.parse(fresh.id)
    assert key
    [item] = fresh.store.read([Keys([key.key(fresh.topic.id)])])[0]
    checks = fresh.instance().transactions.checks
    assert len(checks.check(fresh.topic, 1, 0)) == 1
    with pytest.raises(Refused):
        fresh.store.write_together([Undecided.of(item).begin(fresh.topic)])
    assert checks.check(fresh.topic, 1, 0) == []


def test_a_commit_delivers_nothing_after_the_record_of_a_rollback_expired(scene: Scene) -> None:
    fresh = scene.copy()
    running = stop_after(work(fresh, "commit"), 2)  # it has read the item and the payload
    fresh.roll_back(fresh.instance())
    key = TransactionId.parse(fresh.id)
    assert key
    fresh.store.remove_all([key.decided_key(fresh.topic.id)])
    finish(running, goes_on=True)
    assert fresh.told == ["rolled back"]
    service = fresh.instance()
    service.sweeps.forward()
    assert service.consuming.pop(fresh.topic, "g", Pop(256, 1_000)).deliveries == []


def test_an_unknown_transaction_leaves_nothing(scene: Scene) -> None:
    fresh = scene.copy()
    service = fresh.instance()
    for decide in (service.transactions.decisions.commit, service.transactions.decisions.roll_back):
        with pytest.raises(TransactionNotFound):
            decide(fresh.topic, f"{'0' * 16}b1")
    assert not [pk for pk, items in fresh.store._items.items() if pk.startswith("decided#") and items]
