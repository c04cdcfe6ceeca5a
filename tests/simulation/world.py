"""One simulated history: callers of several instances of the service, faults, then quiet, a drain, and the verdict."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import Any, Protocol

from chalicelib.alarm import Alarm
from chalicelib.cursor import Cursor
from chalicelib.errors import DecantError, StoreUnavailable
from chalicelib.filters import Filter
from chalicelib.runtime import Runtime
from chalicelib.service.claimer import Pop
from chalicelib.service.groups import OneQueue
from chalicelib.service.service import Service, build
from chalicelib.topic import Topic
from tests.history import checker
from tests.history.aftermath import read_dead, read_log, take_all
from tests.history.caller import Caller
from tests.history.facts import Delivered, History, Paused, Rules
from tests.simulation.afterlife import Purger, Redriver, small_pages
from tests.simulation.expiring import CONSUMERS_LULL, RETENTION_MS, Archivist, Trimmer, short_lives
from tests.simulation.faulty_store import ALL, NONE, Faults, FaultyStore, PastStore
from tests.simulation.producing import Canceller, Producer, short_times
from tests.simulation.scheduler import Endless, Killed, Scheduler
from tests.simulation.watching import Watcher, look_before_the_drain, read_alarms

_KEY = b"0123456789abcdef"

_STEPS_MAX = 6_000
"""A history takes some hundred."""

LEASES_MS = (200, 1_000, 3_000)
EXTENDED_MS = 2_000
RETRIES_MS = (0, 300, 2_000)

QUIET_MS = 20_000
"""After the faults: longer than any lease, retry or zombie."""


EXPIRING: dict[str, Any] = {"retention_ms": RETENTION_MS, "messages": 54, "pops": 7, "dedup_ms": 2_000}
"""No dedup id stands for longer than what is stored with it is there."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a history is made of."""

    producers: int = 3
    consumers: int = 3
    messages: int = 20
    pops: int = 3
    """Of each consumer."""
    queues: int = 2
    groups: int = 1
    late_groups: int = 0
    """Made while messages come in."""
    resets: int = 0
    ordered: bool = False
    unwanted_key: str | None = None
    """Of messages that no group wants."""
    sweepers: int = 0
    """Scheduled sweeps that run at once."""
    chores: int = 0
    """Pauses, settings changed, throw-away groups made and removed."""
    max_attempts: int = 1_000
    max_in_flight: int = 1_000
    burials: float = 0.03
    """The share of what is delivered that consumers bury."""
    redrives: int = 0
    purges: int = 0
    dedup_ids: int = 0
    """Producers take theirs from so many; 0: they use none."""
    dedup_ms: int = 300_000
    """How long one stands."""
    delayed: float = 0.0
    """The share of messages that wait."""
    small_pages: bool = False
    """Retries lie in pages, not in the cursor."""
    alarm_ready: int = 0
    """Groups have an alarm, raised where so many messages are ready; 0: they have none."""
    retention_ms: int = 0
    """Messages expire after so long, and are removed; 0: they do not."""
    faults: Faults = ALL

    @classmethod
    def of(cls, seed: int) -> Plan:
        """Every seed has a plan of its own: most are plain, some have more of one thing or another."""
        random = Random(~seed)
        groups = random.choice((1, 1, 1, 2))
        plan = cls(
            queues=random.choice((1, 2, 2, 3)),
            groups=groups,
            late_groups=random.choice((0, 0, 0, 1)),
            resets=random.choice((0, 0, 0, 1, 2)),
            chores=random.choice((0, 0, 0, 3)),
            max_attempts=random.choice((1_000, 1_000, 1, 2)),
            max_in_flight=random.choice((1_000, 1_000, 4, 7)),
            ordered=random.choice((False, False, False, True)),
            unwanted_key=random.choice((None, None, None, "b")),
            sweepers=random.choice((0, 0, 1, 2)),
            redrives=random.choice((0, 0, 0, 2)),
            small_pages=random.choice((False, False, True)),
            dedup_ids=random.choice((0, 0, 0, 3, 6)),
            dedup_ms=random.choice((300_000, 300_000, 2_000)),
            delayed=random.choice((0.0, 0.0, 0.0, 0.2, 0.6)),
            purges=random.choice((0, 0, 0, 2)),
            alarm_ready=random.choice((0, 0, 0, 1, 4)),
        )
        return replace(plan, **EXPIRING) if random.random() < 0.2 else plan


