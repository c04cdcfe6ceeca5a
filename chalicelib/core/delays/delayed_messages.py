"""Lists, counts and cancels delayed messages, and finds delivered ones."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import accumulate, islice

from chalicelib.core.base.errors import AlreadyDelivered, MessageNotFound
from chalicelib.core.base.fields import shown
from chalicelib.core.base.limits import RESPONSE_JSON_BYTES_MAX, WAITING_COUNTED_MAX
from chalicelib.core.base.message import ENTRY_ID_BYTES, parse_delayed_id
from chalicelib.core.base.response_size import Space
from chalicelib.core.catalogue.catalogue import Env
from chalicelib.core.catalogue.topic import Topic
from chalicelib.core.delays.chain import DecisionChain
from chalicelib.core.delays.decision import Slot, is_cancelled, slot_of, waiting_entry
from chalicelib.core.delays.writer import Waiting
from chalicelib.core.log import Log
from chalicelib.core.log.segment import Segment
from chalicelib.core.store import Keys, Range
from chalicelib.core.store.paging import after_place, token_of
from chalicelib.core.table import keys
from chalicelib.core.table.writes import Item, Refused


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
