"""The trace of a request: the headers of W3C Trace Context and Baggage, which its messages carry on as properties of
the same names.

<https://www.w3.org/TR/trace-context/>, <https://www.w3.org/TR/baggage/>
"""

from __future__ import annotations

import re
from collections.abc import Mapping

TRACEPARENT = "traceparent"
HEADERS = (TRACEPARENT, "tracestate", "baggage")

_IDS = "-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}"
_TRACEPARENT = f"00{_IDS}|(?!00|ff)[0-9a-f]{{2}}{_IDS}(?:-[!-~]*)?"
"""Version, trace id, parent id, flags. The specification says to accept later versions with further fields."""

_XRAY = "x-amzn-trace-id"
_ROOT = r"(?:^|;)\s*Root=1-([0-9a-f]{8})-([0-9a-f]{24})(?:;|$)"
"""The time and the unique part, which together are the trace id of W3C."""


def is_traceparent(text: str) -> bool:
    return re.fullmatch(_TRACEPARENT, text) is not None


def trace_id(headers: Mapping[str, str]) -> str:
    """The id that the request came with, in W3C's form or in that of AWS X-Ray; empty if it came with none. `headers`:
    by their names in lower case."""
    if own := re.fullmatch(_TRACEPARENT, headers.get(TRACEPARENT, "")):
        return own[1] or own[2]
    root = re.search(_ROOT, headers.get(_XRAY, ""))
    return root[1] + root[2] if root else ""
