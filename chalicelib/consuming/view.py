"""One look at a group: its settings, its cursors, and the log of every queue from its cursor on.

If the cached positions of the cursors are right, all of it takes one round trip."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import field

from chalicelib.base.errors import GroupNotFound, InvalidField
from chalicelib.base.limits import QUEUES_MAX, SECOND_MS, TAKE_OVER_AFTER_MS, TAKEN_OVER_MS
from chalicelib.base.records import mutable
from chalicelib.base.response_size import Space
from chalicelib.catalogue.catalogue import Env
from chalicelib.catalogue.filters import Steps
from chalicelib.catalogue.group import Group
from chalicelib.catalogue.topic import Topic
from chalicelib.consuming.receipt_batch import ReceiptBatch, assume
from chalicelib.consuming.request import Pop
from chalicelib.consuming.waiters import Place
from chalicelib.cursors import Cursors
from chalicelib.cursors.broadcast import newest
from chalicelib.cursors.cursor import Cursor, cursors_of
from chalicelib.delays.promoter import Promoter, first_due
from chalicelib.log.reader import LogReader, Seen, Want, entries, stored_at
from chalicelib.log.segment import Entry, Segment
from chalicelib.store import Keys, Range, Read
from chalicelib.table import keys
from chalicelib.table.writes import Item

UNKNOWN_ITEMS_MAX = 2 * QUEUES_MAX
"""Items read of a group's partition if its mode is unknown: the settings and all cursors of a clustering group, plus
those left by a deleted one of the same name."""
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
    """A group as read by one pop."""

    topic: Topic
    group: Group
    queues: list[QueueView]
    window: Item | None
    """The messages the group has taken of its rate, or None before the first."""
    waits: list[int | None]
    """For each queue, when its first delayed message is due; empty if there never were any."""
    at_ms: int
    """When the pop began to read it."""

    @property
    def ask(self) -> Pop:
        return self.queues[0].ask

    def due(self, besides: Collection[int] = ()) -> list[int]:
        """The queues with due delayed messages, the earliest first."""
        due = [(ms, queue) for queue, ms in enumerate(self.waits) if ms is not None and ms <= self.at_ms]
        return [queue for _, queue in sorted(due) if queue not in besides]

    def is_held(self, now: int) -> bool:
        """Whether messages are ready; a pop that takes none of them is held back."""
        return any(view.cursor.aside or view.waiting_since(now) is not None for view in self.queues)

    def next_ready_at_ms(self) -> int | None:
        """When a pop can take the next known message: a delayed one, a retry, one whose lease expires, or one that the
        group's `delay_ms` holds back, or that is left to another zone, until then."""
        instants = [ms for ms in self.waits if ms is not None]
        for view in self.queues:
            instants += [lease.deadline for lease in view.cursor.owing]
            instants += [page.due for page in view.cursor.pages.values()]
            instants += [view.left_until_ms(self.at_ms), view.ripe_at_ms]
        return min((ms for ms in instants if ms > self.at_ms), default=None)


