"""The log ahead of a cursor, as a view of a queue shows it, and the messages that a claim passes there."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from chalicelib.core.base.cache import Caches
from chalicelib.core.catalogue.group import Group
from chalicelib.core.catalogue.topic import Topic
from chalicelib.core.consuming.claim_plan import pick
from chalicelib.core.consuming.request import Pop
from chalicelib.core.consuming.skip import Skipper
from chalicelib.core.consuming.view import QueueView
from chalicelib.core.cursors.cursor import Cursor
from chalicelib.core.log.segment import SEGMENT_FULL_BYTES, Entry, Segment
from chalicelib.core.table.writes import Key
from tests.support.clock import START_MS, Clock

RUNTIME: Any = Clock().runtime()
UNREAD: Any = SimpleNamespace(reader=SimpleNamespace(stored=lambda *_: []), offsets=None)
PURGED_MS = START_MS - 1_000


def entry(count: int, sent_at_ms: int | None = None) -> Entry:
    return Entry(b"e", count, START_MS, "", 10, b"", first_sent_at_ms=sent_at_ms)


def view_of(at: int, base: int, *entries: Entry, filled_bytes: int = 10) -> QueueView:
    """A view of a queue whose cursor is at this offset, and whose log begins at `base`."""
    topic = Topic("t", "id", 0, 0, queues=1)
    chain = [Segment(topic.logs[0], base, base + sum(each.count for each in entries), filled_bytes, entries)]
    cursor = Cursor(Key("a", "b"), 0, at, {}, purged_at_ms=PURGED_MS)
    return QueueView(topic, Group("t", "g", "id", [], 0), 0, Pop(), cursor, chain, RUNTIME.uptime(), START_MS)


def test_what_the_log_has_lost_is_passed() -> None:
    view = view_of(50, 100, entry(50))
    picked = Skipper(RUNTIME, Caches(), UNREAD).skip(view, pick(view.cursor, view.group, view.end, 50, START_MS))
    assert (picked.fresh, picked.expired) == (100, 50)
    assert picked.offsets(view.cursor) == [*range(100, 150)]


@pytest.mark.parametrize(
    ("at", "filled_bytes", "is_outrun"),
    [
        (109, SEGMENT_FULL_BYTES, False),
        (110, SEGMENT_FULL_BYTES, True),
        (111, SEGMENT_FULL_BYTES, True),
        (110, SEGMENT_FULL_BYTES - 1, False),
    ],
)
def test_a_view_is_outrun_when_all_of_a_full_segment_is_taken(at: int, filled_bytes: int, is_outrun: bool) -> None:
    assert view_of(at, 100, entry(10), filled_bytes=filled_bytes).is_outrun is is_outrun


@pytest.mark.parametrize(("at", "has_purged"), [(109, True), (110, False), (115, False)])
def test_what_lies_behind_the_cursor_is_not_purged(at: int, has_purged: bool) -> None:
    assert view_of(at, 100, entry(10, PURGED_MS), entry(10, PURGED_MS + 1)).ahead.has_purged is has_purged
