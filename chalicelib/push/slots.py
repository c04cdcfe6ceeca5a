"""The slots of a pushed group. A run that holds a slot makes one call at a time, so at most `concurrency` calls are
under way.

A slot is an item with its holder's token and the end of the hold. A take demands that the slot is unchanged since it
was read; later writes of the holder demand its own token. So a late take finds a changed slot, and a late renewal or
release one that another run holds. A pause is an item beside the slots: after failed calls, no instance makes another
before the pause ends; then only one slot tries.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from chalicelib.core.base.limits import CLOCKS_APART_MS, DAY_MS, MINUTE_MS, PUSH_TIMEOUT_MS_MAX, SECOND_MS
from chalicelib.core.base.records import record
from chalicelib.core.catalogue.catalogue import Env
from chalicelib.core.catalogue.group import Group
from chalicelib.core.catalogue.push import Push
from chalicelib.core.store import Range
from chalicelib.core.table import keys
from chalicelib.core.table.writes import Absent, Equals, Guard, Item, Key, Refused, RemoveItem, Set, Write

LEASE_SPARE_MS = 15 * SECOND_MS
"""How much longer than its call the lease of a batch lasts, to read it before and settle it after."""
SLOT_SPARE_MS = LEASE_SPARE_MS + 10 * SECOND_MS
"""How much longer than a call a run holds its slot. It renews the slot when the hold does not cover another batch:
every ten seconds."""
PAUSE_MS_MAX = MINUTE_MS
_HELD_MS_MAX = PUSH_TIMEOUT_MS_MAX + SLOT_SPARE_MS + CLOCKS_APART_MS
"""A longer hold or pause was written by a clock that was ahead, and does not count."""
_TOKEN_CHARS = 8


@record
class PushSlot:
    """A slot that this caller holds until `until_ms`."""

    key: Key
    number: int
    token: str
    until_ms: int


@record
class PushPause:
    """`failures` calls have failed in a row; no calls are made until `until_ms`."""

    key: Key
    failures: int = 0
    until_ms: int = 0

    @classmethod
    def of(cls, key: Key, item: Item | None) -> PushPause:
        return cls(key, item["failures"], item["until"]) if item else cls(key)

    def holds(self, now: int) -> bool:
        return now < self.until_ms <= now + _HELD_MS_MAX

    def failed(self, wait_ms: int, now: int) -> Write:
        """The pause after one more failure. Concurrent failures count once."""
        same: Guard = Equals(("failures",), self.failures) if self.failures else Absent(("failures",))
        until_ms = now + min(wait_ms, PAUSE_MS_MAX)
        made = (Set(("failures",), self.failures + 1), Set(("until",), until_ms), Set(("ttl",), _ttl(until_ms)))
        return Write(self.key, (same,), made)

    def over(self) -> Write:
        return Write(self.key, (Equals(("failures",), self.failures),), (RemoveItem(),))


class Slots:
    def __init__(self, env: Env) -> None:
        self._store, self._runtime = env.store, env.runtime

    def take(self, group: Group, push: Push) -> tuple[PushSlot | None, PushPause]:
        """A free slot, and the group's pause. None: calls pause, or all slots are held. While calls fail, there is only
        one slot."""
        partition = keys.push_partition(group.topic_id, group.id)
        items = {item["sk"]: item for item in self._store.read([Range(partition, keys.FIRST, keys.LAST)])[0]}
        pause_key = keys.push_pause(group.topic_id, group.id)
        pause, now = PushPause.of(pause_key, items.get(pause_key.sk)), self._runtime.now()
        if pause.holds(now):
            return None, pause
        until_ms = now + push.timeout_ms + SLOT_SPARE_MS
        for number in range(1 if pause.failures else push.concurrency):
            key = keys.push_slot(group.topic_id, group.id, number)
            held_ms = items[key.sk]["until"] if key.sk in items else 0
            if held_ms <= now or held_ms > now + _HELD_MS_MAX:
                taken = PushSlot(key, number, self._runtime.name(_TOKEN_CHARS), until_ms)
                with suppress(Refused):
                    self._store.write(take(taken, items.get(key.sk)))
                    return taken, pause
        return None, pause

    def kept(self, slot: PushSlot, push: Push) -> PushSlot | None:
        """The slot, held long enough for another batch. None: another run holds it, or `concurrency` was lowered."""
        if slot.number >= push.concurrency:
            return None
        now = self._runtime.now()
        if slot.until_ms - now >= push.timeout_ms + LEASE_SPARE_MS:
            return slot
        renewed = replace(slot, until_ms=now + push.timeout_ms + SLOT_SPARE_MS)
        try:
            self._store.write(hold(renewed))
        except Refused:
            return None
        return renewed

    def release(self, slot: PushSlot) -> None:
        with suppress(Refused):
            self._store.write(hold(replace(slot, until_ms=self._runtime.now())))

    def pause(self, pause: PushPause, wait_ms: int) -> None:
        """Makes all instances wait before their next call to the group."""
        with suppress(Refused):
            self._store.write(pause.failed(wait_ms, self._runtime.now()))

    def resume(self, pause: PushPause) -> None:
        with suppress(Refused):
            self._store.write(pause.over())


def take(slot: PushSlot, before: Item | None) -> Write:
    """Takes the slot if it is unchanged since it was read."""
    same: Guard = Equals(("until",), before["until"]) if before else Absent(("until",))
    return Write(slot.key, (same,), (Set(("by",), slot.token), *_until(slot)), landed=lambda item: _is_held(slot, item))


def hold(slot: PushSlot) -> Write:
    """Changes the end of the holder's hold."""
    same = (Equals(("by",), slot.token),)
    return Write(slot.key, same, _until(slot), landed=lambda item: _is_held(slot, item))


def _until(slot: PushSlot) -> tuple[Set, ...]:
    return Set(("until",), slot.until_ms), Set(("ttl",), _ttl(slot.until_ms))


def _is_held(slot: PushSlot, item: Item) -> bool:
    return (item.get("by"), item.get("until")) == (slot.token, slot.until_ms)


def _ttl(until_ms: int) -> int:
    """A day later, in seconds: no caller writes that late after its read."""
    return (until_ms + DAY_MS) // SECOND_MS
