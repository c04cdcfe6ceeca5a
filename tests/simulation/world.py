"""One simulated history: callers of several instances of the service, faults, then quiet, a drain, and the verdict."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from functools import partial
from random import Random
from typing import Any
from unittest.mock import patch

from chalicelib.core.base.limits import LATE_WRITE_MS_MAX
from chalicelib.core.base.runtime import Runtime
from chalicelib.core.catalogue.group import BROADCAST
from chalicelib.core.catalogue.group_forms import Alarm, DeadLetterTopic, Filter, Rate
from chalicelib.core.catalogue.topic import Topic, Zones
from chalicelib.core.consuming import key_plan
from chalicelib.core.store import Keys, Store
from chalicelib.core.table import keys
from chalicelib.core.table.writes import Key
from chalicelib.push.outside import NOWHERE
from chalicelib.service import Service
from local.memory.meter import Meter
from tests.history.caller import Caller, named
from tests.history.checker import violations
from tests.history.facts import Delivered, Paused, Settled
from tests.history.final_state import read_dead, read_log, take_all
from tests.history.history import SKEW_MS, History, Rules
from tests.history.requests import RequestCaller
from tests.history.transactions import TransactionCaller, note_places
from tests.simulation import dead_letter_topic, move_tasks, pushes, readers, sqs_queues
from tests.simulation.actors import Consumer, Housekeeper, LateGroup, Resetter, Sweeper, Working
from tests.simulation.alarms import Watcher, look_before_the_drain, read_alarms
from tests.simulation.appointments import short_appointments, unappointed
from tests.simulation.cursor_states import remember
from tests.simulation.dead_letter_topic import Remover, exhume, make_topic
from tests.simulation.dead_letters import Purger, Redriver
from tests.simulation.expiry import KEPT_MS, Archivist, Trimmer, short_lives
from tests.simulation.faulty_store import NONE, Faults, FaultyStore, PastStore
from tests.simulation.intruders import Intruders
from tests.simulation.lost_payloads import Loser
from tests.simulation.mixture import mixed
from tests.simulation.old_receipts import Meddler
from tests.simulation.outage import BOOTED_MS, NEVER, Outage
from tests.simulation.plans import Plan
from tests.simulation.producers import LATE_WRITE_MS, Canceller, Producer, short_times
from tests.simulation.purges import Emptier, clocks_apart
from tests.simulation.pushes import quick_calls
from tests.simulation.queue_counts import Drainer, Resizer, quick_changes
from tests.simulation.requests import Requester, at_last
from tests.simulation.transactions import Arbiter, Sender
from tests.simulation.zones import ZONES, zone_of
from tests.support.partitioned_store import PartitionedStore
from tests.support.partitions import Limits, Partitions
from tests.support.scheduler import Endless, Killed, Scheduler
from tests.support.small import narrow_looks, small_pages, small_segments

_KEY = b"0123456789abcdef"

_STEPS_MAX = 6_000
"""The most steps; a history takes some hundred."""

_SAVED_S = 3
"""Seconds of units that partitions save: less than a history lasts."""
_HOT_MS = 5_000
"""How long a partition throttles before it splits."""

_LAST_LOOK_MS = 1_000
"""The pause before all is drained."""

QUIET_MS = 20_000
"""The pause after the faults: longer than any lease, retry or zombie."""


class World:
    """`beside`: another world of the same plan, on whose store this one has a topic of its own."""

    def __init__(self, seed: int, plan: Plan | None = None, beside: World | None = None) -> None:
        self._random: Random = beside._random if beside else Random(seed)
        self._plan = plan or mixed(seed)
        self._scheduler: Scheduler = beside._scheduler if beside else Scheduler(self._random)
        self._store: PastStore = beside._store if beside else PastStore(self._scheduler)
        self._running: list[Service] = beside._running if beside else []
        self.name = "u" if beside else "t"
        self._busy = 0
        self._intruders = Intruders(self, self._random)
        self._attempts: dict[str, int] = {}
        self.history = History(
            skew_ms=self._plan.apart_ms,
            off_ms=self._plan.apart_ms - self._plan.skew_ms // 2,
            dedup_ms=self._plan.dedup_ms,
            retention_ms=self._plan.retention_ms,
            expired_kept_ms=KEPT_MS,
        )
        self.history.aside_max = self._plan.aside_max
        self._outage: Outage = beside._outage if beside else NEVER
        if self._plan.outage_ms and not beside:
            self._outage = Outage.of(self._plan.outage_ms, self.now, self._random)
        self._partitions: Partitions | None = beside._partitions if beside else _partitions(self._plan)
        if self._plan.faults.are_harmless and not (self._plan.faults.unreadable or self._partitions):
            self.history.well_from_ms = self._outage.until_ms
        is_refused = self._plan.outage_ms or self._partitions
        self.history.are_all_answered = self._plan.faults.are_harmless and not is_refused
        self.history.stale_ms = self._plan.faults.stale_ms_max if self._plan.faults.stale else 0
        self.history.are_reads_torn = self._plan.faults.torn > 0
        self.history.zones = {queue: zone for zone, queues in ZONES.items() for queue in queues if self._plan.zones}
        consumers = [f"@{consumer}" for consumer in self._plan.broadcast_to] or [""]
        self._groups = [f"g{number}{consumer}" for number in range(self._plan.groups) for consumer in consumers]
        self._consumer = pushes.Consumer(self, self._random)
        self.queue_names = sqs_queues.Names(self._plan.is_fifo)
        self.history.rate = self._plan.rate
        self._topic = self._prepared()
        if self._partitions and self._plan.shuts_log:
            self.history.are_others_well = True
            self._partitions.shut = (self._topic.logs[0],)
        self.twin = beside or (World(seed, self._plan, self) if self._plan.twins else None)

    def run(self) -> list[str]:
        """Plays the history; returns its violations."""
        with narrow_looks() if self._plan.narrow_looks else nullcontext():
            return self._run()

    def _run(self) -> list[str]:
        worlds = [self, self.twin] if self.twin else [self]
        for world in worlds:
            world._spawn_all()
        is_late = self._plan.faults.stall or self._plan.outage_ms or self._partitions
        late_write_ms = LATE_WRITE_MS_MAX if is_late else LATE_WRITE_MS
        try:
            with ExitStack() as settings:
                for limits in self._limits(late_write_ms):
                    settings.enter_context(limits)
                self._scheduler.run(_STEPS_MAX * len(worlds))
                for world in worlds:
                    world._drain()
                self._scheduler.run(_STEPS_MAX * len(worlds))
        except Endless as endless:
            self.history.defects.append(f"{endless}, so other checks may be wrong")
        return [violation for world in worlds for violation in world._verdict()]

    def _limits(self, late_write_ms: int) -> Iterator[AbstractContextManager[object]]:
        """Limits for the history: times and sizes that it can meet."""
        plan = self._plan
        yield short_times(plan.dedup_ms, late_write_ms + plan.apart_ms)
        yield short_appointments(late_write_ms, plan.apart_ms + plan.faults.stale_ms_max)
        yield clocks_apart(plan.apart_ms)
        yield patch.object(key_plan, "SET_ASIDE_MAX", plan.aside_max)
        if plan.small_pages:
            yield small_pages()
        if plan.small_segments:
            yield small_segments()
        if plan.resizes:
            yield quick_changes(bool(plan.dedup_ids))
        if plan.pushes:
            yield quick_calls(self.history)
        if plan.retention_ms:
            yield short_lives()
        if plan.queue_calls:
            yield sqs_queues.quick_news()
        if plan.tasks:
            yield move_tasks.short_holds()

    def _verdict(self) -> list[str]:
        remember(self._store, self.now_topic, self.history)
        self.history.unappointed = list(unappointed(self._store))
        sqs_queues.note_queues(self._store, self.queue_names, self._plan.over_json, self.history)
        return violations(self.history)

    def _spawn_all(self) -> None:
        plan = self._plan
        share = -(-plan.messages // plan.producers)
        for number in range(plan.producers):
            name = f"{self.name}{number}" if plan.twins else f"p{number}"
            self._spawn(partial(Producer, self, name, share))
        for number in range(plan.consumers):
            group = self._groups[number % len(self._groups)]
            zone = zone_of(number, plan.groups) if plan.zones else None
            self._spawn(partial(Consumer, self, f"c{number}", group, zone=zone))
        for number in range(plan.late_groups):
            self._spawn(partial(LateGroup, self, f"late{number}"))
        self._spawn_some(plan.resets, lambda random: Resetter(self, random))
        self._spawn_some(bool(plan.wipes), lambda random: Emptier(self, plan.wipes, random))
        self._spawn_some(bool(plan.looks), lambda random: readers.Reader(self, random))
        self._spawn_some(plan.sweepers, lambda random: Sweeper(self, random))
        self._spawn_some(bool(plan.redrives), lambda random: Redriver(self, plan.redrives, random))
        self._spawn_some(2 * bool(plan.tasks), lambda random: move_tasks.Returner(self, plan.tasks, random))
        self._spawn_some(bool(plan.removals), lambda random: Remover(self, plan.removals, random))
        self._spawn_some(bool(plan.purges), lambda random: Purger(self, plan.purges, random))
        self._spawn_some(2 * bool(plan.alarm_ready), lambda random: Watcher(self, random))
        self._spawn_some(bool(plan.transactions), lambda random: Sender(self, plan.transactions, random))
        self._spawn_some(plan.arbiters * bool(plan.transactions), lambda random: Arbiter(self, 5, random))
        for number in range(2 * bool(plan.requests)):
            self._spawn(partial(Requester, self, f"q{number}", plan.requests))
        self._spawn_some(bool(plan.delayed), lambda random: Canceller(self, plan.cancels, random))
        self._spawn_some(bool(plan.losses), lambda random: Loser(self, plan.losses, random))
        self._spawn_some(bool(plan.chores), lambda random: Housekeeper(self, plan.chores, random))
        self._spawn_some(2 * plan.pushes, lambda random: pushes.Scheduled(self, random))
        self._spawn_some(plan.meddlers, lambda random: Meddler(self, plan.pops, random))
        self._spawn_some(bool(plan.resizes), lambda random: Resizer(self, plan.resizes, random))
        for helper in [Drainer(self, self._random)] * 2 * bool(plan.resizes):
            self._scheduler.spawn(partial(self._live, helper))
        for number in range(3 * bool(plan.queue_calls)):
            self._spawn(partial(sqs_queues.Owner, self, number))
            self._spawn(partial(sqs_queues.Client, self, f"s{number}"))
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
    def now_topic(self) -> Topic:
        """The topic as the store has it."""
        return Topic.of(self._store.read_now(Keys([keys.topic(self.name)]))[0])

    @property
    def settings(self) -> dict[str, Any]:
        plan = self._plan
        settings: dict[str, Any] = {
            "max_attempts": plan.max_attempts,
            "max_in_flight": plan.max_in_flight,
            "invisible_ms": 1_000,
            "ordered": plan.ordered,
            "delay_ms": plan.delay_ms,
            "settle_by": plan.settle_by,
        }
        if plan.broadcast_to:
            settings["mode"] = BROADCAST
        if plan.moves_dead:
            settings["dead_letters"] = DeadLetterTopic({"topic": dead_letter_topic.TOPIC})
        if plan.rate:
            settings["rate_limit"] = Rate(plan.rate)
        if plan.alarm_ready:
            settings["alarm"] = Alarm({"ready": plan.alarm_ready})
        if plan.unwanted_key is None:
            return settings
        return {**settings, "filter": Filter({"expression": f"key != '{plan.unwanted_key}'"})}

    @property
    def _topic_settings(self) -> dict[str, Any]:
        optional = {
            "retention_ms": self._plan.retention_ms,
            "max_depth": self._plan.max_depth,
            "zones": self._plan.zones and Zones(ZONES),
        }
        looked_at = readers.SETTINGS if self._plan.looks else {}
        return {"queues": self._plan.queues, **looked_at, **{name: value for name, value in optional.items() if value}}

    @property
    def rules(self) -> Rules:
        plan = self._plan
        about = (plan.unwanted_key, plan.ordered, plan.delay_ms, plan.alarm_ready, plan.settle_by)
        return Rules(plan.max_attempts, plan.max_in_flight, *about, may_outlive=bool(plan.removals))

    @property
    def plan(self) -> Plan:
        return self._plan

    @property
    def pops(self) -> int:
        return self._plan.pops

    def requester(self, service: Service) -> RequestCaller:
        return RequestCaller(service, self._topic, self.history, lambda: self._scheduler.now)

    @property
    def _changes(self) -> bool:
        """Whether the topic changes: it has delayed messages, some of transactions, or more queues or fewer."""
        return bool(self._plan.delayed or self._plan.transactions or self._plan.resizes)

    @property
    def is_busy(self) -> bool:
        return self._busy > 0

    def spawn(self, run: Callable[[], None]) -> None:
        self._scheduler.spawn(partial(self._judged, run))

    def sleep(self, ms: int) -> None:
        self._scheduler.sleep(ms)

    def pause(self, service: Service, group: str, is_paused: bool) -> None:
        self.history.pauses.append(fact := Paused(group, is_paused, self.now))
        service.admin.groups.put(self._topic, named(group), {"paused": is_paused})
        fact.at_ms, fact.is_answered = self.now, True

    def add_group(self, name: str) -> None:
        """From now on it must get every message."""
        self._groups.append(name)
        self.history.rules[name] = self.rules

    def instance(self, faults: Faults | None = None, does_little: bool = False) -> Service:
        """A fresh process: cold caches, a clock of its own. By chance, one that has served others for a while.
        `does_little`: its user makes few requests; others act before more of them."""
        plan = self._plan
        if plan.shared and self._running and faults is not NONE and self._random.random() < plan.shared:
            return self.running()
        faults = faults or plan.faults
        skew = self._skew() if faults is not NONE else 0
        runtime = Runtime(
            self._clock(skew, is_set_back=bool(self._plan.set_back_ms) and faults is not NONE),
            self._scheduler.sleep,
            self._random.randbytes,
            lambda: self._scheduler.now - BOOTED_MS,
            self._scheduler.bell,
        )
        intrude = self._intruders.act_on_few if does_little else self._intruders.act
        disturbed = () if faults is NONE else (self._outage, intrude)
        store: Store = FaultyStore(self._store, self._scheduler, self._random, faults, *disturbed)
        if self._partitions and faults is not NONE:
            store = PartitionedStore(store, self._store.meter, self._partitions, runtime, Meter())
        service = Service(store, runtime, _KEY, outside=self._consumer.outside() if self._plan.pushes else NOWHERE)
        if faults is not NONE:
            self._running.append(service)
        return service

    def running(self) -> Service:
        """An existing process, with its caches."""
        return self._random.choice(self._running) if self._running else self.instance()

    def _skew(self) -> int:
        """Distant clocks are as far apart as they may be."""
        most = self._plan.skew_ms // 2
        return self._random.choice((-most, most)) if most > SKEW_MS else self._random.randrange(-most, most + 1)

    def _clock(self, skew: int, is_set_back: bool) -> Callable[[], int]:
        if not is_set_back:
            return lambda: self._scheduler.now + skew
        from_ms = self._scheduler.now + self._random.randrange(5_000)
        back_ms = self._random.choice((0, self._plan.set_back_ms))
        return lambda: self._scheduler.now + skew - (back_ms if self._scheduler.now >= from_ms else 0)

    def beside(self, act: Callable[[Service], object]) -> None:
        """Another caller does it at another instance, at about the same time."""

        def at_another() -> None:
            with suppress(Killed):
                act(self.instance())

        self._scheduler.spawn(partial(self._judged, at_another), self._random.randrange(60))

    def lose(self, key: Key) -> bool:
        """Removes an item past all callers; returns whether it existed."""
        return self._store.lose(key)

    def caller(self, service: Service) -> Caller:
        known = (self._topic, self.history, lambda: self._scheduler.now)
        return Caller(service, *known, self._changes, self._plan.notes_first, self._attempts)

    def transactor(self, service: Service) -> TransactionCaller:
        return TransactionCaller(service, self._topic, self.history, lambda: self._scheduler.now)

    # -- how it goes --------------------------------------------------------------------------------------------------

    def _prepared(self) -> Topic:
        made: list[Topic] = []

        def prepare() -> None:
            service = self.instance(NONE)
            if self._plan.moves_dead and not self._plan.tasks:
                make_topic(service, self.history)
            made.append(service.admin.topics.put(self.name, self._topic_settings)[0])
            if self._plan.tasks:
                move_tasks.make_queues(service, self.history)
            for group in self._groups:
                service.admin.groups.put(made[0], named(group), self.settings)
                self.history.rules[group] = self.rules

        self._scheduler.spawn(prepare)
        self._scheduler.run(_STEPS_MAX)
        self._topic = made[0]
        if self._plan.pushes:
            self._scheduler.spawn(lambda: pushes.make_group(self.instance(NONE), self))
            self._scheduler.run(_STEPS_MAX)
        return made[0]

    def _spawn_expiry(self) -> None:
        """These actors do not count as busy: they run as long as others do."""
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
        """When its process dies, an actor continues in a fresh one."""
        does_little = not isinstance(actor, (Producer, Consumer, LateGroup, Meddler))
        while True:
            try:
                return self._judged(lambda: actor.work(self.instance(does_little=does_little)))
            except Killed:
                continue

    def _judged(self, act: Callable[[], None]) -> None:
        try:
            act()
        except Exception as defect:  # noqa: BLE001 - whatever it is, the verdict names it
            self.history.defects.append(repr(defect))

    def _drain(self) -> None:
        """Ends all faults: unsettled messages come within the longest lease and retry."""
        if self._plan.alarm_ready:
            self._scheduler.spawn(partial(self._judged, self._look_before_the_drain), QUIET_MS - 1_000)
        for group in self._groups:
            if not self._plan.alarm_ready:
                self._scheduler.spawn(partial(self._judged, partial(self._take_what_comes_back, group)))
            self._scheduler.spawn(partial(self._judged, partial(self._drain_group, group)), QUIET_MS)
        if self._plan.pushes:
            self._scheduler.spawn(partial(self._judged, partial(pushes.drain_group, self)), QUIET_MS)
        if self._plan.queue_calls:
            self._scheduler.spawn(partial(self._judged, self._empty_queues), QUIET_MS)
        if self._plan.resizes:
            self._scheduler.spawn(partial(self._judged, self._check), QUIET_MS - 2_000)
        self._scheduler.spawn(partial(self._judged, self._read_log), QUIET_MS + 10_000)

    def _take_what_comes_back(self, group: str) -> None:
        """Pops when the messages that callers hold come back, by every clock."""
        caller, quiet_ms = self.caller(self.instance(NONE)), self.now + QUIET_MS - _LAST_LOOK_MS
        late_ms = self._plan.apart_ms + (self.history.stale_ms or 0) + 1
        while coming := [ms for ms in self._returns_ms(group) if self.now < ms + late_ms < quiet_ms]:
            self.sleep(min(coming) + late_ms - self.now)
            self.history.drained.setdefault(group, set()).update(take_all(caller, group))

    def _returns_ms(self, group: str) -> list[int]:
        history = self.history
        facts: list[Delivered | Settled] = [*history.delivered, *history.settled]
        return [fact.until_ms for fact in facts if fact.group == group]

    def _drain_group(self, group: str) -> None:
        service = self.instance(NONE)
        caller = self.caller(service)
        self.pause(service, group, False)
        self.history.rated_until_ms[group] = self.now
        unlimited = {"rate_limit": Rate(1_000_000)} if self._plan.rate else {}
        service.admin.groups.put(self._topic, named(group), {**self.settings, **unlimited})
        self.history.drained.setdefault(group, set()).update(take_all(caller, group))
        if self._plan.delay_ms:  # these pops have promoted some, which wait once more
            self.sleep(self._plan.delay_ms + 1)
            self.history.drained[group].update(take_all(caller, group))
        self.history.drained_ms[group] = self.now
        if self._plan.retention_ms:
            Archivist(self).look()  # messages that came late into the log may expire before all is quiet
        read_dead(service, self.now_topic, group, self.history)
        if not self._plan.broadcast_to:  # whose progress is that of all consumers
            parts = service.admin.groups.details(service.env.catalogue.current_topic(self.name), group).queues
            self.history.left[group] = sum(part.ready + part.in_flight + part.retrying for part in parts)

    def _read_log(self) -> None:
        service = self.instance(NONE)
        if self._plan.resizes:
            self._let_queues_leave(service)
        topic = service.env.catalogue.current_topic(self.name)
        self.history.ends = dict(enumerate(service.log.offsets.ends(topic, topic.most)))
        if self._plan.retention_ms:
            Archivist(self).look()
        else:
            read_log(service, topic, self.history)
            self.history.look_ups += readers.wrong_look_ups(service, self, self._random)
            self.history.look_ups += readers.wrong_cancels(service, self, self._random)
        if self._plan.moves_dead:
            exhume(service, self._store, self.history)
        if self._plan.tasks:
            move_tasks.settle(self)
        if self._plan.requests:
            at_last(service, self)
        if self._plan.transactions:
            note_places(self.history)
            self._last_check(service)
        if self._plan.alarm_ready:
            read_alarms(service, self._store, self.history)

    def _empty_queues(self) -> None:
        sqs_queues.empty_queues(self, self.instance(NONE))

    def _check(self) -> None:
        self.instance(NONE).sweeps.check()

    def _let_queues_leave(self, service: Service) -> None:
        """All groups have settled them, except throw-away groups, and the group to which move tasks bring messages
        back."""
        service.sweeps.check()
        if not (self._plan.chores or self._plan.tasks):
            self.history.draining = [*service.env.catalogue.current_topic("t").draining]

    def _last_check(self, service: Service) -> None:
        caller, self.history.open_at_last, self.history.last_check_ms = self.transactor(service), set(), self.now
        while checked := caller.check(16):
            self.history.open_at_last |= {each.id for each in checked}

    def _look_before_the_drain(self) -> None:
        look_before_the_drain(self.instance(NONE), self.history, self._groups)


def _partitions(plan: Plan) -> Partitions | None:
    if plan.key_units:
        return Partitions(Limits(plan.key_units, 3 * plan.key_units, _SAVED_S, _HOT_MS))
    return Partitions(Limits()) if plan.shuts_log else None


def play(seed: int, plan: Plan | None = None) -> list[str]:
    """The violations of the history of this seed. None of its objects outlives the call, so collecting garbage
    meanwhile would only take time: a quarter of it."""
    gc.disable()
    try:
        return World(seed, plan).run()
    finally:
        gc.enable()
