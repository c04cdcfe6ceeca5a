"""Moves messages that used up their attempts to the dead letters of their group, or to its topic for dead messages.

Dead letters: messages that a group gave up. The message itself stays in the log.

The cursor counts the letters of its queue. Every transaction that writes or removes letters also changes that count. To
keep it right, it demands of each letter that there was none, that there was one, or that it is the one that was read.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from chalicelib.core.base.fields import Answer, instant, integer, required, string
from chalicelib.core.base.limits import REASON_CHARS_MAX, TAKEOVERS_MAX
from chalicelib.core.base.records import record
from chalicelib.core.catalogue.catalogue import Env
from chalicelib.core.catalogue.group import Group
from chalicelib.core.cursors.cursor import Cursor, read_again
from chalicelib.core.cursors.cursor_writes import bury, write
from chalicelib.core.cursors.lease import Lease
from chalicelib.core.dead_letters.move import Mover
from chalicelib.core.store import Keys
from chalicelib.core.table import keys
from chalicelib.core.table.writes import Absent, Equals, Exists, Item, Key, Refused, RemoveItem, Set, Write, key_of

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


DEAD_TOGETHER_MAX = 50
"""Messages that go to the dead letters in one transaction, which takes 100 items."""

_EXPIRED = "the lease expired"
"""The reason of a message whose last lease expired."""


class Burial:
    def __init__(self, env: Env, mover: Mover) -> None:
        self._store, self._runtime, self._mover = env.store, env.runtime, mover

    def can_bury(self, group: Group) -> bool:
        """False: the topic for the group's dead messages does not exist, so the group delivers them again."""
        return group.dead_topic is None or self._mover.target(group) is not None

    def bury_exhausted(
        self, group: Group, cursor: Cursor, now: int, skip: Collection[str] = ()
    ) -> tuple[Cursor | None, int]:
        """Buries messages whose last attempt expired, except those of the leases to `skip`. Returns the cursor after
        that (None: there is none), and the number of buried messages."""
        count = 0
        while True:
            due = cursor.due(now)
            exhausted = [lease for lease in due if lease.attempt >= group.max_attempts and lease.token not in skip]
            if not exhausted or not self.can_bury(group):
                return cursor, count
            after, buried = self.bury(group, cursor, [(lease, lease.owed) for lease in exhausted], _EXPIRED)
            count += sum(len(indexes) for _, indexes in buried)
            if after is None:
                return None, count
            cursor = after

    def bury(
        self, group: Group, cursor: Cursor, exhausted: Sequence[tuple[Lease, Sequence[int]]], reason: str
    ) -> tuple[Cursor | None, list[tuple[Lease, list[int]]]]:
        """Buries these messages of these leases, as many as one transaction holds, so that none is ever both dead and
        alive. Returns the cursor after that (None: there is none), and the buried messages (none: a lease or `can_bury`
        had changed)."""
        chosen = together(exhausted)
        if group.dead_topic is None:
            chosen = self._with_letters(group, cursor, chosen, reason)
        else:
            chosen = self._mover.move(group, cursor, chosen, reason)
        return read_again(self._store, [cursor.key])[0], chosen

    def _with_letters(
        self, group: Group, cursor: Cursor, chosen: list[tuple[Lease, list[int]]], reason: str
    ) -> list[tuple[Lease, list[int]]]:
        now = self._runtime.now()
        letters = [
            DeadLetter.new(group, cursor, lease.start + index, lease.attempt, reason, now)
            for lease, indexes in chosen
            for index in indexes
        ]
        there = self._there(cursor, letters)
        puts = [put(letter, letter.key in there) for letter in letters]
        try:
            self._store.write_together([write(cursor, bury(chosen, len(letters) - len(there))), *puts])
        except Refused:
            return []
        return chosen

    def _there(self, cursor: Cursor, letters: Sequence[DeadLetter]) -> set[Key]:
        """The places that already have a letter. Before the first reset there is none: a lease owes a message until it
        dies, and a redrive removes the letter."""
        if cursor.epoch == 0:
            return set()
        items = self._store.read([Keys([letter.key for letter in letters], strong=True)])[0]
        return {key_of(item) for item in items}


def together(exhausted: Sequence[tuple[Lease, Sequence[int]]]) -> list[tuple[Lease, list[int]]]:
    """As many messages and leases as one transaction can name; each message once, even if a stale cursor shows two
    leases for it."""
    chosen: list[tuple[Lease, list[int]]] = []
    named: set[int] = set()
    for lease, indexes in exhausted[:TAKEOVERS_MAX]:
        new = [index for index in indexes if lease.start + index not in named][: DEAD_TOGETHER_MAX - len(named)]
        if new:
            chosen.append((lease, new))
            named |= {lease.start + index for index in new}
    return chosen
