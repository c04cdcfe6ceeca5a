"""The key of an item: its parts, and the kind of item that it belongs to. The keys are those of docs/table.md."""

from __future__ import annotations

import re
from typing import NamedTuple

from spark.reading.items.attributes import Attributes, Malformed

PREFIXES = {
    "topic": "topic",
    "topics": "listed_topic",
    "graves": "grave",
    "groups": "directory",
    "log": "segment",
    "payload": "payload",
    "retry": "retry_page",
    "delay": "delayed",
    "transactions": "transaction",
    "decided": "decided_transaction",
    "promotions": "decision",
    "late": "late_message",
    "dedup": "dedup",
    "index": "index",
    "dead": "dead_letter",
    "reply": "reply",
    "tokens": "token",
    "sqs-queues": "sqs_queue",
    "moves": "move_task",
    "trace": "note",
    "agenda": "appointment",
}
"""The prefix of a kind's partition key, if its partitions hold no other kind."""
_WITHIN = {
    "group": {"settings": "group", "cursor": "cursor", "rate": "window", "alarm": "alarm"},
    "push": {"slot": "push_slot", "pause": "push_pause"},
    "service": {"sweep": "sweep", "signing-key": "secret"},
}
"""Partitions that hold several kinds, distinguished by the prefix of the sort key."""


class ItemKey(NamedTuple):
    """`parts`: of the partition key; `sort`: of the sort key."""

    pk: str
    sk: str
    parts: list[str]
    sort: list[str]


def key_of(pk: str, sk: str) -> ItemKey:
    return ItemKey(pk, sk, pk.split("#"), sk.split("#"))


def kind_of(key: ItemKey) -> str:
    prefix = key.parts[0]
    kind = PREFIXES.get(prefix) or _WITHIN.get(prefix, {}).get(key.sort[0])
    if kind is None:
        raise Malformed(f"unknown kind of item: pk {key.pk[:60]!r}, sk {key.sk[:60]!r}")
    return kind


def topic_id_of(kind: str, key: ItemKey, item: Attributes | None) -> str | None:
    """The item's topic id. Null if the item has no topic, or its topic was deleted."""
    if kind == "topic":
        return item.text("id") if item else None
    if kind == "listed_topic":
        return item.text("listed") if item else None
    if kind == "grave":
        return key.sk
    return None if key.parts[0] in ("service", "tokens", "agenda", "sqs-queues", "moves") else part_of(key.parts, 1)


def demand(holds: bool, key: ItemKey) -> None:
    """Raises `Malformed` unless the key `holds` to its form."""
    if not holds:
        raise Malformed(f"the key has an unknown form: pk {key.pk[:60]!r}, sk {key.sk[:60]!r}")


def part_of(parts: list[str], at: int) -> str:
    if len(parts) <= at:
        raise Malformed(f"the key has no part {at + 1}: {'#'.join(parts)[:60]!r}")
    return parts[at]


def number_of(text: str, key: ItemKey) -> int:
    demand(re.fullmatch("[0-9]{1,18}", text) is not None, key)
    return int(text)


def bytes_of(text: str, key: ItemKey) -> bytes:
    demand(re.fullmatch("([0-9a-f]{2})+", text) is not None, key)
    return bytes.fromhex(text)
