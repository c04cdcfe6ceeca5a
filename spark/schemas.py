"""The schemas of the tables that jobs write. Times are in ms since the epoch, sizes in bytes."""

from __future__ import annotations

from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DateType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
)

from spark.item_schemas import struct

_STRING, _LONG, _INT, _BOOL, _BYTES = StringType(), LongType(), IntegerType(), BooleanType(), BinaryType()


QUARANTINE = struct(file=_STRING, line=_LONG, reason=_STRING, raw=_STRING)
"""Unreadable input. `line` 0: the file as a whole, or the rest of it. `raw`: the beginning of the line."""

UNREADABLE = struct(
    topic_id=_STRING, queue=_INT, offset=_LONG, entry_id=_STRING, file=_STRING, line=_LONG, reason=_STRING
)
"""Entries whose messages cannot be unpacked: table `_unreadable`."""

TOPICS = struct(topic_id=_STRING, topic=_STRING)
"""The name of each topic that ever was in an export: table `topics`."""

MESSAGES = struct(
    topic=_STRING,
    topic_id=_STRING,
    queue=_INT,
    offset=_LONG,
    message_id=_STRING,
    entry_id=_STRING,  # hex
    stored_at_ms=_LONG,
    due_ms=_LONG,  # of a message that waited; else null
    sent_at_ms=_LONG,  # the same; also null if it was sent before release 0.1.0
    key=_STRING,
    tag=_STRING,
    properties=MapType(_STRING, _STRING),
    body=_BYTES,
    is_text=_BOOL,
    ttl_ms=_LONG,  # as its producer gave it; null: not given
    correlation_id=_STRING,  # of a request, as is reply_by_ms; else null
    reply_by_ms=_LONG,
    expires_at_ms=_LONG,  # when its delivery ends: the earlier of both; null: with its retention
    date=DateType(),  # UTC, of stored_at_ms
)
"""Every message of every log, partitioned by date. The table has one more column: `export`, the first export with the
message."""

VIOLATIONS = struct(
    invariant=_STRING,
    severity=_STRING,  # violation, doubt or cost, see `transforms.audit.findings`
    topic=_STRING,
    topic_id=_STRING,
    queue=_INT,
    offset=_LONG,
    detail=_STRING,
)
"""The audit's findings, partitioned by export."""

BACKLOG = struct(
    topic=_STRING,
    topic_id=_STRING,
    group=_STRING,
    queue=_INT,
    consumer=_STRING,  # hash of a consumer_id in a broadcast group; else empty
    end=_LONG,
    next=_LONG,
    committed=_LONG,  # the lowest offset that is not settled, as the service shows it
    ready=_LONG,
    in_flight=_LONG,
    retrying=_LONG,
    dead=_LONG,
    oldest_at_ms=_LONG,  # when it was stored; null: there is none, or it has expired
    oldest_age_ms=_LONG,
    last_pop_at_ms=_LONG,
    is_forgotten=_BOOL,  # an idle consumer that its group has dropped: only `dead` counts
    lag=_LONG,  # ready + in_flight
    oldest_offset=_LONG,  # of the messages neither acked nor dead, including retries; null: there is none
)
"""The progress of each group, by queue: table `backlog`."""

TRAFFIC = struct(
    topic=_STRING, topic_id=_STRING, queue=_INT, minute_ms=_LONG, tag=_STRING, messages=_LONG, body_bytes=_LONG
)
"""Messages stored, by topic, queue, minute and tag: table `traffic`, by date."""

HOT_KEYS = struct(
    topic=_STRING,
    topic_id=_STRING,
    rank=_INT,
    key=_STRING,
    messages=_LONG,
    body_bytes=_LONG,
    share=DoubleType(),  # of all messages of the topic on that day: 0 to 1
)
"""The keys of a topic with the most messages: table `hot_keys`, by date."""

SKEW = struct(
    topic=_STRING,
    topic_id=_STRING,
    queues=_INT,
    messages=_LONG,
    fullest_queue=_INT,
    max_over_mean=DoubleType(),  # messages of the fullest queue, divided by the average of all queues
    variation=DoubleType(),  # standard deviation of messages per queue, divided by their mean
    peak_appends=_LONG,  # entries in the busiest second of a queue
    suggested_queues=_INT,
)
"""How evenly messages are spread over the queues, and how many queues the busiest second needs: table `skew`, by
date."""

LATENESS = struct(
    topic=_STRING,
    topic_id=_STRING,
    messages=_LONG,
    p50_ms=_LONG,
    p90_ms=_LONG,
    p99_ms=_LONG,
    max_ms=_LONG,
    early=_LONG,  # before their time: must be none
)
"""How long after their due time delayed messages entered the log, by topic: table `delays`, by date."""

LATENESS_HISTOGRAM = struct(topic=_STRING, topic_id=_STRING, from_ms=_LONG, below_ms=_LONG, messages=_LONG)
"""Messages by lateness; null: no bound: table `delay_histogram`, by date."""

WAITING = struct(topic=_STRING, topic_id=_STRING, due_hour_ms=_LONG, messages=_LONG, overdue=_LONG, first_due_ms=_LONG)
"""Messages that still wait, by the hour in which they are due: table `delay_waiting`."""

REQUESTS = struct(
    topic=_STRING,
    topic_id=_STRING,
    minute_ms=_LONG,  # in which they were asked; null: all of the topic together
    calls=_LONG,
    replied=_LONG,
    timed_out=_LONG,
    waiting=_LONG,
    late=_LONG,  # replied after their deadline: must be none
    orphaned=_LONG,  # replied, though the log does not have the request: must be none
    taken_p50_ms=_LONG,  # taken: from asking until a consumer has it, for replies with a receipt
    taken_p90_ms=_LONG,
    taken_p99_ms=_LONG,
    taken_max_ms=_LONG,
    handled_p50_ms=_LONG,  # handled: from then until its reply is stored
    handled_p90_ms=_LONG,
    handled_p99_ms=_LONG,
    handled_max_ms=_LONG,
    replied_p50_ms=_LONG,  # replied: from asking until the reply is stored
    replied_p90_ms=_LONG,
    replied_p99_ms=_LONG,
    replied_max_ms=_LONG,
)
"""Requests by topic and minute: table `requests`."""

DEAD_LETTERS = struct(
    topic=_STRING, topic_id=_STRING, group=_STRING, reason=_STRING, hour_ms=_LONG, letters=_LONG, attempts_max=_INT
)
"""Dead letters by group, reason and the hour in which they died: table `dead_letters`."""

DEAD_MESSAGES = struct(
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
"""Each dead letter with its message: table `dead_messages`."""

COST = struct(
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
    basis=_STRING,  # derived: from the items; assumed: from how consumers usually pop
)
"""Stored items, their cost a month, and the units that they have used: table `cost`."""

ARRIVED = struct(path=_STRING, at=_STRING, is_done=_BOOL)
"""Exports that the job `incremental` has seen. `at`: from their manifest. Not done: the job tries the export again."""
