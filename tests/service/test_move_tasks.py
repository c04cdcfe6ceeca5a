"""A move task moves each message once, even if workers die, many work on it, or its queues are deleted meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import product
from typing import Self
from unittest.mock import patch

import pytest
from greenlet import greenlet

from chalicelib.api import Api
from chalicelib.core.base.errors import DecantError, StoreUnavailable
from chalicelib.core.catalogue.group import LATEST
from chalicelib.core.catalogue.group_forms import DeadLetterTopic
from chalicelib.core.cursors.cursor import Cursor
from chalicelib.core.cursors.cursor_writes import bring_back, create, write
from chalicelib.core.cursors.lease import Lease
from chalicelib.core.moves.task import COMPLETED, FAILED, MoveTask
from chalicelib.core.moves.worker import NoTask, TaskRuns
from chalicelib.core.table import keys
from chalicelib.core.table.writes import Refused
from chalicelib.doors.sqs.registry import NewQueue, QueueGone, SqsQueues, moves_of, queues_of
from chalicelib.service import Service
from local.memory.store import MemoryStore
from tests.support.stopping import Stage, Work, die_after, finish, requests_of, stop_after

BODIES = ["a", "b", "c"]
TASK = "10f57157-0000-4da9-a113-4de7e12d05dd"


class Scene(Stage):
    """Three dead messages, one too large for a segment. `reads`: the queue `orders` reads the topic of `news`."""

    def __init__(self, reads: bool = False) -> None:
        super().__init__()
        self.reads = reads
        service = self.instance()
        for name in ("dead", "news"):
            self.make(service, name)
        self.make_orders(service)
        api = Api(service)
        for body in ("a", "b" * 2_000, "c"):
            api.produce("news" if reads else "orders", {"messages": [{"body": body}]})
        while api.pop("news" if reads else "orders", "orders", {"max_messages": 3})["messages"]:
            pass

    def make(self, service: Service, name: str, topic: str | None = None, **settings: object) -> None:
        own = None if topic else {"queues": 1}
        queues_of(service).make(NewQueue(name, topic or name, own, name, settings, {}, {}, LATEST))

    def make_orders(self, service: Service) -> None:
        dead = DeadLetterTopic({"topic": "dead", "source": "orders"})
        settings = {"max_attempts": 1, "invisible_ms": 0, "dead_letters": dead}
        self.make(service, "orders", "news" if self.reads else None, **settings)

    def start(self, service: Service, rate: int | None = None, named: bool = False) -> None:
        queues = queues_of(service)
        target = queues.current("orders") if named else None
        moves_of(service).tasks.start(queues.current("dead"), target, rate, TASK)

    def started(self, rate: int = 1) -> Self:
        """One message has moved."""
        self.start(self.instance(), rate)
        return self

    def sweep(self, service: Service) -> None:
        service.sweeps.move(moves_of(service))

    def state(self) -> str | None:
        service = self.instance()
        task = moves_of(service).tasks.newest(queues_of(service).current("dead").queue.id)
        return task.state if task else None

    def left(self, name: str) -> list[str]:
        """Drains a queue, and returns the first letters of the bodies."""
        service, came = self.instance(), []
        try:
            found = queues_of(service).current(name)
        except QueueGone:
            return []
        api = Api(service)
        while got := api.pop(found.topic.name, name, {"max_messages": 100, "invisible_ms": 1_000_000})["messages"]:
            came += [each["body"][0] for each in got]
        return came

    def verdict(self) -> tuple[list[str], list[str]]:
        """Drains the queue and its dead-letter queue an hour later, after sweeps."""
        for _ in range(2):
            self.now += 3_600_000
            service = self.instance()
            service.sweeps.forward()
            self.sweep(service)
        dead = self.left("dead")
        return sorted(self.left("orders")), sorted(dead)


def test_a_sweep_counts_the_tasks_it_found_and_the_messages_it_moved() -> None:
    scene = Scene().started()
    scene.now += 3_600_000
    service = scene.instance()
    assert service.sweeps.move(moves_of(service)).as_json() == {"seen": 1, "done": 2}


class Pair(Scene):
    """Two queues with dead-letter queues of their own, each with a task."""

    def __init__(self) -> None:
        super().__init__()
        service = self.instance()
        self.make(service, "dead-2")
        dead = DeadLetterTopic({"topic": "dead-2", "source": "orders-2"})
        self.make(service, "orders-2", None, max_attempts=1, invisible_ms=0, dead_letters=dead)
        api = Api(service)
        api.produce("orders-2", {"messages": [{"body": body} for body in BODIES]})
        while api.pop("orders-2", "orders-2", {"max_messages": 3})["messages"]:
            pass
        self.start(service, 1)
        moves_of(service).tasks.start(queues_of(service).current("dead-2"), None, 1, TASK)
        self.now += 3_600_000


def test_a_sweep_works_on_all_tasks() -> None:
    scene = Pair()
    service = scene.instance()
    assert service.sweeps.move(moves_of(service)).as_json() == {"seen": 2, "done": 4}


def test_a_sweep_that_meets_trouble_at_a_task_works_on_others_and_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Pair()
    service = scene.instance()
    active = moves_of(service).tasks.active

    def troubled(name: str) -> MoveTask | None:
        if name == "dead":
            raise StoreUnavailable("throttled")
        return active(name)

    monkeypatch.setattr(moves_of(service).tasks, "active", troubled)
    with pytest.raises(StoreUnavailable, match="throttled"):
        scene.sweep(service)
    assert scene.left("orders-2") == BODIES


@pytest.mark.parametrize("reads", [False, True])
def test_messages_move_back_whole(instance: Callable[[], Api], topic: str, reads: bool) -> None:
    api = instance()
    queues, name = queues_of(api.service), topic[:40]
    dead = DeadLetterTopic({"topic": f"{name}-dead", "source": name})
    settings = {"max_attempts": 1, "invisible_ms": 0, "dead_letters": dead}
    queues.make(NewQueue(f"{name}-dead", f"{name}-dead", {"queues": 1}, f"{name}-dead", {}, {}, {}))
    queues.make(NewQueue(f"{name}-news", f"{name}-news", {"queues": 2}, f"{name}-news", {}, {}, {}))
    read = f"{name}-news" if reads else name
    queues.make(NewQueue(name, read, None if reads else {"queues": 1}, name, settings, {}, {}))
    sizes = [1, 2_000, 300_000]
    for number, size in enumerate(sizes):
        api.produce(read, {"messages": [{"body": "x" * size, "queue": number % 2 if reads else 0}]})
    while api.pop(read, name, {"max_messages": 3})["messages"]:
        pass
    moves = moves_of(instance().service)
    moves.tasks.start(queues.current(f"{name}-dead"), None, None, TASK)
    [task] = moves.tasks.list(queues.current(f"{name}-dead").queue.id)
    assert (task.state, task.moved, task.count) == (COMPLETED, 3, 3)
    api, ask = instance(), {"max_messages": 3, "invisible_ms": 60_000}
    back = [each for _ in range(2) for each in api.pop(read, name, ask)["messages"]]
    assert sorted((len(each["body"]), each["attempt"]) for each in back) == [(size, 1) for size in sizes]


def starting(scene: Scene) -> Work:
    return lambda stop: scene.start(scene.instance(stop))


def sweeping(scene: Scene) -> Work:
    """Whatever is deleted meanwhile, a sweep meets no error."""

    def sweep(stop: Callable[[], None]) -> None:
        try:
            scene.sweep(scene.instance(stop))
        except DecantError as error:
            raise AssertionError("a sweep failed") from error

    return sweep


@pytest.mark.parametrize("reads", [False, True])
def test_who_dies_while_starting_a_task_loses_and_doubles_nothing(reads: bool) -> None:
    scene = Scene(reads)
    states = set()
    for request in range(1, requests_of(starting(scene.copy())) + 1):
        fresh = scene.copy()
        die_after(starting(fresh), request)
        came, dead = fresh.verdict()
        states.add(fresh.state())
        assert (came, dead) == ((BODIES, []) if fresh.state() else ([], BODIES)), f"dead after request {request}"
    assert states == {None, COMPLETED}


@pytest.mark.parametrize("reads", [False, True])
def test_who_dies_while_sweeping_leaves_the_task_to_the_next_sweep(reads: bool) -> None:
    scene = Scene(reads).started()
    for request in range(1, requests_of(sweeping(scene.copy())) + 1):
        fresh = scene.copy()
        die_after(sweeping(fresh), request)
        assert fresh.verdict() == (BODIES, []), f"dead after request {request}"
        assert fresh.state() == COMPLETED


@pytest.mark.parametrize("reads", [False, True])
def test_two_sweeps_may_each_stop_after_any_request(reads: bool) -> None:
    scene = Scene(reads).started(rate=2)
    count = requests_of(sweeping(scene.copy()))
    for first, second, goes_on in product(range(1, count + 1, 2), range(1, count + 2, 13), (False, True)):
        fresh = scene.copy()
        running = stop_after(sweeping(fresh), first)
        fresh.now += 61_000  # the first one holds the task no more
        die_after(sweeping(fresh), second)
        finish(running, goes_on)
        assert fresh.verdict() == (BODIES, []), f"at {first} and {second}; goes on: {goes_on}"


def test_of_two_that_start_a_task_one_does() -> None:
    scene = Scene()
    for request in range(1, requests_of(starting(scene.copy())) + 1):
        fresh = scene.copy()
        running = stop_after(starting(fresh), request)
        with suppress(TaskRuns):
            fresh.start(fresh.instance())
        with suppress(TaskRuns):
            finish(running, goes_on=True)
        assert fresh.verdict() == (BODIES, []), f"at request {request}"


@pytest.mark.parametrize("reads", [False, True])
def test_a_task_may_be_cancelled_after_any_request(reads: bool) -> None:
    """Nothing moves from then on."""
    scene = Scene(reads).started()
    for request in range(1, requests_of(sweeping(scene.copy())) + 1):
        fresh = scene.copy()
        running = stop_after(sweeping(fresh), request)
        service = fresh.instance()
        source = queues_of(service).current("dead")
        try:
            moved = moves_of(service).tasks.cancel(source, TASK).moved
        except NoTask:
            moved = len(BODIES)
        finish(running, goes_on=True)
        came, dead = fresh.verdict()
        assert (len(came), sorted(came + dead)) == (moved, BODIES), f"cancelled after request {request}"


def deleted_meanwhile(scene: Scene, name: str) -> Iterator[tuple[Scene, list[str], greenlet]]:
    """The scenes in which a sweep has stopped, after one request each, and this queue was deleted by somebody who died
    when its record, its group and its topic were gone, and removed nothing more. With what had moved, and the sweep."""
    for request in range(1, requests_of(sweeping(scene.copy())) + 1):
        fresh = scene.copy()
        running = stop_after(sweeping(fresh), request)
        had = fresh.left("orders")
        with patch.object(SqsQueues, "_clear", lambda *_: None):
            queues_of(fresh.instance()).delete(name)
        yield fresh, had, running


@pytest.mark.parametrize("is_made_again", [False, True])
@pytest.mark.parametrize("reads", [False, True])
def test_the_destination_may_be_deleted_after_any_request(reads: bool, is_made_again: bool) -> None:
    """Messages that have not moved are still dead, though another group keeps the topic of the destination."""
    scene = Scene(reads)
    Api(scene.instance()).put_group("orders" if not reads else "news", "audit", {})
    scene.start(scene.instance(), 1, named=True)
    for fresh, had, running in deleted_meanwhile(scene, "orders"):
        if is_made_again:
            fresh.make_orders(fresh.instance())
        finish(running, goes_on=True)
        came, dead = fresh.verdict()
        assert sorted([*had, *dead]) == BODIES
        assert came == []
        assert fresh.state() == (FAILED if dead else COMPLETED)


def test_the_dead_letter_queue_may_be_deleted_after_any_request() -> None:
    """Messages on their way may still come. A queue that is made again under its name keeps what it gets."""
    for fresh, had, running in deleted_meanwhile(Scene().started(), "dead"):
        service = fresh.instance()
        fresh.make(service, "dead")
        Api(service).produce("dead", {"messages": [{"body": "new", "properties": {"sqs:source": "orders"}}]})
        finish(running, goes_on=True)
        assert fresh.state() is None
        came, dead = fresh.verdict()
        assert dead == ["n"]
        assert len(came) <= 1
        assert len({*had, *came}) == len(had + came)


def test_a_worker_that_has_lost_its_hold_moves_nothing() -> None:
    scene = Scene().started()
    for request in range(1, requests_of(sweeping(scene.copy())) + 1):
        fresh = scene.copy()
        running = stop_after(sweeping(fresh), request)
        fresh.now += 61_000
        service = fresh.instance()
        if not (task := moves_of(service).tasks.active("dead")):
            break
        assert moves_of(service).worker.taken("dead", task)
        finish(running, goes_on=True)
        assert moves_of(service).tasks.list(task.queue_id)[0].moved == task.moved, f"stopped after request {request}"


def test_of_two_workers_one_holds_a_task() -> None:
    scene = Scene().started()
    one, other = moves_of(scene.instance()), moves_of(scene.instance())
    task = one.tasks.active("dead")
    assert task
    assert one.worker.taken("dead", task)
    assert other.worker.taken("dead", task) is None
    seen = one.tasks.active("dead")
    assert seen
    assert other.worker.taken("dead", seen) is None


def test_two_copies_of_a_message_are_not_brought_back_at_once() -> None:
    """They were read as owed by nobody before either was."""
    store = MemoryStore()
    made = Cursor.fresh(keys.cursor("t", "g", "1", 0), 5)
    store.write(create(made))
    changes = [bring_back(made, [Lease(token, 3, 1, 1_000, 0)]) for token in ("~a", "~b")]
    store.write(write(made, changes[0]))
    with pytest.raises(Refused):
        store.write(write(made, changes[1]))
