"""Messages: to send them, to read them without leasing, to trace them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from chalicelib.api.operation import (
    CORRELATION_ID,
    GROUP_NAME,
    MESSAGE_ID,
    TOPIC,
    TOPIC_NAME,
    Answers,
    Family,
    Json,
    Page,
    page_of,
)
from chalicelib.core.base.errors import AlreadyDelivered, InvalidField, QueueFull, StoreUnavailable
from chalicelib.core.base.fields import (
    Answer,
    Label,
    Sometimes,
    array,
    batch,
    declarations,
    flag,
    instant,
    integer,
    nullable,
    one_of,
    optional,
    request,
    required,
    string,
)
from chalicelib.core.base.limits import WAITING_COUNTED_MAX
from chalicelib.core.base.message import OFFSET, QUEUE, Produced
from chalicelib.core.base.message import Stored as StoredMessage
from chalicelib.core.catalogue.topic import Topic
from chalicelib.core.producing.new_message import BODY_OR_BYTES, NewMessage, parse_key, parse_queue, unchecked
from chalicelib.core.store.paging import positions_of
from chalicelib.core.telemetry.record import TRACE_HEADERS
from chalicelib.service import Service

if TYPE_CHECKING:
    from chalicelib.core.reading.trace import MessageState


MESSAGES = Family("Messages", "Produce messages, and read them without leasing.")
DELAYS = Family(
    "Delays", "Messages produced with `delay_ms` or `deliver_at_ms` that are not due yet. None is delivered early."
)

NEW = {name: declared.schema for name, declared in declarations(NewMessage).items()}
MESSAGES_PATH = TOPIC + "/messages"
_DELAYED = TOPIC + "/delayed"

# -- types ------------------------------------------------------------------------------------------------------------


@request
class ProduceRequest:
    """The messages to store.

    messages: Their bodies are at most {BODY_BYTES_MAX} bytes in all."""

    messages: list[Any] = required(batch(NewMessage), unchecked)


@request
class ReadRequest(Page):
    """queue: Read this queue only, counted from 0.
    offset: Begin at this offset of `queue`, or at its first offset if that is higher.
    at_ms: Begin with the first message stored at or after this instant.
    key: Read the messages with this key. Only for topics with `index_keys`."""

    queue: int | None = optional(QUEUE, unchecked)
    offset: int | None = optional(OFFSET)
    at_ms: int | None = optional(instant())
    key: str | None = optional(NEW["key"], parse_key)


class Stored(Answer):
    """Where a message was stored.

    deliver_at_ms: The message waits until then. Only if the request gave a time in the future."""

    message_id = MESSAGE_ID
    queue = QUEUE
    offset = nullable({**OFFSET, "description": f"{OFFSET['description']} Null while the message waits."})
    deliver_at_ms = Sometimes(instant())


class NotStoredError(Answer):
    """Why the message was not stored.

    code: The `code` of a problem.
    detail: One sentence for people.
    outcome: `unknown`: the store did not confirm the write, so the message may be stored after all."""

    code = string(enum=[StoreUnavailable.__name__, QueueFull.__name__])
    detail = string(examples=["the store did not answer, after retries"])
    outcome = Sometimes(string(const="unknown"))


class NotStored(Answer):
    """A message that was not stored."""

    error = NotStoredError


class ProduceResult(Answer):
    """All messages are stored.

    messages: In the order given."""

    messages = array(Stored)


class PartialProduceResult(Answer):
    """Some queues failed or are full. Messages with an `error` are not stored; the others are.

    messages: In the order given."""

    messages = array(one_of(Stored, NotStored))


class _Content(Answer):
    """body: The payload, if it was sent as text.
    body_base64: The payload in base64, if it was sent as bytes.
    key: Messages with the same key go to the same queue, in order. Null: the message has none.
    tag: The kind of message, for filters. Null: the message has none.
    properties: The producer's own names and values."""

    RULES: ClassVar[Any] = BODY_OR_BYTES
    message_id = MESSAGE_ID
    topic = TOPIC_NAME
    queue = QUEUE
    key = nullable(NEW["key"])
    tag = nullable(NEW["tag"])
    properties = NEW["properties"]
    body = Sometimes(NEW["body"])
    body_base64 = Sometimes(NEW["body_base64"])


