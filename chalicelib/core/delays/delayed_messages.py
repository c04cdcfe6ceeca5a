"""Messages that wait until they are due: stores, lists and cancels them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, islice
from typing import Any

from chalicelib.core.base.errors import AlreadyDelivered, MessageNotFound, StoreUnavailable
from chalicelib.core.base.fields import shown
from chalicelib.core.base.limits import (
    INLINE_BYTES_MAX,
    LATE_WRITE_MS_MAX,
    RESPONSE_JSON_BYTES_MAX,
    STORED_LATE_MS_MAX,
    TRANSACTION_ITEMS_MAX,
    WAITING_COUNTED_MAX,
)
from chalicelib.core.base.message import ENTRY_ID_BYTES, Message, Produced, Space, delayed_id, parse_delayed_id
from chalicelib.core.catalogue.agenda import FORWARD, PUSH
from chalicelib.core.catalogue.catalogue import Env
from chalicelib.core.catalogue.topic import DELAYS, Topic
from chalicelib.core.delays.decision import Slot, is_cancelled, slot_of, wait, waiting_entry, waiting_ttl
from chalicelib.core.delays.promoter import DecisionChain
from chalicelib.core.log import Log
from chalicelib.core.log.payloads import Payloads
from chalicelib.core.log.segment import Entry, Segment
from chalicelib.core.store import Keys, Range
from chalicelib.core.store.paging import after_place, token_of
from chalicelib.core.table import keys
from chalicelib.core.table.writes import Item, Refused, Write

# -- storing ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, slots=True)
class Waiting:
    """A message that waits until it is due."""

    message: Message
    queue: int
    due_ms: int
    entry_id: bytes

    @property
    def message_id(self) -> str:
        return delayed_id(self.entry_id, self.queue, self.due_ms)

    def as_json(self, topic_name: str) -> dict[str, Any]:
        place = {"message_id": self.message_id, "topic": topic_name, "queue": self.queue}
        return {**place, "deliver_at_ms": self.due_ms, **self.message.content(), **self.message.when_sent()}

    def packed(self, now: int) -> Entry:
        sent_at_ms = self.message.sent_at_ms or now
        return Entry.packed(
            self.entry_id, [replace(self.message, delayed_id=self.message_id, sent_at_ms=sent_at_ms)], now
        )


class DelayWriter:
    def __init__(self, env: Env, payloads: Payloads) -> None:
        self._store, self._runtime = env.store, env.runtime
        self._catalogue, self._agenda, self._payloads = env.catalogue, env.agenda, payloads

    def waiting(self, messages: Sequence[tuple[int, Message]]) -> list[Waiting]:
        """Messages with their queues, under new ascending ids. Messages due at the same time are delivered in the order
        of their ids, so these keep the given order."""
        ids, now = sorted(self._runtime.entropy(ENTRY_ID_BYTES) for _ in messages), self._runtime.now()
        return [
            Waiting(message, queue, message.deliver_at_ms or now, entry_id)
            for (queue, message), entry_id in zip(messages, ids, strict=True)
        ]

    def store(self, topic: Topic, waiting: Sequence[Waiting]) -> list[Produced]:
        """Stores messages until they are due. Raises TopicNotFound."""
        try:
            entries = self.entries(topic, waiting)
        except StoreUnavailable as trouble:  # before any message was sent
            return [Produced(message.queue, error=StoreUnavailable(trouble.detail)) for message in waiting]
        writes = {
            message: wait(topic.id, message.queue, message.due_ms, entry)
            for message, entry in zip(waiting, entries, strict=True)
        }
        errors = self.send(writes)
        return [
            Produced(message.queue, error=errors[message])
            if message in errors
            else Produced.delayed(message.queue, message.entry_id, message.due_ms)
            for message in waiting
        ]

    def item(self, topic: Topic, waiting: Waiting) -> Item:
        """The item of a delayed message, for the caller's own transaction. Stores only its payload."""
        [entry] = self.entries(topic, [waiting], waiting.due_ms + STORED_LATE_MS_MAX)
        key = keys.delayed(topic.id, waiting.queue, waiting.due_ms, entry.id)
        return {**key._asdict(), "entry": entry.as_value()}

    def entries(self, topic: Topic, waiting: Sequence[Waiting], sent_by_ms: int = 0) -> list[Entry]:
        """The entries of these messages, which the caller stores at once or until `sent_by_ms`. Stores their payloads,
        if any. Raises TopicNotFound, StoreUnavailable."""
        self.demand(topic)
        return self.packed(topic, waiting, sent_by_ms)

    def packed(self, topic: Topic, waiting: Sequence[Waiting], sent_by_ms: int = 0) -> list[Entry]:
        """The same for a topic that has passed `demand`. Raises StoreUnavailable."""
        now = self._runtime.now()
        due_ms = min(message.due_ms for message in waiting)
        for sweep in (FORWARD, PUSH) if topic.pushes else (FORWARD,):
            self._agenda.appoint(sweep, topic.name, due_ms, sent_by_ms)
        ttl = waiting_ttl(max(message.due_ms for message in waiting))
        return self._payloads.spill(topic.id, [(message.packed(now), INLINE_BYTES_MAX) for message in waiting], ttl)

    def send(self, writes: Mapping[Waiting, Write]) -> dict[Waiting, StoreUnavailable]:
        """Sends these writes, and returns the errors of those that failed. Uses transactions for messages due soon. A
        late repeat of a plain write could arrive after the message was delivered and its item removed, and deliver it
        again; a transaction is recognized by its token."""
        soon_ms = self._runtime.now() + LATE_WRITE_MS_MAX
        soon = [message for message in writes if message.due_ms <= soon_ms]
        later = [message for message in writes if message.due_ms > soon_ms]
        errors: dict[Waiting, StoreUnavailable] = {}
        for first in range(0, len(soon), TRANSACTION_ITEMS_MAX):
            together = soon[first : first + TRANSACTION_ITEMS_MAX]
            try:
                self._store.write_together([writes[message] for message in together])
            except StoreUnavailable as trouble:
                errors |= dict.fromkeys(together, trouble)
        outcomes = self._store.write_each([writes[message] for message in later]) if later else []
        for message, outcome in zip(later, outcomes, strict=True):
            if isinstance(outcome, StoreUnavailable):
                errors[message] = outcome
        return errors

    def demand(self, topic: Topic) -> None:
        """Makes pops of this topic look for due messages. Delayed messages are in no log whose end would show that the
        topic was deleted, so this reads the topic again. Raises TopicNotFound."""
        current = self._catalogue.current_topic(topic.name)
        if current.id == topic.id and current.delays:
            return
        self._catalogue.begin(topic, DELAYS)


