"""Values as people write them: `1h30m`, `2026-12-01T09:00`, `0:42`, `max_attempts=5`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from datetime import datetime
from typing import Any, NamedTuple

_UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d|w)")


def duration_ms(text: str) -> int:
    """Raises ValueError."""
    parts = _PART.findall(text)
    if "".join(number + unit for number, unit in parts) != text or not parts:
        if text == "0":
            return 0
        raise ValueError(f"{text!r} is no duration such as 500ms, 10s or 1h30m")
    return round(sum(float(number) * _UNITS[unit] for number, unit in parts))


def instant_ms(text: str) -> int:
    """A time, local unless it names its zone, or milliseconds since 1970. Raises ValueError."""
    if re.fullmatch("[0-9]{12,14}", text):
        return int(text)
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1_000)
    except (ValueError, OverflowError, OSError):
        raise ValueError(f"{text!r} is no time such as 2026-12-01T09:00 or 2026-12-01T08:00Z") from None


class Position(NamedTuple):
    """A place in a topic: exactly one of the fields is given."""

    name: str | None = None
    """`earliest`, `latest` or `now`."""
    newest: int | None = None
    """So many messages before the end."""
    at_ms: int | None = None
    place: tuple[int, int] | None = None
    """A queue, and an offset in it."""

    def as_reset(self) -> Any:
        """As the service takes it."""
        if self.place:
            return {"queue": self.place[0], "offset": self.place[1]}
        return self.name if self.at_ms is None else {"at_ms": self.at_ms}


def position(text: str, names: Iterable[str], now_ms: int) -> Position:
    """`earliest`, `-10`, `-1h`, a time, or `QUEUE:OFFSET`. Raises ValueError."""
    if text in names:
        return Position(name=text)
    if re.fullmatch("-[0-9]+", text):
        return Position(newest=int(text[1:]))
    if found := re.fullmatch("([0-9]{1,3}):([0-9]+)", text):
        return Position(place=(int(found[1]), int(found[2])))
    if text.startswith("-"):
        return Position(at_ms=now_ms - duration_ms(text[1:]))
    try:
        return Position(at_ms=instant_ms(text))
    except ValueError:
        known = ", ".join(names)
        raise ValueError(f"{text!r} is none of {known}, -10, -1h, 2026-12-01T09:00 and QUEUE:OFFSET") from None


def settings(pairs: Iterable[str]) -> dict[str, Any]:
    """`max_attempts=5 backoff_ms=10s,1m push.url=http://...` as an object. Raises ValueError."""
    given: dict[str, Any] = {}
    for pair in pairs:
        path, is_pair, text = pair.partition("=")
        *folders, name = path.split(".")
        if not is_pair or not all([*folders, name]):
            raise ValueError(f"{pair!r} is no setting such as max_attempts=5")
        place = given
        for folder in folders:
            place = place.setdefault(folder, {})
            if not isinstance(place, dict):
                raise ValueError(f"{folder} is given twice")
        if name in place:
            raise ValueError(f"{path} is given twice")
        place[name] = _value(name, text)
    return given


def _value(name: str, text: str) -> Any:
    """JSON as it is, durations and times in milliseconds, anything else as text."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    if name == "backoff_ms":
        return [_number_or_duration(part) for part in text.split(",")]
    if name == "start" or name.endswith("_at_ms"):
        return text if text in ("earliest", "latest") else instant_ms(text)
    return duration_ms(text) if name.endswith("_ms") else text


def _number_or_duration(text: str) -> int:
    return int(text) if text.isdecimal() else duration_ms(text)


def properties(pairs: Iterable[str]) -> dict[str, str]:
    """`name=value` of `--property`. Raises ValueError."""
    given = {}
    for pair in pairs:
        name, is_pair, value = pair.partition("=")
        if not is_pair or not name:
            raise ValueError(f"{pair!r} is no property such as region=eu")
        given[name] = value
    return given


def shown_ms(ms: int) -> str:
    """A duration for people."""
    parts = []
    for unit in ("d", "h", "m", "s", "ms"):
        count, ms = divmod(ms, _UNITS[unit])
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0"


def shown_instant(ms: int) -> str:
    """An instant for people, in local time; without the day if it is today."""
    try:
        instant = datetime.fromtimestamp(ms / 1_000).astimezone()
        is_today = instant.date() == datetime.now().astimezone().date()
        return instant.strftime("%H:%M:%S" if is_today else "%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return str(ms)
