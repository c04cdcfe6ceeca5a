"""Claims of groups that are ordered by key: `KeyOrder` finds the keys, the functions plan one claim in a queue.

A message that is owed is *held*, by its holder or by the wait of its retry, or *due*, or *set aside*. A claim can
deliver the messages of a key that lie before its first held one, and fresh messages of keys without any. The key that
has been ready for longest comes first, with all that can be taken of it. Fresh messages that a claim passes are set
aside.

A claim of a message takes all earlier ones of its key that are owed and not held in the same write, which demands that
none of their leases has changed. So it needs no other proof that nobody else has got one of them meanwhile.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import field, replace
from itertools import takewhile

from chalicelib.core.base.cache import BoundedCache, Caches
from chalicelib.core.base.limits import LEASES_MAX, PASSED_AT_ONCE_MAX, SET_ASIDE_MAX, TAKEOVERS_MAX
from chalicelib.core.base.records import mutable, record
from chalicelib.core.catalogue.group import BY_RECEIPT, Group
from chalicelib.core.consuming.claim_plan import HeldBack, Pick, freed_by, stretches
from chalicelib.core.consuming.receipt_batch import Plan
from chalicelib.core.consuming.skip import FILTERED_BYTES_MAX, GROWTH, Skipper
from chalicelib.core.consuming.view import QueueView
from chalicelib.core.cursors.cursor import Cursor
from chalicelib.core.cursors.cursor_writes import LEASES_ROOM
from chalicelib.core.cursors.lease import Lease, runs
from chalicelib.core.log.reader import LogReader, Want, joined, stored_at, within_reach
from chalicelib.core.log.segment import Segment
from chalicelib.core.table import keys

LOOKED_FURTHER_MAX = 32
"""Fresh messages behind those that would be enough. Others of the first keys among them come before other keys; what
lies between is set aside, which makes the cursor longer."""
_KEYS_KEPT_MAX = 50_000
"""Keys cached by one instance, some 300 bytes each."""


@record
class KeyPick(Pick):
    """`aside`: the offsets of the passed that are delivered later. `in_turn`: the offsets picked, in the order of their
    delivery."""

    aside: Sequence[int] = ()
    in_turn: Sequence[int] = ()


@record
class Known:
    """A message's key, and when it was stored."""

    key: str | None
    stored_at_ms: int


Lane = str | int
"""A key, or the offset of a message without one, which waits for no other."""

Knowledge = Mapping[int, Known]
"""By offset."""


@record
class Ready:
    """A message that can be delivered. `since_ms`: since when it could, but for the earlier ones of its key. `lease`:
    None for a fresh one."""

    offset: int
    lane: Lane
    since_ms: int
    lease: Lease | None

    def is_over(self, expired_ms: int) -> bool:
        """Whether it was set aside and has expired: a claim settles it, and delivers another."""
        return self.lease is not None and self.lease.is_aside and self.since_ms <= expired_ms


@record
class FreshWindow:
    """The fresh messages that a claim looks at, from the cursor's `next` on. `wanted`: those to be delivered, now or
    later. `is_cut`: there are more, but reading them has to wait for another claim."""

    offsets: range
    wanted: Sequence[int]
    is_cut: bool


