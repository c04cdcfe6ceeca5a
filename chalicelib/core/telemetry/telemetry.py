"""Observes the calls of one instance: records each, counts it, and writes its log lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import Any

import orjson

from chalicelib.core.base.errors import DecantError
from chalicelib.core.base.runtime import Runtime
from chalicelib.core.telemetry.lines import SWEEP, Ended, lines
from chalicelib.core.telemetry.record import Record, recording
from chalicelib.core.telemetry.totals import Totals

Write = Callable[[str], object]
"""Writes a line."""

_NAME_CHARS = 8


class Telemetry:
    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._write: Write | None = None
        self._table: str | None = None
        self._is_cold = True
        self.totals = Totals()

    @cached_property
    def process(self) -> str:
        """Distinguishes the counters of this instance from those of others."""
        return self._runtime.name(_NAME_CHARS)

    def log_to(self, write: Write, table: str | None = None) -> None:
        """Writes log lines from now on. `table`: the dimension of the metrics in them; None: without metrics."""
        self._write, self._table = write, table

    @contextmanager
    def call(self, operation: str, topic: str = "", group: str = "", **about: Any) -> Iterator[Record]:
        """Records one call. An error that it raises counts as its problem."""
        record = Record(operation, topic, group, about)
        at_ms, began_ms = self._runtime.now(), self._runtime.uptime()
        try:
            with recording(record):
                yield record
        except Exception as error:
            record.code = error.code if isinstance(error, DecantError) else type(error).__name__
            raise
        finally:
            is_cold, self._is_cold = self._is_cold, False
            self._end(Ended(record, at_ms, self._runtime.uptime() - began_ms, is_cold, self._table))

    @contextmanager
    def sweep(self, name: str) -> Iterator[Record]:
        with self.call(SWEEP, sweep=name) as record:
            record.backlogs = [] if name == "check" else None
            yield record

    @property
    def tells_backlogs(self) -> bool:
        """Whether the measurements of a check are written to the log."""
        return self._write is not None and self._table is not None

    def _end(self, call: Ended) -> None:
        self.totals.add(call)
        if self._write:
            with suppress(OSError, ValueError):  # a closed stream must not fail what it would tell of
                for line in lines(call):
                    self._write(orjson.dumps(line).decode() + "\n")
