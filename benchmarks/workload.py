"""Messages for measurements: orders of a shop as JSON, the same in every run."""

from __future__ import annotations

import json
import random
from itertools import cycle, islice

_SEED = 20261121

_DISTINCT = 500
"""Bodies of one size. More than any batch holds, so that no entry repeats itself and compresses unrealistically
well."""

_NOTE_CHARS_MIN = 20

_STATES = ("created", "paid", "packed", "shipped", "returned")
_CURRENCIES = ("EUR", "USD", "GBP", "JPY")
_WORDS = (
    *("please", "leave", "parcel", "neighbour", "behind", "the", "blue", "gate", "if", "nobody", "opens", "call"),
    *("before", "noon", "do", "not", "bend", "second", "attempt", "after", "work", "bell", "broken", "ask", "for"),
)


class Workload:
    """An endless supply of bodies of `size` bytes each."""

    def __init__(self, size: int) -> None:
        chance = random.Random(_SEED + size)
        self._bodies = cycle([_order(chance, size) for _ in range(_DISTINCT)])

    def take(self, count: int) -> list[str]:
        return list(islice(self._bodies, count))


def _order(chance: random.Random, size: int) -> str:
    """As many order lines as fit, and a note of the remaining length."""
    order = {
        "event": f"order.{chance.choice(_STATES)}",
        "id": f"{chance.getrandbits(64):016x}",
        "at": f"2026-11-{chance.randint(1, 28):02d}T{chance.randint(0, 23):02d}:{chance.randint(0, 59):02d}:00Z",
        "customer": chance.randrange(1_000_000),
        "currency": chance.choice(_CURRENCIES),
        "lines": [],
        "note": "",
    }
    left = size - len(_dumped(order)) - _NOTE_CHARS_MIN
    lines = []
    while left >= len(_dumped(line := _line(chance))) + 1:
        lines.append(line)
        left -= len(_dumped(line)) + 1
    order["lines"] = lines
    missing = size - len(_dumped(order))
    return _dumped({**order, "note": _note(chance, missing)})


def _line(chance: random.Random) -> dict[str, object]:
    return {
        "sku": f"{chance.choice('ABCDEF')}{chance.choice('GHKLM')}-{chance.randrange(10_000):04d}",
        "serial": f"{chance.getrandbits(48):012x}",
        "quantity": chance.choice((1, 1, 1, 2, 3, 10)),
        "price_cents": chance.randrange(99, 25_000, 50),
    }


def _note(chance: random.Random, chars: int) -> str:
    words = " ".join(chance.choices(_WORDS, k=chars))
    return words[:chars]


def _dumped(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))
