"""Looks messages up by their key, in topics with `index_keys`, by when they were stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from chalicelib.base.limits import ENTRY_LATE_MS, RESPONSE_JSON_BYTES_MAX
from chalicelib.base.message import Stored
from chalicelib.base.response_size import Space
from chalicelib.catalogue.env import Env
from chalicelib.catalogue.topic import Topic
from chalicelib.log.reader import LogReader, Seen, Want
from chalicelib.log.segment import Segment
from chalicelib.store import Range
from chalicelib.store.paging import place_of, token_of
from chalicelib.table import keys
from chalicelib.table.writes import Item

_AHEAD_MESSAGES = 4_096
"""How far to read at once for an entry that is not in the first place searched."""

_PLACE = "[0-9]{15}#[0-9]{15}#[0-9a-f]{16}~(0|[1-9][0-9]{0,2})"


@dataclass(frozen=True, slots=True)
class _Noted:
    """An index item: an entry with the key."""

    place: str
    queue: int
    base: int
    stored_at_ms: int
    entry_id: bytes

    @classmethod
    def of(cls, item: Item) -> _Noted:
        return cls(item["sk"], item["queue"], item["base"], *keys.indexed_entry(item["sk"]))


class KeyLookup:
    def __init__(self, env: Env, reader: LogReader) -> None:
        self._store, self._runtime = env.store, env.runtime
        self._reader = reader

    def page(self, topic: Topic, key: str, limit: int, token: str | None) -> tuple[list[Stored], str | None]:
        """Up to `limit` unexpired messages with this key, by time of storing, and the token of the next page (None: no
        more). Fewer if a response would not hold them, or if entries are not in the log."""
        start, skipped = _place(token) if token else (keys.FIRST, 0)
        low = max(start, keys.stored_since(topic.expired_ms(self._runtime.now()) + 1))
        span = Range(keys.index(topic.id, key), low, keys.LAST, limit=limit + 1, strong=True)
        noted = [_Noted.of(item) for item in self._store.read([span])[0]]
        landed = self._landed(topic, noted[:limit])
        taken = _affordable(noted[:limit], landed)
        rest = noted[len(taken)].place if len(taken) < len(noted) else None
        found: list[tuple[str, int, Stored]] = []
        messages = self._messages(topic, [each for each in taken if each.place in landed], landed)
        for each in taken:
            with_key = [stored for stored in messages.get(each.entry_id, []) if stored.message.key == key]
            first = skipped if each.place == start else 0
            found += [(each.place, number, stored) for number, stored in enumerate(with_key) if number >= first]
        fitting = min(limit, Space().fitting([stored for _, _, stored in found]))
        if fitting < len(found):
            return [stored for _, _, stored in found[:fitting]], _token(*found[fitting][:2])
        return [stored for _, _, stored in found], _token(rest, 0) if rest else None

    def _landed(self, topic: Topic, noted: Sequence[_Noted]) -> dict[str, Segment]:
        """The segment with each entry, by its place in the index; entries in no segment are omitted."""
        found: dict[str, Segment] = {}
        seen, ahead = Seen(), 1
        waiting = [(each, each.base) for each in noted]
        while waiting:
            wants = [Want(topic.logs[each.queue], base, ahead, base) for each, base in waiting]
            chains = self._reader.chains(wants, seen, strong=True)
            walked, waiting = waiting, []
            for (each, _), chain in zip(walked, chains, strict=True):
                segment = next((segment for segment in chain if segment.offset_of(each.entry_id) is not None), None)
                if segment is not None:
                    found[each.place] = segment
                elif chain and chain[-1].is_sealed and not _is_after(chain[-1], each):
                    waiting.append((each, chain[-1].end))
            ahead = _AHEAD_MESSAGES
        return found

    def _messages(
        self, topic: Topic, noted: Sequence[_Noted], landed: Mapping[str, Segment]
    ) -> dict[bytes, list[Stored]]:
        """The messages of these entries, by entry id."""
        found: dict[bytes, list[Stored]] = {}
        for queue in sorted({each.queue for each in noted}):
            here = {each.entry_id: landed[each.place] for each in noted if each.queue == queue}
            chain = sorted(set(here.values()), key=lambda segment: segment.base)
            offsets = [
                offset
                for segment in chain
                for first, entry in segment.placed
                if entry.id in here
                for offset in range(first, first + entry.count)
            ]
            for stored in self._reader.stored(topic, queue, chain, offsets):
                found.setdefault(stored.entry_id, []).append(stored)
        return found


def _is_after(segment: Segment, noted: _Noted) -> bool:
    """Whether the segment was still open when the entry could last enter the log: later segments cannot hold it."""
    return any(entry.stored_at_ms > noted.stored_at_ms + ENTRY_LATE_MS for entry in segment.entries)


def _affordable(noted: Sequence[_Noted], landed: Mapping[str, Segment]) -> list[_Noted]:
    """The first entries, as many as fill a response."""
    taken: list[_Noted] = []
    room_bytes = RESPONSE_JSON_BYTES_MAX
    for each in noted:
        if room_bytes <= 0:
            break
        taken.append(each)
        if each.place in landed:
            room_bytes -= next(entry.wire_bytes for entry in landed[each.place].entries if entry.id == each.entry_id)
    return taken


def _token(place: str, number: int) -> str:
    """Where to continue: the entry, and which of its messages with the key."""
    return token_of(f"{place}~{number}")


def _place(token: str) -> tuple[str, int]:
    place, _, number = place_of(token, _PLACE).partition("~")
    return place, int(number)
