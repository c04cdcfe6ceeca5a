"""Looks from outside, past the faults: at the cursors while callers work, then at what is left."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from types import TracebackType

from chalicelib.catalogue.topic import Topic
from chalicelib.consuming.request import Pop
from chalicelib.cursors.cursor import Cursor, cursors_of
from chalicelib.service import Service
from chalicelib.store import Range
from chalicelib.table import keys
from chalicelib.table.writes import Item
from tests.history.caller import Caller
from tests.history.facts import Place
from tests.load.clock import now
from tests.load.journal import Journal

WATCH_SECONDS = 0.05

DRAIN_SECONDS = 20
"""A message that has not come by then is lost. The longest lease and the longest retry take about a second."""

_LEASE_MS = 60_000
_WAIT_MS = 100


class Outside:
    """A view of all groups of a topic that goes by the store and not by what a service says of it."""

    def __init__(self, service: Service, topic: Topic, groups: Sequence[str]) -> None:
        self._service = service
        self._topic = topic
        self._groups = [service.env.catalogue.group(topic, group) for group in groups]

    def cursors(self, group: str) -> list[Cursor]:
        settings = next(each for each in self._groups if each.name == group)
        partition = keys.group_partition(self._topic.id, group)
        return cursors_of(settings, self._topic, self._all(partition))

    def ends(self) -> list[int]:
        return [queue.end_offset for queue in self._service.admin.topics.offsets(self._topic)]

    def _all(self, partition: str) -> list[Item]:
        return self._service.env.store.read([Range(partition, keys.FIRST, keys.LAST, strong=True)])[0]


class Watch:
    """Looks at the cursors again and again. The ends are read later: they can only have grown, so a cursor behind its
    log's end is no accident of reading."""

    def __init__(self, outside: Outside, groups: Sequence[str]) -> None:
        self.passed: list[str] = []
        self._outside = outside
        self._groups = groups
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def look(self) -> None:
        cursors = [cursor for group in self._groups for cursor in self._outside.cursors(group)]
        limits = self._outside.ends()
        for place, cursor in enumerate(cursors):
            end = limits[place % len(limits)]
            if cursor.next > end:
                self.passed.append(f"{cursor.key.sk} stood at {cursor.next} at {now()}, the log ended at {end}")

    def _run(self) -> None:
        while not self._over.wait(WATCH_SECONDS):
            self.look()


def drain(service: Service, topic: Topic, group: str, outside: Outside, journal: Path) -> set[Place]:
    """Takes and acks what there is until the group's cursors say that there is nothing left. Returns what came."""
    came: set[Place] = set()
    give_up_at = time.monotonic() + DRAIN_SECONDS
    with closing(Journal(journal)) as record:
        caller = Caller(service, topic, record, now)
        while time.monotonic() < give_up_at:
            got = caller.pop(group, Pop(256, _LEASE_MS, _WAIT_MS))
            if got:
                came |= {each.place for each in got}
                caller.ack(got)
            elif _is_empty(outside.cursors(group), outside.ends()):
                break
    return came


def _is_empty(cursors: Sequence[Cursor], limits: Sequence[int]) -> bool:
    return all(not cursor.owing and cursor.next >= end for cursor, end in zip(cursors, limits, strict=True))