class Message(_Content):
    """A message, with exactly one of `body` and `body_base64`.

    stored_at_ms: When the message was stored in its queue; for a delayed message, when its delay ended.
    sent_at_ms: When the message was sent, if it waited for its time or for a commit. Absent for messages that never
        waited, and for messages sent before release 0.1.0.
    correlation_id: The message is a request: reply to it with this id. Absent otherwise.
    reply_by_ms: The deadline of the request: a later reply is refused. Absent if there is no `correlation_id`."""

    offset = OFFSET
    stored_at_ms = instant()
    sent_at_ms = Sometimes(instant())
    correlation_id = Sometimes(CORRELATION_ID)
    reply_by_ms = Sometimes(instant())


class DelayedMessage(_Content):
    """A message that waits, with exactly one of `body` and `body_base64`. It keeps its id when it is delivered.

    key: Messages with the same key go to the same queue in the order of their due times. Those due at the same time
        keep the order of their request; between requests the order is open.
    deliver_at_ms: The earliest delivery.
    sent_at_ms: When the message was sent. Absent for messages sent before release 0.1.0."""

    deliver_at_ms = instant()
    sent_at_ms = Sometimes(instant())


class QueueWaiting(Answer):
    """How many messages of a queue wait until they are due.

    waiting: How many; {WAITING_COUNTED_MAX} means at least that many."""

    queue = QUEUE
    waiting = integer(most=WAITING_COUNTED_MAX, examples=[3])


class WaitingCounts(Answer):
    """How many messages of a topic wait until they are due.

    waiting: Over all queues.
    queues: One entry for each queue, including those that drain."""

    waiting = integer(examples=[3])
    queues = array(QueueWaiting)


class CancelResult(Answer):
    """The message is cancelled.

    cancelled: True: this request cancelled it."""

    cancelled = flag(const=True)


# -- operations -------------------------------------------------------------------------------------------------------


_PRODUCED: Answers = {
    200: ProduceResult,
    204: "All messages are stored. The request had `Prefer: return=minimal`, so there is no body.",
    207: PartialProduceResult,
}
_MORE: Any = {"headers": ("Prefer", *TRACE_HEADERS), "errors": (QueueFull,), "is_frequent": True}


@MESSAGES.operation("POST", MESSAGES_PATH, "produce", _PRODUCED, ProduceRequest, **_MORE)
def produce(service: Service, topic: Topic, request: ProduceRequest, **trace: str | None) -> tuple[int, Json]:
    """Produce messages.

    Unless all messages are valid, the call stores none. Messages of one call that land in the same queue get
    consecutive offsets; if they have a `dedup_id`, this holds for every {TRANSACTION_ITEMS_MAX} of them. A message
    without `key` and `queue` goes to any queue."""
    results = service.producing.produce(topic, request.messages, trace)
    is_whole = all(result.error is None for result in results)
    return 200 if is_whole else 207, {"messages": [produced(result) for result in results]}


def produced(result: Produced) -> Json:
    """The result of one message."""
    if result.error is not None:
        return {"error": {"code": result.error.code, "detail": result.error.detail, **result.error.members}}
    due = {} if result.deliver_at_ms is None else {"deliver_at_ms": result.deliver_at_ms}
    return {"message_id": result.message_id, "queue": result.queue, "offset": result.offset, **due}


@MESSAGES.operation("GET", MESSAGES_PATH, "read", page_of("messages", Message), ReadRequest)
def read_messages(service: Service, topic: Topic, request: ReadRequest) -> Json:
    """Read messages without leasing them.

    With `queue`: returns the messages of that queue in offset order, starting at `offset` or `at_ms`. Without `queue`:
    returns those of all queues by `stored_at_ms`, starting at `at_ms`. Both start at the oldest message by default.
    `offset` needs `queue` and excludes `at_ms`. With `key`, which excludes all three: returns the messages with that
    key by `stored_at_ms`; the topic must have `index_keys`, and messages stored before that was set are not found.
    Reading has no effect on any group."""
    if request.key is not None:
        messages, rest = _with_key(service, topic, request, request.key)
    else:
        messages, rest = service.reading.lookup.read(topic, _positions(service, topic, request), request.limit)
    return {"messages": [message.as_json(topic.name) for message in messages], "next": rest}


