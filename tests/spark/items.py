"""Small items, as the service writes them: one of each kind that has a struct."""

from __future__ import annotations

from typing import Any

Item = dict[str, Any]

TOPIC = "aaaaaaaa"
ENTRY_ID = bytes(range(8))


def entry(data: bytes = b'{"b":"one"}', entry_id: bytes = ENTRY_ID, count: int = 1, **more: Any) -> Item:
    return {"i": entry_id, "n": count, "at": 1_767_225_600_000, "c": "json", "w": 20, "d": data, **more}


def pointer(entry_id: bytes, count: int = 1, pieces: int = 1, **more: Any) -> bytes:
    """An entry whose messages are in pieces. `more`: as the attributes of one that holds its messages."""
    at: int = more.get("at", 1_767_225_600_000)
    w: int = more.get("w", 20)
    times: list[bytes] = [more[name].to_bytes(6, "big") for name in ("l", "s") if name in more]
    flags = (more.get("c") == "zstd") + 2 * ("l" in more) + 4 * ("s" in more)
    numbers = count.to_bytes(2, "big") + at.to_bytes(6, "big") + w.to_bytes(4, "big") + bytes([pieces, flags])
    return entry_id + numbers + b"".join(times)


def segment(*entries: Item | bytes, base: int = 0, queue: int = 0, topic: str = TOPIC) -> Item:
    end = base + sum(int.from_bytes(held[8:10], "big") if isinstance(held, bytes) else held["n"] for held in entries)
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