@mutable
class OwedMessages:
    """The messages that a cursor owes. `ready`: the messages that are not held. `held`: offsets of those that are."""

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
    ) -> OwedMessages:
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
                    owed.ready.append(Ready(offset, lane(known, offset), known[offset].stored_at_ms, lease))
                elif is_due:
                    owed.ready.append(Ready(offset, lane(known, offset), lease.deadline, lease))
                else:
                    owed.held.add(offset)
        return owed

    def blocked(self, known: Knowledge) -> set[Lane]:
        """The keys of which no fresh message can be delivered."""
        return {lane(known, offset) for offset in self.held}

    def in_turn(self, known: Knowledge, fresh: Sequence[int]) -> list[Ready]:
        """All that can be delivered, in the order in which it is taken."""
        ready = [*self.ready]
        ready += [Ready(offset, lane(known, offset), known[offset].stored_at_ms, None) for offset in fresh]
        first_held: dict[Lane, int] = {}
        for offset in sorted(self.held, reverse=True):
            first_held[lane(known, offset)] = offset
        by_key: dict[Lane, list[Ready]] = {}
        for each in sorted(ready, key=lambda each: each.offset):
            if each.offset < first_held.get(each.lane, each.offset + 1):
                by_key.setdefault(each.lane, []).append(each)
        keys = sorted(by_key.values(), key=lambda own: own[0].since_ms)
        return [each for own in keys for each in own]


def lane(known: Knowledge, offset: int) -> Lane:
    key = known[offset].key
    return offset if key is None else key


@record
class Choice:
    """`chosen`: in the order of their delivery. `held_back`: others, by the cap or by what one write can name."""

    chosen: Sequence[Ready]
    held_back: HeldBack = HeldBack.NOTHING


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
            return Choice(chosen, HeldBack.CAP)
        if each.lease:
            token, offset = each.lease.token, each.offset
            stretches += 1 - ((token, offset - 1) in places) - ((token, offset + 1) in places)
            if stretches > TAKEOVERS_MAX:
                return Choice(chosen, HeldBack.ONE_WRITE)
            places.add((token, offset))
        chosen.append(each)
        left -= not each.is_over(expired_ms)
    return Choice(chosen, HeldBack.CAP if len(chosen) < min(want, len(in_turn)) else HeldBack.NOTHING)


def overdue(cursor: Cursor, group: Group, picked: Pick, now: int, riding: Collection[str]) -> Sequence[Lease]:
    """The leases that are over and stay: if they were extended before a stale look, their messages may be too many
    beside those that are picked. As many as a write can name. `riding`: tokens that acks change."""
    touched = {*riding, *(lease.token for lease, _ in picked.takeovers)}
    left = [lease for lease in cursor.due(now) if lease.token not in touched]
    count = cursor.live(now) + picked.count + sum(len(lease.owed) for lease in left)
    return left[: max(0, TAKEOVERS_MAX - len(touched))] if count > group.max_in_flight else ()


def _with_slots(cursor: Cursor, in_turn: Sequence[Ready]) -> Sequence[Ready]:
    """Those of these messages for which the cursor has leases left. Fresh ones need a lease, and a second one to set
    others aside. If the cursor is full, a lease with messages that have to wait is left whole: splitting it takes
    another."""
    if len(cursor.leases) < LEASES_MAX - 1:
        return in_turn
    is_full = len(cursor.leases) >= LEASES_MAX + LEASES_ROOM - TAKEOVERS_MAX
    counts = Counter(each.lease.token for each in in_turn if each.lease)
    taken: list[Ready] = []
    left: set[Lane] = set()
    for each in in_turn:
        if each.lease is None or (is_full and counts[each.lease.token] < len(each.lease.owed)):
            left.add(each.lane)
        if each.lane not in left:
            taken.append(each)
    return taken


def look(known: Knowledge, blocked: Collection[Lane], aside: int, wanted: Sequence[int], want: int) -> tuple[int, bool]:
    """How many of these fresh messages to look at, and whether these are all that are needed: `want` that can be
    delivered, and if they are of several keys some more, for others of these; or as many that cannot as can be set
    aside."""
    ready = waiting = 0
    for count, offset in enumerate(wanted):
        is_blocked = lane(known, offset) in blocked
        if is_blocked and aside + waiting >= SET_ASIDE_MAX:
            return count, True
        waiting, ready = waiting + is_blocked, ready + (not is_blocked)
        if ready == want:
            return min(count + 1 + further(known, blocked, wanted[: count + 1]), len(wanted)), True
    return len(wanted), False


