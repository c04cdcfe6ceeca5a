"""The cursor of a group in a queue: its position and its leases. `docs/table.md` lists the attributes.

Taking messages needs no compare-and-swap: each claim takes `count` messages from the current `next`, unless that would
pass the end of the log that the claimer has read.

A group's settings and cursors are in pages of 16 queues each, with a partition key of their own. A page is empty until
the first claim in its queues."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, ValuesView
from dataclasses import field, replace
from enum import Enum
from functools import cached_property
from itertools import islice
from operator import attrgetter
from typing import Any, NamedTuple

from chalicelib.core.base.records import record
from chalicelib.core.catalogue.group import Group
from chalicelib.core.catalogue.topic import Topic
from chalicelib.core.cursors.lease import PARKED, SET_ASIDE_UNTIL_MS, Lease
from chalicelib.core.store import Keys, Range, Store
from chalicelib.core.table import keys
from chalicelib.core.table.writes import Item, Key, Path, key_of


def pages_of(topic: Topic, name: str, strong: bool = False) -> list[Range]:
    """The reads of all pages of a group, including those of queues that have left the topic."""
    partitions = keys.group_partitions(topic.id, name, topic.most)
    return [Range(partition, keys.FIRST, keys.LAST, strong=strong) for partition in partitions]


def joined(pages: Sequence[Sequence[Range]], answers: Iterable[Sequence[Item]]) -> list[list[Item]]:
    """The items of each group. `answers`: the results of their reads, in order."""
    left = iter(answers)
    return [[item for items in islice(left, len(own)) for item in items] for own in pages]


LEASES_FEW = 64
"""A cursor with at most this many leases needs no removal and no retry page: `INERT_MAX` and twice `PARKED_MAX` are at
least this."""


class ReceiptState(Enum):
    OWED = "owed"
    ACKED = "acked"
    LOST = "lost"


@record
class RetryPage:
    """`due`: due time of its first message. `count`: number of messages. `low`: the lowest offset."""

    id: str
    due: int
    count: int
    low: int

    @classmethod
    def of(cls, page_id: str, noted: list[int]) -> RetryPage:
        return cls(page_id, *noted)

    @classmethod
    def holding(cls, page_id: str, leases: Iterable[Lease]) -> RetryPage:
        held = list(leases)
        due = min(lease.deadline for lease in held)
        return cls(page_id, due, sum(lease.count for lease in held), min(lease.start for lease in held))

    def noted(self) -> list[int]:
        return [self.due, self.count, self.low]

    @property
    def path(self) -> Path:
        return ("pages", self.id)

    def key(self, cursor: Key) -> Key:
        return keys.retry_page(cursor, self.due, self.id)


class _Sorted(NamedTuple):
    """The leases of a cursor. `owing`: those that owe messages, in offset order. `soonest`: the one of them that ends
    first. `inert`: the others. `leased`, `parked`, `aside`: how many messages are leased, wait for a retry, or are set
    aside."""

    owing: list[Lease]
    inert: list[Lease]
    soonest: Lease | None
    leased: int
    parked: int
    aside: int


_NO_LEASES = _Sorted([], [], None, 0, 0, 0)


class Decoded(Mapping[str, Lease]):
    """The leases of an item by token, each decoded on access: an ack needs one of thousands."""

    def __init__(self, listed: Mapping[str, list[Any]]) -> None:
        self._listed = listed

    def __getitem__(self, token: str) -> Lease:
        return Lease.of(token, *self._listed[token])

    def __contains__(self, token: object) -> bool:
        return token in self._listed

    def __iter__(self) -> Iterator[str]:
        return iter(self._listed)

    def __len__(self) -> int:
        return len(self._listed)

    def values(self) -> ValuesView[Lease]:
        """Without the call per lease that `Mapping` makes."""
        return {token: Lease.of(token, *listed) for token, listed in self._listed.items()}.values()


@record
class Cursor:
    key: Key
    epoch: int
    next: int
    leases: Mapping[str, Lease]
    segment: int | None = None
    last_pop_at_ms: int | None = None
    last_consumer_id: str | None = None
    dead: int = 0
    claims: int = 0
    pages: Mapping[str, RetryPage] = field(default_factory=dict)
    has_pages: bool = False
    """Whether the map exists; it then stays until a reset."""
    last_zone: tuple[str, int] | None = None
    """The zone of the last claim that named one, and when it was."""
    purged_at_ms: int | None = None
    """Messages that were sent by then and waited are not delivered."""
    returns: int = 0
    """Counts the transactions that brought dead messages back: those of redrives and of move tasks."""
    exists: bool = True
    """False: the item does not exist, since no pop has created it."""

    @classmethod
    def of(cls, item: Item) -> Cursor:
        return cls(
            key_of(item),
            item["epoch"],
            item["next"][0],
            Decoded(item["leases"]) if item["leases"] else {},
            item.get("segment"),
            item.get("at"),
            item.get("by") or None,
            item["dead"],
            item["claims"],
            {page_id: RetryPage.of(page_id, noted) for page_id, noted in item.get("pages", {}).items()},
            "pages" in item,
            (item["zone"][0], item["zone"][1]) if "zone" in item else None,
            item.get("purged"),
            item.get("returns", 0),
        )

    @classmethod
    def or_none(cls, item: Item | None) -> Cursor | None:
        return cls.of(item) if item else None

    @classmethod
    def fresh(cls, key: Key, start: int, purged_at_ms: int | None = None) -> Cursor:
        return cls(key, 0, start, {}, purged_at_ms=purged_at_ms, exists=False)

    def as_created(self, epoch: int, at_ms: int | None, consumer_id: str | None) -> Cursor:
        """The same cursor, ready to be created for a consumer of a broadcast group."""
        noted = replace(self, epoch=epoch, last_pop_at_ms=at_ms, last_consumer_id=consumer_id)
        return self if self.exists else noted

    @cached_property
    def consumer(self) -> str:
        """The hash of its consumer in a broadcast group; empty otherwise."""
        return keys.consumer_of(self.key)

    @cached_property
    def queue(self) -> int:
        return keys.queue_of(self.key)

    @cached_property
    def _sorted(self) -> _Sorted:
        """Sorts them in one pass, without a call per lease, since a cursor may have thousands and a pop needs all of
        them. Most have no marks, so they owe all their messages."""
        if not self.leases:
            return _NO_LEASES
        leases = self.leases.values()
        owing = [lease for lease in leases if not lease.marks or lease.owed]
        inert = [lease for lease in leases if lease.marks and not lease.owed]
        leased = parked = aside = 0
        for lease in owing:
            owed = len(lease.owed) if lease.marks else lease.count
            if lease.deadline == SET_ASIDE_UNTIL_MS:
                aside += owed
            elif lease.token[0] == PARKED:
                parked += owed
            else:
                leased += owed
        owing.sort(key=attrgetter("start"))
        soonest = min(owing, key=attrgetter("deadline"), default=None)
        return _Sorted(owing, inert, soonest, leased, parked, aside)

    @property
    def owing(self) -> list[Lease]:
        """The leases that owe messages, in offset order."""
        return self._sorted.owing

    @property
    def inert(self) -> list[Lease]:
        """The leases that no longer owe anything."""
        return self._sorted.inert

    def due(self, now: int) -> list[Lease]:
        soonest = self._sorted.soonest
        if soonest is None or not soonest.is_due(now):
            return []
        return [lease for lease in self.owing if lease.is_due(now)]

    def needs_tending(self, now: int, max_attempts: int) -> bool:
        """Whether a claim may have to write something else first: a message has used up its attempts, a retry page is
        due, or there are many leases."""
        if not (self.leases or self.pages):
            return False
        if len(self.leases) > LEASES_FEW or any(page.due <= now for page in self.pages.values()):
            return True
        return any(lease.attempt >= max_attempts for lease in self.due(now))

    def held(self, token: str, now: int) -> list[Lease]:
        """The live leases that the pop of this token made, and those split off them."""
        return [lease for lease in self.owing if lease.token.startswith(token) and lease.deadline > now]

    def live(self, now: int) -> int:
        """The number of messages leased by consumers."""
        leased = self._sorted.leased
        return leased and leased - sum(len(lease.owed) for lease in self.due(now) if not lease.parked)

    def retrying(self, now: int) -> int:
        """The number of messages waiting for their retry, including all in pages, some of which may be due."""
        waiting = self._sorted.parked
        if waiting:
            waiting -= sum(len(lease.owed) for lease in self.due(now) if lease.parked)
        return waiting + sum(page.count for page in self.pages.values()) if self.pages else waiting

    @property
    def aside(self) -> int:
        """The number of messages set aside: skipped, and not delivered yet."""
        return self._sorted.aside

    def committed(self, ordered: bool) -> int:
        """The lowest unsettled offset. Unless `ordered`, messages that wait for a retry after a nack do not hold it
        back."""
        owing = (lease for lease in self.owing if ordered or not lease.parked)
        return min([self.next, *(lease.owed_offsets[0] for lease in owing)])

    def state_of(self, token: str, start: int, offset: int) -> ReceiptState:
        """The standing of a receipt for this offset, from the lease of this token that began at `start`. It is acked
        only if no page owes the message and it is not dead."""
        lease = self.leases.get(token)
        if lease is None or lease.start != start:
            return ReceiptState.ACKED if self.is_settled(offset) else ReceiptState.LOST
        index = offset - lease.start
        if index in lease.acked:
            return ReceiptState.ACKED
        return ReceiptState.LOST if index in lease.moved else ReceiptState.OWED

    def is_settled(self, offset: int) -> bool:
        """Whether no lease owes the message, which was taken. A page may owe it, or it is dead."""
        return self.owing_lease(offset) is None

    def owing_lease(self, offset: int) -> Lease | None:
        return next((lease for lease in self.owing if lease.owes(offset)), None)


def completed(group: Group, queues: Iterable[int], own: Iterable[Cursor], consumer: str = "") -> list[Cursor]:
    """One cursor for each of these queues, of one consumer: the existing ones, and new ones at the start."""
    standing = {cursor.queue: cursor for cursor in own}
    return [
        standing.get(queue)
        or Cursor.fresh(group.cursor_key(queue, consumer), group.start_of(queue), group.purged_at_ms)
        for queue in queues
    ]


def cursors_of(group: Group, topic: Topic, items: Iterable[Item], consumer: str = "") -> list[Cursor]:
    """The cursors of all queues, in a broadcast group those of one consumer; unused ones are at the group's start.
    `items`: of the group's partition, with the cursors of no other consumer."""
    return completed(group, range(topic.readers), standing_cursors_of(group, items), consumer)


def all_cursors_of(group: Group, topic: Topic, items: Iterable[Item]) -> list[Cursor]:
    """One for each queue; in a broadcast group those of all existing consumers."""
    return standing_cursors_of(group, items) if group.is_broadcast else cursors_of(group, topic, items)


def standing_cursors_of(group: Group, items: Iterable[Item]) -> list[Cursor]:
    """The cursors that exist, of any queue."""
    first, _ = keys.around_cursors(group.id)
    return [Cursor.of(item) for item in items if item["sk"].startswith(first)]


def read_again(store: Store, wanted: Sequence[Key]) -> list[Cursor | None]:
    """These cursors as they are now, or None for each missing one."""
    answers = store.read([Keys([key], strong=True) for key in wanted]) if wanted else []
    return [Cursor.or_none(items[0] if items else None) for items in answers]
