"""Small items, as the service writes them: one of each kind that has a struct."""

from __future__ import annotations

from typing import Any

Item = dict[str, Any]

TOPIC = "aaaaaaaa"
ENTRY_ID = bytes(range(8))


def entry(data: bytes | None = b'{"b":"one"}', entry_id: bytes = ENTRY_ID, count: int = 1, **more: Any) -> Item:
    place = {} if data is None else {"d": data}
    return {"i": entry_id, "n": count, "at": 1_767_225_600_000, "c": "json", "w": 20, **place, **more}


def segment(*entries: Item, base: int = 0, queue: int = 0, topic: str = TOPIC) -> Item:
    end = base + sum(held["n"] for held in entries)
    return {"pk": f"log#{topic}#{queue}", "sk": f"{base:015d}", "end": end, "bytes": 70, "entries": list(entries)}


def payload(data: bytes, entry_id: bytes = ENTRY_ID, piece: int = 0, topic: str = TOPIC) -> Item:
    return {"pk": f"payload#{topic}#{entry_id.hex()}", "sk": f"{piece:02d}", "data": data}


def topic(name: str = "orders", topic_id: str = TOPIC) -> Item:
    settings = {"queues": 1, "retention_ms": 1000, "index_keys": False, "created_at_ms": 5, "version": 0}
    return {"pk": f"topic#{name}", "sk": "settings", "id": topic_id, **settings}


def cursor(topic: str = TOPIC) -> Item:
    lease, with_age = [3, 2, 99, 1, b"a\x01"], [5, 1, 99, 1, 30_000, b"m\x01"]
    place = {"pk": f"group#{topic}#billing", "sk": "cursor#bbbbbbbb#000"}
    return {
        **place,
        "epoch": 1,
        "next": [7],
        "leases": {"tokentok": lease, "tokentwo": with_age},
        "dead": 0,
        "claims": 4,
        "pages": {"p": [9, 2, 1]},
    }
