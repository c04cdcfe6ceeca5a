"""Orders as JSON, as a shop would send them: the same from the same seed, and no more alike than real ones.

They are as compressible as the messages that `facts.md` measured (zlib level 6, bytes per message alone, in tens, in
hundreds: 1 KB 541, 394, 343; short ones, in hundreds, 0.285 of their length), so that budgets in kilobytes mean
something. `tests/budgets/test_meter.py` holds them to it.
"""

from __future__ import annotations

import base64
import json
from random import Random
from typing import Any

_STREETS = ("Hauptstraße", "Mill Lane", "Rue de la Paix", "High Street", "Via Roma", "Station Road", "Am Markt")
_CITIES = ("Berlin", "Leeds", "Paris", "Torino", "Gdańsk", "Porto", "Malmö", "Utrecht", "Graz", "Cork")
_STATES = ("placed", "paid", "packed", "shipped")
_THINGS = ("mug", "lamp", "chair", "book", "shirt", "cable", "poster", "bottle", "notebook", "scarf", "kettle")
_CONSONANTS, _VOWELS = "bdfgklmnprstvwz", "aeiou"
_COLOURS = ("black", "white", "red", "green", "blue", "grey")
_NOTE_BYTES = 350
"""Length of the note in a long order; texts that people type are less alike than those that programs print."""


def orders(count: int, size: int, seed: int = 0) -> list[str]:
    """As many orders of exactly `size` bytes each."""
    chance = Random(seed)
    return [_order(chance, size) for _ in range(count)]


def noise(count: int, size: int, seed: int = 0) -> list[str]:
    """Texts that do not compress beyond the base64 that they are in."""
    chance = Random(seed)
    return [base64.b64encode(chance.randbytes(size)).decode()[:size] for _ in range(count)]


def _order(chance: Random, size: int) -> str:
    order: dict[str, Any] = {
        "order_id": f"ORD-{chance.randrange(10**8):08d}",
        "customer_id": chance.randrange(10**6),
        "status": chance.choice(_STATES),
        "placed_at": f"2026-05-{chance.randrange(1, 29):02d}T{chance.randrange(24):02d}:{chance.randrange(60):02d}:00Z",
        "total": chance.randrange(100, 99_999) / 100,
    }
    if size > 180:
        order["channel"] = chance.choice(("web", "app", "shop"))
    if size > 400:
        order["trace"] = chance.randbytes(16).hex()
        order["address"] = _address(chance)
        order["items"] = []
        while _bytes(order) < size - _NOTE_BYTES:
            order["items"].append(_item(chance))
    order["note"] = ""
    order["note"] = _note(chance, size - _bytes(order))
    return json.dumps(order, ensure_ascii=False)


def _address(chance: Random) -> dict[str, Any]:
    return {
        "street": f"{chance.choice(_STREETS)} {chance.randrange(1, 200)}",
        "city": chance.choice(_CITIES),
        "postcode": f"{chance.randrange(10**5):05d}",
        "phone": f"+{chance.randrange(10**11):011d}",
    }


def _item(chance: Random) -> dict[str, Any]:
    return {
        "sku": chance.randbytes(5).hex(),
        "title": f"{chance.choice(_COLOURS)} {chance.choice(_THINGS)}",
        "quantity": chance.randrange(1, 9),
        "price": chance.randrange(100, 9_999) / 100,
    }


def _note(chance: Random, size: int) -> str:
    text = ""
    while len(text) < size:
        text += _word(chance) + " "
    return text[:size]


def _word(chance: Random) -> str:
    return "".join(chance.choice(_CONSONANTS) + chance.choice(_VOWELS) for _ in range(chance.randrange(1, 5)))


def _bytes(order: dict[str, Any]) -> int:
    return len(json.dumps(order, ensure_ascii=False).encode())
