"""Removes what a deleted topic or group leaves behind. Nothing can reach it any more, so this is about cost alone."""

from __future__ import annotations

from collections.abc import Sequence

from chalicelib import keys, topic
from chalicelib.alarm_state import alarm_key
from chalicelib.delay import blob_names, payload_keys
from chalicelib.group import Group
from chalicelib.log import Entry, Segment
from chalicelib.runtime import Runtime
from chalicelib.store import Range, Store
from chalicelib.topic import Topic
from chalicelib.writes import Item, key_of

_PAGE = 100


class Purge:
    def __init__(self, store: Store, runtime: Runtime) -> None:
        self._store = store
        self._runtime = runtime

    def group(self, gone: Group, queues: int, until_ms: int) -> None:
        """Removes a deleted group's alarm, window, cursors, retries and dead letters, as far as there is time."""
        noted = ((alarm_key(gone), gone.alarm), (gone.window_key, gone.rate_limit))
        if beside := [key for key, setting in noted if setting is not None]:
            self._store.remove_all(beside)
        retries = [keys.retry_partition(keys.Place(gone.topic_id, gone.id, queue)) for queue in range(queues)]
        dead = keys.dead_partition(gone.topic_id, gone.id)
        every = [(pk, keys.FIRST, keys.LAST) for pk in (*retries, dead)]
        for places in ([keys.cursors(gone.topic_id, gone.name, gone.id)], every[:-1], every[-1:]):
            while items := self._first(places):
                self._store.remove_all([key_of(item) for item in items])
                if self._runtime.uptime() > until_ms:
                    return

    def topic(self, gone: Topic, until_ms: int) -> bool:
        """Removes a deleted topic's log, what waits in it, and its grave last; what is not done by `until_ms` stays
        noted there. Whether all of it was done."""
        for queue in range(gone.queues):  # from the end: who still writes there finds it gone, and asks for the topic
            while segments := self._last(gone.log(queue)):
                if self._runtime.uptime() > until_ms:
                    return False
                self._remove(gone, segments)
        for queue in range(gone.queues if gone.delays else 0):
            if not self._delays(gone, queue, until_ms):
                return False
        self._store.write(topic.unbury(gone))
        return True

    def _delays(self, gone: Topic, queue: int, until_ms: int) -> bool:
        """Removes what waits in a queue, and what was decided about it; False: there was not the time."""
        for pk in (keys.delays(gone.id, queue), keys.decisions(gone.id, queue)):
            while items := self._last(pk):
                if self._runtime.uptime() > until_ms:
                    return False
                self._remove_payloads(gone, [Entry.of(item) for item in items if "i" in item])
                self._store.remove_all([key_of(item) for item in items])
        return True

    def _remove_payloads(self, gone: Topic, entries: list[Entry]) -> None:
        self._store.remove_all(payload_keys(gone.id, entries))
        self._store.remove_blobs(blob_names(gone.id, entries))

    def _remove(self, gone: Topic, segments: list[Item]) -> None:
        """Payloads first: a segment is what they are found by."""
        entries = [entry for item in segments for entry in Segment.of(item).entries]
        self._remove_payloads(gone, entries)
        self._store.remove_all([key_of(item) for item in segments])

    def _first(self, places: Sequence[tuple[str, str, str]]) -> list[Item]:
        """Of each partition, what comes first between two sort keys."""
        found = self._store.read([Range(*place, limit=_PAGE, strong=True) for place in places])
        return [item for items in found for item in items]

    def _last(self, pk: str) -> list[Item]:
        return self._store.read([Range(pk, keys.FIRST, keys.LAST, limit=_PAGE, descending=True, strong=True)])[0]
