"""Leases, and the receipts by which consumers settle their messages.

A lease is the messages of one queue that one pop took, and the state of each. It is stored in its cursor, under its
token, as the list `[start, count, deadline, attempt, age?, mark...]`. It covers the offsets from `start` to
`start + count`, and *owes* those that no mark names. `age` is a number: the time from the first delivery of its
messages to `deadline`, in half the bytes of an instant. It is present if the pop asked for it.

Marks are appended and never changed, so marking needs no compare-and-swap: if two marks name one message, the first in
the list counts. A mark is binary: one letter, then the set of indexes as a little-endian bit mask.

    a   acked through this lease: settled
    m   moved: nacked, extended into another lease, or taken over after the deadline; of a set-aside lease also a
        message that the same claim took

A new lease has no marks. A lease that owes nothing is inert: if all its messages were acked it is removed at once; if
it lost messages it stays for a while as a *witness*, so that a late ack fails. A lease whose token begins with `~` is
*parked*, after a nack: it has no holder, and at its deadline it is due again. One whose deadline never comes holds
messages *set aside*: a group ordered by key passed them, since an earlier message of their key was out.

Marks only ever make the list longer, so its length is the lease's version. An extension may set the deadline in place,
which the length does not show: a write that counts on the deadline demands it too. When a lease has many marks, the
next write merges them into two and leaves the others empty.

A receipt is opaque to clients, signed and versioned. It names a message in a lease: topic and group by incarnation, in
a broadcast group the consumer (its hash; else empty), the queue, the cursor's epoch, the token, the message's index in
the lease and its offset, the lease's `count` of messages and its attempt, so that acking a whole lease needs no read.
It has no deadline: any change of that makes a new token, and a write checks only token and start. It says when the
message was taken, which is stored with the reply to a request; and, of a lease that notes it, when the message was
first delivered. Text with colons, signed as `catalogue.signing_key` says.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

from chalicelib.core.base.limits import INSTANT_MS_MAX
from chalicelib.core.base.records import record
from chalicelib.core.base.runtime import Runtime
from chalicelib.core.catalogue.signing_key import SigningKey, checked, signed
from chalicelib.core.table.writes import Path

MARKS_MAX = 8
"""A lease with this many marks gets them merged by the next write, so that single acks do not make the cursor heavy."""

ACKED = b"a"
MOVED = b"m"
CONFIRMED = ACKED
"""A mark that names no message: a second call of the attempt also delivers the lease."""

TOKEN_CHARS = 8
"""The part of a token that identifies the pop; extensions and takeovers append `SPLIT_CHARS` random ones."""
SPLIT_CHARS = 6

UNKNOWN_MS = 0
"""The deadline of a lease of which only a receipt is known."""

_STATES_KEPT_MAX = 4_096
"""Decoded marks cached by one instance: most leases have none, or the same as a moment ago."""
_LEASES_KEPT_MAX = 16_384
"""Leases cached by one instance: a cursor with thousands of them mostly changes by one at a time."""

PARKED = "~"
"""The first character of a parked lease's token, and of no pop's token."""
SET_ASIDE_UNTIL_MS = INSTANT_MS_MAX
"""The deadline of messages set aside. No clock reaches it, so only a claim that knows their keys takes them."""


def mark(letter: bytes, indexes: Iterable[int]) -> bytes:
    mask = 0
    for index in indexes:
        mask |= 1 << index
    return letter + mask.to_bytes((mask.bit_length() + 7) // 8, "little")


def runs(indexes: Iterable[int]) -> list[range]:
    """The indexes as ranges without gaps: a lease covers adjacent offsets, so a split makes one lease per range."""
    unbroken: list[range] = []
    for index in sorted(indexes):
        if unbroken and unbroken[-1].stop == index:
            unbroken[-1] = range(unbroken[-1].start, index + 1)
        else:
            unbroken.append(range(index, index + 1))
    return unbroken


class MessageStates(NamedTuple):
    """The indexes of a lease's messages by their state."""

    owed: tuple[int, ...]
    acked: frozenset[int]
    moved: frozenset[int]


