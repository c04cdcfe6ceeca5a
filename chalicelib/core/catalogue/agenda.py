"""The agenda of the sweeps: the topics and groups to visit, and when. A sweep thus costs what is due, not what exists.

Before a caller stores anything that will be due, it makes an appointment for that time or earlier. Each run of the
sweep keeps the appointment until the write that it was made for has landed, or can no longer land. Then the first look
that finds nothing due moves the appointment to the next due time, or ends it. So everything that waits has an
appointment no later than its due time. Only punctuality depends on it: pops do the same work for the queues they poll,
and a daily sweep goes through all topics and makes missing appointments."""

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
"""The sweeps. Each has an agenda."""

ALWAYS_MS = 0
"""The due time of subjects that a sweep visits in each run."""

SKEW_MS_MAX = MINUTE_MS
"""How far the clocks of a caller and a sweep may differ, plus the age of a stale read."""
SHARED_MS = MINUTE_MS
"""Appointments are rounded to this, so that instances share them. An instance relies on its appointment for at least
this long, so it makes one a minute, not one a message."""


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
        """Whether the appointment suffices for a write that is due then, and lands in the table by `landed_ms`."""
        return self.due_ms <= due_ms and landed_ms <= self.until_ms

    def make(self) -> Write:
        """Refused if an appointment with this key lasts as long."""
        is_shorter = Either(Absent(("until",)), AtMost(("until",), self.until_ms - 1))
        return Write(self.key, (is_shorter,), (Set(("until",), self.until_ms),))

    def end(self) -> Write:
        """Refused if another caller has prolonged it since."""
        return Write(self.key, (Equals(("until",), self.until_ms),), (RemoveItem(),))


@record
class Look:
    """A visit of a sweep to one subject, which began at `at_ms`. `appointments`: those of the subject, as read before,
    the earliest first. `next_ms`: when the first due thing found is due; None: nothing was found."""

    subject: str
    appointments: Sequence[Appointment]
    next_ms: int | None
    at_ms: int

    @property
    def ended(self) -> list[Appointment]:
        """The appointments to end: those kept long enough, except the earliest while something is due."""
        is_due = self.next_ms is not None and self.next_ms <= self.at_ms
        return [
            appointment
            for appointment in self.appointments
            if appointment.until_ms <= self.at_ms and not (is_due and appointment is self.appointments[0])
        ]

    @property
    def needs_another(self) -> bool:
        """Whether the things found have no appointment left."""
        return self.next_ms is not None and len(self.ended) == len(self.appointments)


class Agenda:
    def __init__(self, store: Store, runtime: Runtime, caches: Caches) -> None:
        self._store, self._runtime = store, runtime
        self._made: BoundedCache[Appointment] = caches.bounded(lambda key, _: keys.named_in(key[1])[:1])

    def appoint(self, sweep: str, subject: str, due_ms: int, sent_by_ms: int = 0) -> None:
        """Makes an appointment for the subject. Call it before the write that makes the subject due. Raises
        StoreUnavailable. `subject`: the name of a topic, of a group for `REVIVE` (`keys.subject`), or of a subscription
        for `MOVE`. `sent_by_ms`: until when the caller may send that write; 0: at once."""
        if appointed := self._missing(sweep, subject, due_ms, sent_by_ms):
            with suppress(Refused):
                self._store.write(appointed.make())
            self._made.keep((sweep, subject), appointed)

    def note_ready(self, topic: Topic) -> None:
        """Makes appointments with *check* and *push*, if the topic has groups for them. Call it before a write that
        makes something ready there. It never fails and is fast: the sweeps find anything missed at the next such write,
        or within a day."""
        sweeps = [CHECK] * topic.alarms + [PUSH] * topic.pushes
        if not sweeps:
            return
        with suppress(StoreUnavailable), deadline.aside(self._runtime.uptime() + HOP_MS_MIN):
            for sweep in sweeps:
                self.appoint(sweep, topic.name, ALWAYS_MS)

    def has_looked(self, sweep: str, looks: Sequence[Look]) -> None:
        """Makes the appointment for the next due time, then ends those that were kept long enough. Raises
        StoreUnavailable."""
        moved = [self._missing(sweep, look.subject, look.next_ms or 0) for look in looks if look.needs_another]
        made = [appointment for appointment in moved if appointment]
        found_items(self._store.write_each([appointment.make() for appointment in made]))
        for appointment in made:
            self._made.keep((sweep, appointment.subject), appointment)
        self._store.write_each([appointment.end() for look in looks for appointment in look.ended])

    def _missing(self, sweep: str, subject: str, due_ms: int, sent_by_ms: int = 0) -> Appointment | None:
        """The appointment to make, or None if this instance has made a sufficient one."""
        now = self._runtime.now()
        made = self._made.get((sweep, subject))
        if made and made.covers(due_ms, max(now, sent_by_ms) + _landed_ms()):
            return None
        key = keys.appointment(sweep, due_ms - due_ms % SHARED_MS, subject)
        return Appointment(key, max(due_ms, now + SHARED_MS, sent_by_ms) + _landed_ms())


def _landed_ms() -> int:
    """How long after it is sent a write has surely landed, and reads return it."""
    return LATE_WRITE_MS_MAX + SKEW_MS_MAX
