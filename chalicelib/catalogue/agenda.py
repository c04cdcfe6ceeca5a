"""The agenda of the sweeps: what they have to look at, and since when. So a sweep costs what is due, not what exists.

Before anything is stored that will be due, there is an appointment for it, at that time or before. The sweep keeps the
appointment at each of its runs until the write that it was made for has landed, or never will. Then the first look
that finds nothing due moves the appointment to what will be due next, or ends it. So whatever waits has an appointment
no later than it is due.

Only punctuality depends on it: pops do the same work for the queues they poll, and each hour a sweep goes through all
topics and makes the appointments that are missing."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from chalicelib.base.cache import BoundedCache
from chalicelib.base.limits import LATE_WRITE_MS_MAX, MINUTE_MS
from chalicelib.base.records import record
from chalicelib.base.runtime import Runtime
from chalicelib.store import Store
from chalicelib.table import keys
from chalicelib.table.writes import Absent, AtMost, Either, Equals, Item, Key, Refused, RemoveItem, Set, Write, key_of

REVIVE, FORWARD, CHECK, PUSH = "revive", "forward", "check", "push"
"""The sweeps that have an agenda."""

ALWAYS_MS = 0
"""The due time of what a sweep looks at in each run."""

SKEW_MS_MAX = MINUTE_MS
"""How far the clocks of a caller and of a sweep may differ."""
SHARED_MS = MINUTE_MS
"""Appointments are rounded to this, so that instances share them; and an instance that made one relies on it at least
for so long: it makes one a minute, not one a message."""


@record
class Appointment:
    """`until_ms`: the sweep does not end it before."""

    key: Key
    until_ms: int

    @classmethod
    def of(cls, item: Item) -> Appointment:
        return cls(key_of(item), item["until"])

    @property
    def due_ms(self) -> int:
        return keys.appointed_at(self.key.sk)

    @property
    def subject(self) -> str:
        return keys.subject_of(self.key.sk)

    def covers(self, due_ms: int, landed_ms: int) -> bool:
        """Whether it will do for what is due then, and is in the table by the other instant."""
        return self.due_ms <= due_ms and landed_ms <= self.until_ms

    def make(self) -> Write:
        """Refused if one of this key lasts as long."""
        is_shorter = Either(Absent(("until",)), AtMost(("until",), self.until_ms - 1))
        return Write(self.key, (is_shorter,), (Set(("until",), self.until_ms),))

    def end(self) -> Write:
        """Refused if somebody has prolonged it since."""
        return Write(self.key, (Equals(("until",), self.until_ms),), (RemoveItem(),))


class Agenda:
    def __init__(self, store: Store, runtime: Runtime) -> None:
        self._store, self._runtime = store, runtime
        self._made: BoundedCache[Appointment] = BoundedCache()

    def appoint(self, sweep: str, subject: str, due_ms: int, held_ms: int = 0) -> None:
        """Has the sweep look at the subject when it is due. Call it before the write that makes it due, which the
        caller sends now or, at the latest, after `held_ms`. Raises StoreUnavailable.

        `subject`: a topic's name, for `REVIVE` a group's (`keys.subject`)."""
        now, landed_ms = self._runtime.now(), held_ms + LATE_WRITE_MS_MAX + SKEW_MS_MAX
        made = self._made.get((sweep, subject))
        if made and made.covers(due_ms, now + landed_ms):
            return
        key = keys.appointment(sweep, due_ms - due_ms % SHARED_MS, subject)
        appointed = Appointment(key, max(due_ms, now + SHARED_MS) + landed_ms)
        with suppress(Refused):
            self._store.write(appointed.make())
        self._made.keep((sweep, subject), appointed)

    def kept(self, sweep: str, appointments: Iterable[Appointment], next_ms: int | None, now: int) -> None:
        """What to do after a look at one subject that began at `now`. `appointments`: its own, as read before the look.
        `next_ms`: when the first thing that the look has found is due; None: it has found nothing."""
        over = [appointment for appointment in appointments if appointment.until_ms <= now]
        if not over or (next_ms is not None and next_ms <= now):
            return
        if next_ms is not None:
            self.appoint(sweep, over[0].subject, next_ms)
        self._store.write_each([appointment.end() for appointment in over])
