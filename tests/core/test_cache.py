"""The caches of an instance are bounded, and evict the least recently used entry first."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from chalicelib.core import cursors
from chalicelib.core.base.cache import BoundedCache, Caches
from chalicelib.core.cursors.cursor import Cursor
from chalicelib.core.cursors.lease import Lease
from chalicelib.core.log import payloads, reader
from chalicelib.core.log.segment import Entry, Segment
from chalicelib.core.table.writes import Key


def cache() -> BoundedCache[str]:
    """Holds four characters."""
    return BoundedCache(4, len)


def test_what_was_not_used_for_longest_goes_when_the_cache_is_full() -> None:
    kept = cache()
    for key in ("a", "b", "c", "d"):
        kept.keep(key, "x")
    assert kept.get("a") == "x"  # used now, so that "b" goes
    kept.keep("e", "x")
    assert [key for key in "abcde" if kept.get(key)] == ["a", "c", "d", "e"]


def test_a_large_value_takes_the_place_of_several_small_ones() -> None:
    kept = cache()
    for key in ("a", "b", "c"):
        kept.keep(key, "x")
    kept.keep("d", "xxx")
    assert [key for key in "abcd" if kept.get(key)] == ["c", "d"]


def test_a_cursor_takes_as_much_room_as_its_leases() -> None:
    env: Any = SimpleNamespace(store=None, runtime=None, caches=Caches())
    with patch.object(cursors, "_CACHED_LEASES_MAX", 8):
        kept = cursors.Cursors(env, env).cache
    for name, leases in (("a", 0), ("b", 0), ("c", 2), ("d", 0)):
        seen = {str(number): Lease(str(number), number, 1, 0, 1) for number in range(leases)}
        kept.keep(name, Cursor(Key("group", name), 1, 9, seen))
    assert [name for name in "abcd" if kept.get(name)] == ["b", "c", "d"]


def test_payloads_and_segments_take_as_much_room_as_their_bytes() -> None:
    env: Any = SimpleNamespace(store=None, runtime=None, caches=Caches())
    with (
        patch.object(payloads, "INSTANCE_CACHE_BYTES_MAX", 4_000),
        patch.object(reader, "INSTANCE_CACHE_BYTES_MAX", 4_000),
    ):
        read, sealed = payloads.Payloads(env, env.caches)._kept, reader.LogReader(env, env)._sealed
    entry = Entry(b"an entry", 1, 1, "json", 1, b"")
    for number in range(4):
        read.keep(number, (900, []))
        sealed.keep(number, Segment("log", number, number + 1, 400, (entry,)))
    assert [number for number in range(4) if read.get(number)] == [2, 3]
    assert [number for number in range(4) if sealed.get(number)] == [2, 3]


def test_a_value_larger_than_the_cache_is_not_kept() -> None:
    kept = cache()
    kept.keep("a", "x")
    kept.keep("b", "xxxxx")
    kept.keep("a", "xxxxx")
    assert (kept.get("a"), kept.get("b")) == ("x", None)


def test_a_value_that_is_replaced_or_forgotten_takes_no_room() -> None:
    kept = cache()
    for value in ("xxxx", "x", "xx"):
        kept.keep("a", value)
    kept.keep("b", "xx")
    kept.forget("b")
    kept.forget("b")
    kept.keep("c", "xx")
    assert [kept.get(key) for key in "abc"] == ["xx", None, "xx"]
