"""The record of one call: its actions and its costs. All code that works for the call adds to it without passing it
through every layer. Without a record, as in a simulation, nothing is recorded."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import field
from typing import Any, NamedTuple

from chalicelib.core.base.records import mutable

Json = dict[str, Any]


class Backlog(NamedTuple):
    """The backlog of a group with an alarm, as a check has measured it. `age_ms`: of the oldest ready message; 0
    without one."""

    topic: str
    group: str
    ready: int
    dead: int
    age_ms: int
    is_raised: bool


@mutable
class Record:
    """`about`: further fields of the log line, without secrets. `counts`: messages, by event, topic and group.
    `backlogs`: those that a check measured; None for all other calls."""

    operation: str
    topic: str = ""
    group: str = ""
    about: Json = field(default_factory=dict)
    status: int = 0
    code: str = ""
    store_calls: int = 0
    store_retries: int = 0
    read_units: float = 0
    write_units: float = 0
    waited_ms: int = 0
    counts: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    backlogs: list[Backlog] | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)
    """A call may have several threads."""


_current: ContextVar[Record | None] = ContextVar("record", default=None)


@contextmanager
def recording(record: Record) -> Iterator[None]:
    """Records all events of this context there."""
    token = _current.set(record)
    try:
        yield
    finally:
        _current.reset(token)


def current() -> Record | None:
    """The record of the call that runs in this context."""
    return _current.get()


def count(name: str, number: int, topic: str, group: str = "") -> None:
    """Counts messages of a topic or a group that were `produced`, `popped`, ..."""
    record = _current.get()
    if record and number:
        with record.lock:
            record.counts[name, topic, group] += number


def asked_store(requests: int = 1, is_repeat: bool = False) -> None:
    """Counts requests to the store. `is_repeat`: an earlier try had failed."""
    if record := _current.get():
        with record.lock:
            record.store_calls += requests
            record.store_retries += is_repeat


def used(read_units: float = 0, write_units: float = 0) -> None:
    """Adds the units that the store charged for a request."""
    if record := _current.get():
        with record.lock:
            record.read_units += read_units
            record.write_units += write_units


def waited(ms: int) -> None:
    """Adds the deliberate sleep of the call."""
    if record := _current.get():
        record.waited_ms += ms


def note(**fields: str | int) -> None:
    """Adds fields to the log line, without secrets."""
    if record := _current.get():
        record.about |= fields


def measured(backlog: Backlog) -> None:
    record = _current.get()
    if record and record.backlogs is not None:
        record.backlogs.append(backlog)
