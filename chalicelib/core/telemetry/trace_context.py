"""The trace of a request: the headers of W3C Trace Context and Baggage. Its messages carry them as properties of the
same names.

<https://www.w3.org/TR/trace-context/>, <https://www.w3.org/TR/baggage/>
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

TRACEPARENT = "traceparent"
HEADERS = (TRACEPARENT, "tracestate", "baggage")

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


def carried(trace: Trace, own: Mapping[str, str]) -> list[dict[str, str]]:
    """The properties that a message gets from its request: the trace with its state, and the baggage, each whole or not
    at all. The message's `own` properties stay. Ignores a malformed header, as the specification requires."""
    given = {name: value for name in HEADERS if (value := trace.get(name)) and _is_valid(name, value)}
    parts = [(TRACEPARENT, "tracestate"), ("baggage",)]
    return [
        {name: given[name] for name in names if name in given}
        for names in parts
        if names[0] in given and names[0] not in own
    ]


def shared(messages: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """The headers for a request that delivers messages with these properties: the values that all of them share.
    Different traces stay with their messages."""
    first, *others = messages
    same = {
        name: first[name]
        for name in HEADERS
        if name in first and _is_valid(name, first[name]) and all(other.get(name) == first[name] for other in others)
    }
    if TRACEPARENT not in same:
        same.pop("tracestate", None)
    return same


def _is_valid(name: str, value: str) -> bool:
    return re.fullmatch(_TRACEPARENT if name == TRACEPARENT else _VALUE, value) is not None