def further(known: Knowledge, blocked: Collection[Lane], enough: Sequence[int]) -> int:
    """How many messages to look at behind those that are enough: none if one key has all that can be delivered, or none
    of these has any."""
    lanes = {lane(known, offset) for offset in enough} - {*blocked}
    return LOOKED_FURTHER_MAX if len(lanes) > 1 and any(isinstance(own, str) for own in lanes) else 0


def arrange(cursor: Cursor, window: FreshWindow, choice: Choice) -> KeyPick:
    """Returns the claim of the chosen messages. It passes unwanted ones, up to the next message that it leaves in its
    place."""
    chosen = _within_bounds(cursor, window, choice.chosen)
    taken = {each.offset for each in chosen}
    last = max(taken, default=cursor.next - 1)
    stop = next((offset for offset in window.wanted if offset > last), window.offsets.stop)
    has_room = len(cursor.leases) < LEASES_MAX  # for one that holds what is set aside
    if not chosen and window.is_cut and stop == cursor.next and has_room:
        stop = window.offsets.stop  # the claim after this one looks further
    aside = [offset for offset in window.wanted if offset < stop and offset not in taken]
    return KeyPick(
        tuple(_takeovers(chosen)),
        stop - cursor.next,
        next_at_most=cursor.next,
        held_back=choice.held_back,
        passed=[offset - cursor.next for offset in range(cursor.next, stop) if offset not in taken],
        aside=aside,
        in_turn=[each.offset for each in chosen],
    )


def _within_bounds(cursor: Cursor, window: FreshWindow, chosen: Sequence[Ready]) -> Sequence[Ready]:
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


