"""The agenda of the sweeps: what they have to look at, and since when. So a sweep costs what is due, not what exists.

Before anything is stored that will be due, there is an appointment for it, at that time or before. The sweep keeps the
appointment at each of its runs until the write that it was made for has landed, or never will. Then the first look
that finds nothing due moves the appointment to what will be due next, or ends it. So whatever waits has an appointment
no later than it is due.

Only punctuality depends on it: pops do the same work for the queues they poll, and each day a sweep goes through all
topics and makes the appointments that are missing."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from chalicelib.core.base import deadline
from chalicelib.core.base.cache import BoundedCache, Caches
from chalicelib.core.base.errors import StoreUnavailable
from chalicelib.core.base.limits import HOP_MS_MIN, LATE_WRITE_MS_MAX, MINUTE_MS
from chalicelib.core.base.records import record
from chalicelib.core.base.runtime import Runtime
from chalicelib.core.catalogue.topic import Topic
from chalicelib.core.store import Store, found_items
from chalicelib.core.table import keys
from chalicelib.core.table.writes import (
    Absent,
    AtMost,
    Either,
    Equals,
    Item,
    Key,
    Refused,
    RemoveItem,
    Set,
    Write,
    key_of,
)

REVIVE, FORWARD, CHECK, PUSH, MOVE, EXPIRE = "revive", "forward", "check", "push", "move", "expire"
"""The sweeps that have an agenda: all."""

ALWAYS_MS = 0
"""The due time of what a sweep looks at in each run."""

SKEW_MS_MAX = MINUTE_MS
"""How far the clocks of a caller and of a sweep may differ, with the age of what a stale read shows."""
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


@record
class Look:
    """A look of a sweep at one subject, which began at `at_ms`. `appointments`: those for it, as read before, the
    earliest first. `next_ms`: when the first thing that was found is due; None: nothing was found."""

    subject: str
    appointments: Sequence[Appointment]
    next_ms: int | None
    at_ms: int

    @property
    def ended(self) -> list[Appointment]:
        """The appointments that end: those that were kept long enough, but while something is due not the earliest."""
        is_due = self.next_ms is not None and self.next_ms <= self.at_ms
        return [
            appointment
            for appointment in self.appointments
            if appointment.until_ms <= self.at_ms and not (is_due and appointment is self.appointments[0])
        ]

    @property
    def needs_another(self) -> bool:
        """Whether no appointment is left for what was found."""
        return self.next_ms is not None and len(self.ended) == len(self.appointments)


class Agenda:
    def __init__(self, store: Store, runtime: Runtime, caches: Caches) -> None:
        self._store, self._runtime = store, runtime
        self._made: BoundedCache[Appointment] = caches.bounded(lambda key, _: keys.named_in(key[1])[:1])

    def appoint(self, sweep: str, subject: str, due_ms: int, sent_by_ms: int = 0) -> None:
        """Has the sweep look at the subject when it is due. Call it before the write that makes it due. Raises
        StoreUnavailable.

        `subject`: a topic's name, for `REVIVE` a group's (`keys.subject`), for `MOVE` that of a subscription.
        `sent_by_ms`: until when the caller may send that write; 0: at once."""
        if appointed := self._missing(sweep, subject, due_ms, sent_by_ms):
            with suppress(Refused):
                self._store.write(appointed.make())
            self._made.keep((sweep, subject), appointed)

    def note_ready(self, topic: Topic) -> None:
        """Makes appointments with *check* and *push*, if the topic has groups for them. Call it before a write that
        makes something ready there. It never fails, nor takes long: what these sweeps then miss, they find with the
        next such write, or within a day."""
        sweeps = [CHECK] * topic.alarms + [PUSH] * topic.pushes
        if not sweeps:
            return
        with suppress(StoreUnavailable), deadline.aside(self._runtime.uptime() + HOP_MS_MIN):
            for sweep in sweeps:
                self.appoint(sweep, topic.name, ALWAYS_MS)

    def has_looked(self, sweep: str, looks: Sequence[Look]) -> None:
        """Ends the appointments that were kept long enough. Before that, it makes those for what is due next. Raises
        StoreUnavailable."""
        moved = [self._missing(sweep, look.subject, look.next_ms or 0) for look in looks if look.needs_another]
        made = [appointment for appointment in moved if appointment]
        found_items(self._store.write_each([appointment.make() for appointment in made]))
        for appointment in made:
            self._made.keep((sweep, appointment.subject), appointment)
        self._store.write_each([appointment.end() for look in looks for appointment in look.ended])

    def _missing(self, sweep: str, subject: str, due_ms: int, sent_by_ms: int = 0) -> Appointment | None:
        """The appointment to make, unless this instance has made one that will do."""
        now = self._runtime.now()
        made = self._made.get((sweep, subject))
        if made and made.covers(due_ms, max(now, sent_by_ms) + _landed_ms()):
            return None
        key = keys.appointment(sweep, due_ms - due_ms % SHARED_MS, subject)
        return Appointment(key, max(due_ms, now + SHARED_MS, sent_by_ms) + _landed_ms())


def _landed_ms() -> int:
    """How long after it is sent a write is surely in the table, and seen there."""
    return LATE_WRITE_MS_MAX + SKEW_MS_MAX
