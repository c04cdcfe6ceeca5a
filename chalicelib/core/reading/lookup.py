"""Reads messages without leasing them: by id, by queue and offset, by time. Reads include the newest messages."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from itertools import accumulate, islice, takewhile

from chalicelib.core.base.errors import MessageNotFound
from chalicelib.core.base.fields import shown
from chalicelib.core.base.limits import ENTRY_LATE_MS, RESPONSE_JSON_BYTES_MAX
from chalicelib.core.base.message import Space, Stored, parse_message_id
from chalicelib.core.base.records import record
from chalicelib.core.base.runtime import Runtime
from chalicelib.core.catalogue.catalogue import Env
from chalicelib.core.catalogue.topic import Topic
from chalicelib.core.delays.delayed_messages import DelayedMessages
from chalicelib.core.log import Log
from chalicelib.core.log.reader import SeenSegments, Want, entries, within_reach
from chalicelib.core.log.segment import Entry, Segment
from chalicelib.core.store import Range
from chalicelib.core.store.paging import place_of, positions_token, token_of
from chalicelib.core.table import keys
from chalicelib.core.table.writes import Item

# -- by place, time and id --------------------------------------------------------------------------------------------


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


# -- by key -----------------------------------------------------------------------------------------------------------

_AHEAD_MESSAGES = 4_096
"""How far to read at once for an entry that is not in the first place searched."""

_PLACE = "[0-9]{15}#[0-9]{15}#[0-9a-f]{16}~(0|[1-9][0-9]{0,2})"


@record
class _Noted:
    """An index item: an entry with the key. `is_late`: it came into the log long after it was stored."""

    place: str
    queue: int
    base: int
    stored_at_ms: int
    entry_id: bytes
    is_late: bool

    @classmethod
    def of(cls, item: Item) -> _Noted:
        return cls(item["sk"], item["queue"], item["base"], *keys.indexed_entry(item["sk"]), item.get("late", False))


class KeyLookup:
    """Looks messages up by key, in topics with `index_keys`, in the order of storing."""

    def __init__(self, env: Env, log: Log) -> None:
        self._store, self._runtime = env.store, env.runtime
        self._reader, self._payloads = log.reader, log.payloads

    def page(self, topic: Topic, key: str, limit: int, token: str | None) -> tuple[list[Stored], str | None]:
        """Up to `limit` unexpired messages with this key, by time of storing, and the token of the next page (None: no
        more). Fewer if a response would not hold them, or if entries are not in the log."""
        now = self._runtime.now()
        start, skipped = _key_place(token) if token else (keys.FIRST, 0)
        low = max(start, keys.stored_since(topic.expired_ms(now) + 1))
        span = Range(keys.index(topic.id, key), low, keys.LAST, limit=limit + 1, strong=True)
        noted = [_Noted.of(item) for item in self._store.read([span])[0]]
        landed = self._landed(topic, noted[:limit])
        taken = _affordable(noted[:limit], landed)
        here = [(index, *landed[index.place]) for index in taken if index.place in landed]
        unpacked = self._payloads.messages(topic.id, [entry for _, _, entry in here], topic.maybe_expired_ms(now))
        messages: list[Stored] = []
        tokens: list[str] = []
        for index, first, entry in here:
            with_key = [
                Stored(message, index.queue, offset, entry.id, entry.stored_at_ms)
                for offset, message in enumerate(unpacked.get(entry.id, ()), first)
                if message.key == key
            ]
            begin = skipped if index.place == start else 0
            messages += with_key[begin:]
            tokens += [_key_token(index.place, number) for number in range(begin, len(with_key))]
        tokens += [_key_token(index.place, 0) for index in noted[len(taken) :]]
        fitting = min(limit, Space().fitting(messages))
        return messages[:fitting], next(iter(tokens[fitting:]), None)

    def _landed(self, topic: Topic, noted: Sequence[_Noted]) -> dict[str, tuple[int, Entry]]:
        """The entries in the log, each with its first offset, by their places in the index. Omits entries that are in
        no segment."""
        landed: dict[str, tuple[int, Entry]] = {}
        seen, ahead = SeenSegments(), 1
        waiting = [(index, index.base) for index in noted]
        while waiting:
            wants = [Want(topic.logs[index.queue], base, ahead, base) for index, base in waiting]
            chains = self._reader.chains(wants, seen, strong=True)
            walked, waiting = waiting, []
            for (index, _), chain in zip(walked, chains, strict=True):
                placed = next((placed for placed in entries(chain) if placed[1].id == index.entry_id), None)
                if placed:
                    landed[index.place] = placed
                elif chain and chain[-1].is_sealed and not _is_after(chain[-1], index):
                    waiting.append((index, chain[-1].end))
            ahead = _AHEAD_MESSAGES
        return landed


def _is_after(segment: Segment, noted: _Noted) -> bool:
    """Whether the segment was still open when the entry could last enter the log: later segments cannot hold it."""
    return not noted.is_late and any(
        entry.stored_at_ms > noted.stored_at_ms + ENTRY_LATE_MS for entry in segment.entries
    )


def _affordable(noted: Sequence[_Noted], landed: Mapping[str, tuple[int, Entry]]) -> list[_Noted]:
    """The first entries, as many as fill a response."""
    sizes = [landed[index.place][1].wire_bytes if index.place in landed else 0 for index in noted]
    sums = accumulate(sizes, initial=0)
    return [index for index, before_bytes in zip(noted, sums, strict=False) if before_bytes < RESPONSE_JSON_BYTES_MAX]


def _key_token(place: str, number: int) -> str:
    """The token of a position: the entry, and the index among its messages with the key."""
    return token_of(f"{place}~{number}")


def _key_place(token: str) -> tuple[str, int]:
    place, _, number = place_of(token, _PLACE).partition("~")
    return place, int(number)
