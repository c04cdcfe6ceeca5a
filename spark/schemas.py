"""The schemas of the items that the pipeline reads and of the tables that it writes, each defined once.

A row of `ITEMS` is one item of the table, as an export has it. `kind` says which struct of the row is filled; all
others are null. Kinds without a struct (`directory`, `window`, `alarm`, `sweep`, `secret`) tell nothing
that a job needs; the value of the secret is never read. Times are in ms since the epoch, sizes in bytes.
"""

from __future__ import annotations

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

_STRING, _LONG, _INT, _BOOL, _BYTES = StringType(), LongType(), IntegerType(), BooleanType(), BinaryType()


def _struct(**fields: DataType) -> StructType:
    return StructType([StructField(name.rstrip("_"), kind) for name, kind in fields.items()])


ENTRY = _struct(
    id=_BYTES,
    count_=_INT,
    stored_at_ms=_LONG,
    codec=_STRING,  # json or zstd
    wire_bytes=_LONG,
    data=_BYTES,  # the packed messages; null: they are in `pieces` payload items (0: in S3)
    pieces=_INT,
)

LEASE = _struct(start=_LONG, count_=_INT, deadline_ms=_LONG, attempt=_INT)

KINDS: dict[str, StructType | None] = {
    "topic": _struct(
        name=_STRING,
        queues=_INT,
        retention_ms=_LONG,
        past_retentions=ArrayType(_struct(until_ms=_LONG, retention_ms=_LONG)),  # of what was stored until then
        index_keys=_BOOL,
        created_at_ms=_LONG,
        version=_LONG,
        delays=_BOOL,
    ),
    "grave": _struct(queues=_INT, delays=_BOOL),
    "directory": None,
    "group": _struct(
        name=_STRING,
        group_id=_STRING,
        starts=ArrayType(_LONG),
        mode=_STRING,
        ordered=_BOOL,
        paused=_BOOL,
        invisible_ms=_LONG,
        max_attempts=_INT,
        max_in_flight=_INT,
        backoff_ms=_STRING,
        filter=_STRING,
        version=_LONG,
        created_at_ms=_LONG,
    ),
    "cursor": _struct(
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
        leases=ArrayType(_struct(token=_STRING, **{f.name: f.dataType for f in LEASE}, marks=ArrayType(_BYTES))),
        pages=ArrayType(_struct(page_id=_STRING, due_ms=_LONG, count_=_INT, low=_LONG)),
    ),
    "window": None,
    "alarm": None,
    "segment": _struct(queue=_INT, base=_LONG, end=_LONG, bytes=_LONG, entries=ArrayType(ENTRY)),
    "payload": _struct(entry_id=_BYTES, piece=_INT, data=_BYTES),
    "retry_page": _struct(group_id=_STRING, queue=_INT, due_ms=_LONG, page_id=_STRING, retries=ArrayType(LEASE)),
    "delayed": _struct(queue=_INT, due_ms=_LONG, entry=ENTRY, cancelled=_BOOL),
    "decision": _struct(
        queue=_INT,
        number=_LONG,
        at_ms=_LONG,
        by=_BYTES,
        slots=ArrayType(_struct(due_ms=_LONG, entry_id=_BYTES)),
        entry=ENTRY,  # null: the messages in these slots are cancelled
        base=_LONG,
    ),
    "dedup": _struct(at_ms=_LONG, entry=ENTRY, index=_INT, queue=_INT, base=_LONG, create=_BOOL, due_ms=_LONG),
    "index": _struct(stored_at_ms=_LONG, entry_id=_BYTES, queue=_INT, base=_LONG),
    "dead_letter": _struct(
        group_id=_STRING,
        queue=_INT,
        offset=_LONG,
        consumer=_STRING,
        epoch=_LONG,
        attempts=_INT,
        reason=_STRING,
        dead_at_ms=_LONG,
    ),
    "sweep": None,
    "secret": None,
}
"""Each kind of item, with the struct of that name in `ITEMS`."""

ITEMS = StructType(
    [
        StructField("kind", _STRING, nullable=False),
        StructField("pk", _STRING, nullable=False),
        StructField("sk", _STRING, nullable=False),
        StructField("topic_id", _STRING),
        StructField("bytes", _LONG),  # what the item weighs in the table, as DynamoDB counts
        StructField("ttl", _LONG),  # seconds since the epoch
        StructField("written_us", _LONG),  # when it was written, in an incremental export; null in a full one
        StructField("is_deleted", _BOOL),  # an incremental export says that it is gone: no struct is filled
        StructField("file", _STRING, nullable=False),
        StructField("line", _LONG, nullable=False),
        *(StructField(kind, struct) for kind, struct in KINDS.items() if struct),
    ]
)

UNREADABLE, SPAN = "unreadable", "span"
LANDED = StructType(
    [
        *ITEMS.fields,
        StructField("trouble", _struct(reason=_STRING, raw=_STRING)),
        StructField("days", _struct(first=DateType(), last=DateType())),
    ]
)
"""An export as jobs read it: items without the messages in their entries (`data` is empty where it was not null), and
two more kinds of row. `unreadable`: what could not be read, its `file`, `line` and `trouble`. `span`: one a file, the
`days` from the first to the last on which entries of its segments were stored, null without entries."""

PACKED = _struct(
    topic_id=_STRING,
    entry_id=_BYTES,
    queue=_INT,
    offset=_LONG,  # of the first message
    count_=_INT,
    stored_at_ms=_LONG,
    codec=_STRING,
    pieces=_INT,
    piece=_INT,
    data=_BYTES,
    file=_STRING,
    line=_LONG,
)
"""Packed messages, and where they belong. A row is an entry with its `data`, an entry whose data are in so many
`pieces` (0: in S3), or one such `piece`, of which there are only `topic_id`, `entry_id`, `data`."""

