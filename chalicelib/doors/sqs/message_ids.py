"""Message ids as clients of SQS want them, UUIDs, made of the service's own ids and back.

A UUID of version 8 (RFC 9562) has 122 free bits. From the left: the entry id, 64 of them; 1 if the message has waited;
the queue, 7; and the offset, or the due time of one that has waited, 50."""

from __future__ import annotations

import re

from chalicelib.core.base.message import ENTRY_ID_BYTES, delayed_id, message_id, parse_delayed_id, parse_message_id

_QUEUE_BITS, _PLACE_BITS = 7, 50
_HIGH, _MIDDLE, _LOW = 48, 12, 62
"""The free bits before the version, between it and the variant, and behind that."""
_CUSTOM, _RANDOM = 8, 4
"""Versions."""
_VARIANT = 2

_FORM = re.compile("([0-9a-f]{8})-([0-9a-f]{4})-8([0-9a-f]{3})-([89ab][0-9a-f]{3})-([0-9a-f]{12})")


def uuid_of(own_id: str) -> str:
    """The UUID of the message with this id."""
    waited = parse_delayed_id(own_id)
    parts = waited or parse_message_id(own_id)
    if parts is None:
        raise ValueError(f"{own_id!r} is no message id")
    entry_id, queue, place = parts
    named = (int.from_bytes(entry_id) << 1 | bool(waited)) << _QUEUE_BITS | queue
    return _spelled(_CUSTOM, named << _PLACE_BITS | place)


def own_id_of(uuid: str) -> str | None:
    """The id of the message with this UUID; None if the service makes no such UUIDs."""
    form = _FORM.fullmatch(uuid)
    if form is None:
        return None
    high, middle, low = int(form[1] + form[2], 16), int(form[3], 16), int(form[4] + form[5], 16)
    named, place = divmod((high << _MIDDLE | middle) << _LOW | low & (1 << _LOW) - 1, 1 << _PLACE_BITS)
    entry, queue = divmod(named, 1 << _QUEUE_BITS)
    make = delayed_id if entry & 1 else message_id
    return make((entry >> 1).to_bytes(ENTRY_ID_BYTES), queue, place)


def random_uuid(entropy: bytes) -> str:
    """A UUID made of 16 random bytes."""
    return _spelled(_RANDOM, int.from_bytes(entropy) >> 128 - _HIGH - _MIDDLE - _LOW)


def _spelled(version: int, free: int) -> str:
    """The UUID with these 122 bits."""
    rest, low = divmod(free, 1 << _LOW)
    high, middle = divmod(rest, 1 << _MIDDLE)
    text = f"{((high << 4 | version) << _MIDDLE | middle) << 2 + _LOW | _VARIANT << _LOW | low:032x}"
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
