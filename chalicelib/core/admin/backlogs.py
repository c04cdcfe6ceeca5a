"""The backlogs of all groups, for operators. Reading them costs as much as reading the progress of each group, so one
look serves a minute."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeVar

from chalicelib.core.admin.groups import GroupDetails, Groups
from chalicelib.core.admin.topics import Topics
from chalicelib.core.base.errors import StoreUnavailable
from chalicelib.core.base.limits import BACKLOG_GROUPS_MAX, GROUP_DETAILS_MAX, MINUTE_MS, PAGE_DEFAULT, SECOND_MS
from chalicelib.core.base.runtime import Runtime
from chalicelib.core.catalogue.topic import Topic

T = TypeVar("T")

LOOK_EVERY_MS = MINUTE_MS
LOOK_MS = 5 * SECOND_MS
"""How long one look may take: after that it reads no further page."""

_log = logging.getLogger("decant")


class _Cut(Exception):
    """A look ends before it has read all groups."""


class Backlogs:
    def __init__(self, runtime: Runtime, topics: Topics, groups: Groups) -> None:
        self._runtime, self._topics, self._groups = runtime, topics, groups
        self._lock = threading.Lock()
        self._looked_at_ms: int | None = None
        self._at_ms = 0
        self._known: list[tuple[Topic, GroupDetails]] = []
        self._is_whole = True

    def read(self) -> tuple[int, list[tuple[Topic, GroupDetails]], bool]:
        """When the backlogs were read, the groups by topic and name, and whether these are all groups. They are at most
        a minute old unless later looks have failed; then the third value is False. 0: no look has succeeded yet."""
        with self._lock:  # others wait for the look that is under way
            now = self._runtime.uptime()
            if self._looked_at_ms is None or now - self._looked_at_ms >= LOOK_EVERY_MS:
                self._looked_at_ms, self._is_whole = now, False
                try:
                    self._look(now + LOOK_MS)
                except StoreUnavailable as trouble:
                    _log.warning("the backlogs could not be read: %s", trouble)
            return self._at_ms, self._known, self._is_whole

    def _look(self, until_ms: int) -> None:
        at_ms, known, is_whole = self._runtime.now(), list[tuple[Topic, GroupDetails]](), True
        try:
            for place in self._all(until_ms):
                if len(known) >= BACKLOG_GROUPS_MAX:
                    raise _Cut
                known.append(place)
        except _Cut:
            is_whole = False
        self._at_ms, self._known, self._is_whole = at_ms, known, is_whole

    def _all(self, until_ms: int) -> Iterator[tuple[Topic, GroupDetails]]:
        for topic in self._each(partial(self._topics.page, PAGE_DEFAULT), until_ms):
            for group in self._each(partial(self._groups.page, topic, GROUP_DETAILS_MAX), until_ms):
                yield topic, group

    def _each(self, page: Callable[[str | None], tuple[Sequence[T], str | None]], until_ms: int) -> Iterator[T]:
        """The items of all pages, read one page at a time. Raises _Cut."""
        token, is_last = None, False
        while not is_last:
            if self._runtime.uptime() > until_ms:
                raise _Cut
            items, token = page(token)
            yield from items
            is_last = token is None