QUARANTINE = _struct(file=_STRING, line=_LONG, reason=_STRING, raw=_STRING)
"""Unreadable input. `line` 0: the file as a whole, or the rest of it. `raw`: the beginning of the line."""

MESSAGES = _struct(
    topic=_STRING,
    topic_id=_STRING,
    queue=_INT,
    offset=_LONG,
    message_id=_STRING,
    entry_id=_STRING,  # hex
    stored_at_ms=_LONG,
    due_ms=_LONG,  # of a message that waited; else null
    key=_STRING,
    tag=_STRING,
    properties=MapType(_STRING, _STRING),
    body=_BYTES,
    is_text=_BOOL,
    date=DateType(),  # UTC, of stored_at_ms
)
"""Every message of every log, partitioned by topic, date and the export that brought it first."""

VIOLATIONS = _struct(
    invariant=_STRING,
    severity=_STRING,  # violation, doubt or cost, see `transforms.audit.verdict`
    topic=_STRING,
    topic_id=_STRING,
    queue=_INT,
    offset=_LONG,
    detail=_STRING,
)
"""The audit's findings, partitioned by export."""

BACKLOG = _struct(
    topic=_STRING,
    topic_id=_STRING,
    group=_STRING,
    queue=_INT,
    consumer=_STRING,  # hash of a consumer_id in a broadcast group; else empty
    end=_LONG,
    next=_LONG,
    committed=_LONG,  # the lowest offset that is not settled, as the service says it
    ready=_LONG,
    in_flight=_LONG,
    retrying=_LONG,
    dead=_LONG,
    oldest_at_ms=_LONG,  # when it was stored; null: there is none, or the log has let go of it
    oldest_age_ms=_LONG,
    last_pop_at_ms=_LONG,
    is_forgotten=_BOOL,  # a consumer that its group does not wait for any more: of it only `dead` counts
    lag=_LONG,  # ready + in_flight
    oldest_offset=_LONG,  # of what is neither acked nor dead, retries too; null: there is none
)
"""How far each group is, by queue: table `backlog`."""

TRAFFIC = _struct(
    topic=_STRING, topic_id=_STRING, queue=_INT, minute_ms=_LONG, tag=_STRING, messages=_LONG, body_bytes=_LONG
)
"""Messages stored, by topic, queue, minute and tag: table `traffic`."""

HOT_KEYS = _struct(
    topic=_STRING,
    topic_id=_STRING,
    rank=_INT,
    key=_STRING,
    messages=_LONG,
    body_bytes=_LONG,
    share=DoubleType(),  # of all messages of the topic: 0 to 1
)
"""The keys of a topic with the most messages: table `hot_keys`."""

SKEW = _struct(
    topic=_STRING,
    topic_id=_STRING,
    queues=_INT,
    messages=_LONG,
    fullest_queue=_INT,
    max_over_mean=DoubleType(),  # messages of the fullest queue, by those of a queue on average
    variation=DoubleType(),  # standard deviation of messages per queue, by their mean
    peak_appends=_LONG,  # entries in the busiest second of a queue
    suggested_queues=_INT,
)
"""How evenly messages lie in the queues, and how many queues the busiest second asks for: table `skew`."""

LATENESS = _struct(
    topic=_STRING,
    topic_id=_STRING,
    messages=_LONG,
    p50_ms=_LONG,
    p90_ms=_LONG,
    p99_ms=_LONG,
    max_ms=_LONG,
    waiting=_LONG,
    overdue=_LONG,  # of those that wait: past their time
    early=_LONG,  # before their time: must be none
)
"""How much later than due messages that waited came into the log, by topic: table `delays`."""

LATENESS_HISTOGRAM = _struct(topic=_STRING, topic_id=_STRING, from_ms=_LONG, below_ms=_LONG, messages=_LONG)
"""Messages by lateness; a null bound is none: table `delay_histogram`."""

WAITING = _struct(topic=_STRING, topic_id=_STRING, due_hour_ms=_LONG, messages=_LONG, overdue=_LONG, first_due_ms=_LONG)
"""Messages that still wait, by the hour in which they are due: table `delay_waiting`."""

DEAD_LETTERS = _struct(
    topic=_STRING, topic_id=_STRING, group=_STRING, reason=_STRING, hour_ms=_LONG, letters=_LONG, attempts_max=_INT
)
"""Dead letters by group, reason and the hour in which they died: table `dead_letters`."""

DEAD_MESSAGES = _struct(
    topic=_STRING,
    topic_id=_STRING,
    group=_STRING,
    consumer=_STRING,
    queue=_INT,
    offset=_LONG,
    reason=_STRING,
    attempts=_INT,
    dead_at_ms=_LONG,
    message_id=_STRING,  # this and all below: null where `messages` does not have it
    key=_STRING,
    tag=_STRING,
    stored_at_ms=_LONG,
    body_bytes=_LONG,
)
"""Each dead letter with what its message says: table `dead_messages`."""

COST = _struct(
    topic=_STRING,  # null: of the service as a whole
    topic_id=_STRING,
    group=_STRING,  # null: of no group
    kind=_STRING,
    size=_STRING,  # class of the items' size
    items=_LONG,
    bytes=_LONG,
    write_units=DoubleType(),
    read_units=DoubleType(),
    write_usd=DoubleType(),
    read_usd=DoubleType(),
    usd_per_month=DoubleType(),
    basis=_STRING,  # derived: from what the items hold; assumed: from how consumers usually pop
)
"""Stored items, their cost a month, and the units that they have used: table `cost`."""

ARRIVED = _struct(path=_STRING, at=_STRING, is_done=_BOOL)
"""Exports that the job `incremental` has seen: `at` as their manifest has it; not done: it is to be tried again."""
