"""An HTTP request, whichever way it came: its body, its query, its preferences."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

from chalicelib.core.base.errors import InvalidField, InvalidJson, MessageTooLarge
from chalicelib.core.base.fields import quoted, read_json
from chalicelib.core.base.limits import HOP_MS_MIN, REQUEST_BYTES_MAX, SECOND_MS

_HOST = re.compile("[A-Za-z0-9.:_\\[\\]-]+")
_PREFERENCE = r"""\s*([^\s=;"]+)\s*=\s*(?:"([^"]*)"|([^\s;"]+))\s*(?:;.*)?"""
"""A name and a value. Commas in quoted values would need more; no preference that is known here has one."""
_SECONDS = "[0-9]{1,9}"
_PREFERENCES_MAX = 100
"""Preferences that are read; the service knows two."""


class Origin(NamedTuple):
    """Where a request came in."""

    scheme: str
    host: str


class Request(NamedTuple):
    """`path`: as it was sent, without anything that belongs to the way here, which is the `prefix`. `query`: decoded.
    `headers`: by their names in lower case. `raw_query`: as it was sent; None if the front does not tell it.
    `principal`: whom IAM has let in, as the front says; empty: it asked nobody."""

    method: str
    path: str
    query: list[tuple[str, str]]
    headers: Mapping[str, str]
    body: bytes
    prefix: str = ""
    raw_query: str | None = None
    principal: str = ""

    @property
    def origin(self) -> Origin:
        host = self.headers.get("host", "")
        is_secure = self.headers.get("x-forwarded-proto", "").lower().startswith("https")
        return Origin("https" if is_secure else "http", host if _HOST.fullmatch(host) else "localhost")


def body_of(raw: bytes) -> Any:
    """The request body as JSON; an empty one is `{}`. Raises InvalidJson, and MessageTooLarge."""
    if len(raw) > REQUEST_BYTES_MAX:
        raise MessageTooLarge(f"the request has more than {REQUEST_BYTES_MAX} bytes")
    return parsed(raw) if raw.strip() else {}


def parsed(raw: bytes) -> Any:
    """Raises InvalidJson. Text may still hold half of a surrogate pair: the checks of fields refuse that."""
    try:
        return read_json(raw, "the request body")
    except ValueError as error:
        raise InvalidJson(str(error)) from None


def query_of(pairs: list[tuple[str, str]]) -> dict[str, str]:
    """The query parameters, each given once. Raises InvalidField."""
    parameters = dict(pairs)
    if len(parameters) < len(pairs):
        name, times = Counter(name for name, _ in pairs).most_common(1)[0]
        raise InvalidField(f"parameter {quoted(name)} must be given once, not {times} times")
    return parameters


def preferences(header: str) -> dict[str, str]:
    """The values of a `Prefer` header (RFC 7240) by name. The first of two with one name counts. Those that are
    unknown or malformed are ignored, as it says."""
    parts = header.split(",", _PREFERENCES_MAX)[:_PREFERENCES_MAX]
    matches = [match for part in parts if (match := re.fullmatch(_PREFERENCE, part))]
    return {match[1].lower(): match[2] or match[3] or "" for match in reversed(matches)}


def patience_ms(preferred: Mapping[str, str]) -> int | None:
    """The time that `wait=N` gives the call, in seconds from now; `HOP_MS_MIN` at least, by when a healthy store has
    responded. None without it: the call has the time that every call has."""
    seconds = preferred.get("wait", "")
    if not re.fullmatch(_SECONDS, seconds):
        return None
    return max(int(seconds) * SECOND_MS, HOP_MS_MIN)