class KeyOrder:
    """Finds the keys of what a queue owes and of what comes next, and picks by them. Keys never change, so an instance
    keeps them; one that is new reads them with the messages. The cursor holds none."""

    def __init__(self, caches: Caches, reader: LogReader, skipper: Skipper) -> None:
        self._reader, self._skipper = reader, skipper
        self._kept: BoundedCache[Known] = caches.bounded(lambda place, _: keys.owners(place[0]), _KEYS_KEPT_MAX)

    def ready_since(self, view: QueueView, now: int, riding: Plan) -> int | None:
        """Since when the first message that can be delivered is ready. None: a claim would find nothing to do."""
        known, owed, window = self._looked(view, view.ask.max_messages, now, riding)
        if in_turn := owed.in_turn(known, window.wanted):
            return in_turn[0].since_ms
        is_passing = window.is_cut or view.cursor.next not in window.wanted
        return stored_at(view.chain, view.cursor.next) if window.offsets and is_passing else None

    def pick(self, view: QueueView, want: int, now: int, riding: Plan, most: int | None = None) -> KeyPick:
        """Plans to take up to `want` messages. `most`: only so many of the same, in the same order."""
        known, owed, window = self._looked(view, max(1, want), now, riding)
        in_turn = owed.in_turn(known, window.wanted)
        freed = freed_by(riding, now)
        expired_ms = view.topic.expired_ms(now) if most is None else -1
        most = want if most is None else most
        choice = choose(view.cursor, view.group, in_turn, most, now, freed, expired_ms)
        picked = arrange(view.cursor, window, choice)
        if not picked.count:  # too many would be set aside: those that come first leave the fewest
            by_offset = sorted(in_turn, key=lambda ready: ready.offset)
            choice = choose(view.cursor, view.group, by_offset, most, now, freed, expired_ms)
            picked = arrange(view.cursor, window, choice)
        picked = replace(picked, has_witnesses=view.group.settle_by == BY_RECEIPT)
        is_gone = len(window.offsets) == PASSED_AT_ONCE_MAX and not window.wanted
        if is_gone and view.is_past_retention(now):
            return self._skipper.past_expired(view, picked)
        settled = len(picked.passed) - len(picked.aside)
        expired = self._skipper.expired(view, settled, view.cursor.next + picked.fresh)
        return replace(picked, expired=expired)

    def kept(self, view: QueueView, offsets: Iterable[int]) -> dict[int, Known]:
        """The keys and verdicts of these messages, as far as this instance knows them."""
        log = view.topic.logs[view.queue]
        found = ((offset, self._kept.get((log, offset))) for offset in offsets)
        return {offset: known for offset, known in found if known}

    def _looked(
        self, view: QueueView, want: int, now: int, riding: Plan
    ) -> tuple[dict[int, Known], OwedMessages, FreshWindow]:
        known = self._known(view, [offset for lease in view.cursor.owing for offset in lease.owed_offsets])
        owed = OwedMessages.by(view.cursor, known, now, riding, view.delivered, view.is_ripe)
        window = self._window(view, known, owed.blocked(known), want)
        return known, owed, window

    def _window(self, view: QueueView, known: dict[int, Known], blocked: Collection[Lane], want: int) -> FreshWindow:
        """Reads further ahead than the view where it has to, and leaves what it read there. Adds to `known`."""
        if view.is_outrun:
            self._skipper.look_on(view, want)
        ahead, start = max(want, view.end - view.cursor.next), view.cursor.next
        while True:
            offsets, wanted = self._examined(view)
            known |= self._read(view, view.chain, [offset for offset in wanted if offset not in known])
            reached = [*takewhile(known.__contains__, wanted)]
            count, is_enough = look(known, blocked, view.cursor.aside, reached, want)
            if count < len(wanted):
                return FreshWindow(range(start, wanted[count]), wanted[:count], is_cut=not is_enough)
            target = want + further(known, blocked, wanted) if is_enough else ahead * GROWTH
            if (is_enough and view.end - start >= target) or offsets.stop < view.end:
                return FreshWindow(offsets, wanted, is_cut=not is_enough)
            if view.end - start < ahead or not view.chain[-1].is_sealed:
                return FreshWindow(offsets, wanted, is_cut=False)
            ahead = target
            self._skipper.look_on(view, ahead)

    def _examined(self, view: QueueView) -> tuple[range, list[int]]:
        """Fresh messages, and those of them to deliver."""
        if not view.is_plain(view.at_ms):
            return self._skipper.examined(view)
        start = view.cursor.next
        offsets = range(start, min(view.end, start + PASSED_AT_ONCE_MAX))
        return offsets, [*offsets]

    def _known(self, view: QueueView, offsets: Sequence[int]) -> dict[int, Known]:
        """Finds the keys and verdicts of these messages, which were taken before, and reads those that this instance
        does not know. Those that are lost, or removed since they have expired, have no key."""
        known = self.kept(view, offsets)
        log = view.topic.logs[view.queue]
        for strong in (False, True):  # a weak read may not see what another instance has just taken
            missing = [offset for offset in sorted(offsets) if offset not in known]
            if not missing:
                break
            wants = [Want(log, run.start, len(run), None) for run in stretches(missing)]
            chain = joined(self._reader.chains(wants, strong=strong))
            while missing and (found := self._read(view, chain, missing)):
                known |= found
                missing = [offset for offset in missing if offset not in found]
        return known | {offset: Known(None, 0) for offset in missing}

    def _read(self, view: QueueView, chain: Sequence[Segment], offsets: Sequence[int]) -> dict[int, Known]:
        """The keys of these messages, as far as one read may go."""
        found = self.kept(view, offsets)
        log = view.topic.logs[view.queue]
        missing = [offset for offset in offsets if offset not in found]
        reached = within_reach(chain, missing, FILTERED_BYTES_MAX)
        for stored in self._reader.stored(view.topic, view.queue, chain, reached):
            found[stored.offset] = known = Known(stored.message.key, stored.stored_at_ms)
            if not stored.message.is_lost:
                self._kept.keep((log, stored.offset), known)
        return found | {offset: Known(None, stored_at(chain, offset)) for offset in reached if offset not in found}
