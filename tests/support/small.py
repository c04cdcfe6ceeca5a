"""Limits so small that few messages reach them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from chalicelib.core.consuming import pop
from chalicelib.core.cursors import cursor, retries
from chalicelib.core.cursors.retries import surplus
from chalicelib.core.log import segment
from chalicelib.core.table import keys, writes

_SEGMENT_BYTES = 100
"""One entry of a few messages, or two pointers."""


@contextmanager
def small_pages() -> Iterator[None]:
    """Two retries that do not come at once are too many for a cursor."""

    def smaller(cursor: Any, now: int, most: int = 1) -> Any:
        return surplus(cursor, now, min(most, 1))

    with (
        patch.multiple(retries, RETRY_SOON_MS=100, RETRY_PAGE_LEASES=2),
        patch.object(retries, "surplus", smaller),
        patch.object(cursor, "LEASES_FEW", 1),
    ):
        yield


@contextmanager
def narrow_looks() -> Iterator[None]:
    """A pop looks at one queue, then at two more, and so on; a page has the cursors of two queues."""
    with patch.multiple(pop, LOOKED_AT=1, WIDENED=2), patch.object(keys, "CURSORS_IN_PAGE", 2):
        keys.cursor.cache_clear()
        yield
    keys.cursor.cache_clear()


@contextmanager
def small_segments() -> Iterator[None]:
    """A segment is full with an entry or two."""
    has_room = writes.Either(writes.Absent(("end",)), writes.AtMost(("bytes",), _SEGMENT_BYTES - 1))
    with patch.multiple(segment, SEGMENT_FULL_BYTES=_SEGMENT_BYTES, HAS_ROOM=has_room):
        yield
