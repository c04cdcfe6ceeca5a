"""Sending messages: `SendMessage` and `SendMessageBatch`."""

from __future__ import annotations

import re
from collections.abc import Sequence

from chalicelib.base.limits import MIB, SECOND_MS
from chalicelib.base.message import Message, Produced
from chalicelib.base.records import record
from chalicelib.producing.new_message import Sending
from chalicelib.protocols.sqs import message_attributes
from chalicelib.protocols.sqs.action import INTEGER, TEXT, Actions, Call, Json, List, Members, Structure
from chalicelib.protocols.sqs.batches import Batch, Outcome, demand_batch
from chalicelib.protocols.sqs.errors import SqsError, bad_value, missing, of_service
from chalicelib.protocols.sqs.message_attributes import ATTRIBUTES, Attributes
from chalicelib.protocols.sqs.message_ids import uuid_of
from chalicelib.protocols.sqs.queue_attributes import DELAY, DELAY_SECONDS_MAX, SIZE, number
from chalicelib.protocols.xml_text import is_sendable

SENDING = Actions()

BATCH_BYTES_MAX = MIB
"""All messages of a batch: as much as one may have."""
TRACE_HEADER = "AWSTraceHeader"
GROUP, TRACE = "sqs:group", "sqs:trace"
"""Properties of the door."""

_ENTRY = "SendMessageBatchRequestEntry"
_ID = re.compile(r"[A-Za-z0-9!-/:-@\[-`{-~]{1,128}")
_TRACE = re.compile("[ -~]{1,512}")
"""A header that is one: any longer one is no trace."""
_MESSAGE: Members = {
    "MessageBody": TEXT,
    DELAY: INTEGER,
    "MessageAttributes": ATTRIBUTES,
    "MessageSystemAttributes": ATTRIBUTES,
    "MessageGroupId": TEXT,
    "MessageDeduplicationId": TEXT,
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
    return _sent(ready, result)


@SENDING.action(
    "SendMessageBatch",
    "produce",
    {"QueueUrl": TEXT, "Entries": List(Structure({"Id": TEXT, **_MESSAGE}))},
    required=("Entries",),
)
def send_message_batch(call: Call) -> Json:
    _demand_own_topic(call)
    entries = call.request["Entries"]
    demand_batch(entries, _ENTRY)
    total = sum(_bytes_of(entry) for entry in entries)
    if total > BATCH_BYTES_MAX:
        sent = f"You have sent {total} bytes."
        raise SqsError("BatchRequestTooLong", f"Batch requests cannot be longer than {BATCH_BYTES_MAX} bytes. {sent}")
    batch = Batch(entries, lambda entry: _ready(call, entry, is_entry=True))
    results = _send(call, batch.valid) if batch.valid else []
    return batch.answer(map(_outcome, batch.valid, results))


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
    attributes = message_attributes.parse(given.get("MessageAttributes", {}))
    system = message_attributes.parse(given.get("MessageSystemAttributes", {}), "system")
    _demand_small(call, _bytes_of(given), is_entry)
    delay_seconds = _delay_seconds(call, given)
    properties, tag = message_attributes.properties_and_tag(attributes)
    properties |= _own_properties(call, given, system)
    due_ms = call.service.env.runtime.now() + delay_seconds * SECOND_MS if delay_seconds else None
    message = Message(body, None, key=None, tag=tag, properties=properties, deliver_at_ms=due_ms)
    return _Ready(message, _digests(body, attributes, system))


def _bytes_of(given: Json) -> int:
    """What a message counts: its body, and the names, types and values of its attributes."""
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
    seconds: int = given.get(DELAY, number(call.queue, DELAY))
    if not 0 <= seconds <= DELAY_SECONDS_MAX:
        raise bad_value(seconds, DELAY, f"{DELAY} must be >= 0 and <= {DELAY_SECONDS_MAX}.")
    return seconds


def _own_properties(call: Call, given: Json, system: Attributes) -> dict[str, str]:
    """The group id, which a standard queue keeps and shows, and the trace that the message or its request has."""
    own: dict[str, str] = {}
    if "MessageGroupId" in given:
        own[GROUP] = _id(given, "MessageGroupId")
    if "MessageDeduplicationId" in given:
        reason = "The request include parameter that is not valid for this queue type."
        raise bad_value(given["MessageDeduplicationId"], "MessageDeduplicationId", reason)
    if unknown := system.keys() - {TRACE_HEADER}:
        raise SqsError("InvalidParameterValue", f"Message system attribute name '{min(unknown)}' is invalid.")
    given_trace = system.get(TRACE_HEADER)
    if given_trace and given_trace.type != "String":
        raise SqsError("InvalidParameterValue", f"Message system attribute '{TRACE_HEADER}' must be of type 'String'.")
    trace = str(given_trace.value) if given_trace else call.context.headers.get("x-amzn-trace-id", "")
    return own | ({TRACE: trace} if given_trace or _TRACE.fullmatch(trace) else {})


def _id(given: Json, name: str) -> str:
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
    """Of the request, whatever has become of it."""
    return {
        "MD5OfMessageBody": message_attributes.md5_of_body(body),
        **({"MD5OfMessageAttributes": message_attributes.md5_of(attributes)} if attributes else {}),
        **({"MD5OfMessageSystemAttributes": message_attributes.md5_of(system)} if system else {}),
    }


def _sent(ready: _Ready, result: Produced) -> Json:
    return {"MessageId": uuid_of(result.message_id or ""), **ready.digests}


def _outcome(ready: _Ready, result: Produced) -> Outcome:
    return of_service(result.error) if result.error else _sent(ready, result)
