"""The trace of a request: the headers of W3C Trace Context and Baggage, which its messages carry on as properties of
the same names.

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
"""What a header can hold: no line ends, which would begin another header."""

Trace = Mapping[str, str | None]
"""`HEADERS` of a request, by their names."""
NO_TRACE: Trace = {}

_XRAY = "x-amzn-trace-id"
_ROOT = r"(?:^|;)\s*Root=1-([0-9a-f]{8})-([0-9a-f]{24})(?:;|$)"
"""The time and the unique part, which together are the trace id of W3C."""


def trace_id(headers: Mapping[str, str]) -> str:
    """The id that the request came with, in W3C's form or in that of AWS X-Ray; empty if it came with none. `headers`:
    by their names in lower case."""
    if own := re.fullmatch(_TRACEPARENT, headers.get(TRACEPARENT, "")):
        return own[1] or own[2]
    root = re.search(_ROOT, headers.get(_XRAY, ""))
    return root[1] + root[2] if root else ""


def carried(trace: Trace, own: Mapping[str, str]) -> list[dict[str, str]]:
    """What a message takes over from its request: the trace with its state, and the baggage, each whole or not at all.
    What the message has of its `own` stays. A malformed header is ignored, as the specification says."""
    given = {name: value for name in HEADERS if (value := trace.get(name)) and _is_valid(name, value)}
    parts = [(TRACEPARENT, "tracestate"), ("baggage",)]
    return [
        {name: given[name] for name in names if name in given}
        for names in parts
        if names[0] in given and names[0] not in own
    ]


def shared(messages: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """The headers for a request that brings messages with these properties on their way: what is the same for all.
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
