"""A group as one look shows it: its settings, cursors of its queues, and the logs of some of them from there on."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import field

from chalicelib.core.base.errors import GroupNotFound, StoreUnavailable
from chalicelib.core.base.limits import SECOND_MS, TAKE_OVER_AFTER_MS, TAKEN_OVER_MS
from chalicelib.core.base.records import mutable
from chalicelib.core.base.response_size import Space
from chalicelib.core.catalogue.filters import Steps
from chalicelib.core.catalogue.group import Group
from chalicelib.core.catalogue.topic import Topic
from chalicelib.core.consuming.receipt_batch import ReceiptBatch, assume
from chalicelib.core.consuming.request import Pop
from chalicelib.core.cursors.cursor import Cursor
from chalicelib.core.log.reader import Want, entries, stored_at
from chalicelib.core.log.segment import Entry, Segment
from chalicelib.core.table.writes import Item

FILTERING_MS = SECOND_MS
"""How long a pop sifts messages at each of its looks, with the reads that this takes."""
FILTERING_STEPS = 1 << 17
"""Steps of a filter that a pop takes at each of its looks, over all queues: a tenth of a second. The message at which
they are used up is judged to the end, by its own limit; those behind it are left to the next look."""


@mutable
class QueueView:
    """One queue as one pop sees it. `cursor`: as the last request returned it. `chain`: the segments from the cursor's
    `next` on, as requested. `filter_until_ms`: until when (`Runtime.uptime`) the pop skips messages one by one.
    `at_ms`: when it was read; what the group takes only later is not there for it.
    `riding`: acks that a claim carries. `space`: left in the response. `delivered`: the offsets that are in it.
    `is_moved`: whether a reset has come since the log was read. `steps`: of the filter, at this look at all queues.
    `verdicts`: what the filter's expression has said at this look, by offset."""

    topic: Topic
    group: Group
    queue: int
    ask: Pop
    cursor: Cursor
    chain: list[Segment]
    filter_until_ms: int
    at_ms: int
    riding: ReceiptBatch | None = None
    space: Space = field(default_factory=Space)
    delivered: set[int] = field(default_factory=set)
    is_moved: bool = False
    steps: Steps = field(default_factory=Steps)
    verdicts: dict[int, bool] = field(default_factory=dict)
    is_read: bool = False
    """Whether its log was read. Without, the cursor alone shows what is due."""
    waits_until_ms: int | None = None
    """When its first delayed message is due; None: there is none, or the look was not at this queue."""
    trouble: StoreUnavailable | None = None
    """Why the pop leaves it: its log could not be read, or a claim or promotion there failed."""

    @property
    def end(self) -> int:
        """The end of the log as read, or of what the group's `delay_ms` lets it take."""
        return max(self.cursor.next, self._unripe()[0])

    @property
    def ripe_at_ms(self) -> int:
        """When the first message is to be taken that the group's `delay_ms` holds back. 0: none is known."""
        return self._unripe()[1]

    def is_ripe(self, stored_at_ms: int) -> bool:
        """Whether the group's `delay_ms` is over for what was stored then."""
        return stored_at_ms + self.group.delay_ms <= self.at_ms

    def _unripe(self) -> tuple[int, int]:
        """The first offset that is not to be taken yet, and when it is; without one, the end of the chain and 0."""
        if self.group.delay_ms:
            for first, entry in entries(self.chain):
                if first + entry.count > self.cursor.next and not self.is_ripe(entry.stored_at_ms):
                    return first, entry.stored_at_ms + self.group.delay_ms
        return self.chain[-1].end if self.chain else 0, 0

    def want(self, count: int) -> Want:
        return want(self.topic, self.queue, self.cursor, count)

    def learn(self, cursor: Cursor | None) -> None:
        """Records the cursor as a request returned it. Raises GroupNotFound if there is none any more."""
        if cursor is None:
            raise GroupNotFound(f"topic '{self.topic.name}' has no group '{self.group.name}' any more")
        self.is_moved = self.is_moved or cursor.epoch != self.cursor.epoch
        self.cursor = cursor
        if self.riding:
            self.riding.cursor = cursor

    def carry(self, acks: ReceiptBatch) -> None:
        """Lets a claim carry these acks. Until it is refused, their leases are taken to be as the receipts say."""
        self.riding = acks
        acks.settle_by = self.group.settle_by
        self.learn(assume(self.cursor, acks.receipts))

    def waiting_since(self, now: int) -> int | None:
        """Since when the first ready message is ready, or None without one."""
        since = [lease.deadline for lease in self.cursor.due(now)]
        since += [page.due for page in self.cursor.pages.values() if page.due <= now]
        if self.end > self.cursor.next:
            since.append(stored_at(self.chain, self.cursor.next) + self.group.delay_ms)
        return min(since, default=None)

    def takeable_since(self, now: int) -> int | None:
        """The same, but None as long as the queue is left to consumers of another zone."""
        return None if self.left_until_ms(now) > now else self.waiting_since(now)

    @property
    def zone(self) -> str | None:
        """The consumer's. None: to this group all queues are alike."""
        return None if self.group.is_broadcast else self.ask.zone

    def left_until_ms(self, now: int) -> int:
        """Until when ready messages are left to consumers of the queue's zone; 0: they are not. It is a preference:
        what keeps two claims apart is the cursor."""
        zone = None if self.zone is None else self.topic.known_zones.zone_of(self.queue)
        if zone in (None, self.zone):
            return 0
        popped_in, popped_at_ms = self.cursor.last_zone or (zone, 0)
        if popped_in != zone and now - popped_at_ms < TAKEN_OVER_MS:
            return 0
        return max(self.waiting_since(now) or 0, popped_at_ms) + TAKE_OVER_AFTER_MS

    def would_create(self, now: int) -> bool:
        """Whether a claim would make the cursor."""
        return not self.cursor.stands and self.waiting_since(now) is not None

    def instants_after(self, at_ms: int) -> list[int]:
        """When something more may be ready, as far as is known."""
        instants = [] if self.waits_until_ms is None else [self.waits_until_ms]
        instants += [lease.deadline for lease in self.cursor.owing]
        instants += [page.due for page in self.cursor.pages.values()]
        instants += [self.left_until_ms(at_ms), self.ripe_at_ms]
        return [ms for ms in instants if ms > at_ms]

    @property
    def begins_behind(self) -> bool:
        """Whether the log as read begins after the cursor's next message."""
        return bool(self.chain) and self.chain[0].base > self.cursor.next

    @property
    def is_outrun(self) -> bool:
        """Whether others have taken all that was read of the log, which goes on behind that."""
        return bool(self.chain) and self.chain[-1].is_sealed and self.chain[-1].end <= self.cursor.next

    def is_plain(self, now: int) -> bool:
        """Whether the group gets all messages ahead of the cursor."""
        return not self.is_past_retention(now) and not any(self.is_doubtful(entry, now) for entry in self._ahead())

    def is_doubtful(self, entry: Entry, now: int) -> bool:
        """Whether the group may not get all messages of an entry, apart from the retention of the topic."""
        is_filtered = self.group.filter is not None
        return is_filtered or entry.may_have_expired(now) or entry.may_be_purged(self.cursor.purged_at_ms)

    @property
    def has_purged(self) -> bool:
        """Whether messages ahead of the cursor may have been sent before the group was purged."""
        return any(entry.may_be_purged(self.cursor.purged_at_ms) for entry in self._ahead())

    def is_past_retention(self, now: int) -> bool:
        """Whether messages ahead of the cursor have expired by the retention of the topic, or are removed: then what
        lies before them has expired too."""
        expired_ms = self.topic.expired_ms(now)
        return self.begins_behind or any(entry.stored_at_ms <= expired_ms for entry in self._ahead())

    def _ahead(self) -> Iterator[Entry]:
        return (entry for first, entry in entries(self.chain) if first + entry.count > self.cursor.next)

    @property
    def is_sifted(self) -> bool:
        """Whether messages ahead are judged one by one: by a filter, their own time to live, or a purge."""
        is_mortal = any(entry.least_ttl_ms is not None for _, entry in entries(self.chain))
        return self.group.filter is not None or is_mortal or self.has_purged

    @property
    def takes_steps(self) -> bool:
        """Whether messages ahead are judged by an expression."""
        return self.group.filter is not None and self.group.filter.takes_steps

    def is_over(self, uptime_ms: int) -> bool:
        """Whether this look has sifted for as long as it may."""
        return uptime_ms > self.filter_until_ms or self.steps.taken >= FILTERING_STEPS

    def has_sifted_enough(self, uptime_ms: int) -> bool:
        return self.is_over(uptime_ms) and self.is_sifted


