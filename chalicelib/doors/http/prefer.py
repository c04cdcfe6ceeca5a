"""The `Prefer` header (RFC 7240). Preferences that are unknown or malformed are ignored, as it says."""

from __future__ import annotations

import re
from collections.abc import Mapping

from chalicelib.core.base.limits import HOP_MS_MIN, SECOND_MS

_PREFERENCE = r"""\s*([^\s=;"]+)\s*=\s*(?:"([^"]*)"|([^\s;"]+))\s*(?:;.*)?"""
"""A name and a value. Commas in quoted values would need more; no preference that is known here has one."""
_SECONDS = "[0-9]{1,9}"
_PREFERENCES_MAX = 100
"""Preferences that are read; the service knows two."""


def preferences(header: str) -> dict[str, str]:
    """Values by name. Of two with one name, the first counts."""
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
