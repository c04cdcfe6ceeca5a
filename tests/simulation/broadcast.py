"""Simulated histories of a broadcast group: several processes of each consumer, with faults, beside sweeps that forget.

First every consumer gets every message. Then, when all have been idle for about as long as makes a group forget them,
they come back beside a sweep, and more messages come in: each gets all of these, and of each queue all of the old ones
again, or none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from random import Random
from typing import NamedTuple
from unittest.mock import patch

from chalicelib.core.base.errors import StoreUnavailable
from chalicelib.core.base.message import Message
from chalicelib.core.base.runtime import Runtime
from chalicelib.core.catalogue.topic import Topic
from chalicelib.core.consuming.request import Pop
from chalicelib.core.cursors import broadcast
from chalicelib.core.producing.new_message import Sending
from chalicelib.service import Service
from tests.history.history import SKEW_MS
from tests.simulation.faulty_store import ALL, NONE, Faults, FaultyStore, PastStore
from tests.support.scheduler import Killed, Scheduler

CONSUMERS = ("ann", "bob", "eve")
PROCESSES, POPS, MESSAGES, QUEUES = 2, 8, 16, 2
LEASE_MS = 600
IDLE_MS, PRESENCE_MS = 20_000, 300
"""In place of days: longer than any consumer pauses, or a late write lives, before all are idle."""
_STEPS_MAX = 20_000
_KEY = b"0123456789abcdef"

Place = tuple[int, int]


class Held(NamedTuple):
    """From when until when a consumer surely held a lease on a message."""

    consumer: str
    place: Place
    receipt: str
    since: int
    until: int


@contextmanager
def _short_memory() -> Iterator[None]:
    with patch.multiple(broadcast, IDLE_CONSUMER_MS=IDLE_MS, PRESENCE_MS=PRESENCE_MS):
        yield


class BroadcastWorld:
    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._scheduler = Scheduler(self._random)
        self._store = PastStore(self._scheduler)
        self._topic: Topic | None = None
        self._sent: set[Place] = set()
        self._came: dict[str, set[Place]] = {}
        self._held: list[Held] = []
        self._defects: list[str] = []

    def run(self) -> list[str]:
        """Plays the history; returns what is wrong with it."""
        at_work = [partial(self._consume, name) for name in CONSUMERS * PROCESSES]
        with _short_memory():
            self._play([self._prepare], NONE)
            for name, got in self._round([self._produce, self._sweep, *at_work]):
                if self._sent - got:
                    self._defects.append(f"{name} never got {sorted(self._sent - got)}")
            idle_ms, old = IDLE_MS + self._random.randrange(-600, 600), set(self._sent)
            for name, got in self._round([self._produce, self._sweep, *at_work], idle_ms):
                missing = self._sent - got - _untouched(old, got)
                if missing:
                    self._defects.append(f"{name} came back and never got {sorted(missing)}")
        return self._defects + [f"held twice: {one}, {other}" for one, other in self._held_twice()]

    def _round(self, acts: list[Callable[[Service], None]], after_ms: int = 0) -> list[tuple[str, set[Place]]]:
        """With faults, and then without until nothing comes any more. Returns what each consumer got."""
        self._came = {name: set() for name in CONSUMERS}
        self._play(acts, ALL, after_ms)
        self._play([partial(self._drain, name) for name in CONSUMERS], NONE)
        return list(self._came.items())

    def _held_twice(self) -> Iterator[tuple[Held, Held]]:
        by_place: dict[tuple[str, Place], list[Held]] = {}
        for held in self._held:
            by_place.setdefault((held.consumer, held.place), []).append(held)
        for several in by_place.values():
            for place, one in enumerate(several):
                for other in several[place + 1 :]:
                    if one.receipt != other.receipt and max(one.since, other.since) < min(one.until, other.until):
                        yield one, other

    # -- who does what ------------------------------------------------------------------------------------------------

    def _play(self, acts: list[Callable[[Service], None]], faults: Faults, after_ms: int = 0) -> None:
        for act in acts:
            self._scheduler.spawn(partial(self._live, act, faults), after_ms + self._random.randrange(200))
        self._scheduler.run(_STEPS_MAX)

    def _live(self, act: Callable[[Service], None], faults: Faults) -> None:
        """When its process dies, it begins again in a fresh one."""
        while True:
            try:
                return act(self._instance(faults))
            except Killed:
                continue
            except Exception as defect:  # noqa: BLE001 - whatever it is, the verdict names it
                return self._defects.append(repr(defect))

    def _instance(self, faults: Faults) -> Service:
        skew = self._random.randrange(-SKEW_MS // 2, SKEW_MS // 2 + 1) if faults is not NONE else 0
        runtime = Runtime(
            lambda: self._scheduler.now + skew,
            self._scheduler.sleep,
            self._random.randbytes,
            lambda: self._scheduler.now,
        )
        return Service(FaultyStore(self._store, self._scheduler, self._random, faults), runtime, _KEY)

    def _prepare(self, service: Service) -> None:
        self._topic, _ = service.admin.topics.put("t", {"queues": QUEUES})
        service.admin.groups.put(self._topic, "g", {"mode": "broadcast", "invisible_ms": LEASE_MS})

    def _produce(self, service: Service) -> None:
        assert self._topic
        until = len(self._sent) + MESSAGES
        while len(self._sent) < until:
            self._scheduler.sleep(self._random.randrange(150))
            with suppress(StoreUnavailable):
                messages = [
                    Sending(Message("x", None, None, None, {}), self._random.randrange(QUEUES)) for _ in range(3)
                ]
                made = service.producing.send(self._topic, messages)
                self._sent |= {(sent.queue, sent.offset) for sent in made if sent.offset is not None}

    def _sweep(self, service: Service) -> None:
        assert self._topic
        for _ in range(6):
            self._scheduler.sleep(self._random.randrange(400))
            with suppress(StoreUnavailable):
                group = service.env.catalogue.group(self._topic, "g")
                service.cursors.consumers.forget_idle(self._topic, group, service.env.runtime.now())

    def _consume(self, name: str, service: Service) -> None:
        for _ in range(POPS):
            self._scheduler.sleep(self._random.randrange(300))
            with suppress(StoreUnavailable):
                self._pop(name, service)

    def _drain(self, name: str, service: Service) -> None:
        empty = 0
        while empty < 4:
            empty = 0 if self._pop(name, service, acks=True) else empty + 1
            self._scheduler.sleep(LEASE_MS // 2)

    def _pop(self, name: str, service: Service, acks: bool = False) -> bool:
        assert self._topic
        ask = Pop(self._random.choice((1, 4)), consumer_id=name, fill=acks)
        got = service.consuming.pop(self._topic, "g", ask).deliveries
        now = self._scheduler.now
        self._came[name] |= {(delivered.stored.queue, delivered.stored.offset) for delivered in got}
        if not acks:
            self._scheduler.sleep(self._random.randrange(LEASE_MS))
        until = self._scheduler.now
        for delivered in got:
            place = (delivered.stored.queue, delivered.stored.offset)
            self._held.append(
                Held(name, place, delivered.receipt, now, min(until, delivered.invisible_until_ms - SKEW_MS))
            )
        if got and (acks or self._random.random() < 0.7):
            service.consuming.ack(self._topic, "g", [delivered.receipt for delivered in got])
        return bool(got)


def _untouched(old: set[Place], got: set[Place]) -> set[Place]:
    """Old messages of the queues where none of them came."""
    anew = {queue for queue, _ in old & got}
    return {place for place in old if place[0] not in anew}


def play(seed: int) -> list[str]:
    return BroadcastWorld(seed).run()