# -- listing and cancelling -------------------------------------------------------------------------------------------


class DelayedMessages:
    def __init__(self, env: Env, log: Log, decisions: DecisionChain) -> None:
        self._store, self._runtime = env.store, env.runtime
        self._payloads, self._writer = log.payloads, log.writer
        self._decisions = decisions

    def page(self, topic: Topic, limit: int, token: str | None) -> tuple[list[Waiting], str | None]:
        """Up to `limit` delayed messages by due time, fewer if a response would not hold them, and the token of the
        next page (None: no more)."""
        after = after_place(token, keys.DELAYED_PATTERN)
        order = list(islice(self._ahead(topic, after, limit + 1), limit + 1))
        reached = self._read(topic, _within_reach(order[:limit]))
        messages = reached[: Space().fitting(reached)]
        is_all = len(messages) == len(order)
        # A lost message may have been delivered just now.
        waiting = [delayed for delayed in messages if not delayed.message.is_lost]
        return waiting, None if is_all else token_of(order[len(messages) - 1][1]["sk"])

    def counts(self, topic: Topic, most: int = WAITING_COUNTED_MAX, purged_at_ms: int | None = None) -> list[int]:
        """How many messages wait in each queue of the current topic, up to `most`: those neither delivered nor
        cancelled, due or not. Reads nothing if the topic never had a delayed message; otherwise costs as much as
        reading the messages without their payloads. `purged_at_ms`: of a group that gets no message sent by then."""
        counted = [0] * topic.readers
        if not topic.delays:
            return counted
        decided = self._decided(topic)
        after = dict.fromkeys(range(topic.readers), keys.FIRST)
        while after:
            ranges = [
                Range(keys.delays(topic.id, queue), low, keys.LAST, most, strong=True) for queue, low in after.items()
            ]
            for queue, items in zip([*after], self._store.read(ranges), strict=True):
                counted[queue] += sum(
                    _waits(item, decided) and not waiting_entry(item).may_be_purged(purged_at_ms) for item in items
                )
                if len(items) < most or counted[queue] >= most:
                    del after[queue]
                else:
                    after[queue] = _behind(items[-1])
        return [min(count, most) for count in counted]

    def cancel(self, topic: Topic, message_id: str) -> None:
        """Raises AlreadyDelivered, and MessageNotFound (also if it was cancelled before)."""
        waited = _waited(message_id)
        if waited is None:
            raise _unknown(topic, message_id)
        queue, slot = waited
        while True:
            newest, _ = self._decisions.complete(topic, queue, until_ms=0)
            items = self._store.read([Keys([slot.key(topic.id, queue)], strong=True)])[0]
            if not items and self._decisions.find(topic, queue, slot):
                raise AlreadyDelivered(f"message {shown(message_id)} of topic '{topic.name}' was delivered")
            if not items or is_cancelled(items[0]):
                raise _unknown(topic, message_id)
            decision = newest.cancelling(self._runtime.now(), slot, self._runtime.entropy(ENTRY_ID_BYTES))
            try:
                self._store.write(decision.write(topic.id, queue))
            except Refused:
                continue
            self._decisions.carry_out(topic, queue, decision, items)
            return

    def place(self, topic: Topic, message_id: str) -> tuple[bytes, int, int, list[Segment]] | None:
        """The place of a formerly delayed message in the log: entry id, queue, offset and segment, or None."""
        waited = _waited(message_id)
        if waited is None:
            return None
        queue, slot = waited
        delivered = self._delivered(topic, queue, slot)
        if delivered is None:
            return None
        entry_id, offsets, segment = delivered
        return entry_id, queue, offsets[slot], [segment]

    def offsets_with(self, topic: Topic, queue: int, slot: Slot) -> dict[Slot, int]:
        """The offsets of this message and of those delivered with it; none if it is not in the log."""
        delivered = self._delivered(topic, queue, slot)
        return delivered[1] if delivered else {}

    def _delivered(self, topic: Topic, queue: int, slot: Slot) -> tuple[bytes, dict[Slot, int], Segment] | None:
        """The entry that delivers this message, the offsets of all its messages, and its segment."""
        found = self._decisions.find(topic, queue, slot)
        if found is None:
            return None
        decision, entry = found
        first, segment = self._writer.search(topic.logs[queue], entry, decision.base)
        if first is None or segment is None:
            return None
        return entry.id, {other: first + index for index, other in enumerate(decision.slots)}, segment

    def _ahead(self, topic: Topic, after: str, count: int) -> Iterator[tuple[int, Item]]:
        """Delayed messages with their queues, by due time, read `count` at a time. Omits messages with a decision,
        which no longer wait even if their items exist."""
        queues, decided = range(topic.readers), self._decided(topic)
        while True:
            ranges = [Range(keys.delays(topic.id, queue), after, keys.LAST, count, strong=True) for queue in queues]
            pages = zip(queues, self._store.read(ranges), strict=True)
            first = sorted(
                ((queue, item) for queue, items in pages for item in items), key=lambda waiting: slot_of(waiting[1])
            )
            for queue, item in first[:count]:
                if _waits(item, decided):
                    yield queue, item
            if len(first) < count:
                return
            after = _behind(first[count - 1][1])

    def _decided(self, topic: Topic) -> set[Slot]:
        """The messages of the newest decisions. Call it before reading the waiting items: those of older decisions are
        then already removed or marked."""
        newest = self._decisions.newest(topic, range(topic.readers))
        return {slot for decision in newest for slot in decision.slots}

    def _read(self, topic: Topic, chosen: Sequence[tuple[int, Item]]) -> list[Waiting]:
        messages = self._payloads.messages(topic.id, [waiting_entry(item) for _, item in chosen])
        return [Waiting(messages[slot_of(item).entry_id][0], queue, *slot_of(item)) for queue, item in chosen]


def _waits(item: Item, decided: Collection[Slot]) -> bool:
    return slot_of(item) not in decided and not is_cancelled(item)


def _behind(item: Item) -> str:
    """The beginning of a range that continues after this item."""
    return f"{item['sk']}{keys.AFTER}"


def _within_reach(order: Sequence[tuple[int, Item]]) -> Sequence[tuple[int, Item]]:
    """The first of these messages, up to the one that certainly fills a response."""
    weights = accumulate((waiting_entry(item).wire_bytes for _, item in order), initial=0)
    return order[: sum(1 for weight in weights if weight <= RESPONSE_JSON_BYTES_MAX)]


def _waited(message_id: str) -> tuple[int, Slot] | None:
    """The queue and slot of a delayed message, or None if the service makes no such ids."""
    parsed = parse_delayed_id(message_id)
    if parsed is None:
        return None
    entry_id, queue, due_ms = parsed
    return queue, Slot(due_ms, entry_id)


def _unknown(topic: Topic, message_id: str) -> MessageNotFound:
    return MessageNotFound(f"topic '{topic.name}' has no message {shown(message_id)}")
