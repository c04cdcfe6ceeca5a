"""Dead letters: messages that a group gave up. The message itself stays in the log.

The cursor counts the letters of its queue. Every transaction that writes or removes letters also changes that count. To
keep it right, it demands of each letter that there was none, that there was one, or that it is the one that was read.
"""

from __future__ import annotations

from chalicelib.core.base.fields import Answer, required
from chalicelib.core.base.limits import REASON_CHARS_MAX
from chalicelib.core.base.records import record
from chalicelib.core.base.schema import instant, integer, string
from chalicelib.core.catalogue.group import Group
from chalicelib.core.cursors.cursor import Cursor
from chalicelib.core.table import keys
from chalicelib.core.table.writes import Absent, Equals, Exists, Item, Key, RemoveItem, Set, Write, key_of

_ATTRIBUTES = ("epoch", "attempts", "reason", "dead_at_ms")


@record
class DeadLetter(Answer):
    """`consumer`: in a broadcast group, the hash of the consumer that gave the message up, else empty. `epoch`: the
    cursor's epoch at that time. A message becomes a dead letter once in an epoch, unless it is redriven.

    attempts: How often the message was delivered since the last redrive. 0: a receipt from before the redrive buried
        it.
    reason: The reason of the last nack or the bury, or that the lease expired or the message was lost.
    dead_at_ms: When the message became a dead letter."""

    key: Key
    queue: int
    offset: int
    consumer: str
    epoch: int
    attempts: int = required(integer(examples=[5]))
    reason: str = required(string(REASON_CHARS_MAX, minLength=0, examples=["no such customer"]))
    dead_at_ms: int = required(instant())

    @classmethod
    def of(cls, item: Item) -> DeadLetter:
        key = key_of(item)
        return cls(key, *keys.place_of_dead(key), *(item[name] for name in _ATTRIBUTES))

    @classmethod
    def new(cls, group: Group, cursor: Cursor, offset: int, attempts: int, reason: str, now: int) -> DeadLetter:
        key = keys.dead(group.topic_id, group.id, cursor.queue, offset, cursor.consumer)
        return cls(key, cursor.queue, offset, cursor.consumer, cursor.epoch, attempts, reason, now)

    @property
    def place(self) -> tuple[int, int]:
        return self.queue, self.offset


@record
class RedriveResult(Answer):
    """The outcome of a redrive.

    redriven: How many messages left the dead letters.
    remaining: How many dead letters the group still has."""

    redriven: int = required(integer(examples=[1]))
    remaining: int = required(integer())


def put(letter: DeadLetter, is_another: bool) -> Write:
    """`is_another`: the message has a letter from before a reset, which this one replaces."""
    guard = Exists(("epoch",)) if is_another else Absent(("epoch",))
    names = (*_ATTRIBUTES, "consumer") if letter.consumer else _ATTRIBUTES
    return Write(letter.key, (guard,), tuple(Set((name,), getattr(letter, name)) for name in names))


def remove(letter: DeadLetter) -> Write:
    """Removes the letter that was read, not one written since."""
    guards = (Equals(("epoch",), letter.epoch), Equals(("dead_at_ms",), letter.dead_at_ms))
    return Write(letter.key, guards, (RemoveItem(),))
