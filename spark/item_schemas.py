"""The schemas of an export's items and the packed messages in them.

A row of `ITEMS` is one item of the table, as an export has it. `kind` says which struct of the row is filled; all
others are null. Jobs need nothing from kinds without a struct; the value of the secret is never read. Times are in ms
since the epoch, sizes in bytes.
"""

from __future__ import annotations

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

_STRING, _LONG, _INT, _BOOL, _BYTES = StringType(), LongType(), IntegerType(), BooleanType(), BinaryType()


def struct(**fields: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in fields.items()])


ENTRY = struct(
    id=_BYTES,
    count=_INT,
    stored_at_ms=_LONG,
    codec=_STRING,  # json or zstd
    wire_bytes=_LONG,
    data=_BYTES,  # the packed messages; null: they are in `pieces` payload items (0: in S3)
    pieces=_INT,
    least_ttl_ms=_LONG,  # the shortest time to live of a message; null: none has one
    first_sent_at_ms=_LONG,  # when the first of the messages that waited was sent; null: none waited
)

SEGMENT_ENTRY = struct(offset=_LONG, **{f.name: f.dataType for f in ENTRY})
"""`offset`: of the entry's first message."""

LEASE = struct(start=_LONG, count=_INT, deadline_ms=_LONG, attempt=_INT)
SET_ASIDE_UNTIL_MS = 253_402_300_799_999
"""The deadline of a lease with messages set aside: ready, except that they wait for others of their keys."""

KINDS: dict[str, StructType | None] = {
    "topic": struct(
        name=_STRING,
        queues=_INT,
        readers=_INT,  # queues that are read: more than `queues` while some drain
        most=_INT,  # the most queues that the topic ever had
        retention_ms=_LONG,
        past_retentions=ArrayType(struct(until_ms=_LONG, retention_ms=_LONG)),  # for messages stored until then
        index_keys=_BOOL,
        created_at_ms=_LONG,
        version=_LONG,
        delays=_BOOL,
    ),
    "grave": struct(queues=_INT, delays=_BOOL),
    "listed_topic": None,
    "directory": None,
    "group": struct(
        name=_STRING,
        group_id=_STRING,
        starts=ArrayType(_LONG),
        mode=_STRING,
        ordered=_BOOL,  # as a whole, or by key
        paused=_BOOL,
        invisible_ms=_LONG,
        max_attempts=_INT,  # null: no end
        max_in_flight=_INT,
        backoff_ms=_STRING,
        filter=_STRING,
        version=_LONG,
        created_at_ms=_LONG,
    ),
    "cursor": struct(
        group=_STRING,
        group_id=_STRING,
        consumer=_STRING,  # hash of a consumer_id in a broadcast group; else empty
        queue=_INT,
        epoch=_LONG,
        next=_LONG,
        segment=_LONG,
        at_ms=_LONG,
        by=_STRING,
        dead=_LONG,
        leases=ArrayType(struct(token=_STRING, **{f.name: f.dataType for f in LEASE}, marks=ArrayType(_BYTES))),
        pages=ArrayType(struct(page_id=_STRING, due_ms=_LONG, count=_INT, low=_LONG)),
    ),
    "window": None,
    "alarm": None,
    "push_slot": None,
    "note": None,
    "push_pause": None,
    "segment": struct(queue=_INT, base=_LONG, end=_LONG, bytes=_LONG, entries=ArrayType(SEGMENT_ENTRY), closed=_BOOL),
    "payload": struct(entry_id=_BYTES, piece=_INT, data=_BYTES),
    "retry_page": struct(group_id=_STRING, queue=_INT, due_ms=_LONG, page_id=_STRING, retries=ArrayType(LEASE)),
    "delayed": struct(queue=_INT, due_ms=_LONG, entry=ENTRY, cancelled=_BOOL),
    "transaction": struct(entry=ENTRY, check_after_ms=_LONG, until_ms=_LONG, checks=_INT),
    "decided_transaction": struct(
        entry_id=_BYTES,
        state=_STRING,  # committed or rolled_back
        at_ms=_LONG,
        places=ArrayType(struct(queue=_INT, entry_id=_BYTES)),  # of its messages, which are due at `at_ms`
    ),
    "decision": struct(
        queue=_INT,
        number=_LONG,
        at_ms=_LONG,
        by=_BYTES,
        slots=ArrayType(struct(due_ms=_LONG, entry_id=_BYTES)),
        entry=ENTRY,  # null: the messages in these slots are cancelled
        base=_LONG,
    ),
    "late_message": None,
    "dedup": struct(at_ms=_LONG, entry=ENTRY, index=_INT, queue=_INT, base=_LONG, create=_BOOL, due_ms=_LONG),
    "index": struct(stored_at_ms=_LONG, entry_id=_BYTES, queue=_INT, base=_LONG),
    "dead_letter": struct(
        group_id=_STRING,
        queue=_INT,
        offset=_LONG,
        consumer=_STRING,
        epoch=_LONG,
        attempts=_INT,
        reason=_STRING,
        dead_at_ms=_LONG,
    ),
    "reply": struct(
        nonce=_BYTES,  # a part of the correlation id
        asked_at_ms=_LONG,
        reply_by_ms=_LONG,
        at_ms=_LONG,
        entry=ENTRY,  # null: the request has timed out
        group=_STRING,  # this and all below: the replier, null without a receipt
        queue=_INT,
        offset=_LONG,
        attempt=_INT,
        taken_at_ms=_LONG,
    ),
    "appointment": None,
    "sweep": None,
    "secret": None,
    "token": None,
    "sqs_queue": None,
    "move_task": None,
}
"""Each kind of item, with the struct of that name in `ITEMS`."""

ITEMS = StructType(
    [
        StructField("kind", _STRING, nullable=False),
        StructField("pk", _STRING, nullable=False),
        StructField("sk", _STRING, nullable=False),
        StructField("topic_id", _STRING),
        StructField("bytes", _LONG),  # the item's size in the table, as DynamoDB counts
        StructField("ttl", _LONG),  # seconds since the epoch
        StructField("written_us", _LONG),  # when it was written, in an incremental export; null in a full one
        StructField("is_deleted", _BOOL),  # the incremental export has its removal: no struct is filled
        StructField("file", _STRING, nullable=False),
        StructField("line", _LONG, nullable=False),
        *(StructField(kind, struct) for kind, struct in KINDS.items() if struct),
    ]
)

PACKED = struct(
    topic_id=_STRING,
    entry_id=_BYTES,
    queue=_INT,
    offset=_LONG,  # of the first message
    count=_INT,
    stored_at_ms=_LONG,
    codec=_STRING,
    pieces=_INT,
    piece=_INT,
    data=_BYTES,
    file=_STRING,
    line=_LONG,
)
"""Packed messages and their places. A row is an entry with its `data`, an entry whose data are in this many `pieces`
(0: in S3), or one such `piece`, which has only `topic_id`, `entry_id` and `data`."""