@lru_cache(_STATES_KEPT_MAX)
def _states(count: int, marks: tuple[bytes, ...]) -> MessageStates:
    """If two marks name one message, the first counts."""
    left, acked, moved = (1 << count) - 1, 0, 0
    for marked in marks:
        fresh = int.from_bytes(marked[1:], "little") & left
        left &= ~fresh
        if marked[:1] == ACKED:
            acked |= fresh
        else:
            moved |= fresh
    return MessageStates(tuple(_indexes(left)), frozenset(_indexes(acked)), frozenset(_indexes(moved)))


def _indexes(mask: int) -> Iterator[int]:
    return (index for index in range(mask.bit_length()) if mask >> index & 1)


@record
class Lease:
    """`first_at_ms`: when its messages were first delivered, if that is recorded."""

    token: str
    start: int
    count: int
    deadline: int
    attempt: int
    marks: tuple[bytes, ...] = ()
    first_at_ms: int | None = None

    @staticmethod
    @lru_cache(_LEASES_KEPT_MAX)
    def of(token: str, start: int, count: int, deadline: int, attempt: int, *more: Any) -> Lease:
        """`more`: the age if it is known, then the marks, as `listed` has them."""
        if more and isinstance(more[0], int):
            return Lease(token, start, count, deadline, attempt, more[1:], deadline - more[0])
        return Lease(token, start, count, deadline, attempt, more)

    def listed(self) -> list[Any]:
        return [self.start, self.count, self.deadline, self.attempt, *self.age, *self.marks]

    @property
    def age(self) -> tuple[int, ...]:
        """The time from the first delivery to the deadline; empty if that is not recorded."""
        return () if self.first_at_ms is None else (self.deadline - self.first_at_ms,)

    @property
    def path(self) -> Path:
        return ("leases", self.token)

    @property
    def size(self) -> int:
        """The length of the list. Every mark adds to it, so it is the lease's version."""
        return 4 + (self.first_at_ms is not None) + len(self.marks)

    @property
    def deadline_path(self) -> Path:
        """The path of its deadline."""
        return (*self.path, 2)

    @property
    def age_path(self) -> Path:
        """The path of its age, if it has one."""
        return (*self.path, 4)

    @property
    def parked(self) -> bool:
        return self.token.startswith(PARKED)

    @property
    def is_aside(self) -> bool:
        """Whether it holds messages that were skipped and not delivered yet."""
        return self.deadline == SET_ASIDE_UNTIL_MS

    @property
    def is_witness(self) -> bool:
        """Whether receipts exist for messages that it has lost."""
        return bool(self.moved) and not self.parked

    @property
    def is_confirmed(self) -> bool:
        return CONFIRMED in self.marks

    @property
    def has_many_marks(self) -> bool:
        """Whether merging its marks would help."""
        return sum(len(marked) > 1 for marked in self.marks) >= MARKS_MAX

    def compacted(self) -> Lease:
        """The same lease with the same length, and all its marks merged into the first two."""
        told = (mark(ACKED, self.acked), mark(MOVED, self.moved))
        return replace(self, marks=(*told, *[mark(ACKED, ())] * (len(self.marks) - len(told))))

    @property
    def acked(self) -> frozenset[int]:
        return _states(self.count, self.marks).acked

    @property
    def moved(self) -> frozenset[int]:
        return _states(self.count, self.marks).moved

    @property
    def owed(self) -> tuple[int, ...]:
        """The indexes that are not settled, in order."""
        return _states(self.count, self.marks).owed

    @property
    def offsets(self) -> range:
        """All offsets that it covers, owed or not."""
        return range(self.start, self.start + self.count)

    @property
    def owed_offsets(self) -> list[int]:
        return [self.start + index for index in self.owed]

    def owes(self, offset: int) -> bool:
        return (offset - self.start) in self.owed

    def is_due(self, now: int) -> bool:
        """Whether its messages may be delivered again."""
        return self.deadline <= now and bool(self.owed)


def delivery(token: str, attempt: int) -> tuple[str, int]:
    """The identity that a lease and its extensions share: the name of the pop, and the attempt of the messages."""
    return token[:TOKEN_CHARS], attempt


def parked(runtime: Runtime, offsets: range, due: int, attempt: int, first_at_ms: int | None = None) -> Lease:
    """A parked lease with a new token. `attempt`: the deliveries so far. `first_at_ms`: when the first of them was, if
    any."""
    noted_ms = first_at_ms if attempt else None
    return Lease(_parked_token(runtime), offsets.start, len(offsets), due, attempt, first_at_ms=noted_ms)


