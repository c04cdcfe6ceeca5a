"""A progress bar for long work."""

from __future__ import annotations

import sys
import time

_WIDTH = 30
_EVERY_SECONDS = 0.2


class Bar:
    """Draws progress on stderr if that is a terminal. `total` 0: the total is unknown."""

    def __init__(self, total: int, unit: str) -> None:
        self._total, self._unit = total, unit
        self._done, self._shown_at = 0, 0.0
        self._is_shown = sys.stderr.isatty()

    def add(self, count: int) -> None:
        self._done += count
        if self._is_shown and time.monotonic() - self._shown_at > _EVERY_SECONDS:
            self._shown_at = time.monotonic()
            sys.stderr.write(f"\r{self._text()}\x1b[K")
            sys.stderr.flush()

    def close(self) -> None:
        if self._is_shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    def _text(self) -> str:
        if not self._total:
            return f"{self._done} {self._unit}"
        filled = min(_WIDTH, self._done * _WIDTH // self._total)
        return f"[{'#' * filled}{'.' * (_WIDTH - filled)}] {self._done} of some {self._total} {self._unit}"
