"""Plans one claim in a queue of a group that is ordered by key.

A message that is owed is *held*, by its holder or by the wait of its retry, or *due*, or *set aside*. Of each key, what
lies before its first held message can be delivered, and so can fresh messages of keys without any. The key that has
been ready for longest comes first, with all that can be taken of it. Fresh messages that a claim passes are set aside.

Whoever takes a message takes all earlier ones of its key that are owed and not held in the same write, which demands
that none of their leases has changed. So it needs no other proof that nobody else has got one of them meanwhile.

Pure, as `claim_plan` is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field

from chalicelib.core.base.limits import LEASES_MAX, SET_ASIDE_MAX, TAKEOVERS_MAX
from chalicelib.core.base.records import mutable, record
from chalicelib.core.catalogue.group import Group
from chalicelib.core.consuming.claim_plan import Pick
from chalicelib.core.consuming.receipt_batch import Plan
from chalicelib.core.cursors.cursor import Cursor
from chalicelib.core.cursors.cursor_writes import LEASES_ROOM
from chalicelib.core.cursors.lease import Lease, runs


@record
class Known:
    """A message's key, and when it was stored."""

    key: str | None
    stored_at_ms: int


LOOKED_FURTHER_MAX = 32
"""Fresh messages behind those that would be enough. Others of the first keys among them come before other keys; what
lies between is set aside, which makes the cursor longer."""

Line = str | int
"""A key, or the offset of a message without one, which waits for no other."""

Knowledge = Mapping[int, Known]
"""By offset."""


@record
class Ready:
    """A message that can be delivered. `since_ms`: since when it could, but for the earlier ones of its key. `lease`:
    None for a fresh one."""

    offset: int
    line: Line
    since_ms: int
    lease: Lease | None

    def is_over(self, expired_ms: int) -> bool:
        """Whether it was set aside and has expired: a claim settles it, and delivers another."""
        return self.lease is not None and self.lease.is_aside and self.since_ms <= expired_ms


@record
class Window:
    """The fresh messages that a claim looks at, from the cursor's `next` on. `wanted`: those to be delivered, now or
    later. `is_cut`: there are more, but reading them has to wait for another claim."""

    offsets: range
    wanted: Sequence[int]
    is_cut: bool


@mutable
class Owed:
    """What a cursor owes. `ready`: the messages that are not held. `held`: offsets of those that are."""

    ready: list[Ready] = field(default_factory=list)
    held: set[int] = field(default_factory=set)

    @classmethod
    def by(
        cls,
        cursor: Cursor,
        known: Knowledge,
        now: int,
        riding: Plan,
        delivered: Collection[int],
        is_ripe: Callable[[int], bool],
    ) -> Owed:
        """`riding`: acks in the same write; what else their leases owe is held, since one write cannot take it as well.
        `delivered`: offsets that the same call delivers, and that block nobody else's. `is_ripe`: whether what was
        stored then may be delivered for the first time."""
        owed = cls()
        acked = {(lease.token, index) for lease, indexes in riding.acked for index in indexes}
        for lease in cursor.owing:
            is_due = lease.is_due(now) and lease.token not in riding.tokens
            for index in lease.owed:
                offset = lease.start + index
                if (lease.token, index) in acked or offset in delivered:
                    continue
                if lease.is_aside and is_ripe(known[offset].stored_at_ms):
                    owed.ready.append(Ready(offset, line(known, offset), known[offset].stored_at_ms, lease))
                elif is_due:
                    owed.ready.append(Ready(offset, line(known, offset), lease.deadline, lease))
                else:
                    owed.held.add(offset)
        return owed

    def blocked(self, known: Knowledge) -> set[Line]:
        """The keys of which no fresh message can be delivered."""
        return {line(known, offset) for offset in self.held}

    def in_turn(self, known: Knowledge, fresh: Sequence[int]) -> list[Ready]:
        """All that can be delivered, in the order in which it is taken."""
        ready = [*self.ready]
        ready += [Ready(offset, line(known, offset), known[offset].stored_at_ms, None) for offset in fresh]
        first_held: dict[Line, int] = {}
        for offset in sorted(self.held, reverse=True):
            first_held[line(known, offset)] = offset
        by_key: dict[Line, list[Ready]] = {}
        for each in sorted(ready, key=lambda each: each.offset):
            if each.offset < first_held.get(each.line, each.offset + 1):
                by_key.setdefault(each.line, []).append(each)
        keys = sorted(by_key.values(), key=lambda own: own[0].since_ms)
        return [each for own in keys for each in own]


def line(known: Knowledge, offset: int) -> Line:
    key = known[offset].key
    return offset if key is None else key


@record
class Choice:
    """`chosen`: in the order of their delivery. `is_limited`: the cap on messages in flight left some. `is_partial`:
    one write could not name all."""

    chosen: Sequence[Ready]
    is_limited: bool
    is_partial: bool