@mutable
class GroupView:
    """A group as read by one look of a pop. `queues`: those whose cursor was read, which are at least those of the
    pages that it looked into. `window`: the messages the group has taken of its rate, or None before the first.
    `at_ms`: when the look began."""

    topic: Topic
    group: Group
    ask: Pop
    queues: dict[int, QueueView]
    window: Item | None
    at_ms: int

    @property
    def is_alone(self) -> bool:
        """Whether there is no other queue to take from if one fails."""
        return len(self.queues) == 1

    def due(self, besides: Collection[int] = ()) -> list[int]:
        """The queues with due delayed messages, the earliest first."""
        waits = ((view.waits_until_ms, queue) for queue, view in self.queues.items())
        due = sorted((ms, queue) for ms, queue in waits if ms is not None and ms <= self.at_ms)
        return [queue for _, queue in due if queue not in besides]

    def is_held(self, now: int) -> bool:
        """Whether messages are ready; a pop that takes none of them is held back."""
        return any(view.cursor.aside or view.waiting_since(now) is not None for view in self.queues.values())

    def ready_at(self) -> dict[int, int]:
        """When a pop can take the next known message of a queue: a delayed one, a retry, one whose lease expires, or
        one that the group's `delay_ms` holds back, or that is left to another zone, until then."""
        later = ((queue, min(view.instants_after(self.at_ms), default=None)) for queue, view in self.queues.items())
        return {queue: ms for queue, ms in later if ms is not None}

    def next_ready_at_ms(self) -> int | None:
        """The same of all queues."""
        return min(self.ready_at().values(), default=None)


def want(topic: Topic, queue: int, cursor: Cursor, count: int) -> Want:
    hint = 0 if cursor.next == 0 else cursor.segment
    return Want(topic.logs[queue], cursor.next, count, hint, topic.created_at_ms)
