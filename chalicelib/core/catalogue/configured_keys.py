"""Signing keys from a text stored elsewhere, one on each line, the newest first, so that a key can be replaced while
texts that it signed are in use. All keys are accepted; the newest signs. Each instance reads the text again every
`REREAD_MS`. A new key signs only once the text has not changed for `HEARD_MS`: by then every instance accepts the key.
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
"""Twice `REREAD_MS`, since the clocks of instances and of the text's store differ."""
RETRY_MS = 30 * SECOND_MS
"""How long an instance keeps using its known keys after it failed to read the text."""
FAILED_MS = SECOND_MS
"""How long an instance without keys fails all callers before it reads the text again."""

_log = logging.getLogger("decant")


class _Known(NamedTuple):
    """`keys`: the newest first. `changed_at_ms`: when the text last changed. `until_ms`: when to read it again, by
    `Runtime.uptime`."""

    keys: Sequence[bytes]
    changed_at_ms: int
    until_ms: int


class ConfiguredKeys:
    """`name`: of the setting, for error texts. `read`: returns the text, and when it last changed, in ms since the
    epoch; raises StoreUnavailable."""

    def __init__(self, name: str, read: Callable[[], tuple[str, int]], runtime: Runtime) -> None:
        self._name, self._read, self._runtime = name, read, runtime
        self._lock = threading.Lock()
        self._known: _Known | None = None
        self._failure: tuple[Exception, int] | None = None
        """Why the first read failed, and when to read again, by `Runtime.uptime`."""

    def __call__(self) -> Sequence[bytes]:
        """The keys; the first one signs. Raises StoreUnavailable, and ValueError for a text without keys."""
        known = self._known
        if known is None or self._runtime.uptime() >= known.until_ms:
            known = self._refreshed(known)
        newest, *older = known.keys
        is_heard = self._runtime.now() >= known.changed_at_ms + HEARD_MS
        return known.keys if is_heard or not older else [older[0], newest, *older[1:]]

    def _refreshed(self, before: _Known | None) -> _Known:
        """One thread reads the keys; others wait for it."""
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
