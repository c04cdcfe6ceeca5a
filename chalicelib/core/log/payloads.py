"""Payloads: the packed messages of entries that are too large for a segment.

A payload is written before the entry that points to it, under the entry's new random id, and never changes. A crash in
between leaves an unused payload: a cost, not an error. DynamoDB removes payloads by their time to live, never before
their messages have expired.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from chalicelib.core.base.cache import BoundedCache, Caches
from chalicelib.core.base.limits import INSTANCE_CACHE_BYTES_MAX
from chalicelib.core.base.message import LOST, Message
from chalicelib.core.log.segment import Entry, pieces_of, unpack
from chalicelib.core.store import Keys, Store
from chalicelib.core.table import keys
from chalicelib.core.table.writes import Item, Key, key_of


class Payloads:
    def __init__(self, store: Store, caches: Caches) -> None:
        self._store = store
        self._kept: BoundedCache[tuple[int, list[Message]]] = caches.bounded(
            lambda key, _: key[:1], INSTANCE_CACHE_BYTES_MAX // 2, size_of=lambda kept: kept[0]
        )

    def spill(
        self, topic_id: str, entries: Iterable[tuple[Entry, int]], ttl: int, in_items: bool = False
    ) -> list[Entry]:
        """Stores the messages of entries larger than the given number of bytes as payloads, until `ttl` (seconds since
        the epoch). Returns all entries, those pointing to their payloads. Takes one round trip if there are any, and
        one more for each payload in S3. `in_items`: stores none in S3."""
        spilled: list[Entry] = []
        items: list[Item] = []
        for entry, bytes_max in entries:
            if entry.data is None or entry.size <= bytes_max:
                spilled.append(entry)
                continue
            pieces = pieces_of(entry.data)
            if len(pieces) > 1 and self._store.keeps_blobs and not in_items:
                self._store.put_blob(keys.blob(topic_id, entry.id), entry.data)
                pieces = []
            spilled.append(entry.pointing(len(pieces)))
            places = payload_keys(topic_id, spilled[-1:])
            items += [
                {**place._asdict(), "data": piece, "ttl": ttl} for place, piece in zip(places, pieces, strict=True)
            ]
        if items:
            self._store.put_all(items)
        return spilled

    def messages(self, topic_id: str, entries: Iterable[Entry], expired_ms: int = 0) -> dict[bytes, list[Message]]:
        """The messages of each entry by its id: inline, cached, or read in one round trip (S3: one each). Missing
        entries stored by `expired_ms` have expired and are omitted. The messages of other entries that are missing or
        cannot be decoded are `LOST`."""
        messages: dict[bytes, list[Message]] = {}
        missing: list[Entry] = []
        for entry in entries:
            if entry.data is not None:
                messages[entry.id] = _unpacked(entry, entry.data)
            elif (kept := self._kept.get((topic_id, entry.id))) is not None:
                messages[entry.id] = kept[1]
            else:
                missing.append(entry)
        for entry, data in zip(missing, self._read(topic_id, missing) if missing else (), strict=True):
            if data is not None:
                messages[entry.id] = _unpacked(entry, data)
                self._kept.keep((topic_id, entry.id), (entry.wire_bytes, messages[entry.id]))
            elif entry.stored_at_ms > expired_ms:
                messages[entry.id] = [LOST] * entry.count
        return messages

    def remove(self, topic_id: str, entries: Sequence[Entry], others: Sequence[Key] = ()) -> None:
        """Deletes the payloads of these entries together with other items."""
        if items := [*others, *payload_keys(topic_id, entries)]:
            self._store.remove_all(items)
        self._store.remove_blobs(blob_names(topic_id, entries))

    def _read(self, topic_id: str, entries: list[Entry]) -> list[bytes | None]:
        wanted = payload_keys(topic_id, entries)
        pieces = self._pieces(wanted, strong=False)
        if left := [key for key in wanted if key not in pieces]:
            pieces |= self._pieces(left, strong=True)
        return [self._data(topic_id, entry, pieces) for entry in entries]

    def _pieces(self, wanted: list[Key], strong: bool) -> dict[Key, bytes]:
        items = self._store.read([Keys(wanted, strong)])[0] if wanted else []
        return {key_of(item): item["data"] for item in items}

    def _data(self, topic_id: str, entry: Entry, pieces: dict[Key, bytes]) -> bytes | None:
        if not entry.pieces:
            return self._store.get_blob(keys.blob(topic_id, entry.id))
        places = payload_keys(topic_id, [entry])
        return b"".join(pieces[place] for place in places) if all(place in pieces for place in places) else None


def payload_keys(topic_id: str, entries: Iterable[Entry]) -> list[Key]:
    return [keys.payload(topic_id, entry.id, number) for entry in entries for number in range(entry.pieces)]


def blob_names(topic_id: str, entries: Iterable[Entry]) -> list[str]:
    """The objects in S3 that hold the payloads of these entries."""
    return [keys.blob(topic_id, entry.id) for entry in entries if entry.data is None and not entry.pieces]


def _unpacked(entry: Entry, data: bytes) -> list[Message]:
    try:
        return unpack(entry.codec, data)
    except ValueError:
        return [LOST] * entry.count
