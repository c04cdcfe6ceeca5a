"""Writes the key index: where to find the messages with a key, in topics with `index_keys`.

Each key of an entry gets an item before the entry is appended. It names the segment from which to search for the entry.
An entry in the log is therefore always indexed, even after a crash; `reading.by_key` skips index items whose entry is
not in the log."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

from chalicelib.base.message import Message
from chalicelib.catalogue.topic import Topic
from chalicelib.log.segment import Entry
from chalicelib.log.writer import LogWriter
from chalicelib.store import Store
from chalicelib.table import keys
from chalicelib.table.writes import Item


class KeyIndex:
    def __init__(self, store: Store, writer: LogWriter) -> None:
        self._store = store
        self._writer = writer
        self._numbers = itertools.count()

    def note(self, topic: Topic, entries: Iterable[tuple[int, Entry, Sequence[Message]]]) -> None:
        """Indexes the keys of these entries, each with its queue and messages, if the topic has an index. Call it
        before appending them. Raises StoreUnavailable, TopicNotFound."""
        if not topic.index_keys:
            return
        items = [item for queue, entry, messages in entries for item in self._items(topic, queue, entry, messages)]
        if items:
            self._store.put_all(items)

    def _items(self, topic: Topic, queue: int, entry: Entry, messages: Sequence[Message]) -> list[Item]:
        found = dict.fromkeys(message.key for message in messages if message.key is not None)
        if not found:
            return []
        base, number = self._writer.tail(topic, topic.logs[queue]).base, next(self._numbers)
        places = [keys.indexed(topic.id, key, entry.stored_at_ms, number, entry.id) for key in found]
        about = {"queue": queue, "base": base, "ttl": topic.ttl(entry.stored_at_ms)}
        return [{"pk": place.pk, "sk": place.sk, **about} for place in places]
