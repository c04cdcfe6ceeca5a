"""Writes the index of keys: where to look for the messages with a key, in topics with `index_keys`.

An item for each key of an entry, written before the entry is appended: it says from which segment on the entry will be,
if it ever is. So an entry that is in the log is in the index too, whoever died when; and what the index has too much is
not found in the log, and left out by `reading.by_key`.
"""

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
        """Puts the keys of these entries, each with its queue and messages, into the index, if the topic has one. To be
        called before they are appended. Raises StoreUnavailable, TopicNotFound."""
        if not topic.index_keys:
            return
        items = [item for queue, entry, messages in entries for item in self._items(topic, queue, entry, messages)]
        if items:
            self._store.put_all(items)

    def _items(self, topic: Topic, queue: int, entry: Entry, messages: Sequence[Message]) -> list[Item]:
        found = dict.fromkeys(message.key for message in messages if message.key is not None)
        if not found:
            return []
        base, number = self._writer.tail(topic, topic.log(queue)).base, next(self._numbers)
        places = [keys.indexed(topic.id, key, entry.stored_at_ms, number, entry.id) for key in found]
        about = {"queue": queue, "base": base, "ttl": topic.ttl(entry.stored_at_ms)}
        return [{"pk": place.pk, "sk": place.sk, **about} for place in places]