def set_aside(runtime: Runtime, offsets: Sequence[int]) -> Lease:
    """One lease for all messages that a claim sets aside. `offsets`: ascending, at least one."""
    start, count = offsets[0], offsets[-1] + 1 - offsets[0]
    taken = {*range(count)} - {offset - start for offset in offsets}
    marks = (mark(MOVED, taken),) if taken else ()
    return Lease(_parked_token(runtime), start, count, SET_ASIDE_UNTIL_MS, 0, marks)


def _parked_token(runtime: Runtime) -> str:
    return PARKED + runtime.name(TOKEN_CHARS + SPLIT_CHARS - 1)


_VERSION = "3"
_NOTED = "4"
"""The version of receipts with `first_at_ms`."""
_DOMAIN = b"receipt"
_LEASES_KEPT_MAX = 1_024
"""Leases whose receipts one instance caches while it reads them: clients mostly return the receipts of a lease
together."""


@record
class Receipt:
    """`taken_at_ms`: 0 for a pop with an `attempt_id`, since a repeat returns the same receipts at another time.
    `first_at_ms`: as in the lease."""

    topic_id: str
    group_id: str
    consumer: str
    queue: int
    epoch: int
    token: str
    index: int
    offset: int
    count: int
    attempt: int
    taken_at_ms: int
    first_at_ms: int | None = None

    @property
    def start(self) -> int:
        return self.offset - self.index


def sign(receipt: Receipt, key: bytes) -> str:
    return sign_each(receipt, [receipt.offset], key)[0]


def sign_each(first: Receipt, offsets: Iterable[int], key: bytes) -> list[str]:
    """The receipts of these messages of the same lease. Encodes their common part once."""
    version, noted = (_VERSION, "") if first.first_at_ms is None else (_NOTED, f":{first.first_at_ms}")
    shared = (version, first.topic_id, first.group_id, first.consumer, first.queue, first.epoch, first.token)
    before, after = ":".join(map(str, shared)), f"{first.count}:{first.attempt}:{first.taken_at_ms}{noted}"
    start = first.start
    return [signed(_DOMAIN, f"{before}:{offset - start}:{offset}:{after}".encode(), key) for offset in offsets]


def read(text: str, *keys: bytes) -> Receipt | None:
    """The receipt, or None if this service did not sign exactly this text."""
    content = checked(_DOMAIN, text, *keys)
    if content is None:
        return None
    is_noted = content.startswith(_NOTED.encode())
    shared, *numbers = content.rsplit(b":", 5 + is_noted)
    lease = _lease(shared)
    return lease and Receipt(*lease, *map(int, numbers))


@lru_cache(_LEASES_KEPT_MAX)
def _lease(shared: bytes) -> tuple[str, str, str, int, int, str] | None:
    """The common beginning of a lease's receipts."""
    version, *told = shared.decode().split(":")
    if version not in (_VERSION, _NOTED):
        return None
    topic_id, group_id, consumer, queue, epoch, token = told
    return topic_id, group_id, consumer, int(queue), int(epoch), token


class Receipts:
    """Signs and reads receipts."""

    def __init__(self, signing_key: SigningKey) -> None:
        self._key = signing_key

    def sign(self, made: Receipt) -> str:
        return sign(made, self._key.of(made.topic_id))

    def sign_each(self, first: Receipt, offsets: Iterable[int]) -> list[str]:
        """The receipts of these messages of the same lease."""
        return sign_each(first, offsets, self._key.of(first.topic_id))

    def demand_key(self, topic_id: str) -> None:
        """Raises StoreUnavailable if the keys are stored outside the table and cannot be read."""
        if self._key.is_kept_elsewhere:
            self._key.of(topic_id)

    def read(self, text: str, topic_id: str) -> Receipt | None:
        """The receipt, or None if this service did not sign it for this topic."""
        return self.read_each([text], topic_id)[0]

    def read_each(self, texts: Sequence[str], topic_id: str) -> list[Receipt | None]:
        """The same for each of these texts."""
        accepted = self._key.accepted(topic_id)
        receipts = [read(text, *accepted) for text in texts]
        return [receipt if receipt and receipt.topic_id == topic_id else None for receipt in receipts]
