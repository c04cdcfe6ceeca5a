"""How long a message waits after a nack: a list of waits, or one that grows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson

from chalicelib.base.errors import InvalidField
from chalicelib.base.fields import Fields, shown
from chalicelib.base.limits import BACKOFF_MS, BACKOFF_STEPS_MAX, MULTIPLIER_MAX, NACK_DELAY_MS_MAX

_GROWING = frozenset({"initial_ms", "multiplier", "max_ms"})


@dataclass(frozen=True, slots=True)
class Backoff:
    """`given`: as the client wrote it, a list or an object."""

    given: Any

    @classmethod
    def of(cls, text: str) -> Backoff:
        return cls(orjson.loads(text))

    @property
    def text(self) -> str:
        return orjson.dumps(self.given).decode()

    def wait_ms(self, attempt: int) -> int:
        """Before the retry that follows this attempt, counted from 1. The last wait of a list repeats."""
        if isinstance(self.given, list):
            return int(self.given[min(attempt, len(self.given)) - 1])
        wait_ms, most = float(self.given["initial_ms"]), self.given["max_ms"]
        for _ in range(attempt - 1):
            if wait_ms >= most:
                break
            wait_ms *= self.given["multiplier"]
        return int(min(wait_ms, most))


DEFAULT = Backoff(list(BACKOFF_MS))


def parse(data: object) -> Backoff:
    """Raises InvalidField, UnknownField."""
    if isinstance(data, dict):
        return _growing(Fields(data, _GROWING, "backoff_ms."))
    waits = data if isinstance(data, list) else []
    if not 1 <= len(waits) <= BACKOFF_STEPS_MAX or not all(_is_wait(each) for each in waits):
        wanted = f"a list of 1 to {BACKOFF_STEPS_MAX} integers from 0 to {NACK_DELAY_MS_MAX}"
        raise InvalidField(
            f'field \'backoff_ms\' must be {wanted}, or {{"initial_ms", "multiplier", "max_ms"}}; it is {shown(data)}'
        )
    return Backoff(list(waits))


def _growing(fields: Fields) -> Backoff:
    initial_ms = fields.integer("initial_ms", 1, NACK_DELAY_MS_MAX)
    if initial_ms is None:
        raise fields.wrong("initial_ms", f"given: an integer from 1 to {NACK_DELAY_MS_MAX}")
    max_ms = fields.integer("max_ms", initial_ms, NACK_DELAY_MS_MAX)
    if max_ms is None:
        raise fields.wrong("max_ms", f"given: an integer from {initial_ms} to {NACK_DELAY_MS_MAX}")
    multiplier = fields.raw("multiplier")
    if type(multiplier) not in (int, float) or not 1 <= multiplier <= MULTIPLIER_MAX:
        raise fields.wrong("multiplier", f"a number from 1 to {MULTIPLIER_MAX}")
    return Backoff({"initial_ms": initial_ms, "multiplier": multiplier, "max_ms": max_ms})


def _is_wait(value: object) -> bool:
    return type(value) is int and 0 <= value <= NACK_DELAY_MS_MAX
