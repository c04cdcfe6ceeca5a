"""Plans one claim in a queue: takes over expired leases first, then messages not taken yet.

Pure: makes a plan from the cursor as read, the group's settings and the segments read. The guards of the plan make it
safe whatever has happened since.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from enum import Flag, auto

from chalicelib.core.base.limits import BATCH_MESSAGES_MAX, LEASES_MAX, TAKEOVERS_MAX
from chalicelib.core.base.records import record
from chalicelib.core.catalogue.group import BY_RECEIPT, Group
from chalicelib.core.consuming.receipt_batch import NOTHING, Plan
from chalicelib.core.cursors import cursor_writes
from chalicelib.core.cursors.cursor import Cursor
from chalicelib.core.cursors.cursor_writes import CursorChange
from chalicelib.core.cursors.lease import Lease, runs
from chalicelib.core.log.segment import Segment


class HeldBack(Flag):
    """Why a pop takes fewer messages than are ready."""

    NOTHING = 0
    CAP = auto()
    """The group's cap on messages in flight."""
    RATE = auto()
    """The group's rate."""
    SPACE = auto()
    """The space in the response."""
    PAUSE = auto()
    """The group is paused."""
    ONE_WRITE = auto()
    """One write cannot name all the leases that are due: another can."""


@record
class Pick:
    """`takeovers`: runs of leases that are due. `fresh`: how many messages from the cursor's `next` on.

    `next_at_most`: how far `next` may have moved meanwhile without the claim passing the end or the cap.
    `held_back`: by the cap, or by what one write can name. `is_capped_closely`: the cap could be passed with what
    others take over meanwhile. `passed`: which of the fresh, counted from `next`, the group does not want.
    `demands_no_redrive`: the cap could be passed with messages redriven meanwhile. `expired`: how many of the passed
    have. `has_witnesses`: leases that lose all their messages stay, to reject late receipts."""

    takeovers: tuple[tuple[Lease, range], ...]
    fresh: int
    next_at_most: int
    held_back: HeldBack = HeldBack.NOTHING
    is_capped_closely: bool = False
    passed: Collection[int] = ()
    demands_no_redrive: bool = False
    expired: int = 0
    has_witnesses: bool = True

    @property
    def count(self) -> int:
        fresh = self.fresh - len(self.passed)
        return fresh + sum(len(run) for _, run in self.takeovers) if self.takeovers else fresh

    def is_last(self, group: Group) -> bool:
        """Whether a message would be delivered for the last time."""
        is_fresh_last = group.max_attempts == 1 and self.fresh > len(self.passed)
        return is_fresh_last or any(lease.attempt + 1 >= group.max_attempts for lease, _ in self.takeovers)

    def offsets(self, cursor: Cursor) -> list[int]:
        """The offsets picked, unless the cursor moves meanwhile."""
        fresh = [cursor.next + index for index in range(self.fresh) if index not in self.passed]
        return self.taken_over + fresh

    @property
    def taken_over(self) -> list[int]:
        return [lease.start + index for lease, run in self.takeovers for index in run]


def stretches(offsets: Iterable[int]) -> list[range]:
    """These offsets as few ranges with small gaps, each read at once."""
    found: list[range] = []
    for run in runs(offsets):
        if found and run.start - found[-1].stop <= BATCH_MESSAGES_MAX:
            found[-1] = range(found[-1].start, run.stop)
        else:
            found.append(run)
    return found


def pick(
    cursor: Cursor,
    group: Group,
    end: int,
    want: int,
    now: int,
    riding: Plan = NOTHING,
    delivered: Collection[int] = (),
) -> Pick:
    """Plans to take up to `want` messages, in offset order. `riding`: acks in the same write. Settled messages make
    room. A claim cannot take over the leases of these acks; messages that they still owe count against the cap, since
    others may extend them. `end`: not before the cursor's `next`. `delivered`: offsets not to take again, though their
    leases are due."""
    if group.ordered and is_held(cursor, now, riding):
        return Pick((), 0, cursor.next)
    freed = freed_by(riding, now) if riding.acked else 0
    room = max(0, group.max_in_flight - (cursor.live(now) - freed))
    has_slot = len(cursor.leases) < LEASES_MAX
    due = cursor.due(now)
    left = [lease for lease in due if lease.token not in riding.tokens and not _owes_any(lease, delivered)]
    takeovers = _takeovers(left, min(want, room), has_slot) if left else ()
    taken, ready = sum(len(run) for _, run in takeovers), sum(len(lease.owed) for lease in left)
    settled = sum(len(indexes) for lease, indexes in riding.acked if lease.is_due(now))
    waiting = sum(len(lease.owed) for lease in due) - settled
    cap_room = max(0, room - waiting)  # due messages count against the cap until they are taken, here or elsewhere
    is_whole = taken == ready
    available = end - cursor.next
    fresh = min(want - taken, available, cap_room) if is_whole and has_slot else 0
    # Parked leases may become due at any moment, and others may take over messages before they are acked here.
    spare = room - waiting - cursor.retrying(now) - freed - fresh
    may_all_rise = spare >= cursor.dead  # there is room for all dead letters if they are redriven meanwhile
    spare -= cursor.dead if may_all_rise else 0
    held_back = HeldBack.ONE_WRITE if len(takeovers) == TAKEOVERS_MAX else HeldBack.NOTHING
    if taken + fresh < min(want, ready + available) and (fresh == cap_room or not has_slot):
        held_back |= HeldBack.CAP
    return Pick(
        takeovers,
        fresh,
        next_at_most=cursor.next + max(0, min(spare, available - fresh) if fresh else spare),
        held_back=held_back,
        is_capped_closely=spare < 0,
        demands_no_redrive=not may_all_rise,
        has_witnesses=group.settle_by == BY_RECEIPT,
    )


