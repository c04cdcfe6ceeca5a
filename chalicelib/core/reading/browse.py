"""Reads messages without leasing them: by id, by queue and offset, by time. Reads include the newest messages."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from itertools import islice, takewhile

from chalicelib.core.base.errors import MessageNotFound
from chalicelib.core.base.fields import shown
from chalicelib.core.base.limits import RESPONSE_JSON_BYTES_MAX
from chalicelib.core.base.message import Space, Stored, parse_message_id
from chalicelib.core.base.runtime import Runtime
from chalicelib.core.catalogue.topic import Topic
from chalicelib.core.delays.delayed_messages import DelayedMessages
from chalicelib.core.log import Log
from chalicelib.core.log.reader import Want, entries, within_reach
from chalicelib.core.log.segment import Segment
from chalicelib.core.store.paging import positions_token


class Lookup:
    def __init__(self, runtime: Runtime, log: Log, delayed: DelayedMessages) -> None:
        self._runtime, self._delayed = runtime, delayed
        self._reader, self._log_offsets = log.reader, log.offsets

    def by_id(self, topic: Topic, message_id: str) -> Stored:
        """Raises MessageNotFound."""
        _, queue, offset, chain = self._delayed.place(topic, message_id) or self._place(topic, message_id)
        for stored in self._reader.stored(topic, queue, chain, [offset]):
            is_it = stored.message_id == message_id and not stored.message.is_lost
            if is_it and stored.stored_at_ms > topic.expired_ms(self._runtime.now()):
                return stored
        raise MessageNotFound(f"topic '{topic.name}' has no message {shown(message_id)}")

    def _place(self, topic: Topic, message_id: str) -> tuple[bytes, int, int, list[Segment]]:
        """The place in the message's id, and the segment there, if any."""
        entry_id, queue, offset = parse_message_id(message_id) or (b"", topic.most, 0)
        if queue >= topic.most:
            return entry_id, queue, offset, []
        chain = self._reader.chains([Want(topic.logs[queue], offset, 1, None)], strong=True)[0]
        return entry_id, queue, offset, chain

    def positions_at(self, topic: Topic, at_ms: int) -> dict[int, int]:
        """Queue -> the offset of its first message stored at `at_ms` or later that has not expired."""
        since_ms = max(at_ms, topic.expired_ms(self._runtime.now()) + 1)
        return dict(enumerate(self._log_offsets.offsets_at(topic, since_ms, topic.most)))

    def read(self, topic: Topic, positions: Mapping[int, int], limit: int) -> tuple[list[Stored], str | None]:
        """Up to `limit` unexpired messages from these positions on, by time of storing and in order within each queue;
        fewer if a response would not hold them; and the token of the next page (None: no more)."""
        firsts = self._log_offsets.firsts(topic, self._runtime.now(), topic.most)
        positions = {queue: max(offset, firsts[queue]) for queue, offset in positions.items()}
        wants = [Want(topic.logs[queue], offset, limit + 1, None) for queue, offset in positions.items()]
        chains = dict(zip(positions, self._reader.chains(wants, strong=True), strict=True))
        ahead = [_ahead(queue, positions[queue], chain) for queue, chain in chains.items()]
        order = [(queue, offset) for _, queue, offset in islice(heapq.merge(*ahead), limit + 1)]
        stored: dict[tuple[int, int], Stored] = {}
        for queue, chain in chains.items():
            offsets = [offset for of, offset in order[:limit] if of == queue]
            reached = within_reach(chain, offsets, RESPONSE_JSON_BYTES_MAX)
            for message in self._reader.stored(topic, queue, chain, reached):
                stored[queue, message.offset] = message
        held = [stored[place] for place in takewhile(stored.__contains__, order)]
        messages = held[: Space().fitting(held)]
        moved = positions | {message.queue: message.offset + 1 for message in messages}
        readable = [message for message in messages if not message.message.is_lost]
        return readable, None if len(messages) == len(order) else positions_token(moved)


def _ahead(queue: int, start: int, chain: Sequence[Segment]) -> list[tuple[int, int, int]]:
    """Time of storing, queue and offset of each message from `start` on. Times never decrease within a queue, so its
    order holds even if clocks differ."""
    ahead: list[tuple[int, int, int]] = []
    latest = 0
    for first, entry in entries(chain):
        latest = max(latest, entry.stored_at_ms)
        ahead += [(latest, queue, offset) for offset in range(max(first, start), first + entry.count)]
    return ahead