class ViewReader:
    def __init__(self, env: Env, reader: LogReader, cursors: Cursors, promoter: Promoter) -> None:
        self._store, self._runtime = env.store, env.runtime
        self._catalogue, self._reader, self._promoter = env.catalogue, reader, promoter
        self._cursors, self._consumers = cursors.cache, cursors.consumers

    def read(self, topic: Topic, group_name: str, ask: Pop, strong: bool = False) -> GroupView:
        """The group now, in a broadcast group as this consumer has it, and up to `max_messages` ahead in each queue.
        Raises GroupNotFound, and InvalidField if a pop of a broadcast group lacks its `consumer_id`."""
        at_ms, asked_at_ms = self._runtime.now(), self._runtime.uptime()
        known = self._catalogue.seen_group(topic, group_name)
        of_group = _reads(topic, group_name, known, ask, strong)
        of_logs = self._reader.guess(self._guess(topic, known, ask))
        of_delays = self._promoter.glances(topic, topic.readers) if topic.delays else []
        answers = self._store.read([*of_group, *of_logs, *of_delays])
        items = [item for answer in answers[: len(of_group)] for item in answer]
        seen, delays_at = Seen(), len(of_group) + len(of_logs)
        self._reader.learn(seen, of_logs, answers[len(of_group) : delays_at])
        group = self._group(topic, group_name, known, items, asked_at_ms)
        cursors = self._cursors_of(topic, group, known, items, ask, strong)
        if cursors is None:
            return self.read(topic, group_name, ask, strong=True)
        for cursor in cursors:
            self._cursors.keep(cursor.key, cursor)
        wants = [want(topic, queue, cursor, ask.max_messages) for queue, cursor in enumerate(cursors)]
        until_ms, steps = self._runtime.uptime() + FILTERING_MS, Steps()
        pairs = enumerate(zip(cursors, self._reader.chains(wants, seen), strict=True))
        queues = [
            QueueView(topic, group, queue, ask, cursor, chain, until_ms, at_ms, steps=steps)
            for queue, (cursor, chain) in pairs
        ]
        return GroupView(topic, group, queues, _window(group, items), first_due(answers[delays_at:]), at_ms)

    def place(self, topic: Topic, group_name: str, ask: Pop) -> Place:
        """Where a pop waits. Before the group is known, each consumer is on its own."""
        known = self._catalogue.seen_group(topic, group_name)
        if known is None or known.is_broadcast:
            return Place(topic.id, group_name, consumer_id=ask.consumer_id)
        return Place(topic.id, group_name, zone=ask.zone)

    def promote(self, view: QueueView) -> None:
        """Promotes the first due messages of a queue, and reads them in its log, where a weak read may not see them
        yet."""
        self._promoter.promote(view.topic, view.queue)
        view.chain = self._reader.chains([view.want(view.ask.max_messages)], strong=True)[0]

    def _guess(self, topic: Topic, known: Group | None, ask: Pop) -> list[Want]:
        if known is None:
            return []
        consumer = keys.consumer(ask.consumer_id) if known.is_broadcast and ask.consumer_id is not None else ""
        cached = [self._cursors.get(known.cursor_key(queue, consumer)) for queue in range(topic.readers)]
        return [want(topic, queue, cursor, ask.max_messages) for queue, cursor in enumerate(cached) if cursor]

    def _group(self, topic: Topic, name: str, known: Group | None, items: list[Item], asked_at_ms: int) -> Group:
        """The group's settings, read again before GroupNotFound is raised."""
        item = next((item for item in items if item["sk"] == keys.SETTINGS), None)
        if not item:
            return self._catalogue.group(topic, name)
        if known is None or (known.id, known.version) != (item["id"], item["version"]):
            known = Group.of(topic.id, name, item)
        self._catalogue.keep_group(known, asked_at_ms)
        return known

    def _cursors_of(
        self, topic: Topic, group: Group, known: Group | None, items: list[Item], ask: Pop, strong: bool
    ) -> list[Cursor] | None:
        """The cursors of all queues, in a broadcast group those of this consumer. None: they are to be read again."""
        if not group.is_broadcast:
            return None if known and known.is_broadcast else cursors_of(group, topic, items)
        if ask.consumer_id is None:
            raise InvalidField(
                f"field 'consumer_id' must be given, since group '{group.name}' is broadcast; it is null"
            )
        if known is None or known.id != group.id:
            return None
        own = cursors_of(group, topic, items, keys.consumer(ask.consumer_id))
        if topic.delays and not strong and newest(own) is None:
            return None  # it would begin as the settings say, which a purge may have changed
        return self._consumers.admitted(group, ask.consumer_id, own, strong)


def _window(group: Group, items: list[Item]) -> Item | None:
    return next((item for item in items if item["sk"] == group.window_key.sk), None)


def _reads(topic: Topic, group_name: str, known: Group | None, ask: Pop, strong: bool) -> list[Read]:
    """Settings and cursors. A broadcast group may have any number of cursors: only those of one consumer are read."""
    if known and known.is_broadcast:
        settings = Keys([known.key, *([known.window_key] if known.rate_limit else [])], strong)
        if ask.consumer_id is None:
            return [settings]
        own = keys.cursors(topic.id, group_name, known.id, keys.consumer(ask.consumer_id))
        return [settings, Range(*own, strong=strong)]
    most = None if known else UNKNOWN_ITEMS_MAX
    partition = keys.group_partition(topic.id, group_name)
    return [Range(partition, keys.FIRST, keys.LAST, most, descending=True, strong=strong)]


def want(topic: Topic, queue: int, cursor: Cursor, count: int) -> Want:
    hint = 0 if cursor.next == 0 else cursor.segment
    return Want(topic.logs[queue], cursor.next, count, hint, topic.created_at_ms)
