"""Scheduled maintenance in bounded rounds through the table. Each sweep may run at any time, several at once, or never:
pops do the same work for the queues they poll, and the rest only saves cost. A sweep is not a client's call and has no
call's deadline."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import wraps
from itertools import islice
from typing import TYPE_CHECKING, Any

from chalicelib.core.admin import Admin
from chalicelib.core.admin.draining import is_settled
from chalicelib.core.admin.groups import StoredGroup
from chalicelib.core.base.errors import TopicNotFound
from chalicelib.core.base.limits import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS
from chalicelib.core.catalogue.agenda import ALWAYS_MS, CHECK, EXPIRE, FORWARD, MOVE, PUSH, REVIVE, Look
from chalicelib.core.catalogue.catalogue import Env
from chalicelib.core.catalogue.group import Group
from chalicelib.core.catalogue.topic import Topic
from chalicelib.core.cursors import Cursors
from chalicelib.core.cursors.cursor import Cursor
from chalicelib.core.dead_letters import DeadLetters
from chalicelib.core.delays.promoter import first_due
from chalicelib.core.store import Range
from chalicelib.core.table import keys
from chalicelib.core.telemetry.record import count
from chalicelib.core.transactions import Transactions
from chalicelib.core.upkeep.alarms import Alarms, is_concerned
from chalicelib.core.upkeep.expiry import Expiry
from chalicelib.core.upkeep.rounds import Rounds, Troubles

if TYPE_CHECKING:
    from chalicelib.core.moves import Moves

SWEEP_MS = 45 * SECOND_MS
"""How long a scheduled sweep runs: it starts every minute, and its function may run for one."""
SURVEYED_EVERY_MS = DAY_MS
"""How often a sweep goes through all topics. Work without an appointment is not urgent."""
TRIMMED_EVERY_MS = HOUR_MS
"""How often expired data is removed from a topic that always has some."""

_GRAVES_MAX = 100


@dataclass(frozen=True, slots=True)
class Swept:
    """The items a sweep visited, and the changes it made."""

    seen: int = 0
    done: int = 0

    def __add__(self, other: Swept) -> Swept:
        return Swept(self.seen + other.seen, self.done + other.done)

    def as_json(self) -> dict[str, int]:
        return {"seen": self.seen, "done": self.done}


def _sweep(run: Callable[..., Swept]) -> Callable[..., Swept]:
    """A sweep, which is recorded under its name."""

    @wraps(run)
    def recorded(self: Sweeps, *arguments: Any) -> Swept:
        with self.telemetry.sweep(run.__name__) as record:
            swept = run(self, *arguments)
            record.about |= swept.as_json()
        return swept

    return recorded


class Sweeps:
    def __init__(
        self, env: Env, cursors: Cursors, transactions: Transactions, dead_letters: DeadLetters, admin: Admin
    ) -> None:
        delays = transactions.delays
        self._store, self._runtime, self.telemetry = env.store, env.runtime, env.telemetry
        self._agenda, self._rounds = env.agenda, Rounds(env)
        self._consumers, self._promoter = cursors.consumers, delays.promoter
        self._transactions = transactions
        self._burial, self._deletion, self._admin = dead_letters.burial, admin.deletion, admin
        self._alarms = Alarms(env, delays, admin)
        self._expiry = Expiry(env, delays.promoter, dead_letters.queue)

    @_sweep
    def revive(self) -> Swept:
        """Moves messages whose last attempt expired to the dead letters. The next pop takes over other expired leases.
        `seen`: cursors. `done`: messages."""
        swept, troubles = Swept(), Troubles()
        for due in self._rounds.due(REVIVE, self._until()):
            now, looks = self._runtime.now(), []
            found = self._rounds.groups_named(list(due))
            for subject, appointments in due.items():
                cursors = found[subject].cursors if subject in found else []
                ends = [end for cursor in cursors if (end := last_attempt_end(found[subject].group, cursor))]
                looks.append(Look(subject, appointments, min(ends, default=None), now))
                for cursor in cursors:
                    with troubles.kept():
                        swept += Swept(1, self._bury(found[subject], cursor, now))
            with troubles.kept():
                self._agenda.has_looked(REVIVE, looks)
        troubles.tell()
        return swept

    def _bury(self, stored: StoredGroup, cursor: Cursor, now: int) -> int:
        _, buried = self._burial.bury_exhausted(stored.group, cursor, now)
        count("dead", buried, stored.topic.name, stored.group.name)
        return buried

    @_sweep
    def forward(self) -> Swept:
        """Promotes due messages in queues that no consumer polls. `seen`: queues where messages wait. `done`:
        messages."""
        until_ms, swept, troubles = self._until(), Swept(), Troubles()
        for due in self._rounds.due(FORWARD, until_ms):
            now = self._runtime.now()
            topics = self._rounds.topics(list(due))
            waits = self._waits(list(topics.values()))
            dues = [(topics[name], queue, at_ms) for name, own in waits.items() for queue, at_ms in own.items()]
            places = [(topic, queue) for topic, queue, due_ms in dues if due_ms <= now]
            swept += Swept(len(dues), self._forward(places, now, until_ms, troubles))
            firsts = {name: min(own.values(), default=None) for name, own in waits.items()}
            with troubles.kept():
                self._agenda.has_looked(FORWARD, [Look(name, own, firsts.get(name), now) for name, own in due.items()])
        troubles.tell()
        return swept

    def _waits(self, topics: Sequence[Topic]) -> dict[str, dict[int, int]]:
        """When the first delayed message of each queue is due, by topic and queue, including queues that have left,
        which are read again if messages wait in them."""
        reads = [read for topic in topics for read in self._promoter.glances(topic, range(topic.most))]
        dues = iter(first_due(self._store.read(reads)))
        by_topic = {topic.name: [*islice(dues, topic.most if topic.delays else 0)] for topic in topics}
        return {
            name: {queue: due_ms for queue, due_ms in enumerate(own) if due_ms is not None}
            for name, own in by_topic.items()
        }

    def _forward(self, places: Sequence[tuple[Topic, int]], due_ms: int, until_ms: int, troubles: Troubles) -> int:
        """Promotes some messages of each queue in turn, so that a full queue does not hold up others. Leaves messages
        that become due meanwhile to consumers, if there are any, to avoid repeating work."""
        done = 0
        while places:
            left = []
            for topic, queue in places:
                with troubles.kept():
                    if self._runtime.uptime() <= until_ms and (count := self._promoted(topic, queue, due_ms)):
                        done += count
                        left.append((topic, queue))
            places = left
        return done

    def _promoted(self, topic: Topic, queue: int, due_ms: int) -> int:
        with suppress(TopicNotFound):  # deleted since it was read
            if queue < topic.readers:
                return self._promoter.promote(topic, queue, due_ms)
            if self._promoter.drop_cancelled(topic, queue, due_ms):
                self._agenda.appoint(CHECK, topic.name, ALWAYS_MS)
        return 0

    @_sweep
    def check(self) -> Swept:
        """Raises and clears the alarms of groups, and removes settled queues. `seen`: groups with an alarm, and topics
        where queues drain or return. `done`: alarms raised or cleared, and queues that left or are read again."""
        swept, troubles = Swept(), Troubles()
        for due in self._rounds.due(CHECK, self._until()):
            now, looks = self._runtime.now(), []
            topics = self._rounds.topics(list(due))
            groups = self._rounds.groups_of(list(topics.values()))
            concerned = [stored for stored in groups if is_concerned(stored)]
            ends = self._ends(concerned)
            swept += Swept(len(concerned), self._alarms.check(concerned, ends, troubles))
            needed = {stored.topic.name for stored in _unsettled(concerned, ends, now)}
            needed |= {stored.topic.name for stored in concerned if stored.alarm_state.is_raised}
            for topic in topics.values():
                drained: int | None = None  # unless trouble comes first
                with troubles.kept():
                    own = [stored for stored in groups if stored.topic is topic]
                    drained = self._drain(topic, own)
                if topic.draining or drained != 0:
                    swept += Swept(1, drained or 0)
                    needed.add(topic.name)
            looks = [Look(name, own, ALWAYS_MS if name in needed else None, now) for name, own in due.items()]
            with troubles.kept():
                self._agenda.has_looked(CHECK, looks)
        troubles.tell()
        return swept

    def _drain(self, topic: Topic, groups: Sequence[StoredGroup]) -> int:
        with suppress(TopicNotFound):  # deleted since it was read
            return self._admin.draining.step(topic, groups)
        return 0

    @_sweep
    def push(self, wake: Callable[[str, bool], None]) -> Swept:
        """Wakes the push of topics where pushed groups have messages. `wake`: see `push.outside`. `seen`, `done`: such
        topics."""
        swept = Swept()
        for due in self._rounds.due(PUSH, self._until()):
            now = self._runtime.now()
            topics = self._rounds.topics(list(due))
            groups = self._rounds.groups_of(list(topics.values()))
            concerned = [stored for stored in groups if stored.group.is_pushed and not stored.group.paused]
            nexts = {stored.topic.name: ALWAYS_MS for stored in _unsettled(concerned, self._ends(concerned), now)}
            for name, own in self._waits(
                [topics[name] for name in dict.fromkeys(each.topic.name for each in concerned)]
            ).items():
                if own:
                    nexts.setdefault(name, min(own.values()))
            awake = [name for name, next_ms in nexts.items() if next_ms < now + MINUTE_MS]
            for name in awake:  # it promotes messages due until the next sweep
                wake(name, True)
            swept += Swept(len(awake), len(awake))
            self._agenda.has_looked(PUSH, [Look(name, own, nexts.get(name), now) for name, own in due.items()])
        return swept

    @_sweep
    def move(self, moves: Moves, most_ms: int = SWEEP_MS) -> Swept:
        """Works on move tasks for this long. `seen`: tasks that no other worker holds. `done`: messages."""
        until_ms, troubles, runs = self._runtime.uptime() + most_ms, Troubles(), []
        for due in self._rounds.due(MOVE, until_ms):
            now, looks = self._runtime.now(), []
            for name, own in due.items():
                with troubles.kept():
                    task = moves.tasks.active(name)
                    looks.append(Look(name, own, ALWAYS_MS if task else None, now))
                    runs += [run] if task and (run := moves.worker.taken(name, task)) else []
            with troubles.kept():
                self._agenda.has_looked(MOVE, looks)
        swept = Swept(len(runs))
        with troubles.kept():
            swept += Swept(0, moves.worker.work(runs, until_ms, SECOND_MS))
        troubles.tell()
        return swept

    @_sweep
    def expire(self) -> Swept:
        """Removes the remains of deleted topics, and expired data. Every day it goes through all topics: finds those
        with expired data, makes missing appointments, rolls back overdue transactions, and drops idle consumers of
        broadcast groups. `seen`: deleted topics with remains, broadcast groups, and topics with expired data or such
        transactions. `done`: removals and rollbacks."""
        until_ms, troubles = self._until(), Troubles()
        swept = self._bury_topics(until_ms - SWEEP_MS // 2, troubles)
        for due in self._rounds.due(EXPIRE, until_ms):
            topics, looks = self._rounds.topics(list(due)), []
            for name, own in due.items():
                next_ms: int | None = ALWAYS_MS if name in topics else None  # unless it comes to its end
                now = self._runtime.now()
                with troubles.kept():
                    trimmed, next_ms = self._trim(topics[name], until_ms) if name in topics else (Swept(), None)
                    swept += trimmed
                looks.append(Look(name, own, next_ms, now))
            with troubles.kept():
                self._agenda.has_looked(EXPIRE, looks)
        for items in self._rounds.pages("survey", [keys.topics()], until_ms, every_ms=SURVEYED_EVERY_MS):
            listed = [*self._rounds.topics([item["sk"] for item in items]).values()]
            swept += self._survey(listed, until_ms, troubles)
        troubles.tell()
        return swept

    def _bury_topics(self, until_ms: int, troubles: Troubles) -> Swept:
        swept = Swept()
        graves = self._store.read([Range(keys.graves(), keys.FIRST, keys.LAST, limit=_GRAVES_MAX)])[0]
        for grave in graves:
            deleted = Topic("", grave["sk"], 0, queues=grave["queues"], delays=grave["delays"])
            with troubles.kept():
                swept += Swept(1, self._deletion.topic(deleted, until_ms))
        return swept

    def _survey(self, topics: Sequence[Topic], until_ms: int, troubles: Troubles) -> Swept:
        swept = Swept()
        groups = self._rounds.groups_of(topics)
        with troubles.kept():
            self.appoint_missing(topics, groups)
        for stored in groups:
            if stored.group.is_broadcast:
                with troubles.kept():
                    forgotten = self._consumers.forget_idle(stored.topic, stored.group, self._runtime.now())
                    swept += Swept(1, forgotten)
        for topic in topics:
            with troubles.kept():
                trimmed, next_ms = self._trim(topic, until_ms)
                swept += trimmed + self._rolled_back(topic, until_ms)
                if next_ms is not None:
                    self._agenda.appoint(EXPIRE, topic.name, next_ms)
        return swept

    def appoint_missing(self, topics: Sequence[Topic], groups: Sequence[StoredGroup]) -> None:
        """Makes the appointments that these topics need: topics of an earlier release have none, and a caller suspended
        for minutes may have stored something after its appointment ended."""
        for name, dues in self._waits(topics).items():
            if dues:
                self._agenda.appoint(FORWARD, name, min(dues.values()))
        for stored in groups:
            ends = [end for cursor in stored.cursors if (end := last_attempt_end(stored.group, cursor))]
            if ends:
                self._agenda.appoint(REVIVE, keys.subject(stored.topic.name, stored.group.name), min(ends))
        self._appoint_watched(groups)
        for topic in topics:
            own = [stored for stored in groups if stored.topic is topic]
            if topic.draining or self._admin.draining.returning(topic, own):
                self._agenda.appoint(CHECK, topic.name, ALWAYS_MS)

    def _appoint_watched(self, groups: Sequence[StoredGroup]) -> None:
        """Makes the appointments of pushed groups and groups with an alarm that have unsettled messages."""
        for raised in groups:
            if raised.alarm_state.is_raised:  # even if it has settled all messages, the alarm must be cleared
                self._agenda.appoint(CHECK, raised.topic.name, ALWAYS_MS)
        watched = [stored for stored in groups if is_concerned(stored) or stored.group.is_pushed]
        for stored in _unsettled(watched, self._ends(watched), self._runtime.now()):
            if is_concerned(stored):
                self._agenda.appoint(CHECK, stored.topic.name, ALWAYS_MS)
            if stored.group.is_pushed:
                self._agenda.appoint(PUSH, stored.topic.name, ALWAYS_MS)

    def _trim(self, topic: Topic, until_ms: int) -> tuple[Swept, int | None]:
        """Also returns when to trim the topic next; None: nothing in it expires yet."""
        with suppress(TopicNotFound):  # deleted since it was read
            done, next_ms = self._expiry.trim(topic, until_ms)
            is_complete, now = self._runtime.uptime() <= until_ms, self._runtime.now()
            if next_ms is not None and is_complete:
                next_ms = max(next_ms, now + TRIMMED_EVERY_MS)
            return Swept(bool(done), done), next_ms
        return Swept(), None

    def _rolled_back(self, topic: Topic, until_ms: int) -> Swept:
        done = 0
        with suppress(TopicNotFound):  # deleted since it was read
            if topic.delays:  # so has every topic that has transactions
                done = self._transactions.drop_overdue(topic, until_ms)
        return Swept(bool(done), done)

    def _ends(self, groups: Sequence[StoredGroup]) -> list[list[int]]:
        """The ends of the queues of each group's topic, possibly stale."""
        return self._admin.topics.ends_of([stored.topic for stored in groups])

    def _until(self) -> int:
        return self._runtime.uptime() + SWEEP_MS


def last_attempt_end(group: Group, cursor: Cursor) -> int | None:
    """When the first lease on its last attempt ends, so that its messages go to the dead letters; None: there is
    none."""
    return min((lease.deadline for lease in cursor.owing if lease.attempt >= group.max_attempts), default=None)


def _unsettled(groups: Sequence[StoredGroup], ends: Sequence[Sequence[int]], now: int) -> list[StoredGroup]:
    """The groups that have not settled queues that end there."""
    return [
        stored
        for stored, own in zip(groups, ends, strict=True)
        if not all(is_settled(stored.group, stored.stored_cursors, queue, end, now) for queue, end in enumerate(own))
    ]
