"""Items as the export reader gives them, one by one: rows of `item_schemas.ITEMS`, filled in."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from spark import item_schemas
from spark.transforms.items import Items

Row = dict[str, Any]

NOW = 1_800_000_000_000
HOUR = 3_600_000
OLD = NOW - HOUR
"""Long before the export."""
DAY = 24 * HOUR


def item(kind: str, topic_id: str, **fields: Any) -> Row:
    ttl = fields.pop("ttl", None)
    key = {"pk": f"{kind}#{topic_id}", "sk": fields.pop("sk", "-")}
    place = {"topic_id": topic_id, "bytes": 100, "ttl": ttl, "file": "data/a.json.gz", "line": 1}
    return {"kind": kind, **key, **place, kind: fields}


def topic(name: str, **fields: Any) -> Row:
    queues = fields.get("queues", 1)
    usual = {
        "queues": 1,
        "readers": queues,
        "most": queues,
        "retention_ms": 3 * DAY,
        "past_retentions": [],
        "created_at_ms": OLD,
        "version": 1,
    }
    return item("topic", f"T{name}", name=name, index_keys=False, delays=True, **{**usual, **fields})


def entry(number: int, count: int = 1, at: int = OLD, pieces: int | None = None, data: bytes = b'{"b":"x"}') -> Row:
    place = {"data": data, "pieces": None} if pieces is None else {"data": None, "pieces": pieces}
    return {
        "id": number.to_bytes(8, "big"),
        "count": count,
        "stored_at_ms": at,
        "codec": "json",
        "wire_bytes": 9,
        **place,
    }


def segment(name: str, base: int, *entries: Row, queue: int = 0, end: int | None = None, **flags: bool) -> Row:
    end = base + sum(held["count"] for held in entries) if end is None else end
    size = 700 if flags.get("full") else 100
    offsets = accumulate((held["count"] for held in entries), initial=base)
    placed = [{**held, "offset": offset} for held, offset in zip(entries, offsets, strict=False)]
    return item(
        "segment",
        f"T{name}",
        queue=queue,
        base=base,
        end=end,
        bytes=size,
        entries=placed,
        closed=flags.get("closed", False),
    )


def group(name: str, starts: tuple[int, ...] = (), mode: str = "clustering", created_at_ms: int = OLD) -> Row:
    fields = {"name": "g", "group_id": "G", "starts": list(starts), "mode": mode, "created_at_ms": created_at_ms}
    return item("group", f"T{name}", **fields, ordered=False, paused=False, max_attempts=16, version=0)


def lease(token: str, start: int, count: int, *marks: bytes, deadline: int = NOW, attempt: int = 1) -> Row:
    place = {"token": token, "start": start, "count": count}
    return {**place, "deadline_ms": deadline, "attempt": attempt, "marks": list(marks)}


def cursor(name: str, next_: int, *leases: Row, **fields: Any) -> Row:
    consumer = fields.get("consumer", "")
    usual = {"group": "g", "group_id": "G", "consumer": consumer, "queue": 0, "epoch": 0, "segment": None}
    stands = {"next": next_, "leases": list(leases), "dead": 0, "pages": [], "at_ms": OLD, "by": ""}
    return item("cursor", f"T{name}", sk=f"cursor#G#{consumer}#000", **{**usual, **stands, **fields})


def letter(name: str, offset: int, epoch: int = 0, dead_at_ms: int = OLD, consumer: str = "") -> Row:
    place = {"group_id": "G", "queue": 0, "offset": offset, "consumer": consumer}
    return item("dead_letter", f"T{name}", **place, epoch=epoch, attempts=16, reason="no", dead_at_ms=dead_at_ms)


def page(name: str, page_id: str, *retries: tuple[int, int, int]) -> Row:
    held = [{"start": start, "count": count, "deadline_ms": due, "attempt": 2} for start, count, due in retries]
    due = min(due for _, _, due in retries)
    return item("retry_page", f"T{name}", group_id="G", queue=0, due_ms=due, page_id=page_id, retries=held)


def payload(name: str, number: int, piece: int = 0) -> Row:
    return item("payload", f"T{name}", entry_id=number.to_bytes(8, "big"), piece=piece, data=b"...")


def delayed(name: str, number: int, due_ms: int, cancelled: bool = False, pieces: int | None = None) -> Row:
    return item("delayed", f"T{name}", queue=0, due_ms=due_ms, entry=entry(number, pieces=pieces), cancelled=cancelled)


def decision(
    name: str, number: int, slots: tuple[tuple[int, int], ...], entry: Row | None = None, at: int = OLD, base: int = 0
) -> Row:
    named = [{"due_ms": due, "entry_id": message.to_bytes(8, "big")} for due, message in slots]
    fields = {"queue": 0, "number": number, "at_ms": at, "by": bytes(8), "slots": named}
    return item("decision", f"T{name}", **fields, entry=entry, base=base if entry else None)


def dedup(name: str, entry: Row, base: int, due_ms: int = 0) -> Row:
    return item("dedup", f"T{name}", at_ms=OLD, entry=entry, index=0, queue=0, base=base, create=True, due_ms=due_ms)


def index(name: str, number: int, base: int) -> Row:
    return item("index", f"T{name}", stored_at_ms=OLD, entry_id=number.to_bytes(8, "big"), queue=0, base=base)


def reply(name: str, number: int, asked_at: int, at: int, pieces: int | None = None, **by: Any) -> Row:
    """A reply within three seconds. `by`: who replied."""
    call = {"nonce": number.to_bytes(8, "big"), "asked_at_ms": asked_at, "reply_by_ms": asked_at + 3000, "at_ms": at}
    ttl = (asked_at + 3000 + DAY) // 1000
    return item("reply", f"T{name}", ttl=ttl, **call, **{"entry": entry(number, at=at, pieces=pieces), **by})


def transaction(name: str, number: int, until_ms: int, pieces: int | None = None) -> Row:
    times = {"check_after_ms": 60_000, "until_ms": until_ms, "checks": 0}
    return item("transaction", f"T{name}", entry=entry(number, 2, pieces=pieces), **times)


def decided(name: str, number: int, *messages: int, at: int = OLD) -> Row:
    """A transaction that was committed with these messages, or rolled back."""
    places = [{"queue": 0, "entry_id": message.to_bytes(8, "big")} for message in messages]
    about = {"entry_id": number.to_bytes(8, "big"), "state": "committed" if messages else "rolled_back", "at_ms": at}
    return item("decided_transaction", f"T{name}", **about, places=places)


def items(spark: SparkSession, *rows: Row) -> Items:
    names = item_schemas.ITEMS.fieldNames()
    all_ = spark.createDataFrame([{name: row.get(name) for name in names} for row in rows], item_schemas.ITEMS).cache()
    return Items(lambda kinds: all_.where(F.col("kind").isin(*kinds)))