def _owes_any(lease: Lease, offsets: Collection[int]) -> bool:
    return any(lease.owes(offset) for offset in offsets)


def freed_by(riding: Plan, now: int) -> int:
    """How many messages in flight these acks settle."""
    return sum(len(indexes) for lease, indexes in riding.acked if lease.deadline > now and not lease.parked)


def is_held(cursor: Cursor, now: int, riding: Plan) -> bool:
    """Whether a popped message is neither settled nor due: an ordered queue then delivers nothing."""
    emptied = {lease.token for lease, indexes in riding.acked if set(lease.owed) <= set(indexes)}
    still_owing = (lease for lease in cursor.owing if lease.token not in emptied)
    return any(lease.token in riding.tokens or not lease.is_due(now) for lease in still_owing)


def _takeovers(due: Sequence[Lease], room: int, may_split: bool) -> tuple[tuple[Lease, range], ...]:
    """The first runs that fit; the last one may be split."""
    taken: list[tuple[Lease, range]] = []
    owed = [(lease, run) for lease in due for run in runs(lease.owed)]
    for lease, run in sorted(owed, key=lambda part: part[0].start + part[1].start)[:TAKEOVERS_MAX]:
        if room > 0 and (may_split or len(run) <= room):
            taken.append((lease, run[:room]))
            room -= len(taken[-1][1])
    return tuple(taken)


@record
class LeaseTokens:
    """Tokens for new leases, never used before: a receipt of an old lease must not fit a new one.

    `fresh`: for messages not taken yet. Concurrent calls with the same attempt_id use the same token, so one finds the
    other's lease. `split`: for takeovers, new each time."""

    fresh: str
    split: Callable[[], str]


def take(
    picked: Pick,
    cursor: Cursor,
    chain: Sequence[Segment],
    tokens: LeaseTokens,
    deadline: int,
    is_exact: bool,
    is_alone: bool = False,
    noted_ms: int | None = None,
) -> CursorChange:
    """The claim as a change of the cursor. `is_exact`: takes exactly the messages read, even if others have moved on.
    `is_alone`: only if there was no other claim since. `noted_ms`: when messages are first delivered of which that is
    not noted; None: it stays so."""
    made = CursorChange()
    for lease in {lease.token: lease for lease, _ in picked.takeovers}.values():
        taken = [run for owner, run in picked.takeovers if owner is lease]
        first_at_ms = noted_ms if lease.first_at_ms is None else lease.first_at_ms
        new = [
            Lease(tokens.split(), lease.start + run.start, len(run), deadline, lease.attempt + 1, (), first_at_ms)
            for run in taken
        ]
        indexes = [index for run in taken for index in run]
        made += cursor_writes.move(lease, indexes, new, picked.has_witnesses) + cursor_writes.lasts_as_seen(lease)
    if picked.is_capped_closely or is_alone:
        made += cursor_writes.no_claim_since(cursor)
    if picked.demands_no_redrive:
        made += cursor_writes.no_redrive_since(cursor)
    made += cursor_writes.not_beyond(picked.next_at_most)
    if picked.fresh:
        hint = _hint(chain, cursor.next + picked.fresh)
        if picked.fresh == len(picked.passed):
            made += cursor_writes.pass_by(picked.fresh, hint)
        else:
            made += cursor_writes.claim(tokens.fresh, picked.fresh, hint, deadline, picked.passed, noted_ms)
        if is_exact:
            made += cursor_writes.stays_at(cursor)
    return made


def _hint(chain: Sequence[Segment], offset: int) -> int | None:
    """The base of the segment that holds or will hold the offset."""
    for segment in reversed(chain):
        if segment.end <= offset and segment.is_sealed:
            return segment.end
        if segment.base <= offset:
            return segment.base
    return None
