"""The record of one call: its actions, its costs, and the trace that it belongs to.

All code that works for the call adds to its record without passing it through every layer. Without a record, as in a
simulation, nothing is recorded."""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
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


# -- the trace, as headers of W3C Trace Context and Baggage and as properties of messages -----------------------------

TRACEPARENT = "traceparent"
"""<https://www.w3.org/TR/trace-context/>, <https://www.w3.org/TR/baggage/>"""
TRACE_HEADERS = (TRACEPARENT, "tracestate", "baggage")

_IDS = "-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}"
_TRACEPARENT = f"00{_IDS}|(?!00|ff)[0-9a-f]{{2}}{_IDS}(?:-[!-~]*)?"
"""Version, trace id, parent id, flags. The specification says to accept later versions with further fields."""

_VALUE = "[!-~]([ -~\t]*[!-~])?"
"""A valid header value. A line end would begin another header."""

Trace = Mapping[str, str | None]
"""The `HEADERS` of a request, by name."""
NO_TRACE: Trace = {}

_XRAY = "x-amzn-trace-id"
_ROOT = r"(?:^|;)\s*Root=1-([0-9a-f]{8})-([0-9a-f]{24})(?:;|$)"
"""The time and the unique part, which together are the trace id of W3C."""


def trace_id(headers: Mapping[str, str]) -> str:
    """The trace id of the request, in the form of W3C or AWS X-Ray; empty if it has none. `headers`: by name, in lower
    case."""
    if own := re.fullmatch(_TRACEPARENT, headers.get(TRACEPARENT, "")):
        return own[1] or own[2]
    root = re.search(_ROOT, headers.get(_XRAY, ""))
    return root[1] + root[2] if root else ""


def trace_properties(trace: Trace, own: Mapping[str, str]) -> list[dict[str, str]]:
    """The properties that a message gets from its request: the trace with its state, and the baggage, each whole or not
    at all. The message's `own` properties stay. Ignores a malformed header, as the specification requires."""
    given = {name: value for name in TRACE_HEADERS if (value := trace.get(name)) and _is_valid(name, value)}
    parts = [(TRACEPARENT, "tracestate"), ("baggage",)]
    return [
        {name: given[name] for name in names if name in given}
        for names in parts
        if names[0] in given and names[0] not in own
    ]


def shared_trace(messages: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """The headers for a request that delivers messages with these properties: the values that all of them share.
    Different traces stay with their messages."""
    first, *others = messages
    same = {
        name: first[name]
        for name in TRACE_HEADERS
        if name in first and _is_valid(name, first[name]) and all(other.get(name) == first[name] for other in others)
    }
    if TRACEPARENT not in same:
        same.pop("tracestate", None)
    return same


def _is_valid(name: str, value: str) -> bool:
    return re.fullmatch(_TRACEPARENT if name == TRACEPARENT else _VALUE, value) is not None
