"""Signing keys in a text that is kept elsewhere, one on each line, the newest first, so that one can be replaced while
what it signed is still shown.

All of them are accepted; the newest signs. Each instance reads the text again every `REREAD_MS`. A newer key signs only
when the text has been as it is for `HEARD_MS`: by then every instance accepts it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple

from chalicelib.core.base.errors import StoreUnavailable
from chalicelib.core.base.limits import MINUTE_MS, SECOND_MS
from chalicelib.core.base.runtime import Runtime

KEY_CHARS_MIN = 16

REREAD_MS = 5 * MINUTE_MS
HEARD_MS = 10 * MINUTE_MS
"""Twice as long: the clocks of instances and of the place where the text is kept differ."""
RETRY_MS = 30 * SECOND_MS
"""How long an instance goes on with the keys that it knows after it could not read the text."""
FAILED_MS = SECOND_MS
"""How long an instance that knows none fails without reading the text again: who waited for that read, and others."""

_log = logging.getLogger("decant")


class _Known(NamedTuple):
    """`keys`: the newest first. `changed_at_ms`: when the text was changed last. `until_ms`: when to read it again, by
    `Runtime.uptime`."""

    keys: Sequence[bytes]
    changed_at_ms: int
    until_ms: int


class ConfiguredKeys:
    """`name`: of the setting, for error texts. `read`: the text, and when it was changed last, in ms since the epoch;
    it raises StoreUnavailable."""

    def __init__(self, name: str, read: Callable[[], tuple[str, int]], runtime: Runtime) -> None:
        self._name, self._read, self._runtime = name, read, runtime
        self._lock = threading.Lock()
        self._known: _Known | None = None
        self._failure: tuple[Exception, int] | None = None
        """Why the first read failed, and when to read again, by `Runtime.uptime`."""

    def __call__(self) -> Sequence[bytes]:
        """The keys, the one that signs first. Raises StoreUnavailable, and ValueError for a text that holds none."""
        known = self._known
        if known is None or self._runtime.uptime() >= known.until_ms:
            known = self._refreshed(known)
        newest, *older = known.keys
        is_heard = self._runtime.now() >= known.changed_at_ms + HEARD_MS
        return known.keys if is_heard or not older else [older[0], newest, *older[1:]]

    def _refreshed(self, before: _Known | None) -> _Known:
        """One thread reads them; others wait for that."""
        with self._lock:
            known = self._known
            if known is None or known is before:
                known = self._known = self._read_again(before)
            return known

    def _read_again(self, before: _Known | None) -> _Known:
        began_at_ms = self._runtime.uptime()
        if self._failure and began_at_ms < self._failure[1]:
            raise self._failure[0].with_traceback(None)
        try:
            text, changed_at_ms = self._read()
            return _Known(keys_in(text, self._name), changed_at_ms, began_at_ms + REREAD_MS)
        except (StoreUnavailable, ValueError) as error:
            if before is None:
                self._failure = error, self._runtime.uptime() + FAILED_MS
                raise
            _log.warning("the signing keys could not be read again: %s", error)
            return before._replace(until_ms=began_at_ms + RETRY_MS)


def keys_in(text: str, name: str) -> list[bytes]:
    """Raises ValueError, which never shows a key."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines or min(map(len, lines)) < KEY_CHARS_MIN:
        raise ValueError(f"{name} must hold keys of at least {KEY_CHARS_MIN} characters, one on each line")
    return [line.encode() for line in lines]