def _with_key(service: Service, topic: Topic, request: ReadRequest, key: str) -> tuple[list[StoredMessage], str | None]:
    if other := next((name for name in ("queue", "offset", "at_ms") if getattr(request, name) is not None), None):
        raise InvalidField(f"parameter 'key' excludes 'queue', 'offset' and 'at_ms'; '{other}' is given too")
    if not topic.index_keys:
        raise InvalidField(f"parameter 'key' needs a topic with index_keys; topic {topic.name!r} has none")
    return service.reading.by_key.page(topic, key, request.limit, request.next)


def _positions(service: Service, topic: Topic, request: ReadRequest) -> dict[int, int]:
    """The offset to start from in each queue: from the previous page, an offset, or an instant."""
    queue, offset, at_ms = request.queue, request.offset, request.at_ms
    if queue is not None:
        parse_queue(queue, topic.most, Label("queue", "parameter"))
    if request.next is not None:
        positions = positions_of(request.next, topic.most)  # wherever the first page began
        if queue is not None and positions.keys() != {queue}:
            raise InvalidField(f"parameter 'next' must come from a query of queue {queue} alone")
        return positions
    if offset is not None and (queue is None or at_ms is not None):
        raise InvalidField(f"parameter 'offset' needs 'queue' and excludes 'at_ms'; it is {offset}")
    if offset is not None and queue is not None:
        return {queue: offset}
    positions = service.reading.lookup.positions_at(topic, at_ms or 0)
    return positions if queue is None else {queue: positions[queue]}


@MESSAGES.operation("GET", MESSAGES_PATH + "/{message_id}", "read", Message)
def get_message(service: Service, topic: Topic, message_id: str) -> Json:
    """Read one message by its id.

    Reading has no effect on any group."""
    return service.reading.lookup.by_id(topic, message_id).as_json(topic.name)


@DELAYS.operation("GET", _DELAYED, "read", page_of("messages", DelayedMessage), Page)
def list_delayed(service: Service, topic: Topic, request: Page) -> Json:
    """List the messages that wait.

    The list is ordered by due time; messages of one request that are due at the same time keep its order. A page may
    hold fewer than `limit` messages to keep the response small enough."""
    delayed, rest = service.delays.messages.page(topic, request.limit, request.next)
    return {"messages": [waiting.as_json(topic.name) for waiting in delayed], "next": rest}


@DELAYS.operation("GET", TOPIC + "/waiting", "read", WaitingCounts)
def count_delayed(service: Service, topic: Topic) -> Json:
    """Count the messages that wait.

    Counts up to {WAITING_COUNTED_MAX} messages of each queue, due or not. It reads each message, except payloads that
    are stored separately."""
    counts = service.delays.messages.counts(topic)
    queues = [{"queue": queue, "waiting": count} for queue, count in enumerate(counts)]
    return {"waiting": sum(counts), "queues": queues}


@DELAYS.operation("DELETE", _DELAYED + "/{message_id}", "produce", CancelResult, errors=(AlreadyDelivered,))
def cancel_delayed(service: Service, topic: Topic, message_id: str) -> Json:
    """Cancel a message that waits.

    The answer is final: a message reported as cancelled is never delivered, and one reported as delivered is in its
    queue. Cancelling a message twice returns 404."""
    service.delays.messages.cancel(topic, message_id)
    return {"cancelled": True}


# -- traces -----------------------------------------------------------------------------------------------------------

TRACES = Family(
    "Traces", "The state of a message in each group and, in a topic with `trace`, the calls that led there."
)

# -- types ------------------------------------------------------------------------------------------------------------


