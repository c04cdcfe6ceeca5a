"""Sending messages: `SendMessage` and `SendMessageBatch`."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import replace

from chalicelib.core.base.limits import MIB, QUEUES_MAX, SECOND_MS
from chalicelib.core.base.message import Message, Produced
from chalicelib.core.base.records import record
from chalicelib.core.producing.new_message import Sending
from chalicelib.doors.sqs import messages
from chalicelib.doors.sqs.action import (
    INTEGER,
    TEXT,
    Actions,
    Batch,
    Call,
    Json,
    List,
    Members,
    Outcome,
    Structure,
    demand_batch,
)
from chalicelib.doors.sqs.errors import SqsError, bad_value, missing, of_service
from chalicelib.doors.sqs.messages import ATTRIBUTES, Attributes, uuid_of
from chalicelib.doors.sqs.queue import SqsQueue
from chalicelib.doors.sqs.queue_attributes import (
    BY_GROUP,
    CONTENT_BASED,
    DELAY,
    DELAY_SECONDS_MAX,
    SCOPE,
    SIZE,
    default_of,
    number,
)
from chalicelib.doors.xml_text import is_sendable

SENDING = Actions()

BATCH_BYTES_MAX = MIB
"""All messages of a batch: as much as one may have."""
TRACE_HEADER = "AWSTraceHeader"
GROUP, DEDUPLICATION, TRACE, SENDER = "sqs:group", "sqs:dedup", "sqs:trace", "sqs:sender"
"""Properties of the door."""

_GROUP_ID, _DEDUPLICATION_ID = "MessageGroupId", "MessageDeduplicationId"
_NO_DEDUPLICATION = (
    "The queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId provided explicitly"
)
_NOT_OF_QUEUE = "The request include parameter that is not valid for this queue type."
_SEQUENCE_FIRST = 10**19
"""Sequence numbers have 20 digits."""
_ENTRY = "SendMessageBatchRequestEntry"
_ID = re.compile(r"[A-Za-z0-9!-/:-@\[-`{-~]{1,128}")
_TRACE = re.compile("[ -~]{1,512}")
"""A header that is one: any longer one is no trace."""
_MESSAGE: Members = {
    "MessageBody": TEXT,
    DELAY: INTEGER,
    "MessageAttributes": ATTRIBUTES,
    "MessageSystemAttributes": ATTRIBUTES,
    _GROUP_ID: TEXT,
    _DEDUPLICATION_ID: TEXT,
}


@record
class _Ready:
    """A message that can be sent, and its digests."""

    message: Message
    digests: Json


@SENDING.action("SendMessage", "produce", {"QueueUrl": TEXT, **_MESSAGE}, required=("MessageBody",))
def send_message(call: Call) -> Json:
    _demand_own_topic(call)
    ready = _ready(call, call.request)
    [result] = _send(call, [ready])
    if result.error:
        raise result.error
    return _sent(call.queue, ready, result)


@SENDING.action(
    "SendMessageBatch",
    "produce",
    {"QueueUrl": TEXT, "Entries": List(Structure({"Id": TEXT, **_MESSAGE}))},
    required=("Entries",),
)
def send_message_batch(call: Call) -> Json:
    _demand_own_topic(call)
    entries = call.request["Entries"]
    demand_batch(entries, _ENTRY, lambda entry: call.queue.is_fifo and _fifo_ids_of_entry(call.queue, entry))
    total = sum(_bytes_of(entry) for entry in entries)
    if total > BATCH_BYTES_MAX:
        sent = f"You have sent {total} bytes."
        raise SqsError("BatchRequestTooLong", f"Batch requests cannot be longer than {BATCH_BYTES_MAX} bytes. {sent}")
    batch = Batch(entries, lambda entry: _ready(call, entry, is_entry=True))
    results = _send(call, batch.valid) if batch.valid else []
    return batch.answer(_outcome(call.queue, *each) for each in zip(batch.valid, results, strict=True))


def _demand_own_topic(call: Call) -> None:
    queue = call.queue
    if not queue.owns_topic:
        reads = f"queue '{queue.name}' reads topic '{queue.topic}': send to '{queue.topic}'"
        raise SqsError("UnsupportedOperation", reads)


# -- one message ------------------------------------------------------------------------------------------------------


def _ready(call: Call, given: Json, is_entry: bool = False) -> _Ready:
    """The message of a request, or of an entry. Raises SqsError."""
    body = given.get("MessageBody")
    if not body:
        raise missing("MessageBody")
    if not is_sendable(body):
        raise SqsError("InvalidMessageContents", "The message contains characters outside the allowed set.")
    attributes = messages.parse(given.get("MessageAttributes", {}))
    system = messages.parse(given.get("MessageSystemAttributes", {}), "system")
    _demand_small(call, _bytes_of(given), is_entry)
    delay_seconds = _delay_seconds(call, given)
    properties, tag = messages.properties_and_tag(attributes)
    properties |= _own_properties(call, given, system)
    due_ms = call.service.env.runtime.now() + delay_seconds * SECOND_MS if delay_seconds else None
    message = Message(body, None, key=None, tag=tag, properties=properties, deliver_at_ms=due_ms)
    if call.queue.is_fifo:
        message = replace(message, key=given[_GROUP_ID], dedup_id=_dedup_id(call, given))
    return _Ready(message, _digests(body, attributes, system))


def _bytes_of(given: Json) -> int:
    """The size of a message: its body, and the names, types and values of its attributes."""
    attributes = given.get("MessageAttributes", {}).items()
    values = [len(each.encode()) for name, value in attributes for each in (name, *_texts(value))]
    binary = [len(value.get("BinaryValue", b"")) for _, value in attributes]
    return len(given.get("MessageBody", "").encode()) + sum(values) + sum(binary)


def _texts(value: Json) -> tuple[str, str]:
    return value.get("DataType", ""), value.get("StringValue", "")


def _demand_small(call: Call, size: int, is_entry: bool) -> None:
    most = number(call.queue, SIZE)
    if size > most:
        what = "cannot be validated" if is_entry else "are invalid"
        reason = f"Message must be shorter than {most} bytes."
        raise SqsError("InvalidParameterValue", f"One or more parameters {what}. Reason: {reason}")


def _delay_seconds(call: Call, given: Json) -> int:
    """How long this message waits. In a FIFO queue the group waits with all."""
    if call.queue.is_fifo:
        if given.get(DELAY, 0):
            raise bad_value(given[DELAY], DELAY, _NOT_OF_QUEUE)
        return 0
    seconds: int = given.get(DELAY, number(call.queue, DELAY))
    if not 0 <= seconds <= DELAY_SECONDS_MAX:
        raise bad_value(seconds, DELAY, f"{DELAY} must be >= 0 and <= {DELAY_SECONDS_MAX}.")
    return seconds


def _own_properties(call: Call, given: Json, system: Attributes) -> dict[str, str]:
    """The sender; the deduplication id; the group id, which a standard queue keeps and shows; and the trace that the
    message or its request has."""
    own: dict[str, str] = {SENDER: call.context.signer} if call.context.signer else {}
    if call.queue.is_fifo:
        own[DEDUPLICATION] = _fifo_ids(call.queue, given)
    elif _GROUP_ID in given:
        own[GROUP] = demand_id(given, _GROUP_ID)
    if _DEDUPLICATION_ID in given and not call.queue.is_fifo:
        raise bad_value(given[_DEDUPLICATION_ID], _DEDUPLICATION_ID, _NOT_OF_QUEUE)
    if unknown := system.keys() - {TRACE_HEADER}:
        raise SqsError("InvalidParameterValue", f"Message system attribute name '{min(unknown)}' is invalid.")
    given_trace = system.get(TRACE_HEADER)
    if given_trace and given_trace.type != "String":
        raise SqsError("InvalidParameterValue", f"Message system attribute '{TRACE_HEADER}' must be of type 'String'.")
    trace = str(given_trace.value) if given_trace else call.context.headers.get("x-amzn-trace-id", "")
    return own | ({TRACE: trace} if given_trace or _TRACE.fullmatch(trace) else {})


def _fifo_ids(queue: SqsQueue, given: Json) -> str:
    """The deduplication id of a message to a FIFO queue, its own or that of its body. Raises SqsError, also for a
    missing or wrong group id."""
    if _GROUP_ID not in given:
        raise missing(_GROUP_ID)
    demand_id(given, _GROUP_ID)
    if _DEDUPLICATION_ID in given:
        return demand_id(given, _DEDUPLICATION_ID)
    if (queue.attributes.get(CONTENT_BASED) or default_of(CONTENT_BASED)) != "true":
        raise SqsError("InvalidParameterValue", _NO_DEDUPLICATION)
    return hashlib.sha256(given.get("MessageBody", "").encode()).hexdigest()


def _fifo_ids_of_entry(queue: SqsQueue, entry: Json) -> str:
    """The same, of an entry: without a group id, SQS refuses a batch with another code than a message."""
    if _GROUP_ID not in entry:
        raise SqsError("InvalidParameterValue", missing(_GROUP_ID).message)
    return _fifo_ids(queue, entry)


def _dedup_id(call: Call, given: Json) -> str:
    """The id by which the topic stores the message once: a purge forgets what was sent before it, and so does a queue
    that was made again."""
    queue, purges = call.queue, call.standing.group.purges
    scope = given[_GROUP_ID] if queue.attributes.get(SCOPE) == BY_GROUP else ""
    named = "\0".join((queue.id, str(purges), scope, _fifo_ids(queue, given)))
    return hashlib.sha256(named.encode()).hexdigest()


def demand_id(given: Json, name: str) -> str:
    """Raises SqsError unless this member is an id as SQS takes them."""
    id_: str = given[name]
    if not _ID.fullmatch(id_):
        raise bad_value(
            id_, name, f"{name} can only include alphanumeric and punctuation characters. 1 to 128 in length."
        )
    return id_


# -- the answer -------------------------------------------------------------------------------------------------------


def _send(call: Call, ready: Sequence[_Ready]) -> list[Produced]:
    """Stores the messages, between the hooks. Raises TopicNotFound, and what `send` raises where it stored none."""
    topic, producing = call.topic, call.service.producing
    messages = [each.message for each in ready]
    sendings = [Sending(message) for message in messages]
    return producing.hooks.around(topic.name, messages, lambda: producing.send(topic, sendings))


def _digests(body: str, attributes: Attributes, system: Attributes) -> Json:
    """The digests of the message as it was sent, even if the service stores it in another form."""
    return {
        "MD5OfMessageBody": messages.md5_of_body(body),
        **({"MD5OfMessageAttributes": messages.md5_of(attributes)} if attributes else {}),
        **({"MD5OfMessageSystemAttributes": messages.md5_of(system)} if system else {}),
    }


def _sent(queue: SqsQueue, ready: _Ready, result: Produced) -> Json:
    is_numbered = queue.is_fifo and result.offset is not None
    number = {"SequenceNumber": sequence_number(result.queue, result.offset or 0)} if is_numbered else {}
    return {"MessageId": uuid_of(result.message_id or ""), **ready.digests, **number}


def sequence_number(queue: int, offset: int) -> str:
    """Rises in each group of a FIFO queue."""
    return str(_SEQUENCE_FIRST + offset * QUEUES_MAX + queue)


def _outcome(queue: SqsQueue, ready: _Ready, result: Produced) -> Outcome:
    return of_service(result.error) if result.error else _sent(queue, ready, result)
