"""Transactions: messages that are stored and invisible until their sender commits or rolls back.

While it is undecided, a transaction is one item, with all its messages. One write decides it: it removes this item,
creates a record of the decision and, for a commit, stores each message as a delayed one that is due now. So there is
one decision, for all messages or for none. `docs/table.md` lists the attributes."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, ClassVar

from chalicelib.core.base import limits
from chalicelib.core.base.fields import array, integer, optional, request, required
from chalicelib.core.base.message import ENTRY_ID_BYTES
from chalicelib.core.base.records import record
from chalicelib.core.catalogue.topic import Topic
from chalicelib.core.delays.decision import Slot
from chalicelib.core.log.segment import Entry
from chalicelib.core.producing.new_message import HalfMessage, unchecked
from chalicelib.core.table import keys
from chalicelib.core.table.writes import Absent, Add, Equals, Exists, Item, Key, RemoveItem, Set, Write, sets

_WHILE_UNDECIDED = (1, limits.ROLLBACK_AFTER_MS_MAX)


@request
class Begin:
    """The messages to hold back.

    messages: All are delivered, or none. Their bodies have at most {BODY_BYTES_MAX} bytes in total. As JSON, with
        quotes and backslashes counted twice, the messages have at most {MESSAGE_JSON_BYTES_MAX} bytes, the most that a
        check can return.
    check_after_ms: How long the transaction can stay undecided before a check returns it, in milliseconds. A check
        returns it again each time this period has passed.
    rollback_after_ms: How long the transaction can stay undecided before the service rolls it back, in milliseconds."""

    NAME: ClassVar = "TransactionRequest"

    messages: list[Any] = required(array(HalfMessage, minItems=1, maxItems=limits.HALF_MESSAGES_MAX), unchecked)
    check_after_ms: int = optional(integer(*_WHILE_UNDECIDED, default=limits.CHECK_AFTER_MS_DEFAULT))
    rollback_after_ms: int = optional(integer(*_WHILE_UNDECIDED, default=limits.ROLLBACK_AFTER_MS_DEFAULT))


@request
class Check:
    """How many transactions to take.

    max: How many transactions to take, at most.
    wait_ms: How long to wait for one, in milliseconds."""

    NAME: ClassVar = "CheckRequest"

    max: int = optional(integer(1, limits.CHECKED_MAX, default=limits.CHECKED_DEFAULT))
    wait_ms: int = optional(integer(most=limits.WAIT_MS_MAX, default=0, examples=[20000]))


INLINE_BYTES_MAX = 800
"""The largest entry that the item of a transaction holds: with its keys and times it then fits a kilobyte."""

COMMITTED, ROLLED_BACK = "committed", "rolled_back"

_ANY_QUEUE = -1
_PLACE_BYTES = 1 + ENTRY_ID_BYTES


@record
class TransactionId:
    """Names the item of a transaction. Clients get it as text."""

    begun_at_ms: int
    entry_id: bytes

    @classmethod
    def parse(cls, text: str) -> TransactionId | None:
        """None if the service makes no such ids."""
        matched = re.fullmatch("([0-9a-f]{16})b([1-9a-f][0-9a-f]{0,11})", text)
        return cls(int(matched[2], 16), bytes.fromhex(matched[1])) if matched else None

    def __str__(self) -> str:
        return f"{self.entry_id.hex()}b{self.begun_at_ms:x}"

    def key(self, topic_id: str) -> Key:
        return keys.transaction(topic_id, self.begun_at_ms, self.entry_id)

    def decided_key(self, topic_id: str) -> Key:
        return keys.decided(topic_id, self.begun_at_ms, self.entry_id)


@record
class Undecided:
    """A transaction before its decision. `entry`: its messages. `asked`: the queue that each message asks for, if any.
    `check_at_ms`: when the next check may take it. `checks`: how many checks have."""

    entry: Entry
    asked: tuple[int | None, ...]
    check_after_ms: int
    rollback_at_ms: int
    check_at_ms: int
    checks: int = 0

    @classmethod
    def of(cls, item: Item) -> Undecided:
        entry = Entry.of(item["entry"])
        queues = item.get("q") or [_ANY_QUEUE] * entry.count
        asked = tuple(None if queue == _ANY_QUEUE else queue for queue in queues)
        return cls(entry, asked, item["after"], item["until"], item["check"], item["checks"])

    @property
    def id(self) -> TransactionId:
        return TransactionId(self.entry.stored_at_ms, self.entry.id)

    def is_open(self, now: int) -> bool:
        """Whether it can still be committed."""
        return now < self.rollback_at_ms

    def stored(self, entry: Entry) -> Undecided:
        """The same with its messages as stored."""
        return replace(self, entry=entry)

    def begin(self, topic: Topic) -> Write:
        """Its key is new, so an existing item is this transaction. Send it with a token, so that the store recognizes a
        repeat: a late repeat of a plain write would restore a decided transaction."""
        times = {"after": self.check_after_ms, "until": self.rollback_at_ms, "check": self.check_at_ms}
        queues = [_ANY_QUEUE if queue is None else queue for queue in self.asked]
        asked = {"q": queues} if any(queue is not None for queue in self.asked) else {}
        about = {**times, **asked, "checks": self.checks, "ttl": topic.ttl(self.rollback_at_ms)}
        return Write(
            self.id.key(topic.id), (Absent(("entry",)),), (Set(("entry",), self.entry.as_value()), *sets(about))
        )

    def check(self, topic_id: str, now: int, by: bytes) -> Write:
        """Takes the transaction for one caller, until the next check is due. `by` identifies this check, since others
        may have the same clock."""
        return Write(
            self.id.key(topic_id),
            (Equals(("checks",), self.checks),),
            (Set(("check",), now + self.check_after_ms), Add(("checks",), 1), Set(("by",), by)),
            landed=lambda before: before.get("by") == by,
        )

    def remove(self, topic_id: str) -> Write:
        return Write(self.id.key(topic_id), (Exists(("entry",)),), (RemoveItem(),))


@record
class Decided:
    """A decision and its time. `places`: of a commit, the queue and entry id of each message, in order; all are due at
    `at_ms`."""

    state: str
    at_ms: int
    places: tuple[tuple[int, bytes], ...] = ()

    @classmethod
    def of(cls, item: Item) -> Decided:
        packed = item.get("m", b"")
        ends = range(_PLACE_BYTES, len(packed) + 1, _PLACE_BYTES)
        places = tuple((packed[end - _PLACE_BYTES], packed[end - ENTRY_ID_BYTES : end]) for end in ends)
        return cls(item["state"], item["at"], places)

    def slots(self) -> list[tuple[int, Slot]]:
        """The queue of each message, and its place among the delayed messages there."""
        return [(queue, Slot(self.at_ms, entry_id)) for queue, entry_id in self.places]

    def record(self, topic: Topic, transaction_id: TransactionId) -> Write:
        """Send it in the transaction that removes the item."""
        packed = b"".join(bytes([queue]) + entry_id for queue, entry_id in self.places)
        about = {"state": self.state, "at": self.at_ms, "ttl": topic.ttl(self.at_ms), "m": packed}
        return Write(transaction_id.decided_key(topic.id), (Absent(("state",)),), sets(about))
