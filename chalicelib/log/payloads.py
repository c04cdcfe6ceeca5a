"""Payloads: the packed messages of entries that are too large for a segment.

A payload is written before the entry that points to it, under the entry's new random id, and never changes. A crash in
between leaves an unused payload: a cost, not an error. DynamoDB removes payloads by their time to live, never before
their messages have expired.
"""

from __future__ import annotations

from collections.abc import Iterable

from chalicelib.base.cache import BoundedCache
from chalicelib.base.limits import INSTANCE_CACHE_BYTES_MAX
from chalicelib.base.message import LOST, Message
from chalicelib.log.packing import unpack
from chalicelib.log.segment import Entry, pieces_of
from chalicelib.store import Keys, Store
from chalicelib.table import keys
from chalicelib.table.writes import Item, Key, key_of


class Payloads:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._kept: BoundedCache[tuple[int, list[Message]]] = BoundedCache(
            INSTANCE_CACHE_BYTES_MAX // 2, size_of=lambda kept: kept[0]
        )

    def put(self, topic_id: str, entries: Iterable[Entry], ttl: int) -> list[Entry]:
        """Stores the messages of these entries until `ttl` (seconds since the epoch), and returns entries that point to
        them. One round trip, and one more for each payload in S3."""
        pointing: list[Entry] = []
        items: list[Item] = []
        for entry in entries:
            data = entry.data or b""
            pieces = pieces_of(data)
            if len(pieces) > 1 and self._store.keeps_blobs:
                self._store.put_blob(keys.blob(topic_id, entry.id), data)
                pieces = []
            items += [_item(topic_id, entry, number, piece, ttl) for number, piece in enumerate(pieces)]
            pointing.append(entry.pointing(len(pieces)))
        if items:
            self._store.put_all(items)
        return pointing

    def messages(self, topic_id: str, entries: Iterable[Entry], expired_ms: int = 0) -> dict[bytes, list[Message]]:
        """The messages of each entry by its id: inline, cached, or read in one round trip (S3: one each). Missing
        entries stored by `expired_ms` have expired and are omitted. The messages of other entries that are missing or
        cannot be decoded are `LOST`."""
        found: dict[bytes, list[Message]] = {}
        missing: list[Entry] = []
        for entry in entries:
            kept = self._kept.get(entry.id)
            if entry.data is not None:
                found[entry.id] = _unpacked(entry, entry.data)
            elif kept is not None:
                found[entry.id] = kept[1]
            else:
                missing.append(entry)
        for entry, data in zip(missing, self._read(topic_id, missing), strict=True):
            if data is not None:
                found[entry.id] = _unpacked(entry, data)
                self._kept.keep(entry.id, (entry.wire_bytes, found[entry.id]))
            elif entry.stored_at_ms > expired_ms:
                found[entry.id] = [LOST] * entry.count
        return found

    def _read(self, topic_id: str, entries: list[Entry]) -> list[bytes | None]:
        wanted = [keys.payload(topic_id, entry.id, number) for entry in entries for number in range(entry.pieces)]
        pieces = self._pieces(wanted, strong=False)
        pieces |= self._pieces([key for key in wanted if key not in pieces], strong=True)
        return [self._data(topic_id, entry, pieces) for entry in entries]

    def _pieces(self, wanted: list[Key], strong: bool) -> dict[Key, bytes]:
        items = self._store.read([Keys(wanted, strong)])[0] if wanted else []
        return {key_of(item): item["data"] for item in items}

    def _data(self, topic_id: str, entry: Entry, pieces: dict[Key, bytes]) -> bytes | None:
        if entry.pieces:
            found = [pieces.get(keys.payload(topic_id, entry.id, number)) for number in range(entry.pieces)]
        else:
            found = [self._store.get_blob(keys.blob(topic_id, entry.id))]
        there = [piece for piece in found if piece is not None]
        return b"".join(there) if len(there) == len(found) else None


def _unpacked(entry: Entry, data: bytes) -> list[Message]:
    try:
        return unpack(entry.codec, data)
    except ValueError:
        return [LOST] * entry.count


def _item(topic_id: str, entry: Entry, number: int, data: bytes, ttl: int) -> Item:
    key = keys.payload(topic_id, entry.id, number)
    return {"pk": key.pk, "sk": key.sk, "data": data, "ttl": ttl}
