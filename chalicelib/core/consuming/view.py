"""A group as one look shows it: its settings, cursors of its queues, and the logs of some of them from there on."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import field

from chalicelib.core.base.errors import GroupNotFound, StoreUnavailable
from chalicelib.core.base.limits import SECOND_MS, TAKE_OVER_AFTER_MS, TAKEN_OVER_MS
from chalicelib.core.base.message import Space
from chalicelib.core.base.records import mutable, record
from chalicelib.core.catalogue.group import Group
from chalicelib.core.catalogue.group_forms import Steps
from chalicelib.core.catalogue.topic import Topic
from chalicelib.core.consuming.receipt_batch import ReceiptBatch, assume
from chalicelib.core.consuming.request import Pop
from chalicelib.core.cursors.cursor import Cursor
from chalicelib.core.log.reader import Want, entries
from chalicelib.core.log.segment import Entry, Segment
from chalicelib.core.table.writes import Item

FILTERING_MS = SECOND_MS
"""How long a pop sifts messages at each of its looks, with the reads that this takes."""
FILTERING_STEPS = 1 << 17
"""Steps of a filter that a pop takes at each of its looks, over all queues: a tenth of a second. The message at which
they are used up is judged to the end, by its own limit; those behind it are left to the next look."""


@record
class Ahead:
    """The log as read, seen from the cursor's `next` on. `end`: its end, or that of what the group's `delay_ms` lets it
    take, and not before `next`. `ripe_at_ms`: when the first message is to be taken that `delay_ms` holds back; 0: none
    is known. `first_at_ms`: when the next message was stored, `oldest_ms`: when the oldest was; None: there is none.
    `least_end_ms`: when the first time to live of a message may be over; None: none has one. `wire_bytes`: the size of
    all entries in a response. `has_purged`: whether messages may have been sent before the group was purged.
    `is_mortal`: whether any message that was read has a time to live, ahead or not."""

    end: int
    ripe_at_ms: int = 0
    first_at_ms: int | None = None
    oldest_ms: int | None = None
    least_end_ms: int | None = None
    wire_bytes: int = 0
    has_purged: bool = False
    is_mortal: bool = False


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
    known_ahead: Ahead | None = None
    """None: the log or the cursor is another since the last walk along it."""

    @property
    def ahead(self) -> Ahead:
        self.known_ahead = self.known_ahead or self._walked()
        return self.known_ahead

    @property
    def end(self) -> int:
        return self.ahead.end

    def is_ripe(self, stored_at_ms: int) -> bool:
        """Whether the group's `delay_ms` is over for a message stored then."""
        return stored_at_ms + self.group.delay_ms <= self.at_ms

    def _walked(self) -> Ahead:
        """The one walk along the log."""
        start, delay_ms, purged_at_ms = self.cursor.next, self.group.delay_ms, self.cursor.purged_at_ms
        end, ripe_at_ms, size, has_purged, is_mortal = None, 0, 0, False, False
        stored: list[int] = []
        ends: list[int] = []
        for first, entry in entries(self.chain):
            is_mortal = is_mortal or entry.least_ttl_ms is not None
            if first + entry.count <= start:
                continue
            if delay_ms and end is None and not self.is_ripe(entry.stored_at_ms):
                end, ripe_at_ms = first, entry.stored_at_ms + delay_ms
            stored.append(entry.stored_at_ms)
            size += entry.wire_bytes
            if entry.least_ttl_ms is not None:
                ends.append(entry.stored_at_ms + entry.least_ttl_ms)
            has_purged = has_purged or (purged_at_ms is not None and entry.may_be_purged(purged_at_ms))
        if end is None:
            end = self.chain[-1].end if self.chain else start
        first_at_ms, oldest_ms = (stored[0], min(stored)) if stored else (None, None)
        least_end_ms = min(ends, default=None)
        return Ahead(max(start, end), ripe_at_ms, first_at_ms, oldest_ms, least_end_ms, size, has_purged, is_mortal)

    def saw(self, chain: list[Segment]) -> None:
        """Records the log as read for the cursor's position."""
        self.chain, self.is_read, self.is_moved, self.known_ahead = chain, True, False, None

    def want(self, count: int) -> Want:
        return want(self.topic, self.queue, self.cursor, count)

    def learn(self, cursor: Cursor | None) -> None:
        """Records the cursor as a request returned it. Raises GroupNotFound if there is none any more."""
        if cursor is None:
            raise GroupNotFound(f"topic '{self.topic.name}' has no group '{self.group.name}' any more")
        self.is_moved = self.is_moved or cursor.epoch != self.cursor.epoch
        self.cursor, self.known_ahead = cursor, None
        if self.riding:
            self.riding.cursor = cursor

    def carry(self, acks: ReceiptBatch) -> None:
        """Lets a claim carry these acks. Until it is refused, their leases are taken to be as the receipts say."""
        self.riding = acks
        acks.settle_by = self.group.settle_by
        self.learn(assume(self.cursor, acks.receipts))

    def waiting_since(self, now: int) -> int | None:
        """Since when the first ready message is ready, or None without one."""
        cursor, ahead = self.cursor, self.ahead
        since = [lease.deadline for lease in cursor.due(now)] if cursor.leases else []
        since += [page.due for page in cursor.pages.values() if page.due <= now]
        if ahead.end > cursor.next:
            since.append((ahead.first_at_ms or 0) + self.group.delay_ms)
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
        own = self.zone
        if own is None:
            return 0
        zone = self.topic.known_zones.zone_of(self.queue)
        if zone in (None, own):
            return 0
        popped_in, popped_at_ms = self.cursor.last_zone or (zone, 0)
        if popped_in != zone and now - popped_at_ms < TAKEN_OVER_MS:
            return 0
        return max(self.waiting_since(now) or 0, popped_at_ms) + TAKE_OVER_AFTER_MS

    def would_create(self, now: int) -> bool:
        """Whether a claim would make the cursor."""
        return not self.cursor.exists and self.waiting_since(now) is not None

    def instants_after(self, at_ms: int) -> list[int]:
        """When something more may be ready, as far as is known."""
        instants = [] if self.waits_until_ms is None else [self.waits_until_ms]
        instants += [lease.deadline for lease in self.cursor.owing]
        instants += [page.due for page in self.cursor.pages.values()]
        instants += [self.left_until_ms(at_ms), self.ahead.ripe_at_ms]
        return [ms for ms in instants if ms > at_ms]

    @property
    def begins_behind(self) -> bool:
        """Whether the log as read begins after the cursor's next message."""
        return bool(self.chain) and self.chain[0].base > self.cursor.next

    @property
    def is_outrun(self) -> bool:
        """Whether others have taken all that was read of the log, which goes on behind that, or the log was read for
        the cursor before a reset."""
        last = self.chain[-1] if self.chain else None
        return self.is_moved or (last is not None and last.end <= self.cursor.next and last.is_sealed)

    def is_plain(self, now: int) -> bool:
        """Whether the group gets all messages ahead of the cursor."""
        ahead = self.ahead
        if self.group.filter is not None or ahead.has_purged:
            return False
        has_expired = ahead.least_end_ms is not None and ahead.least_end_ms <= now
        return not has_expired and not self.is_past_retention(now)

    def is_doubtful(self, entry: Entry, now: int) -> bool:
        """Whether the group may not get all messages of an entry, apart from the retention of the topic."""
        is_filtered = self.group.filter is not None
        return is_filtered or entry.may_have_expired(now) or entry.may_be_purged(self.cursor.purged_at_ms)

    def is_past_retention(self, now: int) -> bool:
        """Whether messages ahead of the cursor have expired by the retention of the topic, or are removed: then what
        lies before them has expired too."""
        oldest_ms = self.ahead.oldest_ms
        return self.begins_behind or (oldest_ms is not None and oldest_ms <= self.topic.expired_ms(now))

    @property
    def is_sifted(self) -> bool:
        """Whether messages ahead are judged one by one: by a filter, their own time to live, or a purge."""
        return self.group.filter is not None or self.ahead.is_mortal or self.ahead.has_purged

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
