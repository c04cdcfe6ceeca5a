"""The model of a group in one queue: which messages wait, who holds which, and what a receipt is worth."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any

from chalicelib.core.catalogue.group import BY_DELIVERY, BY_KEY, BY_MESSAGE, BY_RECEIPT
from chalicelib.core.consuming.key_plan import LOOKED_FURTHER_MAX

REMEMBERED_MS = 600_000
REMEMBERED_MOVES = 30
"""For this long after a lease, and for this many messages taken over from leases, a receipt that lost its message
surely says so. Later, once the message is settled, it may succeed: there is nothing left to lose."""

EXPIRED = "the lease expired"
"""The reason of messages that died without a nack or bury."""

LOST = "LeaseLost"
INVALID = "ReceiptInvalid"
COUNTS = "counts"
EITHER = "counts, or LeaseLost"


@dataclass
class Hold:
    """A message that was taken and is not settled: leased under `receipt` until `until_ms`, or, without a receipt,
    nacked and to be retried then. `name`: the consumer and the attempt that took it, if it gave one. `delivery`: the
    first receipt of the lease and of its extensions."""

    until_ms: int
    attempt: int
    receipt: str | None = None
    name: tuple[str | None, str] | None = None
    delivery: str | None = None


@dataclass
class Letter:
    """How a message died: at some instant from `from_ms` to `to_ms`, as the pop that found it waited meanwhile."""

    attempts: int
    reason: str
    from_ms: int
    to_ms: int


@dataclass(frozen=True)
class Ticket:
    """The message that a receipt names. `group_id` names one incarnation of the group, over all topics."""

    group_id: int
    queue: int
    epoch: int
    offset: int
    until_ms: int
    delivery: str | None
    attempt: int

    @property
    def place(self) -> tuple[int, int, int, int]:
        return self.group_id, self.queue, self.epoch, self.offset


@dataclass
class Cursor:
    """`aside`: passed by pops of a group ordered by key, and ready or behind an earlier one of their key."""

    next: int
    settle_by: str = BY_RECEIPT
    ordered: bool | str = False
    aside: set[int] = field(default_factory=set)
    buried: set[int] = field(default_factory=set)
    """Those that died since the last reset, and were not redriven."""
    letters: dict[int, Letter] = field(default_factory=dict)
    """Resets keep the letters, and a message has one, however often it dies."""
    purged_at_ms: int | None = None
    """Messages that were delayed then never come."""
    epoch: int = 0
    """Counts resets."""
    holds: dict[int, Hold] = field(default_factory=dict)
    settled_by: dict[int, str] = field(default_factory=dict)
    last_pop_at_ms: int | None = None
    last_consumer_id: str | None = None
    moves: int = 0

    @property
    def by_key(self) -> bool:
        return self.ordered == BY_KEY

    # -- how far it is ------------------------------------------------------------------------------------------------

    def due(self, now: int) -> list[int]:
        return sorted(offset for offset, hold in self.holds.items() if hold.until_ms <= now)

    def doomed(self, now: int, max_attempts: int | None) -> list[int]:
        """Ready for the dead letters, where the next pop that looks here brings them; the longest due first."""
        if max_attempts is None:
            return []
        exhausted = [offset for offset in self.due(now) if self.holds[offset].attempt >= max_attempts]
        return sorted(exhausted, key=lambda offset: self.holds[offset].until_ms)

    def ready(self, now: int, end: int) -> list[int]:
        return sorted([*self.due(now), *self.aside]) + list(range(self.next, end))

    def in_turn(self, now: int, log: list[dict[str, Any]], besides: Collection[int], want: int) -> list[int]:
        """The messages that can be taken, in order: by key, the key that has been ready for longest comes first. Fresh
        ones are among the first `want`, or not far behind if these have several keys."""
        ready = [offset for offset in self.ready(now, len(log)) if offset not in besides]
        if self.ordered is True and any(hold.until_ms > now for hold in self.holds.values()):
            return []
        if not self.by_key:
            return ready
        held = {offset for offset, hold in self.holds.items() if hold.until_ms > now}
        free = [offset for offset in ready if not any(self._is_behind(log, offset, other) for other in held)]
        fresh = [offset for offset in free if offset >= self.next]
        own: dict[str | int, list[int]] = {}
        lines = {line_of(log, offset) for offset in fresh[:want]}
        is_mixed = len(lines) > 1 and any(isinstance(line, str) for line in lines)
        last = fresh[:want][-1] + LOOKED_FURTHER_MAX * is_mixed if fresh else 0
        for offset in (offset for offset in free if offset <= last or offset < self.next):
            own.setdefault(line_of(log, offset), []).append(offset)
        since = {offset: log[offset]["stored_at_ms"] for offset in ready}
        since |= {offset: hold.until_ms for offset, hold in self.holds.items()}
        return [offset for line in sorted(own.values(), key=lambda line: (since[line[0]], line[0])) for offset in line]

    def _is_behind(self, log: list[dict[str, Any]], offset: int, other: int) -> bool:
        return other < offset and line_of(log, other) == line_of(log, offset)

    def in_flight(self, now: int) -> int:
        return sum(hold.receipt is not None and hold.until_ms > now for hold in self.holds.values())

    def retrying(self, now: int) -> int:
        return sum(hold.receipt is None and hold.until_ms > now for hold in self.holds.values())

    def committed(self) -> int:
        shown = (offset for offset, hold in self.holds.items() if self.ordered or hold.receipt is not None)
        return min([self.next, *self.aside, *shown])

    def state(self, offset: int, now: int) -> tuple[str, int | None, int | None]:
        """The state of a message, its attempts, and until when."""
        hold, letter = self.holds.get(offset), self.letters.get(offset)
        if hold and hold.until_ms > now:
            return "in_flight" if hold.receipt else "retrying", hold.attempt, hold.until_ms
        if hold:
            return "ready", hold.attempt, None
        if offset >= self.next:
            return "ready", None, None
        return ("dead", letter.attempts, None) if letter else ("settled", None, None)

    def held_by(self, name: tuple[str | None, str], now: int) -> list[int]:
        return sorted(offset for offset, hold in self.holds.items() if hold.name == name and _runs(hold, now))

    # -- what happens to it -------------------------------------------------------------------------------------------

    def take(self, offset: int, hold: Hold, unwanted: Collection[int] = ()) -> None:
        """Sets the messages before it aside, or settles them if `unwanted`."""
        self.moves += offset in self.holds
        self.holds[offset] = hold
        self.aside = self.aside.union(range(self.next, offset)).difference(unwanted) - {offset}
        self.next = max(self.next, offset + 1)

    def attempts_of(self, offset: int) -> int:
        return self.holds[offset].attempt if offset in self.holds else 0

    def bury(self, offset: int, from_ms: int, to_ms: int, reason: str = EXPIRED) -> None:
        attempt = self.leave(offset)
        self.buried.add(offset)
        self.letters[offset] = Letter(attempt, reason, from_ms, to_ms)

    def leave(self, offset: int) -> int:
        """Settles the message. Returns its attempts."""
        self.moves += 1
        return self.holds.pop(offset).attempt

    def skip(self, offset: int) -> None:
        """A pop passes it."""
        self.moves += self.holds.pop(offset, None) is not None
        self.aside.discard(offset)
        self.next = max(self.next, offset + 1)

    def redrive(self, offset: int, now: int) -> None:
        """The message is due at once, as if never delivered; if a reset moved the group before it, it comes anyway."""
        del self.letters[offset]
        self.buried.discard(offset)
        if offset < self.next and offset not in self.holds and offset not in self.aside:
            self.holds[offset] = Hold(now, 0)

    def purge(self) -> int:
        purged = len(self.letters)
        self.letters.clear()
        self.buried.clear()
        return purged

    def reset(self, offset: int, purged_at_ms: int | None = None) -> None:
        self.next, self.epoch, self.moves, self.purged_at_ms = offset, self.epoch + 1, 0, purged_at_ms
        for known in (self.holds, self.settled_by, self.aside, self.buried):
            known.clear()

    def copied(self) -> Cursor:
        """A copy that may change."""
        own = {name: getattr(self, name).copy() for name in ("aside", "buried", "letters", "holds", "settled_by")}
        return replace(self, **own)

    # -- receipts -----------------------------------------------------------------------------------------------------

    def is_held(self, ticket: Ticket, receipt: str, now: int) -> bool:
        """Whether the receipt is good for the message."""
        hold = self.holds.get(ticket.offset)
        if ticket.epoch != self.epoch or hold is None:
            return False
        if self.settle_by == BY_DELIVERY:
            return _runs(hold, now) and hold.delivery == ticket.delivery
        return self.settle_by == BY_MESSAGE or hold.receipt == receipt

    def ack(self, ticket: Ticket, receipt: str, now: int) -> None:
        if self.is_held(ticket, receipt, now):
            del self.holds[ticket.offset]
            self.settled_by[ticket.offset] = receipt

    def worth(self, ticket: Ticket, receipt: str, now: int) -> str:
        """The answer of an ack about a receipt, after all receipts of its call are acked."""
        if ticket.epoch != self.epoch or ticket.offset in self.holds:
            return LOST
        if self.settle_by != BY_RECEIPT:
            return LOST if ticket.offset in self.buried else COUNTS
        if self.settled_by.get(ticket.offset) == receipt:
            return COUNTS
        is_forgotten = ticket.until_ms + REMEMBERED_MS < now or self.moves > REMEMBERED_MOVES
        return EITHER if is_forgotten else LOST

    def nack(self, offset: int, due_ms: int) -> None:
        self.take(offset, Hold(due_ms, self.holds[offset].attempt))

    def extend(self, offset: int, receipt: str | None, until_ms: int) -> None:
        """`receipt`: the one that the holder has from now on. None: the same, or there is no holder."""
        hold = self.holds[offset]
        self.take(offset, replace(hold, until_ms=until_ms, receipt=receipt or hold.receipt))


def line_of(log: list[dict[str, Any]], offset: int) -> str | int:
    """A key, or the offset of a message without one."""
    key: str | None = log[offset]["key"]
    return offset if key is None else key


def _runs(hold: Hold, now: int) -> bool:
    return hold.receipt is not None and hold.until_ms > now
