"""The backlogs of all groups, for operators. Reading them costs as much as reading the progress of each group, so one
look serves a minute."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeVar

from chalicelib.admin.groups import GroupDetails, Groups
from chalicelib.admin.topics import Topics
from chalicelib.base.limits import BACKLOG_GROUPS_MAX, GROUP_DETAILS_MAX, MINUTE_MS, PAGE_DEFAULT, SECOND_MS
from chalicelib.base.runtime import Runtime
from chalicelib.catalogue.topic import Topic

T = TypeVar("T")

LOOK_EVERY_MS = MINUTE_MS
LOOK_MS = 5 * SECOND_MS
"""How long one look may take."""


class Backlogs:
    def __init__(self, runtime: Runtime, topics: Topics, groups: Groups) -> None:
        self._runtime, self._topics, self._groups = runtime, topics, groups
        self._lock = threading.Lock()
        self._looked_at_ms: int | None = None
        self._at_ms = 0
        self._known: list[tuple[Topic, GroupDetails]] = []
        self._is_whole = True

    def read(self) -> tuple[int, list[tuple[Topic, GroupDetails]], bool]:
        """When they were read, at most a minute ago; the groups by topic and name; and whether these are all."""
        with self._lock:  # others wait for the look that is under way
            now = self._runtime.uptime()
            if self._looked_at_ms is None or now - self._looked_at_ms >= LOOK_EVERY_MS:
                self._look(now)
                self._looked_at_ms = now
            return self._at_ms, self._known, self._is_whole

    def _look(self, now: int) -> None:
        at_ms, known, is_whole = self._runtime.now(), list[tuple[Topic, GroupDetails]](), True
        for place in self._all():
            if len(known) >= BACKLOG_GROUPS_MAX or self._runtime.uptime() - now > LOOK_MS:
                is_whole = False
                break
            known.append(place)
        self._at_ms, self._known, self._is_whole = at_ms, known, is_whole

    def _all(self) -> Iterator[tuple[Topic, GroupDetails]]:
        for topic in _each(partial(self._topics.page, PAGE_DEFAULT)):
            for group in _each(partial(self._groups.page, topic, GROUP_DETAILS_MAX)):
                yield topic, group


def _each(page: Callable[[str | None], tuple[Sequence[T], str | None]]) -> Iterator[T]:
    """The items of all pages, each read when it is needed."""
    items, token = page(None)
    yield from items
    while token is not None:
        items, token = page(token)
        yield from items
