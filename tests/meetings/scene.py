"""A topic with some history, a call that is about to be made on it, and its judgement."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from copy import copy
from random import Random
from typing import Any, Self

from chalicelib.core.base.errors import GroupNotFound, StoreUnavailable, TopicNotFound
from chalicelib.core.catalogue.group import BROADCAST
from chalicelib.core.catalogue.group_forms import ALARMS_TOPIC, Backoff, Rate
from chalicelib.core.consuming.request import Pop
from chalicelib.core.store import Outcome
from chalicelib.core.table.writes import Item, Write
from chalicelib.service import Service
from tests.history import checker
from tests.history.caller import Caller
from tests.history.facts import NEVER_MS, Delivered, Settled
from tests.history.final_state import read_dead, read_log
from tests.history.history import History, Rules
from tests.history.transactions import TransactionCaller, note_places
from tests.simulation.alarms import read_alarms
from tests.simulation.cursor_states import remember
from tests.simulation.faulty_store import PastStore
from tests.support.instances import SIGNING_KEY
from tests.support.stopping import Stage

LONG_MS, SHORT_MS = 60_000, 500
"""Lengths of leases: one outlasts the calls that meet; the caller waits for the end of the other."""
TOGETHER_MS = 100
"""One pop takes all messages that return within this time."""
CONSUMER = "ann"
_AGENDA, _RATE = "agenda#", "rate#"
_OF_TIME = "a_pop_waits_no_longer_than_asked"
"""Time may pass at once between two requests of a pop."""

Act = Callable[["Scene", Service], object]
"""A call on an instance. One that pops leaves its deliveries in `Scene.got`."""


class MeetingStore(PastStore):
    """Every request takes a millisecond, so that no two happen at once. Just before one of them, another operation
    happens."""

    troubles = 0
    """None: every call must succeed."""

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self._stage = stage
        self.requests = 0
        self.decisive: list[int] = []
        """The numbers of the requests that decide something: writes, except appointments and others without effect."""
        self._request = 0
        self._happens: Callable[[], None] = lambda: None

    def before(self, request: int, happens: Callable[[], None]) -> None:
        """`request`: counted from 1, from now on."""
        self._request, self._happens = self.requests + request, happens

    def write(self, write: Write) -> Item:
        self._note([write])
        return super().write(write)

    def write_each(self, writes: Sequence[Write]) -> list[Outcome]:
        self._note(writes)
        return super().write_each(writes)

    def write_together(self, writes: Sequence[Write]) -> None:
        self._note(writes)
        super().write_together(writes)

    def copy_for(self, stage: Stage) -> MeetingStore:
        other = MeetingStore(stage)
        other._items = {pk: dict(items) for pk, items in self._items.items()}
        other._past = {
            pk: {sk: ([*instants], [*versions]) for sk, (instants, versions) in items.items()}
            for pk, items in self._past.items()
        }
        return other

    def _note(self, writes: Sequence[Write]) -> None:
        if any(not write.key.pk.startswith(_AGENDA) for write in writes):
            self.decisive.append(self.requests + 1)

    def _count_calls(self, requests: int = 1) -> None:
        """Every request calls this first."""
        self.requests += 1
        self._stage.now += 1
        if self.requests == self._request:
            self._happens()


class Scene(Stage):
    """Topic `t` and its group `g`, with `settings`: a dead letter, a delayed message, an undecided transaction, and two
    leased messages.

    `act`: the call that meets another one. `warm`: earlier calls of its instance. `theirs`: deliveries that others
    hold, and settle; `mine`: those of the caller. `got`: the deliveries of the call; `taken`: those of others
    meanwhile. `is_torn`: the call looks several times, and something may happen between two of its looks too."""

    def __init__(self, queues: int = 1, is_held: bool = True, **settings: Any) -> None:
        """`is_held`: whether another caller holds two messages."""
        super().__init__()
        self.store: MeetingStore = MeetingStore(self)
        self.history = History()
        self.history.are_all_answered, self.history.stale_ms = True, 0
        self.settings: dict[str, Any] = {
            "max_attempts": 5,
            "max_in_flight": 1_000,
            "invisible_ms": LONG_MS,
            "backoff_ms": Backoff([SHORT_MS]),
        } | settings
        self.queues, self._producers = queues, 0
        self.attempts: dict[str, int] = {}
        self.theirs: list[Delivered] = []
        self.mine: list[Delivered] = []
        self.got: list[Delivered] = []
        self.taken: list[Delivered] = []
        self.is_torn = self.is_made_again = self.is_new_topic = False
        self.around: Callable[[], AbstractContextManager[object]] = nullcontext
        self.warm: Act = look
        self.act: Act = cold
        service = self.instance()
        service.admin.topics.put(ALARMS_TOPIC, {"queues": 1})
        self.make(service)
        self._furnish(service, is_held)

    def make(self, service: Service) -> None:
        """The topic and the group."""
        self.topic, _ = service.admin.topics.put("t", {"queues": self.queues})
        self.make_group(service)

    def make_group(self, service: Service) -> None:
        service.admin.groups.put(self.topic, "g", self.settings)
        about = (self.settings.get("ordered", False), self.settings.get("delay_ms", 0))
        self.history.rules["g"] = Rules(
            self.settings["max_attempts"],
            self.settings["max_in_flight"],
            "x" if "filter" in self.settings else None,
            *about,
            settle_by=self.settings.get("settle_by", "receipt"),
        )

    def _furnish(self, service: Service, is_held: bool) -> None:
        caller = self.caller(service)
        if not self.is_broadcast:
            self.send(1)
            self.wait(self.settings.get("delay_ms", 0))
            caller.bury(self.lease(1))
        caller.send(self.bodies(1), [None], "", (), [self.now + LONG_MS])
        self.begun = self.transactor(service).begin(self.bodies(2), [None] * 2, LONG_MS, 10 * LONG_MS)
        if is_held:
            self.send(2)
            self.theirs = self.lease(2)

    # -- what scenes and operations use -------------------------------------------------------------------------------

    @property
    def is_broadcast(self) -> bool:
        return bool(self.settings.get("mode") == BROADCAST)

    def copy(self) -> Self:
        other = copy(self)
        other.store, other.random, other.history = self.store.copy_for(other), Random(2), self.history.copy()
        other.attempts = dict(self.attempts)
        return other

    def instance(self, stop: Callable[[], None] = lambda: None) -> Service:
        return Service(self.store, self.runtime(), SIGNING_KEY)

    def caller(self, service: Service) -> Caller:
        return Caller(service, self.topic, self.history, lambda: self.now, asks_for_topic=True, attempts=self.attempts)

    def transactor(self, service: Service) -> TransactionCaller:
        return TransactionCaller(service, self.topic, self.history, lambda: self.now)

    def bodies(self, count: int) -> list[str]:
        """Each producer has a name of its own: the order in which their messages of one key mix is unknown."""
        self._producers += 1
        return [f"p{self._producers}-1.{part}" for part in range(count)]

    def send(self, count: int, *keys: str | None, size: int = 0) -> None:
        """Each message in a call of its own, with the first of these keys, the second, and so on."""
        caller = self.caller(self.instance())
        for number in range(count):
            caller.send(self.bodies(1), [keys[number % len(keys)] if keys else None], self.noise(size))

    def ask(self, count: int, invisible_ms: int = LONG_MS, **fields: Any) -> Pop:
        return Pop(count, invisible_ms, consumer_id=CONSUMER if self.is_broadcast else None, **fields)

    def lease(self, count: int, invisible_ms: int = LONG_MS) -> list[Delivered]:
        """Leased by another caller."""
        got = self.caller(self.instance()).pop("g", self.ask(count, invisible_ms)) or []
        assert len(got) == count
        return got

    def wait(self, ms: int) -> None:
        self.now += ms

    # -- how it goes --------------------------------------------------------------------------------------------------

    def points(self) -> dict[int, bool]:
        """The requests of the call, if it meets no other, before which others may change the basis of its decision, and
        whether it decides with this one."""
        fresh = self.copy()
        with fresh.around():
            service = fresh._warmed()
            before, fresh.store.decisive = fresh.store.requests, []
            fresh.act(fresh, service)
        decisive = [request - before for request in fresh.store.decisive]
        looks = range(1, fresh.store.requests - before + 1) if self.is_torn else ()
        return {request: request in decisive for request in [*decisive, *looks]}

    def meets(self, happens: Act, request: int) -> list[str]:
        """Returns the violations if `happens` runs just before this request of the call."""
        fresh = self.copy()
        fresh.history.skew_ms = fresh.history.off_ms = 0
        with fresh.around():
            service = fresh._warmed()
            fresh.store.before(request, lambda: fresh._judged(lambda: happens(fresh, fresh.instance())))
            fresh._judged(lambda: fresh.act(fresh, service))
            fresh._judged(lambda: fresh._finish(service))
            wrong = checker.violations(fresh.history)
        return [each for each in wrong if not each.startswith(_OF_TIME)]

    def _warmed(self) -> Service:
        service = self.instance()
        self.warm(self, service)
        return service

    def _judged(self, act: Callable[[], object]) -> None:
        began_ms = self.now
        try:
            act()
        except Exception as defect:  # noqa: BLE001 - whatever it is, the verdict names it
            is_gone = self.is_made_again and isinstance(defect, GroupNotFound | TopicNotFound)
            is_late = self.now - began_ms >= LONG_MS and isinstance(defect, StoreUnavailable)
            if not is_gone and not is_late:
                self.history.defects.append(repr(defect))

    def _finish(self, service: Service) -> None:
        """The callers settle the last messages that they hold; the rest comes when it is due, and then everything is
        read."""
        if self.is_new_topic:
            self._demand_refused(service)
        else:
            for held in (self.got[1:][-1:], self.theirs[-1:], self.taken[-1:]):
                if held:
                    self.caller(service).ack(held)
        if rate := self.settings.get("rate_limit"):
            self._demand_rate(rate)
        fresh = self.instance()
        lenient = {"paused": False, "max_in_flight": self.settings["max_in_flight"]}
        if "rate_limit" in self.settings:
            lenient["rate_limit"] = Rate(1_000_000)
        fresh.admin.groups.put(self.topic, "g", lenient)
        self._drain(fresh)
        self._read(fresh)

    def _demand_refused(self, service: Service) -> None:
        """No receipt counts in another incarnation of the topic."""
        receipts = [held.receipt for held in [*self.got, *self.theirs, *self.mine, *self.taken]]
        if receipts and len(service.consuming.ack(self.topic, "g", receipts)) < len(receipts):
            self.history.defects.append("a receipt of a deleted topic counts")

    def _demand_rate(self, rate: Rate) -> None:
        """No window gives more than its share, and each delivery counts in one."""
        taken: dict[int, int] = {}
        for key, _, item in self.store.versions("w"):
            if key.sk.startswith(_RATE):
                taken[item["w"]] = max(item["n"], taken.get(item["w"], 0))
        if max(taken.values(), default=0) > rate.count or len(self.history.delivered) > sum(taken.values()):
            self.history.defects.append(f"{len(self.history.delivered)} were delivered, in windows of {taken}")

    def _drain(self, service: Service) -> None:
        caller, came = self.caller(service), self.history.drained.setdefault("g", set())
        self._take(caller)
        while coming := [ms for ms in self._returns_ms() if self.now <= ms]:
            self.now = max(ms for ms in coming if ms < min(coming) + TOGETHER_MS) + 1
            self._take(caller)
        self.now += 2 * LONG_MS
        self._take(caller)
        self.history.drained_ms["g"] = self.now
        assert came is self.history.drained["g"]

    def _take(self, caller: Caller) -> None:
        """Pops and acks all ready messages."""
        got: list[Delivered] = []
        while got := caller.pop("g", self.ask(256, ack=tuple(held.receipt for held in got)), got) or []:
            self.history.drained["g"] |= {delivered.place for delivered in got}

    def _returns_ms(self) -> Sequence[int]:
        """The times at which leased and waiting messages return."""
        history = self.history
        facts: list[Delivered | Settled] = [*history.delivered, *history.settled]
        instants = [fact.until_ms for fact in facts]
        return [ms for ms in [*instants, *(sent.told_due_ms for sent in history.sent)] if ms < NEVER_MS]

    def _read(self, service: Service) -> None:
        topic = service.env.catalogue.current_topic("t")
        read_dead(service, topic, "g", self.history)
        parts = service.admin.groups.details(topic, "g").queues
        self.history.left["g"] = sum(part.ready + part.in_flight + part.retrying for part in parts)
        self.history.ends = {each.queue: each.end_offset for each in service.admin.topics.offsets(topic)}
        read_log(service, topic, self.history)
        note_places(self.history)
        if "alarm" in self.settings and not self.is_made_again:
            read_alarms(service, self.store, self.history)
        if not self.is_new_topic:
            remember(self.store, topic, self.history)


def cold(scene: Scene, service: Service) -> None:
    """The instance is new."""


def look(scene: Scene, service: Service) -> None:
    """The instance has looked at the group before: it knows where its cursors and logs stand."""
    topic = service.env.catalogue.topic("t")
    service.consuming.popper.look_and_promote(topic, "g", scene.ask(1), set())
