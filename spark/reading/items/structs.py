"""The struct of an item, by its kind (see `item_schemas.KINDS`). The attributes are those of docs/table.md.

Items that do not fit raise `Malformed`."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any

from spark.reading.items.attributes import Attributes, Malformed, as_attributes, as_binary, as_list, as_number
from spark.reading.items.keys import ItemKey, bytes_of, demand, number_of, part_of

CODECS = ("json", "zstd")
POINTER, TIME_BYTES = struct.Struct(">8sH6sIBB"), 6
"""An entry whose messages are elsewhere: id, count, time, wire bytes, pieces, flags; then the times that flags
announce."""
IS_ZSTD, HAS_LEAST_TTL, HAS_FIRST_SENT = 1, 2, 4
_SLOT_BYTES, _DUE_BYTES, _PLACE_BYTES = 14, 6, 9
_ENDLESS = 2**31 - 1
"""The `max_attempts` of a group with endless attempts."""


def struct_of(kind: str, key: ItemKey, item: Attributes) -> dict[str, Any] | None:
    """The struct of the item. Null if the pipeline reads nothing of this kind."""
    read = _READERS.get(kind)
    return read(key, item) if read else None


def _topic(key: ItemKey, item: Attributes) -> dict[str, Any]:
    queues = item.number("queues")
    return {
        "name": part_of(key.parts, 1),
        "queues": queues,
        "readers": item.number("readers") if "readers" in item else queues,
        "most": item.number("most") if "most" in item else queues,
        "retention_ms": item.number("retention_ms"),
        "past_retentions": [_past(pair) for pair in item.many("past_retentions")] if "past_retentions" in item else [],
        "index_keys": item.flag("index_keys"),
        "created_at_ms": item.number("created_at_ms"),
        "version": item.number("version"),
        "delays": "delays" in item,
    }


def _past(value: object) -> dict[str, Any]:
    pair = as_list(value, "past_retentions")
    if len(pair) != 2:
        raise Malformed("a past retention is not noted with two numbers")
    until_ms, retention_ms = (as_number(number, "past_retentions") for number in pair)
    return {"until_ms": until_ms, "retention_ms": retention_ms}


def _grave(_: ItemKey, item: Attributes) -> dict[str, Any]:
    return {"queues": item.number("queues"), "delays": item.maybe_flag("delays", False)}


def _group(key: ItemKey, item: Attributes) -> dict[str, Any]:
    return {
        "name": _name(key),
        "group_id": item.text("id"),
        "starts": [as_number(start, "starts") for start in item.many("starts")],
        "mode": item.maybe_text("mode") or "clustering",
        "ordered": item.is_text("ordered") or item.maybe_flag("ordered", False),
        "paused": item.maybe_flag("paused", False),
        "invisible_ms": item.number("invisible_ms"),
        "max_attempts": _unless_endless(item.number("max_attempts")),
        "max_in_flight": item.maybe_number("max_in_flight"),
        "backoff_ms": item.maybe_text("backoff_ms"),
        "filter": item.maybe_text("filter"),
        "version": item.number("version"),
        "created_at_ms": item.number("created_at_ms"),
    }


def _unless_endless(attempts: int) -> int | None:
    return None if attempts == _ENDLESS else attempts


def _name(key: ItemKey) -> str:
    return key.pk.split("#")[2] if len(key.parts) > 2 else ""


def _cursor(key: ItemKey, item: Attributes) -> dict[str, Any]:
    demand(len(key.sort) in (3, 4), key)
    pages = item.mapped("pages") if "pages" in item else {}
    return {
        "group": _name(key),
        "group_id": key.sort[1],
        "consumer": key.sort[2] if len(key.sort) == 4 else "",
        "queue": number_of(key.sort[-1], key),
        "epoch": item.number("epoch"),
        "next": as_number(next(iter(item.many("next")), None), "next"),
        "segment": item.maybe_number("segment"),
        "at_ms": item.maybe_number("at"),
        "by": item.maybe_text("by"),
        "dead": item.number("dead"),
        "leases": [_lease(token, listed) for token, listed in item.mapped("leases").items()],
        "pages": [_page(page_id, noted) for page_id, noted in pages.items()],
    }


def _lease(token: str, value: object) -> dict[str, Any]:
    listed = as_list(value, "leases")
    marks = listed[5:] if _has_age(listed) else listed[4:]
    return {"token": token, **_four(listed), "marks": [as_binary(mark, "leases") for mark in marks]}


def _has_age(listed: list[Any]) -> bool:
    """Whether the lease records when its messages were first delivered, which no job needs."""
    return len(listed) > 4 and isinstance(listed[4], dict) and "N" in listed[4]


def _four(listed: list[Any]) -> dict[str, Any]:
    if len(listed) < 4:
        raise Malformed("a lease has fewer than four numbers")
    start, count, deadline, attempt = (as_number(number, "lease") for number in listed[:4])
    return {"start": start, "count": count, "deadline_ms": deadline, "attempt": attempt}


def _page(page_id: str, value: object) -> dict[str, Any]:
    noted = as_list(value, "pages")
    if len(noted) != 3:
        raise Malformed("a page is not noted with three numbers")
    due, count, low = (as_number(number, "pages") for number in noted)
    return {"page_id": page_id, "due_ms": due, "count": count, "low": low}


def entry(value: object, name: str = "entry") -> dict[str, Any]:
    """The entry in an attribute of this name, or in an element of the list there."""
    if isinstance(value, dict) and "B" in value:
        return _pointer(as_binary(value, name), name)
    item = as_attributes(value, name)
    codec = item.text("c")
    if codec not in CODECS:
        raise Malformed(f"unknown codec {codec[:40]!r}")
    return {
        "id": item.binary("i"),
        "count": item.number("n"),
        "stored_at_ms": item.number("at"),
        "codec": codec,
        "wire_bytes": item.number("w"),
        "data": item.binary("d"),
        "pieces": None,
        "least_ttl_ms": item.maybe_number("l"),
        "first_sent_at_ms": item.maybe_number("s"),
    }


def _pointer(packed: bytes, name: str) -> dict[str, Any]:
    flags = packed[POINTER.size - 1] if len(packed) >= POINTER.size else 0
    rare = [flag for flag in (HAS_LEAST_TTL, HAS_FIRST_SENT) if flags & flag]
    if flags > IS_ZSTD + HAS_LEAST_TTL + HAS_FIRST_SENT or len(packed) != POINTER.size + len(rare) * TIME_BYTES:
        raise Malformed(f"attribute {name!r} is no entry: it has {len(packed)} bytes and the flags {flags}")
    entry_id, count, stored_at, wire_bytes, pieces, _ = POINTER.unpack_from(packed)
    times = dict(zip(rare, _parts_of(packed[POINTER.size :], name, TIME_BYTES), strict=True))
    least_ttl, first_sent = (
        int.from_bytes(times[flag], "big") if flag in times else None for flag in (HAS_LEAST_TTL, HAS_FIRST_SENT)
    )
    return {
        "id": entry_id,
        "count": count,
        "stored_at_ms": int.from_bytes(stored_at, "big"),
        "codec": CODECS[flags & IS_ZSTD],
        "wire_bytes": wire_bytes,
        "data": None,
        "pieces": pieces,
        "least_ttl_ms": least_ttl,
        "first_sent_at_ms": first_sent,
    }


def _segment(key: ItemKey, item: Attributes) -> dict[str, Any]:
    base = number_of(key.sk, key)
    return {
        "queue": number_of(part_of(key.parts, 2), key),
        "base": base,
        "end": item.number("end"),
        "bytes": item.number("bytes"),
        "entries": list(_placed(item.many("entries"), base)),
        "closed": item.maybe_flag("closed", False),
    }


def _placed(entries: list[Any], offset: int) -> Iterator[dict[str, Any]]:
    """The entries of a segment, each with the offset of its first message."""
    for value in entries:
        parsed = entry(value, "entries")
        yield {"offset": offset, **parsed}
        offset += parsed["count"]


def _payload(key: ItemKey, item: Attributes) -> dict[str, Any]:
    return {
        "entry_id": bytes_of(part_of(key.parts, 2), key),
        "piece": number_of(key.sk, key),
        "data": item.binary("data"),
    }


def _retry_page(key: ItemKey, item: Attributes) -> dict[str, Any]:
    return {
        "group_id": part_of(key.parts, 2),
        "queue": number_of(part_of(key.parts, 3), key),
        "due_ms": number_of(key.sort[0], key),
        "page_id": part_of(key.sort, 1),
        "retries": [_four(as_list(retry, "retries")) for retry in item.many("retries")],
    }


def _delayed(key: ItemKey, item: Attributes) -> dict[str, Any]:
    return {
        "queue": number_of(part_of(key.parts, 2), key),
        "due_ms": number_of(key.sort[0], key),
        "entry": entry(item.value("entry")),
        "cancelled": "x" in item,
    }


def _transaction(_: ItemKey, item: Attributes) -> dict[str, Any]:
    return {
        "entry": entry(item.value("entry")),
        "check_after_ms": item.number("after"),
        "until_ms": item.number("until"),
        "checks": item.number("checks"),
    }


def _decided_transaction(key: ItemKey, item: Attributes) -> dict[str, Any]:
    state = item.text("state")
    if state not in ("committed", "rolled_back"):
        raise Malformed(f"unknown state {state[:40]!r}")
    return {
        "entry_id": bytes_of(part_of(key.parts, 2), key),
        "state": state,
        "at_ms": item.number("at"),
        "places": [
            {"queue": place[0], "entry_id": place[1:]}
            for place in _parts_of(item.binary("m") if "m" in item else b"", "m", _PLACE_BYTES)
        ],
    }


def _decision(key: ItemKey, item: Attributes) -> dict[str, Any]:
    return {
        "queue": number_of(part_of(key.parts, 2), key),
        "number": number_of(key.sk, key),
        "at_ms": item.number("at"),
        "by": item.binary("by"),
        "slots": list(_slots(item.binary("s"))),
        "entry": entry(item.value("e"), "e") if "e" in item else None,
        "base": item.maybe_number("b"),
    }


def _slots(packed: bytes) -> Iterator[dict[str, Any]]:
    for slot in _parts_of(packed, "s", _SLOT_BYTES):
        yield {"due_ms": int.from_bytes(slot[:_DUE_BYTES], "big"), "entry_id": slot[_DUE_BYTES:]}


def _parts_of(packed: bytes, name: str, size: int) -> Iterator[bytes]:
    if len(packed) % size:
        raise Malformed(f"attribute {name!r} has {len(packed)} bytes, not a multiple of {size}")
    return (packed[at : at + size] for at in range(0, len(packed), size))


def _dedup(_: ItemKey, item: Attributes) -> dict[str, Any]:
    return {
        "at_ms": item.number("at"),
        "entry": entry(item.value("entry")),
        "index": item.number("index"),
        "queue": item.number("queue"),
        "base": item.number("base"),
        "create": item.flag("create"),
        "due_ms": item.number("due"),
    }


def _index(key: ItemKey, item: Attributes) -> dict[str, Any]:
    return {
        "stored_at_ms": number_of(key.sort[0], key),
        "entry_id": bytes_of(part_of(key.sort, 2), key),
        "queue": item.number("queue"),
        "base": item.number("base"),
    }


def _dead_letter(key: ItemKey, item: Attributes) -> dict[str, Any]:
    demand(len(key.sort) in (2, 3), key)
    return {
        "group_id": part_of(key.parts, 2),
        "queue": number_of(key.sort[0], key),
        "offset": number_of(key.sort[1], key),
        "consumer": key.sort[2] if len(key.sort) == 3 else "",
        "epoch": item.number("epoch"),
        "attempts": item.number("attempts"),
        "reason": item.text("reason"),
        "dead_at_ms": item.number("dead_at_ms"),
    }


def _reply(key: ItemKey, item: Attributes) -> dict[str, Any]:
    return {
        "nonce": bytes_of(part_of(key.parts, 2), key),
        "asked_at_ms": item.number("asked_at"),
        "reply_by_ms": item.number("reply_by"),
        "at_ms": item.number("at"),
        "entry": entry(item.value("entry")) if "entry" in item else None,
        "group": item.maybe_text("group"),
        "queue": item.maybe_number("queue"),
        "offset": item.maybe_number("offset"),
        "attempt": item.maybe_number("attempt"),
        "taken_at_ms": item.maybe_number("taken_at"),
    }


_READERS: dict[str, Callable[[ItemKey, Attributes], dict[str, Any]]] = {
    "topic": _topic,
    "grave": _grave,
    "group": _group,
    "cursor": _cursor,
    "segment": _segment,
    "payload": _payload,
    "retry_page": _retry_page,
    "delayed": _delayed,
    "transaction": _transaction,
    "decided_transaction": _decided_transaction,
    "decision": _decision,
    "dedup": _dedup,
    "index": _index,
    "dead_letter": _dead_letter,
    "reply": _reply,
}
