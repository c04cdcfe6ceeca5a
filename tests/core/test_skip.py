"""What a claim passes, where a second look shows less of the log than the first."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from chalicelib.catalogue.group import Group
from chalicelib.catalogue.topic import Topic
from chalicelib.consuming.claim_plan import pick
from chalicelib.consuming.request import Pop
from chalicelib.consuming.skip import Skipper
from chalicelib.consuming.view import QueueView
from chalicelib.cursors.cursor import Cursor
from chalicelib.log.segment import Entry, Segment
from chalicelib.table.writes import Key
from tests.support.clock import Clock


def test_a_filter_is_asked_about_all_that_is_taken() -> None:
    """The first look shows a segment behind a gap, the second does not, since it may be older."""
    rejecting: Any = SimpleNamespace(wants=lambda _: False)
    group = Group("t", "g", "id", [], 0, filter=rejecting)
    topic = Topic("t", "id", 0, 0, queues=1)
    chain = [Segment(topic.logs[0], 100, 150, 10, (Entry(b"e", 50, 10, "", 10, b""),))]
    runtime = Clock().runtime(0)
    now, until_ms = runtime.now(), runtime.uptime() + 1_000
    view = QueueView(topic, group, 0, Pop(max_messages=100), Cursor(Key("a", "b"), 0, 50, {}), chain, until_ms, now)
    sees_nothing: Any = SimpleNamespace(
        reader=SimpleNamespace(chains=lambda _: [[]], stored=lambda *_: []), offsets=None
    )
    planned = pick(view.cursor, group, view.end, 100, now)
    assert (planned.count, Skipper(runtime, sees_nothing).skip(view, planned).count) == (100, 0)
