"""Looks messages up by key, in topics with `index_keys`, in the order of storing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate

from chalicelib.core.base.limits import ENTRY_LATE_MS, RESPONSE_JSON_BYTES_MAX
from chalicelib.core.base.message import Stored
from chalicelib.core.base.records import record
from chalicelib.core.base.response_size import Space
from chalicelib.core.catalogue.catalogue import Env
from chalicelib.core.catalogue.topic import Topic
from chalicelib.core.log import Log
from chalicelib.core.log.reader import SeenSegments, Want, entries
from chalicelib.core.log.segment import Entry, Segment
from chalicelib.core.store import Range
from chalicelib.core.store.paging import place_of, token_of
from chalicelib.core.table import keys
from chalicelib.core.table.writes import Item

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
    def __init__(self, env: Env, log: Log) -> None:
        self._store, self._runtime = env.store, env.runtime
        self._reader, self._payloads = log.reader, log.payloads

    def page(self, topic: Topic, key: str, limit: int, token: str | None) -> tuple[list[Stored], str | None]:
        """Up to `limit` unexpired messages with this key, by time of storing, and the token of the next page (None: no
        more). Fewer if a response would not hold them, or if entries are not in the log."""
        now = self._runtime.now()
        start, skipped = _place(token) if token else (keys.FIRST, 0)
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
            tokens += [_token(index.place, number) for number in range(begin, len(with_key))]
        tokens += [_token(index.place, 0) for index in noted[len(taken) :]]
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


def _token(place: str, number: int) -> str:
    """The token of a position: the entry, and the index among its messages with the key."""
    return token_of(f"{place}~{number}")


def _place(token: str) -> tuple[str, int]:
    place, _, number = place_of(token, _PLACE).partition("~")
    return place, int(number)