class TraceEvent(Answer):
    """An event of the message in a group. An expired lease is no event; the next pop has a higher `attempt`.

    event: The effect of a call. `dead`: the message became a dead letter.
    at_ms: When it happened.
    attempt: The number of the delivery. 0: the message was redriven or moved back, and not delivered since.
    consumer_id: The `consumer_id` of the pop. Absent if it gave none.
    invisible_until_ms: The end of the lease that a pop or an extend set. Absent otherwise.
    reason: Why the message was nacked or buried, or is dead. Absent if no reason was given.
    caller: The caller: the id of a token or of an access key, or an IAM principal. Absent without access control, and
        for a push."""

    event = string(enum=["popped", "acked", "nacked", "extended", "buried", "dead"])
    at_ms = instant()
    attempt = integer(examples=[1])
    consumer_id = Sometimes(string(examples=["worker-1"]))
    invisible_until_ms = Sometimes(instant())
    reason = Sometimes(string(minLength=0, examples=["no stock"]))
    caller = Sometimes(string(examples=["QJ7ZK3XW5B2NDM4T"]))


class GroupTrace(Answer):
    """The state of a message in a group.

    consumer_id: In a broadcast group, the consumer. Null otherwise.
    state: `ready`: a pop can take it, if the group's filter matches. `in_flight`: it is leased. `retrying`: it waits
        after a nack. `dead`: it is a dead letter. `settled`: it was acked or skipped: it had expired, did not match the
        filter, or lies before the position where the group started or was reset to.
    attempts: How often it was delivered, if it is leased, retrying or dead. Null otherwise.
    until_ms: When the lease or the wait for the retry ends. Null otherwise.
    events: The events, earliest first. Empty in a topic without `trace`."""

    group = GROUP_NAME
    consumer_id = nullable(string(examples=["worker-1"]))
    state = string(enum=["ready", "in_flight", "retrying", "settled", "dead"])
    attempts = nullable(integer(examples=[1]))
    until_ms = nullable(instant())
    events = array(TraceEvent)


class MessageTrace(Answer):
    """The state of a message in each group, and its events.

    stored_at_ms: When the message was stored.
    traced: The topic has `trace` set.
    complete: False: some groups are left out, or the latest events, since there are too many around this message.
    groups: One entry for each group, by name; for each consumer in a broadcast group."""

    message_id = MESSAGE_ID
    topic = TOPIC_NAME
    queue = QUEUE
    offset = OFFSET
    stored_at_ms = instant()
    traced = flag()
    complete = flag()
    groups = array(GroupTrace)


# -- operations -------------------------------------------------------------------------------------------------------


@TRACES.operation("GET", MESSAGES_PATH + "/{message_id}/trace", "read", MessageTrace)
def get_trace(service: Service, topic: Topic, message_id: str) -> Json:
    """Trace a message.

    Shows its state in each of the first {GROUP_DETAILS_MAX} groups by name. In a topic with `trace`, it also lists the
    events that led there. A call records its events right after its effect, so those of a crashed call may be
    missing."""
    trace = service.reading.traces.of(topic, message_id)
    stored = trace.stored
    place = {"message_id": stored.message_id, "topic": topic.name, "queue": stored.queue, "offset": stored.offset}
    groups = [_in_group(found) for found in trace.states]
    about = {"traced": topic.trace, "complete": trace.is_complete}
    return {**place, "stored_at_ms": stored.stored_at_ms, **about, "groups": groups}


def _in_group(found: MessageState) -> Json:
    lease, letter = found.lease, found.letter
    events = [
        {
            "event": event.name,
            "at_ms": event.at_ms,
            "attempt": event.attempt,
            **({"consumer_id": event.by} if event.by else {}),
            **({"invisible_until_ms": event.until_ms} if event.until_ms else {}),
            **({"reason": event.reason} if event.reason else {}),
            **({"caller": event.caller} if event.caller else {}),
        }
        for event in found.events
    ]
    if letter:
        reason = {"reason": letter.reason} if letter.reason else {}
        events.append({"event": "dead", "at_ms": letter.dead_at_ms, "attempt": letter.attempts, **reason})
    consumer = found.cursor.last_consumer_id if found.group.is_broadcast else None
    attempts = letter.attempts if letter else lease.attempt if lease else None
    until_ms = lease.deadline if lease and found.state in ("in_flight", "retrying") else None
    whose = {"group": found.group.name, "consumer_id": consumer}
    return {**whose, "state": found.state, "attempts": attempts, "until_ms": until_ms, "events": events}
