"""Formats numbers for people."""

from __future__ import annotations

from datetime import UTC, datetime

_THIN = "\u202f"
"""Between groups of three digits, and before a unit: a narrow space that no line breaks at."""
NONE = "\u2013"
"""A dash in place of a missing number."""
_BYTES = ("B", "kB", "MB", "GB", "TB", "PB")
_SPANS = ((86_400_000, "d", 3_600_000, "h"), (3_600_000, "h", 60_000, "min"), (60_000, "min", 1000, "s"))


def count(number: float) -> str:
    whole = f"{number:,.0f}" if number == round(number) else f"{number:,.1f}"
    return whole.replace(",", _THIN)


def counted(number: float, noun: str) -> str:
    """The number with its noun, singular or plural."""
    return f"{count(number)} {noun}" if number == 1 else f"{count(number)} {noun}s"


def size(number: float) -> str:
    """Bytes, in powers of 1000."""
    value, unit = float(number), 0
    while abs(value) >= 1000 and unit < len(_BYTES) - 1:
        value, unit = value / 1000, unit + 1
    return f"{value:.0f}{_THIN}B" if unit == 0 else f"{value:.3g}{_THIN}{_BYTES[unit]}"


def span(ms: float | None) -> str:
    """A duration, such as `1 min 30 s`."""
    if ms is None:
        return NONE
    if ms < 1000:
        return f"{ms:.0f}{_THIN}ms"
    for large, name, small, rest_name in _SPANS:
        if ms >= large:
            whole, rest = divmod(round(ms / small), large // small)
            return f"{whole}{_THIN}{name}" + (f" {rest}{_THIN}{rest_name}" if rest else "")
    return f"{ms / 1000:.3g}{_THIN}s"


def instant(ms: int | None) -> str:
    return NONE if ms is None else datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def clock(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%m-%d %H:%M")


def money(usd: float) -> str:
    return "under $0.01" if 0 < usd < 0.01 else f"${usd:,.2f}"