class World:
    def __init__(self, seed: int, plan: Plan | None = None) -> None:
        self._random = Random(seed)
        self._plan = plan or Plan.of(seed)
        self._scheduler = Scheduler(self._random)
        self._store = PastStore(self._scheduler)
        self._busy = 0
        self.history = History(dedup_ms=self._plan.dedup_ms, retention_ms=self._plan.retention_ms)
        self._groups = [f"g{number}" for number in range(self._plan.groups)]
        self._topic = self._prepared()

    def run(self) -> list[str]:
        """Plays the history; returns what is wrong with it."""
        self._spawn_all()
        try:
            with ExitStack() as settings:
                settings.enter_context(short_times(self._plan.dedup_ms))
                if self._plan.small_pages:
                    settings.enter_context(small_pages())
                if self._plan.retention_ms:
                    settings.enter_context(short_lives())
                self._scheduler.run(_STEPS_MAX)
                self._drain()
        except Endless as endless:
            self.history.defects.append(str(endless))
        self.history.passed = list(self._passed())
        self.history.given_back = set(self._given_back())
        return checker.violations(self.history)

    def _spawn_all(self) -> None:
        plan = self._plan
        share = -(-plan.messages // plan.producers)
        for number in range(plan.producers):
            self._spawn(lambda random, number=number: Producer(self, f"p{number}", share, random))
        for number in range(plan.consumers):
            group = self._groups[number % len(self._groups)]
            self._spawn(lambda random, number=number, group=group: Consumer(self, f"c{number}", group, random))
        for number in range(plan.late_groups):
            self._spawn(lambda random, number=number: LateGroup(self, f"late{number}", random))
        self._spawn_some(plan.resets, lambda random: Resetter(self, random))
        self._spawn_some(plan.sweepers, lambda random: Sweeper(self, random))
        self._spawn_some(bool(plan.redrives), lambda random: Redriver(self, plan.redrives, random))
        self._spawn_some(bool(plan.purges), lambda random: Purger(self, plan.purges, random))
        self._spawn_some(2 * bool(plan.alarm_ready), lambda random: Watcher(self, random))
        self._spawn_some(bool(plan.delayed), lambda random: Canceller(self, random))
        self._spawn_some(bool(plan.chores), lambda random: Housekeeper(self, plan.chores, random))
        if plan.retention_ms:
            self._spawn_expiry()

    # -- what actors use ----------------------------------------------------------------------------------------------

    @property
    def now(self) -> int:
        return self._scheduler.now

    @property
    def groups(self) -> list[str]:
        return self._groups

    @property
    def topic(self) -> Topic:
        return self._topic

    @property
    def settings(self) -> dict[str, Any]:
        plan = self._plan
        settings: dict[str, Any] = {
            "max_attempts": plan.max_attempts,
            "max_in_flight": plan.max_in_flight,
            "invisible_ms": 1_000,
            "ordered": plan.ordered,
        }
        if plan.alarm_ready:
            settings["alarm"] = Alarm(plan.alarm_ready)
        if plan.unwanted_key is None:
            return settings
        return {**settings, "filter": Filter({"expression": f"key != '{plan.unwanted_key}'"})}

    @property
    def _topic_settings(self) -> dict[str, Any]:
        retention_ms = self._plan.retention_ms
        return {"queues": self._plan.queues, **({"retention_ms": retention_ms} if retention_ms else {})}

    @property
    def rules(self) -> Rules:
        plan = self._plan
        return Rules(plan.max_attempts, plan.max_in_flight, plan.unwanted_key, plan.ordered, plan.alarm_ready)

    @property
    def plan(self) -> Plan:
        return self._plan

    @property
    def pops(self) -> int:
        return self._plan.pops

    @property
    def is_busy(self) -> bool:
        return self._busy > 0

    def sleep(self, ms: int) -> None:
        self._scheduler.sleep(ms)

    def pause(self, service: Service, group: str, is_paused: bool) -> None:
        self.history.pauses.append(fact := Paused(group, is_paused, self.now))
        service.groups.put(self._topic, group, {"paused": is_paused})
        fact.at_ms, fact.is_answered = self.now, True

    def add_group(self, name: str) -> None:
        """From now on it must get every message."""
        self._groups.append(name)
        self.history.rules[name] = self.rules

    def instance(self, faults: Faults | None = None) -> Service:
        """A fresh process: cold caches, a clock of its own."""
        faults = faults or self._plan.faults
        skew = self._random.randrange(-checker.SKEW_MS // 2, checker.SKEW_MS // 2 + 1) if faults is not NONE else 0
        runtime = Runtime(
            lambda: self._scheduler.now + skew,
            self._scheduler.sleep,
            self._random.randbytes,
            lambda: self._scheduler.now,
        )
        return build(FaultyStore(self._store, self._scheduler, self._random, faults), runtime, _KEY)

    def caller(self, service: Service) -> Caller:
        return Caller(service, self._topic, self.history, lambda: self._scheduler.now, bool(self._plan.delayed))

    # -- how it goes --------------------------------------------------------------------------------------------------

    def _prepared(self) -> Topic:
        made: list[Topic] = []

        def prepare() -> None:
            service = self.instance(NONE)
            made.append(service.topics.put("t", self._topic_settings)[0])
            for group in self._groups:
                service.groups.put(made[0], group, self.settings)
                self.history.rules[group] = self.rules

        self._scheduler.spawn(prepare)
        self._scheduler.run(_STEPS_MAX)
        return made[0]

    def _spawn_expiry(self) -> None:
        """Who does not count as busy: these go on as long as others do."""
        self._scheduler.spawn(Archivist(self).work)
        self._scheduler.spawn(partial(self._live, Trimmer(self, self._random)))

    def _spawn_some(self, count: int, make: Callable[[Random], Working]) -> None:
        for _ in range(count):
            self._spawn(make)

    def _spawn(self, make: Callable[[Random], Working]) -> None:
        self._busy += 1
        self._scheduler.spawn(partial(self._work, make(self._random)), self._random.randrange(200))

    def _work(self, actor: Working) -> None:
        self._live(actor)
        self._busy -= 1

    def _live(self, actor: Working) -> None:
        """When its process dies, an actor goes on in a fresh one."""
        while True:
            try:
                return self._judged(lambda: actor.work(self.instance()))
            except Killed:
                continue

    def _judged(self, act: Callable[[], None]) -> None:
        try:
            act()
        except Exception as defect:  # noqa: BLE001 - whatever it is, the verdict names it
            self.history.defects.append(repr(defect))

    def _drain(self) -> None:
        """No more faults: whatever is not settled comes within the longest lease and retry."""
        if self._plan.alarm_ready:
            self._scheduler.spawn(partial(self._judged, self._look_before_the_drain), QUIET_MS - 1_000)
        for group in self._groups:
            self._scheduler.spawn(partial(self._judged, partial(self._drain_group, group)), QUIET_MS)
        self._scheduler.spawn(partial(self._judged, self._read_log), QUIET_MS + 10_000)
        self._scheduler.run(_STEPS_MAX)

    def _drain_group(self, group: str) -> None:
        service = self.instance(NONE)
        caller = self.caller(service)
        self.pause(service, group, False)
        service.groups.put(self._topic, group, self.settings)
        self.history.drained[group] = take_all(caller, group)
        self.history.drained_ms[group] = self.now
        if self._plan.retention_ms:
            Archivist(self).look()  # what came late into the log may expire before all is quiet
        read_dead(service, self._topic, group, self.history)

    def _read_log(self) -> None:
        service = self.instance(NONE)
        self.history.ends = dict(enumerate(service.topics.details("t").queue_ends))
        if self._plan.retention_ms:
            Archivist(self).look()
        else:
            read_log(service, self._topic, self.history)
        if self._plan.alarm_ready:
            read_alarms(service, self._store, self.history)

    def _look_before_the_drain(self) -> None:
        look_before_the_drain(self.instance(NONE), self.history, self._groups)

    def _passed(self) -> Iterator[str]:
        ends: dict[str, list[tuple[int, int]]] = {}
        for key, since, item in self._store.versions("entries"):
            ends.setdefault(key.pk, []).append((since, item["end"]))
        cursors = list(self._store.versions("leases"))
        if (self.history.log and not ends) or (self.history.delivered and not cursors):
            yield f"saw {len(ends)} logs and {len(cursors)} cursors in the store, which had some"
        for key, at, cursor in cursors:
            log = self._topic.log(int(key.sk.rsplit("#", 1)[1]))
            end = max((end for since, end in ends.get(log, ()) if since <= at), default=0)
            if cursor["next"][0] > end:
                yield f"{key.sk} stood at {cursor['next'][0]} at {at}, the log ended at {end}"

    def _given_back(self) -> Iterator[tuple[str, tuple[int, int]]]:
        for key, _, item in self._store.versions("leases"):
            cursor = Cursor.of(item)
            for lease in cursor.leases.values():
                if not lease.attempt and not lease.parked:
                    group = key.pk.rsplit("#", 1)[1]
                    yield from ((group, (int(key.sk.rsplit("#", 1)[1]), offset)) for offset in lease.owed_offsets)


class Working(Protocol):
    def work(self, service: Service) -> None:
        """As long as there is something to do."""


class Actor:
    """Somebody who calls the service. What is still to do outlives the process that does it."""

    def work(self, service: Service) -> None:
        raise NotImplementedError


class Consumer(Actor):
    def __init__(self, world: World, name: str, group: str, random: Random) -> None:
        self._world, self._name, self._group, self._random = world, name, group, random
        self._left = world.pops
        self._acks: list[Delivered] = []
        self._old: list[Delivered] = []

    def work(self, service: Service) -> None:
        random, caller = self._random, self._world.caller(service)
        while self._left:
            self._left -= 1
            self._world.sleep(random.randrange(400) * (CONSUMERS_LULL if self._world.plan.retention_ms else 1))
            riding, self._acks = self._acks, []
            ask = self._ask(riding)
            got = caller.pop(self._group, ask, riding)
            if ask.attempt_id and (got is None or random.random() < 0.2):
                got = caller.pop(self._group, ask, riding) or got
            if random.random() < 0.3:
                self._world.sleep(random.randrange(2_500))
            self._settle(caller, got or [])
            if self._old and random.random() < 0.2:
                caller.ack([random.choice(self._old)])
            if got and random.random() < 0.1:
                self._mistake(caller, got)
            self._old = (got or self._old)[:3]

    def _mistake(self, caller: Caller, got: list[Delivered]) -> None:
        """Shows receipts to a group that they are not of."""
        others = [group for group in self._world.groups if group != self._group]
        if others:
            caller.ack(got[:2], self._random.choice(others))

    def _ask(self, riding: list[Delivered]) -> Pop:
        random = self._random
        return Pop(
            max_messages=random.choice((1, 4, 10, 10)),
            invisible_ms=random.choice(LEASES_MS),
            wait_ms=random.choice((0, 0, 0, 100)),
            attempt_id=f"{self._name}{self._left}" if random.random() < 0.3 else None,
            ack=tuple(each.receipt for each in riding),
        )

    def _settle(self, caller: Caller, got: list[Delivered]) -> None:
        """Acks most: at once, or with the next pop, or some of them; gives some back, extends some, forgets some."""
        random = self._random
        while got:
            some, got = got[: (size := random.choice((1, 2, 5)))], got[size:]
            fate = random.random()
            if fate < 0.25:
                self._acks += some
            elif fate < 0.6:
                caller.ack(some)
            elif fate < 0.75:
                caller.nack(some, random.choice(RETRIES_MS))
            elif fate < 0.75 + self._world.plan.burials:
                caller.bury(some[:1])
            elif fate < 0.9:
                self._acks += caller.extend(some, EXTENDED_MS)[:1]


class LateGroup(Actor):
    """A group that is made while messages come in, from the beginning on."""

    def __init__(self, world: World, name: str, random: Random) -> None:
        self._world, self._name, self._random = world, name, random
        self._begins_in = random.randrange(600)
        self._consumer: Consumer | None = None

    def work(self, service: Service) -> None:
        if self._consumer is None:
            self._world.sleep(self._begins_in)
            try:
                service.groups.put(self._world.topic, self._name, self._world.settings)
            except StoreUnavailable:
                return
            self._world.add_group(self._name)
            self._consumer = Consumer(self._world, self._name, self._name, self._random)
        self._consumer.work(service)


class Resetter(Actor):
    def __init__(self, world: World, random: Random) -> None:
        self._world, self._random = world, random
        self._is_done = False

    def work(self, service: Service) -> None:
        if not self._is_done:
            self._is_done = True
            self._world.sleep(self._random.randrange(2_000))
            self._world.caller(service).reset(self._random.choice(self._world.groups), self._target())

    def _target(self) -> str | int | OneQueue:
        random, world = self._random, self._world
        delivered = random.choice(world.history.delivered).place if world.history.delivered else (0, 0)
        instant = world.now - random.randrange(2_000)
        return random.choice(("earliest", "earliest", "latest", instant, OneQueue(*delivered)))


class Sweeper(Actor):
    """What runs on a schedule, now and then."""

    def __init__(self, world: World, random: Random) -> None:
        self._world, self._random = world, random
        self._left = 3

    def work(self, service: Service) -> None:
        while self._left:
            self._left -= 1
            self._world.sleep(self._random.randrange(1_500))
            with suppress(StoreUnavailable):
                service.sweeps.forward()
                service.sweeps.revive()
                service.sweeps.expire()


class Housekeeper(Actor):
    """Pauses a group and lets it go on, and makes and removes one that nobody needs."""

    def __init__(self, world: World, chores: int, random: Random) -> None:
        self._world, self._left, self._random = world, chores, random

    def work(self, service: Service) -> None:
        while self._left:
            self._left -= 1
            self._world.sleep(self._random.randrange(600))
            try:
                self._chore(service, self._random.choice(self._world.groups))
            except DecantError:
                continue

    def _chore(self, service: Service, group: str) -> None:
        topic = self._world.topic
        if self._random.random() < 0.5:
            self._world.pause(service, group, True)
            self._world.sleep(self._random.randrange(self._random.choice((200, 2_500))))
            self._world.pause(service, group, False)
        else:
            service.groups.put(topic, "spare", {})
            service.consumer.pop(topic, "spare", Pop(3, 500))
            service.groups.delete(topic, "spare")


def play(seed: int, plan: Plan | None = None) -> list[str]:
    """What is wrong with the history of this seed. Nothing of it outlives the call, so that looking for garbage while
    it goes on would only take time: a quarter of it."""
    gc.disable()
    try:
        return World(seed, plan).run()
    finally:
        gc.enable()