def choose(
    cursor: Cursor, group: Group, in_turn: Sequence[Ready], want: int, now: int, freed: int, expired_ms: int = -1
) -> Choice:
    """The first of these messages, as many as are wanted, may be in flight, and fit the cursor and one write. None is
    left out before another of its key. `freed`: how many messages in flight the riding acks settle. `expired_ms`: what
    was set aside and stored by then is not among those that are wanted."""
    room = group.max_in_flight - (cursor.live(now) - freed)
    chosen: list[Ready] = []
    places: set[tuple[str, int]] = set()
    stretches = 0
    left = want
    for each in _with_slots(cursor, in_turn):
        if not left:
            break
        if len(chosen) >= room:
            return Choice(chosen, True, False)
        if each.lease:
            token, offset = each.lease.token, each.offset
            stretches += 1 - ((token, offset - 1) in places) - ((token, offset + 1) in places)
            if stretches > TAKEOVERS_MAX:
                return Choice(chosen, False, True)
            places.add((token, offset))
        chosen.append(each)
        left -= not each.is_over(expired_ms)
    return Choice(chosen, len(chosen) < min(want, len(in_turn)), False)


def overdue(cursor: Cursor, group: Group, picked: Pick, now: int, riding: Collection[str]) -> Sequence[Lease]:
    """The leases that are over and stay: if they were extended before a stale look, their messages may be too many
    beside those that are picked. As many as a write can name. `riding`: tokens that acks change."""
    touched = {*riding, *(lease.token for lease, _ in picked.takeovers)}
    left = [lease for lease in cursor.due(now) if lease.token not in touched]
    count = cursor.live(now) + picked.count + sum(len(lease.owed) for lease in left)
    return left[: max(0, TAKEOVERS_MAX - len(touched))] if count > group.max_in_flight else ()


def _with_slots(cursor: Cursor, in_turn: Sequence[Ready]) -> Sequence[Ready]:
    """Those of these messages for which the cursor has leases left. Fresh ones need a lease, and one more for what is
    set aside. If the cursor is full, a lease of which some messages have to wait is left whole: to split it
    takes another."""
    if len(cursor.leases) < LEASES_MAX - 1:
        return in_turn
    is_full = len(cursor.leases) >= LEASES_MAX + LEASES_ROOM - TAKEOVERS_MAX
    counts = Counter(each.lease.token for each in in_turn if each.lease)
    taken: list[Ready] = []
    left: set[Line] = set()
    for each in in_turn:
        if each.lease is None or (is_full and counts[each.lease.token] < len(each.lease.owed)):
            left.add(each.line)
        if each.line not in left:
            taken.append(each)
    return taken


def look(known: Knowledge, blocked: Collection[Line], aside: int, wanted: Sequence[int], want: int) -> tuple[int, bool]:
    """How many of these fresh messages to look at, and whether these are all that are needed: `want` that can be
    delivered, and if they are of several keys some more, for others of these; or as many that cannot as can be set
    aside."""
    ready = waiting = 0
    for count, offset in enumerate(wanted):
        is_blocked = line(known, offset) in blocked
        if is_blocked and aside + waiting >= SET_ASIDE_MAX:
            return count, True
        waiting, ready = waiting + is_blocked, ready + (not is_blocked)
        if ready == want:
            return min(count + 1 + further(known, blocked, wanted[: count + 1]), len(wanted)), True
    return len(wanted), False


def further(known: Knowledge, blocked: Collection[Line], enough: Sequence[int]) -> int:
    """How many messages to look at behind those that are enough: none if one key has all that can be delivered, or none
    of these has any."""
    lines = {line(known, offset) for offset in enough} - {*blocked}
    return LOOKED_FURTHER_MAX if len(lines) > 1 and any(isinstance(own, str) for own in lines) else 0


def arrange(cursor: Cursor, window: Window, choice: Choice) -> Pick:
    """The claim of what is chosen. It passes what is not wanted, up to the next message that is left where it is."""
    chosen = _within_bounds(cursor, window, choice.chosen)
    taken = {each.offset for each in chosen}
    last = max(taken, default=cursor.next - 1)
    stop = next((offset for offset in window.wanted if offset > last), window.offsets.stop)
    has_room = len(cursor.leases) < LEASES_MAX  # for one that holds what is set aside
    if not chosen and window.is_cut and stop == cursor.next and has_room:
        stop = window.offsets.stop  # the claim after this one looks further
    aside = [offset for offset in window.wanted if offset < stop and offset not in taken]
    return Pick(
        tuple(_takeovers(chosen)),
        stop - cursor.next,
        next_at_most=cursor.next,
        is_limited=choice.is_limited,
        is_capped_closely=False,
        is_partial=choice.is_partial,
        passed=[offset - cursor.next for offset in range(cursor.next, stop) if offset not in taken],
        aside=aside,
        in_turn=[each.offset for each in chosen],
    )


def _within_bounds(cursor: Cursor, window: Window, chosen: Sequence[Ready]) -> Sequence[Ready]:
    """Without the last fresh messages, as long as more would be set aside than may be."""
    aside = cursor.aside - sum(each.lease is not None and each.lease.is_aside for each in chosen)
    fresh = sorted(each.offset for each in chosen if each.lease is None)
    while fresh and aside + window.wanted.index(fresh[-1]) - (len(fresh) - 1) > SET_ASIDE_MAX:
        fresh.pop()
    return [each for each in chosen if each.lease is not None or each.offset in fresh]


def _takeovers(chosen: Sequence[Ready]) -> list[tuple[Lease, range]]:
    """In offset order."""
    leases = {each.lease.token: each.lease for each in chosen if each.lease}
    taken = (
        (lease, run)
        for lease in leases.values()
        for run in runs(each.offset - lease.start for each in chosen if each.lease is lease)
    )
    return sorted(taken, key=lambda part: part[0].start + part[1].start)
