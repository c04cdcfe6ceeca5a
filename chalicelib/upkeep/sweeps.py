"""Scheduled maintenance in bounded rounds through the table. Each may run at any moment, several at once, or never:
pops do the same work for the queues they poll, and the rest only saves cost. A sweep is not a call of a client, so it
has no deadline of one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import wraps
from typing import Any

from chalicelib.admin import Admin
from chalicelib.admin.groups import StoredGroup
from chalicelib.base.errors import TopicNotFound
from chalicelib.base.limits import HOUR_MS, SECOND_MS
from chalicelib.catalogue.catalogue import Env
from chalicelib.catalogue.group import Group
from chalicelib.catalogue.topic import Topic
from chalicelib.cursors import Cursors
from chalicelib.dead_letters import DeadLetters
from chalicelib.delays.promoter import first_due
from chalicelib.store import Keys, Range
from chalicelib.table import keys
from chalicelib.table.writes import Set, Write
from chalicelib.telemetry.record import count
from chalicelib.transactions import Transactions
from chalicelib.upkeep.alarms import Alarms, is_concerned
from chalicelib.upkeep.expiry import Expiry

SWEEP_MS = 45 * SECOND_MS
"""How long a scheduled sweep runs: it starts every minute, and its function may run for one."""
TRIMMED_EVERY_MS = HOUR_MS

_GRAVES_MAX = 100
_PAGE = 100
"""Topics read at once."""


@dataclass(frozen=True, slots=True)
class Swept:
    """The items a sweep visited, and the changes it made."""

    seen: int = 0
    done: int = 0

    def __add__(self, other: Swept) -> Swept:
        return Swept(self.seen + other.seen, self.done + other.done)

    def as_json(self) -> dict[str, int]:
        return {"seen": self.seen, "done": self.done}


class Rounds:
    """Walks through all topics, a page at a time; the next sweep continues where the time ran out."""

    def __init__(self, env: Env) -> None:
        self._store, self._runtime = env.store, env.runtime

    def pages(self, sweep: str, until_ms: int, every_ms: int = 0) -> Iterator[list[Topic]]:
        """Pages of topics from where the last sweep of this name stopped, to the last topic or until the time is over.
        A new round begins `every_ms` after the previous one. Concurrent sweeps repeat work, but do no harm."""
        key = keys.sweep(sweep)
        noted = self._store.read([Keys([key])])[0]
        began = after = noted[0]["after"] if noted else ""
        if noted and not began and self._runtime.now() < noted[0]["at"] + every_ms:
            return
        is_over = False
        while not is_over:
            page = self._store.read([Range(keys.topics(), after + keys.AFTER, keys.LAST, limit=_PAGE)])[0]
            if page:
                yield [Topic.of(item) for item in page]
            after = page[-1]["sk"] if len(page) == _PAGE else ""
            is_over = not after or self._runtime.uptime() > until_ms
        if every_ms or after != began:
            self._store.write(Write(key, (), (Set(("after",), after), Set(("at",), self._runtime.now()))))


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
        self._consumers, self._promoter = cursors.consumers, delays.promoter
        self._transactions = transactions
        self._burial, self._deletion, self._admin = dead_letters.burial, admin.deletion, admin
        self._rounds = Rounds(env)
        self._alarms = Alarms(env, delays, admin)
        self._expiry = Expiry(env, delays.promoter, dead_letters.queue)

    @_sweep
    def revive(self) -> Swept:
        """Moves messages whose last attempt expired to the dead letters. The next pop takes over other expired leases.
        `seen`: cursors. `done`: messages."""
        swept = Swept()
        for page in self._rounds.pages("revive", self._until()):
            for stored in self._groups(page):
                for cursor in stored.cursors:
                    _, buried = self._burial.bury_exhausted(stored.group, cursor, self._runtime.now())
                    count("dead", buried, stored.topic.name, stored.group.name)
                    swept += Swept(1, buried)
        return swept

    @_sweep
    def forward(self) -> Swept:
        """Promotes due messages in queues that no consumer polls. `seen`: queues of topics with delays. `done`:
        messages."""
        until_ms, swept = self._until(), Swept()
        for page in self._rounds.pages("forward", until_ms):
            places = [(topic, queue) for topic in page if topic.delays for queue in range(topic.readers)]
            glances = self._store.read([read for topic in page for read in self._promoter.glances(topic)])
            now = self._runtime.now()
            for (topic, queue), due_ms in zip(places, first_due(glances), strict=True):
                is_due = due_ms is not None and due_ms <= now
                swept += Swept(1, self._forward(topic, queue, now, until_ms) if is_due else 0)
        return swept

    def _forward(self, topic: Topic, queue: int, due_ms: int, until_ms: int) -> int:
        """Leaves messages that become due meanwhile to consumers, if there are any, so that no work is done twice."""
        count = 0
        with suppress(TopicNotFound):  # deleted since it was read
            while self._runtime.uptime() <= until_ms and (done := self._promoter.promote(topic, queue, due_ms)):
                count += done
        return count

    @_sweep
    def expire(self) -> Swept:
        """Removes the remains of deleted topics, forgets idle consumers of broadcast groups, and every hour removes
        expired data and rolls back transactions that nobody decided about in time. `seen`: deleted topics with remains,
        broadcast groups, and topics with expired data or such transactions. `done`: removals and rollbacks."""
        graves = self._store.read([Range(keys.graves(), keys.FIRST, keys.LAST, limit=_GRAVES_MAX)])[0]
        until_ms, swept = self._until(), Swept()
        for grave in graves:
            deleted = Topic("", grave["sk"], 0, queues=grave["queues"], delays=grave["delays"])
            swept += Swept(1, self._deletion.topic(deleted, until_ms))
        for page in self._rounds.pages("expire", until_ms):
            for stored in self._groups(page):
                if stored.group.is_broadcast:
                    forgotten = self._consumers.forget_idle(stored.topic, stored.group, self._runtime.now())
                    swept += Swept(1, forgotten)
        return swept + self._trim(until_ms)

    def _trim(self, until_ms: int) -> Swept:
        swept = Swept()
        for page in self._rounds.pages("trim", until_ms, TRIMMED_EVERY_MS):
            for topic in page:
                with suppress(TopicNotFound):  # deleted since it was read
                    done = self._expiry.trim(topic, until_ms)
                    if topic.delays:  # so has every topic that has transactions
                        done += self._transactions.drop_overdue(topic, until_ms)
                    swept += Swept(bool(done), done)
        return swept

    @_sweep
    def check(self) -> Swept:
        """Raises and clears the alarms of groups, and lets settled queues leave. `seen`: groups with an alarm, and
        topics that have fewer queues than before. `done`: alarms raised or cleared, and queues that left or are read
        again."""
        swept = Swept()
        for page in self._rounds.pages("check", self._until()):
            groups = self._groups(page)
            concerned = [stored for stored in groups if is_concerned(stored)]
            swept += Swept(len(concerned), self._alarms.check(concerned))
            for topic in page:
                if topic.most > topic.queues:
                    swept += Swept(1, self._drain(topic, [stored for stored in groups if stored.topic is topic]))
        return swept

    def _drain(self, topic: Topic, groups: Sequence[StoredGroup]) -> int:
        with suppress(TopicNotFound):  # deleted since it was read
            return self._admin.draining.step(topic, groups)
        return 0

    @_sweep
    def push(self, wake: Callable[[str, bool], None]) -> Swept:
        """Wakes the push of the topics that may have pushed groups. `wake`: see `push.outside`. `seen`, `done`: such
        topics."""
        swept = Swept()
        for page in self._rounds.pages("push", self._until()):
            for topic in page:
                if topic.pushes:
                    wake(topic.name, True)
                    swept += Swept(1, 1)
        return swept

    def _until(self) -> int:
        return self._runtime.uptime() + SWEEP_MS

    def _groups(self, topics: Sequence[Topic]) -> list[StoredGroup]:
        """All groups of these topics, possibly stale: two round trips, half a read unit per topic and group."""
        listed = self._store.read([Range(keys.groups(topic.id), keys.FIRST, keys.LAST) for topic in topics])
        named = [(topic, item["sk"]) for topic, items in zip(topics, listed, strict=True) for item in items]
        partitions = [Range(keys.group_partition(topic.id, name), keys.FIRST, keys.LAST) for topic, name in named]
        groups: list[StoredGroup] = []
        for (topic, name), items in zip(named, self._store.read(partitions), strict=True):
            settings = next((item for item in items if item["sk"] == keys.group(topic.id, name).sk), None)
            if settings:
                groups.append(StoredGroup(topic, Group.of(topic.id, name, settings), items))
        return groups
