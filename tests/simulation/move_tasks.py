"""Move tasks, which take dead messages out of their topic: into another topic, or back to a group of the topic that
they are from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from random import Random
from typing import TYPE_CHECKING
from unittest.mock import patch

from chalicelib.core.base.errors import StoreUnavailable
from chalicelib.core.base.message import Stored
from chalicelib.core.catalogue.topic import Topic
from chalicelib.core.consuming.request import Pop
from chalicelib.core.moves import task as move_task
from chalicelib.core.moves import worker
from chalicelib.core.moves.worker import NoTask, TaskRuns
from chalicelib.core.store import Range
from chalicelib.core.table import keys
from chalicelib.doors.sqs.registry import NewQueue, moves_of, queues_of
from chalicelib.service import Service
from tests.history.caller import PADDED
from tests.history.facts import NEVER_MS
from tests.history.final_state import messages_of
from tests.history.history import History
from tests.simulation.dead_letter_topic import TOPIC
from tests.simulation.faulty_store import NONE

if TYPE_CHECKING:
    from tests.simulation.world import World

BACK, SEEN = "back", "seen"
"""The queues that tasks move to: one with a topic of its own, and one that reads the topic of the history."""

_HELD_MS = 2_000
_LEASE_MS = 60_000


@contextmanager
def short_holds() -> Iterator[None]:
    with ExitStack() as stack:
        for module in (move_task, worker):
            stack.enter_context(patch.object(module, "HELD_MS", _HELD_MS))
        stack.enter_context(patch.object(worker, "LEASE_MS", _HELD_MS // 2))
        yield


def make_queues(service: Service, history: History) -> None:
    for name in (TOPIC, BACK):
        queues_of(service).make(NewQueue(name, name, {"queues": 2}, name, {}, {}, {}))
    queues_of(service).make(NewQueue(SEEN, "t", None, SEEN, {}, {}, {}))
    history.graves[service.env.catalogue.current_topic(TOPIC).id] = NEVER_MS


class Returner:
    """Starts tasks, works on them, and cancels them."""

    def __init__(self, world: World, count: int, random: Random) -> None:
        self._world, self._left, self._random = world, count, random

    def work(self, service: Service) -> None:
        while self._left:
            self._left -= 1
            self._world.sleep(self._random.randrange(1_500))
            act = self._random.choice((self._start, self._start, self._sweep, self._sweep, self._cancel))
            with suppress(StoreUnavailable, TaskRuns, NoTask):
                act(service)

    def _start(self, service: Service) -> None:
        """Waits until the group of the queue `seen` has all messages that it did not get from a task."""
        to, rate = self._random.choice((BACK, SEEN, None)), self._random.choice((None, 3, 20))
        if to == SEEN:
            drain(self._world.instance(NONE), self._world)
        queues = queues_of(service)
        target = queues.current(to) if to else None
        moves_of(service).tasks.start(queues.current(TOPIC), target, rate, self._random.randbytes(8).hex())

    def _sweep(self, service: Service) -> None:
        service.sweeps.move(moves_of(service), 1_000)

    def _cancel(self, service: Service) -> None:
        source = queues_of(service).current(TOPIC)
        if newest := moves_of(service).tasks.newest(source.queue.id):
            cancelled = moves_of(service).tasks.cancel(source, newest.id)
            self._world.history.tasks.cancelled[newest.id] = cancelled.moved


def drain(service: Service, world: World) -> None:
    """Pops and acks all messages of the group of the queue `seen`."""
    facts = world.history.tasks
    for body in _taken(service, service.env.catalogue.current_topic("t"), SEEN):
        facts.seen[body] += 1
        facts.drained_ms.setdefault(body, world.now)
    facts.last_drain_ms = world.now


def settle(world: World) -> None:
    """Lets tasks end, and records where the dead messages are then."""
    service, facts = world.instance(NONE), world.history.tasks
    queue = queues_of(service).current(TOPIC).queue
    while moves_of(service).tasks.active(TOPIC):
        world.sleep(_HELD_MS)
        service.sweeps.move(moves_of(service), 1_000)
    world.sleep(_HELD_MS)
    dead, back = (service.env.catalogue.current_topic(name) for name in (TOPIC, BACK))
    for number in range(back.readers):
        while service.delays.promoter.promote(back, number):
            pass
    facts.dead = Counter(map(_body, messages_of(service, dead)))
    facts.back = Counter(map(_body, messages_of(service, back)))
    facts.left = Counter(_taken(service, dead, TOPIC))
    service.sweeps.check()  # queues that had left when messages returned there are read again
    drain(service, world)
    found = service.env.store.read([Range(keys.move_tasks(queue.id), keys.FIRST, keys.LAST, strong=True)])[0]
    facts.moved = {item["id"]: (item.get("to"), item["moved"]) for item in found}


def _taken(service: Service, topic: Topic, group: str) -> Iterator[str]:
    while got := service.consuming.pop(topic, group, Pop(256, _LEASE_MS)).deliveries:
        yield from (_body(delivery.stored) for delivery in got)
        service.consuming.ack(topic, group, [delivery.receipt for delivery in got])


def _body(stored: Stored) -> str:
    return stored.message.body.decode().split(PADDED)[0]
