"""Shows the progress of a long part: a bar on stderr where that is a terminal, otherwise a line when the part
begins."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")

_BAR_CHARS = 30
_REDRAW_SECONDS = 0.1


def shown(things: Iterable[T], count: int, label: str) -> Iterator[T]:
    """Passes items on and shows how many of `count` are done."""
    if not sys.stderr.isatty():
        print(f"{label} ...", file=sys.stderr, flush=True)
        yield from things
        return
    drawn_at = 0.0
    try:
        for done, thing in enumerate(things):
            if time.monotonic() - drawn_at > _REDRAW_SECONDS:
                drawn_at = time.monotonic()
                _draw(label, done, count)
            yield thing
    finally:
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def _draw(label: str, done: int, count: int) -> None:
    filled = min(_BAR_CHARS, _BAR_CHARS * done // max(1, count))
    bar = "#" * filled + "-" * (_BAR_CHARS - filled)
    print(f"\r\x1b[K{bar} {done}/{count} {label}", end="", file=sys.stderr, flush=True)
