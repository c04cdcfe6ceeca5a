"""All changes of a cursor. Parts that touch different leases can share one conditional write."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from chalicelib.core.base.limits import LEASES_MAX, MINUTE_MS
from chalicelib.core.base.records import record
from chalicelib.core.cursors.cursor import Cursor
from chalicelib.core.cursors.lease import ACKED, CONFIRMED, MOVED, UNKNOWN_MS, Lease, mark
from chalicelib.core.table import writes
from chalicelib.core.table.writes import Effect, Guard, Item, Key, Write

LEASES_ROOM = 500
"""Additional leases for nacks and extensions of parts, which must work when no claim can."""
WITNESS_MS = 10 * MINUTE_MS
"""How long after its deadline a lease that lost messages stays in the cursor, to reject late receipts."""
WITNESSES_MAX = 32
"""How many such leases stay, so that nacks do not make the cursor heavy."""
INERT_MAX = 2 * WITNESSES_MAX
"""With more leases that owe nothing than this, a separate write removes some."""
PRUNED_MAX = 8
"""Leases that one write removes."""
PRUNED_ALONE_MAX = 40
"""The same for a write that does nothing else."""


@record
class CursorChange:
    """A part of a write on a cursor. Parts that touch different leases can share one write."""

    guards: tuple[Guard, ...] = ()
    effects: tuple[Effect, ...] = ()
    tokens: tuple[str, ...] = ()
    """New tokens, never used before: if one of them exists, the write has landed."""
    prolonged: tuple[Lease, ...] = ()
    """Leases with their new deadlines: without new tokens, the write has landed if all leases have them."""

    def __add__(self, other: CursorChange) -> CursorChange:
        if other is NO_CHANGE:
            return self
        guards, effects = self.guards + other.guards, self.effects + other.effects
        return CursorChange(guards, effects, self.tokens + other.tokens, self.prolonged + other.prolonged)

    def __bool__(self) -> bool:
        return bool(self.effects)


NO_CHANGE = CursorChange()


def write(cursor: Cursor, change: CursorChange, recognised: Callable[[Item], object] = lambda _: None) -> Write:
    """One conditional request for all parts, on the epoch that was read. `recognised` is called when the request fails
    but its effect exists: for the token of an attempt, another call may have caused it."""

    def landed(before: Item) -> bool:
        if not _has_landed(change, before.get("leases", {})):
            return False
        recognised(before)
        return True

    return Write(cursor.key, (writes.Equals(("epoch",), cursor.epoch), *change.guards), change.effects, landed)


def _has_landed(change: CursorChange, leases: Mapping[str, Sequence[Any]]) -> bool:
    if change.tokens:
        return any(token in leases for token in change.tokens)
    known = [(lease, leases.get(lease.token, ())) for lease in change.prolonged]
    return bool(known) and all([*listed[:3]] == lease.listed()[:3] for lease, listed in known)


def create(cursor: Cursor) -> Write:
    """Creates the cursor at its start; an existing one is fine."""
    effects = (
        writes.Set(("epoch",), cursor.epoch),
        writes.Set(("next",), [cursor.next]),
        writes.Set(("leases",), {}),
        writes.Set(("dead",), 0),
        writes.Set(("claims",), 0),
        *(() if cursor.last_pop_at_ms is None else (writes.Set(("at",), cursor.last_pop_at_ms),)),
        *(() if cursor.last_consumer_id is None else (writes.Set(("by",), cursor.last_consumer_id),)),
        *(() if cursor.purged_at_ms is None else (writes.Set(("purged",), cursor.purged_at_ms),)),
    )
    return Write(cursor.key, (writes.Absent(("epoch",)),), effects, landed=lambda _: True)


def claim(
    token: str,
    count: int,
    segment: int | None,
    deadline: int,
    passed: Collection[int] = (),
    first_at_ms: int | None = None,
) -> CursorChange:
    """Takes `count` messages from the current `next` on, within the bound of `not_beyond`. `passed`: indexes of the
    messages that the filter rejects, settled at once. `first_at_ms`: now, if the lease records it."""
    marks = (mark(ACKED, passed),) if passed else ()
    _start, *taken = Lease(token, 0, count, deadline, 1, marks, first_at_ms).listed()
    leased = CursorChange(
        guards=(writes.SizeBelow(("leases",), LEASES_MAX), writes.Absent(("leases", token))),
        effects=(writes.Append(("leases", token), taken, onto=("next",)),),
        tokens=(token,),
    )
    return leased + pass_by(count, segment)


def pass_by(count: int, segment: int | None) -> CursorChange:
    """Moves `next` past `count` messages; without a lease, that settles them. `segment`: the new hint."""
    hint = () if segment is None else (writes.Set(("segment",), segment),)
    return CursorChange(effects=(writes.Add(("next", 0), count), *hint))


def set_aside(aside: Lease) -> CursorChange:
    """Keeps messages that a claim skips, for a later delivery. A repeat of that claim finds that `next` has moved."""
    return CursorChange(
        (writes.SizeBelow(("leases",), LEASES_MAX),), (writes.Set(aside.path, aside.listed()),), (aside.token,)
    )


def unchanged(leases: Iterable[Lease]) -> CursorChange:
    """Demands that these leases are as they were read."""
    return CursorChange(tuple(guard for lease in leases for guard in _fence(lease)))


def not_beyond(next_at_most: int) -> CursorChange:
    """Demands that other claims have not moved `next` so far that this one would exceed the end as read, or the cap."""
    return CursorChange(guards=(writes.AtMost(("next", 0), next_at_most),))


def stays_at(cursor: Cursor) -> CursorChange:
    """Demands that no claim has taken messages since."""
    return CursorChange(guards=(writes.Equals(("next", 0), cursor.next),))


def no_claim_since(cursor: Cursor) -> CursorChange:
    return CursorChange(guards=(writes.Equals(("claims",), cursor.claims),))


def no_redrive_since(cursor: Cursor) -> CursorChange:
    """Demands that no dead message was brought back since: claims take it over like any other due message, so it could
    exceed the cap unnoticed."""
    is_as_read: Guard = writes.Equals(("returns",), cursor.returns) if cursor.returns else writes.Absent(("returns",))
    return CursorChange(guards=(is_as_read,))


def note_pop(consumer_id: str | None, now: int, zone: str | None = None) -> CursorChange:
    """Records a claim. A claim without a zone leaves the record of the last one with a zone."""
    noted = () if zone is None else (writes.Set(("zone",), [zone, now]),)
    by = writes.Set(("by",), consumer_id or "")
    return CursorChange(effects=(writes.Set(("at",), now), by, writes.Add(("claims",), 1), *noted))


def move(old: Lease, indexes: Sequence[int], new: Sequence[Lease], has_witness: bool = True) -> CursorChange:
    """Moves messages of a lease into new ones, for an extension, nack or takeover. The fence includes the size: any ack
    or move since the read would have made the lease longer. `has_witness`: a lease that has lost all its messages stays
    if receipts for it exist."""
    if (old.parked or not has_witness) and len(indexes) == len(old.owed):
        leave: Effect = writes.Remove(old.path)
    else:
        leave = _marked(old, mark(MOVED, indexes))
    return CursorChange(
        guards=_fence(old) + tuple(writes.Absent(lease.path) for lease in new),
        effects=(leave, *(writes.Set(lease.path, lease.listed()) for lease in new)),
        tokens=tuple(lease.token for lease in new),
    )


def prolong(lease: Lease, deadline: int) -> CursorChange:
    """Sets the deadline of a lease in place. A late repeat finds a different deadline and changes nothing."""
    longer = replace(lease, deadline=deadline)
    return CursorChange(
        guards=(*_fence(lease), *lasts_as_seen(lease).guards),
        effects=(writes.Set(lease.deadline_path, deadline), *(writes.Set(lease.age_path, age) for age in longer.age)),
        prolonged=(longer,),
    )


def lasts_as_seen(lease: Lease) -> CursorChange:
    """Demands that the deadline has not changed since it was read."""
    return CursorChange(guards=(writes.Equals(lease.deadline_path, lease.deadline),))


def lasts_beyond(lease: Lease, now: int) -> CursorChange:
    """Demands that the lease is not due."""
    return CursorChange(guards=(writes.AtLeast(lease.deadline_path, now + 1),))


def confirm(leases: Iterable[Lease]) -> CursorChange:
    """Records on leases that a second call of their attempt delivers them. If the first call fails, it can then not
    give them back."""
    parts = [CursorChange(_fence(lease), (writes.Append(lease.path, [CONFIRMED]),)) for lease in leases]
    return sum(parts, CursorChange())


def has_room() -> CursorChange:
    """Demands room for the leases that settling creates: a few more than claims may have."""
    return CursorChange(guards=(writes.SizeBelow(("leases",), LEASES_MAX + LEASES_ROOM),))


def prune(cursor: Cursor, now: int, touched: Collection[str] = (), most: int = PRUNED_MAX) -> CursorChange:
    """Removes leases that owe nothing: fully acked ones at once, witnesses when they are old or too many. They are
    inert, so any write may remove them at any time. `touched`: tokens that the same write changes."""
    if not cursor.inert:
        return NO_CHANGE
    inert = [lease for lease in cursor.inert if lease.token not in touched]
    witnesses = sorted((lease for lease in inert if lease.is_witness), key=lambda lease: -lease.deadline)
    done = [lease for lease in inert if not lease.is_witness]
    old = [
        lease for place, lease in enumerate(witnesses) if place >= WITNESSES_MAX or lease.deadline + WITNESS_MS < now
    ]
    return forget([*done, *old][:most])


def forget(leases: Sequence[Lease]) -> CursorChange:
    """Removes leases that owe nothing, if they still exist."""
    if not leases:
        return NO_CHANGE
    guards = tuple(writes.Either(writes.Absent(lease.path), _is_that(lease)) for lease in leases)
    return CursorChange(guards, tuple(writes.Remove(lease.path) for lease in leases))


def _fence(lease: Lease) -> tuple[Guard, ...]:
    """Demands that the lease is unchanged since it was read."""
    return writes.SizeIs(lease.path, lease.size), _is_that(lease)


def _marked(lease: Lease, marked: bytes) -> Effect:
    if lease.has_many_marks:
        return writes.Set(lease.path, [*lease.compacted().listed(), marked])
    return writes.Append(lease.path, [marked])


def _is_that(lease: Lease) -> Guard:
    """A claim that arrives after its lease was fully acked creates another lease with the same token at a later
    offset."""
    return writes.Equals((*lease.path, 0), lease.start)


def bury(chosen: Iterable[tuple[Lease, Sequence[int]]], letters: int) -> CursorChange:
    """Moves messages out of their leases to the dead letters, in one transaction with those, `letters` of which are
    new."""
    change = CursorChange()
    for lease, indexes in chosen:
        change += move(lease, indexes, ())
        change += CursorChange() if lease.deadline == UNKNOWN_MS else lasts_as_seen(lease)
    return change + CursorChange(effects=(writes.Add(("dead",), letters),))


def redrive(parked: Sequence[Lease], letters: int) -> CursorChange:
    """Brings messages back from the dead letters, `letters` of which the same transaction removes.

    `parked` must owe nothing at or above `next`, and nothing that another lease owes. Once read, this holds for the
    epoch: `next` only grows, and a message below it enters a lease only from another lease that owes it, or from its
    letter, which the transaction demands and removes."""
    return _back(parked) + CursorChange(effects=(writes.Add(("dead",), -letters),))


def bring_back(cursor: Cursor, parked: Sequence[Lease]) -> CursorChange:
    """Brings dead messages back from a topic, in a transaction that takes their copies out of it.

    `parked`: as of `redrive`. A message that died again after a reset has two copies, so it demands that nothing else
    was brought back since the cursor was read."""
    return no_redrive_since(cursor) + _back(parked)


def _back(parked: Sequence[Lease]) -> CursorChange:
    return CursorChange(
        guards=(writes.SizeBelow(("leases",), LEASES_MAX),),
        effects=(*(writes.Set(lease.path, lease.listed()) for lease in parked), writes.Add(("returns",), 1)),
        tokens=tuple(lease.token for lease in parked),
    )


def purge(key: Key, letters: int) -> Write:
    """Subtracts purged letters, in any epoch: resets do not change the count."""
    return Write(key, (writes.Exists(("epoch",)),), (writes.Add(("dead",), -letters),))


def ends(lease: Lease, indexes: Collection[int], has_witness: bool = True) -> bool:
    """Whether acking these messages removes the lease: it owes no others, and has lost none that it must stay for."""
    return set(lease.owed) <= set(indexes) and not (has_witness and lease.moved)


def ack(lease: Lease, indexes: Collection[int], has_witness: bool = True) -> CursorChange:
    """Settles messages of a lease. The last ack removes the lease; earlier ones append a mark, which needs no
    compare-and-swap, so that consumers of one lease do not hinder each other. Some writes merge the marks."""
    if ends(lease, indexes, has_witness):
        return CursorChange(_fence(lease), (writes.Remove(lease.path),))
    acked = mark(ACKED, indexes)
    guards = _fence(lease) if lease.has_many_marks else (_is_that(lease),)
    return CursorChange(guards, (_marked(lease, acked),))


def reset(cursor: Cursor, offset: int, purged_at_ms: int | None = None) -> Write:
    """Moves the cursor and voids its leases and retries; dead letters stay. `purged_at_ms`: of a reset to `now`; any
    other reset removes it. The cursor holds it because claims demand the epoch that they have read."""
    epoch = cursor.epoch + 1
    purged: Effect = writes.Set(("purged",), purged_at_ms) if purged_at_ms else writes.Remove(("purged",))
    return Write(
        cursor.key,
        (writes.Equals(("epoch",), cursor.epoch),),
        (
            writes.Set(("epoch",), epoch),
            writes.Set(("next",), [offset]),
            writes.Set(("leases",), {}),
            writes.Remove(("segment",)),
            writes.Remove(("pages",)),
            purged,
        ),
        landed=lambda before: (
            (before.get("epoch"), before.get("next"), before.get("purged")) == (epoch, [offset], purged_at_ms)
        ),
    )
