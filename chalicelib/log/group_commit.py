"""Calls of one process that append to one log at the same time share a write (group commit): while one of them writes,
others gather, and then the first of these writes for all of them. A call that meets no other writes at once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from chalicelib.base import deadline
from chalicelib.base.errors import DecantError, StoreUnavailable
from chalicelib.base.records import mutable
from chalicelib.base.runtime import Bell, Runtime
from chalicelib.log.segment import Entry
from chalicelib.store import Outcome
from chalicelib.table.writes import Refused

TOGETHER_MAX = 16
"""Entries in one write: with 200 bytes each, four write units."""

_IN_DOUBT = StoreUnavailable("a write for several calls did not end in time", outcome="unknown")

Send = Callable[[Sequence[Entry]], Outcome]
"""Appends these entries in one write. What it raises was raised before anything was sent."""


@mutable
class _Turn:
    """A call that waits. `others`: whom it writes for beside itself, once it is its turn. `outcome`: of the write that
    had its entry. None: its entry is not stored, and may be tried again."""

    entry: Entry
    bell: Bell
    others: Sequence[_Turn] | None = None
    outcome: Outcome | None = None
    is_over: bool = False


class GroupCommit:
    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._lock = threading.Lock()
        self._gathered: dict[str, list[_Turn]] = {}
        """By log, while a call writes to it: those that have come since."""

    def write(self, log: str, entry: Entry, send: Send) -> Outcome | None:
        """The outcome of appending this entry, alone or with those of others. None: it is not stored, and may be tried
        again. Raises what `send` raises."""
        if self._runtime.make_bell is None:  # a wait for another call would not end with its write
            return send([entry])
        with self._lock:
            gathered = self._gathered.get(log)
            if gathered is None:
                self._gathered[log] = []
            else:
                turn = _Turn(entry, self._runtime.bell())
                gathered.append(turn)
        if gathered is None:
            return self._send(log, entry, (), send)
        self._wait(log, turn)
        return turn.outcome if turn.others is None else self._send(log, entry, turn.others, send)

    def _wait(self, log: str, turn: _Turn) -> None:
        """Returns when it is its turn or its outcome is known, at the latest when its own call has no time left."""
        for in_doubt in (False, True):
            now = self._runtime.uptime()
            turn.bell.wait(max(0, deadline.give_up_at_ms(now, in_doubt) - now))
            with self._lock:
                if turn in self._gathered.get(log, ()):
                    self._gathered[log].remove(turn)
                    return
        if turn.others is None and not turn.is_over:
            turn.outcome = _IN_DOUBT
        if turn.outcome is not None and not isinstance(turn.outcome, Refused):
            deadline.has_written()

    def _send(self, log: str, entry: Entry, others: Sequence[_Turn], send: Send) -> Outcome:
        """Writes for all of them, whatever becomes of this call, and lets those go on that have gathered meanwhile."""
        outcome: Outcome | None = _IN_DOUBT
        try:
            outcome = send([entry, *(other.entry for other in others)])
            return outcome
        except DecantError:
            outcome = None
            raise
        finally:
            is_unsent = isinstance(outcome, StoreUnavailable) and not outcome.outcome_unknown
            for other in others:  # they may have more time left
                other.outcome, other.is_over = None if is_unsent else outcome, True
                other.bell.ring()
            self._go_on(log)

    def _go_on(self, log: str) -> None:
        with self._lock:
            gathered = self._gathered.pop(log)
            if gathered:
                gathered[0].others, self._gathered[log] = gathered[1:TOGETHER_MAX], gathered[TOGETHER_MAX:]
        if gathered:
            gathered[0].bell.ring()
