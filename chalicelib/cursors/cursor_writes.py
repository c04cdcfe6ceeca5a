"""What a write on a cursor may change. Parts that touch different leases add up to one conditional write."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from chalicelib.base.limits import LEASES_MAX, MINUTE_MS
from chalicelib.cursors.cursor import Cursor
from chalicelib.cursors.lease import ACKED, CONFIRMED, MOVED, Lease, mark
from chalicelib.table.writes import (
    Absent,
    Add,
    Append,
    AtMost,
    Effect,
    Either,
    Equals,
    Exists,
    Guard,
    Item,
    Key,
    Lacks,
    Remove,
    Set,
    SizeBelow,
    SizeIs,
    Write,
)

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


@dataclass(frozen=True, slots=True)
class Change:
    """A part of a write on a cursor; parts that touch different leases add up to one write."""

    guards: tuple[Guard, ...] = ()
    effects: tuple[Effect, ...] = ()
    tokens: tuple[str, ...] = ()
    """New tokens, never used before: where one of them stands, the write has landed."""

    def __add__(self, other: Change) -> Change:
        return Change(self.guards + other.guards, self.effects + other.effects, self.tokens + other.tokens)

    def __bool__(self) -> bool:
        return bool(self.effects)


def write(cursor: Cursor, change: Change, recognised: Callable[[Item], object] = lambda _: None) -> Write:
    """One conditional request for all parts, on the epoch that was seen. `recognised` is called when it was refused and
    recognises its effect: for the token of an attempt, that may be the effect of another call."""

    def landed(before: Item | None) -> bool:
        is_there = before is not None and any(token in before["leases"] for token in change.tokens)
        if before is not None and is_there:
            recognised(before)
        return is_there

    return Write(cursor.key, (Equals(("epoch",), cursor.epoch), *change.guards), change.effects, landed)


def create(cursor: Cursor) -> Write:
    """Makes the cursor at its start; that it is there already is as good."""
    effects = (
        Set(("epoch",), cursor.epoch),
        Set(("next",), [cursor.next]),
        Set(("leases",), {}),
        Set(("dead",), 0),
        Set(("claims",), 0),
        *(() if cursor.last_pop_at_ms is None else (Set(("at",), cursor.last_pop_at_ms),)),
        *(() if cursor.last_consumer_id is None else (Set(("by",), cursor.last_consumer_id),)),
    )
    return Write(cursor.key, (Absent(("epoch",)),), effects, landed=lambda before: before is not None)


def claim(token: str, count: int, segment: int | None, deadline: int, passed: Collection[int] = ()) -> Change:
    """Takes `count` messages from `next` on, wherever that is by then: how far it may be, `not_beyond` says. `passed`:
    indexes of those that the group does not want, settled at once."""
    marks = [mark(ACKED, passed)] if passed else []
    return Change(
        guards=(
            SizeBelow(("leases",), LEASES_MAX),
            Absent(("leases", token)),
        ),
        effects=(
            Append(("leases", token), [count, deadline, 1, *marks], onto=("next",)),
            Add(("next", 0), count),
            *_hint(segment),
        ),
        tokens=(token,),
    )


def pass_by(count: int, segment: int | None) -> Change:
    """Settles `count` messages from `next` on, none of which the group wants."""
    return Change(effects=(Add(("next", 0), count), *_hint(segment)))


def _hint(segment: int | None) -> tuple[Effect, ...]:
    return () if segment is None else (Set(("segment",), segment),)


def not_beyond(next_at_most: int) -> Change:
    """Demands that others have not taken so much meanwhile that the end, as it was seen, or the cap would be passed."""
    return Change(guards=(AtMost(("next", 0), next_at_most),))


def stays_at(cursor: Cursor) -> Change:
    """Demands that nobody has taken anything new since."""
    return Change(guards=(Equals(("next", 0), cursor.next),))


def no_claim_since(cursor: Cursor) -> Change:
    return Change(guards=(Equals(("claims",), cursor.claims),))


def no_redrive_since(cursor: Cursor) -> Change:
    """Demands the count of dead letters that was seen: a redriven message is taken over like any other that is due, so
    it would pass the cap unseen."""
    return Change(guards=(Equals(("dead",), cursor.dead),))


def popped(consumer_id: str | None, now: int) -> Change:
    return Change(effects=(Set(("at",), now), Set(("by",), consumer_id or ""), Add(("claims",), 1)))


def move(old: Lease, indexes: Sequence[int], new: Sequence[Lease]) -> Change:
    """Messages leave a lease for new ones: by extension, nack, or takeover. The size is part of the fence: had the
    lease changed since it was seen, by an ack or by another move, it would be longer."""
    if old.parked and len(indexes) == len(old.owed):
        leave: Effect = Remove(old.path)  # nobody holds a receipt for it, so it need not witness
    else:
        leave = _marked(old, mark(MOVED, indexes))
    return Change(
        guards=_fence(old) + tuple(Absent(lease.path) for lease in new),
        effects=(leave, *(Set(lease.path, lease.listed()) for lease in new)),
        tokens=tuple(lease.token for lease in new),
    )


def confirm(leases: Iterable[Lease]) -> Change:
    """Notes on leases that a second call of their attempt delivers them: should the first call fail, it can no longer
    give them back."""
    parts = [Change(_fence(lease), (Append(lease.path, [CONFIRMED]),)) for lease in leases]
    return sum(parts, Change())


def has_room() -> Change:
    """Demands that the cursor can take the leases that settling makes: a few more than claims may."""
    return Change(guards=(SizeBelow(("leases",), LEASES_MAX + LEASES_ROOM),))


def prune(cursor: Cursor, now: int, touched: Collection[str] = (), most: int = PRUNED_MAX) -> Change:
    """Forgets leases that owe nothing: those acked to the end at once, witnesses when they are old or too many. They
    are inert, so it does not matter who removes them, or when. `touched`: tokens that the same write changes."""
    inert = [lease for lease in cursor.inert if lease.token not in touched]
    witnesses = sorted((lease for lease in inert if lease.is_witness), key=lambda lease: -lease.deadline)
    gone = [lease for lease in inert if not lease.is_witness]
    gone += [
        lease for place, lease in enumerate(witnesses) if place >= WITNESSES_MAX or lease.deadline + WITNESS_MS < now
    ]
    return forget(gone[:most])


def forget(inert: Iterable[Lease]) -> Change:
    """Takes away leases that owe nothing, where they still are."""
    leases = list(inert)
    guards = tuple(Either(Absent(lease.path), _is_that(lease)) for lease in leases)
    return Change(guards, tuple(Remove(lease.path) for lease in leases))


def _fence(lease: Lease) -> tuple[Guard, ...]:
    """Nothing has become of the lease since it was seen."""
    return SizeIs(lease.path, lease.size), _is_that(lease)


def _marked(lease: Lease, marked: bytes) -> Effect:
    if lease.is_scribbled:
        return Set(lease.path, [*lease.tidied().listed(), marked])
    return Append(lease.path, [marked])


def _is_that(lease: Lease) -> Guard:
    """A claim that arrives late, after its lease was acked away, makes one of the same token again, further on."""
    return Equals((*lease.path, 0), lease.start)


def buried(chosen: Iterable[tuple[Lease, Sequence[int]]], letters: int) -> Change:
    """Messages leave their leases for the dead letters; goes together with the writes of those, `letters` of them
    where there was none."""
    change = Change()
    for lease, indexes in chosen:
        change += move(lease, indexes, ())
    return change + Change(effects=(Add(("dead",), letters),))


def redriven(parked: Sequence[Lease], letters: int) -> Change:
    """Messages come back from the dead letters, `letters` of which are removed in the same transaction.

    `parked` must owe nothing that `next` has yet to reach or that another lease owes. While the epoch lasts that stays
    true once it was seen: `next` only grows, and a message below it comes into a lease from another lease that owes
    it, or from its letter, which the transaction demands and removes."""
    return Change(
        guards=(SizeBelow(("leases",), LEASES_MAX), *(Absent(lease.path) for lease in parked)),
        effects=(Add(("dead",), -letters), *(Set(lease.path, lease.listed()) for lease in parked)),
        tokens=tuple(lease.token for lease in parked),
    )


def purged(key: Key, letters: int) -> Write:
    """Counts letters that go for good, in whatever epoch: resets leave the count alone."""
    return Write(key, (Exists(("epoch",)),), (Add(("dead",), -letters),))


def ends(lease: Lease, indexes: Collection[int]) -> bool:
    """Whether acking these messages takes the lease away: then it has lost none, and owes no others."""
    return set(lease.owed) <= set(indexes) and not lease.moved


def ack(lease: Lease, indexes: Collection[int]) -> Change:
    """Settles messages of a lease. The last of them takes the lease away; before that a mark does, which needs no
    compare-and-swap, so that consumers of one lease do not hinder each other; but now and then the marks are tidied."""
    if ends(lease, indexes):
        return Change(_fence(lease), (Remove(lease.path),))
    acked = mark(ACKED, indexes)
    guards = _fence(lease) if lease.is_scribbled else (_is_that(lease), Lacks(lease.path, acked))
    return Change(guards, (_marked(lease, acked),))


def reset(cursor: Cursor, offset: int) -> Write:
    """Moves the cursor and voids its leases and retries; what was dead stays."""
    epoch = cursor.epoch + 1
    return Write(
        cursor.key,
        (Equals(("epoch",), cursor.epoch),),
        (
            Set(("epoch",), epoch),
            Set(("next",), [offset]),
            Set(("leases",), {}),
            Remove(("segment",)),
            Remove(("pages",)),
        ),
        landed=lambda before: before is not None and before["epoch"] == epoch and before["next"] == [offset],
    )
