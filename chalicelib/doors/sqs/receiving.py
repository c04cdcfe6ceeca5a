"""Receiving messages: `ReceiveMessage`."""

from __future__ import annotations

import base64
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from chalicelib.core.base.errors import GroupNotFound
from chalicelib.core.base.limits import INVISIBLE_MS_MAX, MESSAGE_JSON_BYTES_MAX, MESSAGE_OVERHEAD_BYTES, MIB, SECOND_MS
from chalicelib.core.base.message import Message, Space, Stored, parse_delayed_id, parse_message_id
from chalicelib.core.consuming.delivery import Delivery
from chalicelib.core.consuming.pop import Unsuitable
from chalicelib.core.consuming.receipt_batch import RECEIPT_INVALID, CursorFull, Failure
from chalicelib.core.consuming.request import Pop
from chalicelib.core.consuming.taker import Popped
from chalicelib.core.cursors.cursor import read_again
from chalicelib.core.dead_letters.move import ID, SENT, SOURCE, received_before
from chalicelib.doors.sqs import messages
from chalicelib.doors.sqs.action import (
    INTEGER,
    TEXT,
    TEXTS,
    Actions,
    Batch,
    Call,
    Json,
    List,
    Members,
    Structure,
    demand_batch,
)
from chalicelib.doors.sqs.errors import SqsError, bad_value, missing
from chalicelib.doors.sqs.messages import ENCODING, Attribute, Attributes, uuid_of
from chalicelib.doors.sqs.queue import NAME_PATTERN
from chalicelib.doors.sqs.queue_attributes import VISIBILITY_SECONDS_MAX, WAIT, WAIT_SECONDS_MAX, number
from chalicelib.doors.sqs.sending import (
    DEDUPLICATION,
    GROUP,
    SENDER,
    TRACE,
    TRACE_HEADER,
    demand_id,
    sequence_number,
)
from chalicelib.doors.xml_text import body_text

RECEIVING = Actions()

MESSAGES_MAX = 10
TEXT_BYTES_MAX = MIB
"""Bodies up to this size fit into an answer in any encoding."""
_ATTEMPT_ID = "ReceiveRequestAttemptId"


@RECEIVING.action(
    "ReceiveMessage",
    "consume",
    {
        "QueueUrl": TEXT,
        "MaxNumberOfMessages": INTEGER,
        "VisibilityTimeout": INTEGER,
        "WaitTimeSeconds": INTEGER,
        "AttributeNames": TEXTS,
        "MessageSystemAttributeNames": TEXTS,
        "MessageAttributeNames": TEXTS,
        _ATTEMPT_ID: TEXT,
    },
)
def receive_message(call: Call) -> Json:
    asked = _asked(call)
    popped = _popped(call, replace(asked, space=_space(call)))
    is_short = not asked.wait_ms  # a long poll has waited for room, and is empty without it
    is_over = popped.is_limited and not popped.deliveries and popped.retry_after_ms is None
    if is_over and is_short and not call.queue.is_fifo:
        raise SqsError("OverLimit", "Too many messages of the queue are in flight: delete some first.")
    wanted = {*call.request.get("AttributeNames", ()), *call.request.get("MessageSystemAttributeNames", ())}
    return {"Messages": [_received(call, delivery, wanted) for delivery in popped.deliveries]}


def _popped(call: Call, asked: Pop) -> Popped:
    """Raises GroupNotFound also where another group has the name now."""
    queue = call.queue
    try:
        return call.service.consuming.pop(call.topic, queue.group, asked, lambda group: group.id == queue.group_id)
    except Unsuitable:
        raise GroupNotFound(f"group '{queue.group}' was made again") from None


def _asked(call: Call) -> Pop:
    """The pop that the request asks for."""
    given = call.request
    count, seconds = given.get("MaxNumberOfMessages", 1), given.get("VisibilityTimeout")
    wait_seconds = given.get("WaitTimeSeconds", number(call.queue, WAIT))
    if not 1 <= count <= MESSAGES_MAX:
        raise bad_value(count, "MaxNumberOfMessages", f"Must be between 1 and {MESSAGES_MAX}, if provided.")
    if seconds is not None and not 0 <= seconds <= VISIBILITY_SECONDS_MAX:
        raise bad_value(seconds, "VisibilityTimeout", f"Must be between 0 and {VISIBILITY_SECONDS_MAX}, if provided.")
    if not 0 <= wait_seconds <= WAIT_SECONDS_MAX:
        raise bad_value(wait_seconds, "WaitTimeSeconds", f"Must be >= 0 and <= {WAIT_SECONDS_MAX}, if provided.")
    invisible_ms = None if seconds is None else seconds * SECOND_MS
    waits = {"max_messages": count, "invisible_ms": invisible_ms, "wait_ms": wait_seconds * SECOND_MS}
    return Pop(**waits, attempt_id=_attempt_id(call), fill=True, notes_first=True)


def _attempt_id(call: Call) -> str | None:
    if _ATTEMPT_ID not in call.request:
        return None
    if not call.queue.is_fifo:
        reason = "The request include parameter that is not valid for this queue type."
        raise bad_value(call.request[_ATTEMPT_ID], _ATTEMPT_ID, reason)
    return demand_id(call.request, _ATTEMPT_ID)


def _space(call: Call) -> Space:
    """The space of an answer in the encoding of the request."""

    def measure(message: Message) -> int:
        body, attributes = _content(call, message)
        return call.carrier.weigh(_sent(body, attributes))

    return Space(measure=measure, growth=call.carrier.growth)


def _sent(body: str, attributes: Attributes) -> Json:
    """The values that the sender of a message gave, as clients see them."""
    shown = {name: each.as_json() for name, each in attributes.items()}
    return {"Body": body, **_if_any("MessageAttributes", shown)}


def _content(call: Call, message: Message) -> tuple[str, Attributes]:
    """The body, in base64 if it cannot go out as text, and those of the attributes that the request asks for. One of
    them then says so."""
    patterns = call.request.get("MessageAttributeNames", ())
    body, is_encoded = body_text(message)
    attributes = messages.of_message(message)
    if not is_encoded and len(body) > TEXT_BYTES_MAX:
        chosen = messages.selected(attributes, patterns)
        is_encoded = call.carrier.weigh(_sent(body, chosen)) > MESSAGE_JSON_BYTES_MAX - MESSAGE_OVERHEAD_BYTES
    if is_encoded:
        body, attributes[ENCODING] = base64.b64encode(message.body).decode(), Attribute("String", "base64")
    return body, messages.selected(attributes, patterns)


def _received(call: Call, delivery: Delivery, wanted: Collection[str]) -> Json:
    body, attributes = _content(call, delivery.stored.message)
    digest = {"MD5OfMessageAttributes": messages.md5_of(attributes)} if attributes else {}
    return {
        "MessageId": _message_id(delivery.stored),
        "ReceiptHandle": delivery.receipt,
        "MD5OfBody": messages.md5_of_body(body),
        **_sent(body, attributes),
        **_if_any("Attributes", _system_attributes(call, delivery, wanted)),
        **digest,
    }


def _if_any(name: str, values: Json) -> Json:
    return {name: values} if values else {}


def _system_attributes(call: Call, delivery: Delivery, wanted: Collection[str]) -> Json:
    stored, properties = delivery.stored, delivery.stored.message.properties
    known = {
        "SenderId": properties.get(SENDER) or call.context.account,
        "SentTimestamp": _first_sent(properties) or str(stored.message.sent_at_ms or stored.stored_at_ms),
        "ApproximateReceiveCount": str(delivery.attempt + received_before(stored.message)),
        "DeadLetterQueueSourceArn": _source_arn(call, properties.get(SOURCE, "")),
        "ApproximateFirstReceiveTimestamp": str(delivery.first_at_ms),
        "MessageGroupId": properties.get(GROUP),
        **(_of_fifo(delivery) if call.queue.is_fifo else {}),
        TRACE_HEADER: properties.get(TRACE),
    }
    return {name: value for name, value in known.items() if value and ("All" in wanted or name in wanted)}


def _message_id(stored: Stored) -> str:
    """A dead letter keeps its first one."""
    first = stored.message.properties.get(ID, "")
    is_id = parse_message_id(first) or parse_delayed_id(first)
    return uuid_of(first if is_id else stored.message_id)


def _source_arn(call: Call, source: str) -> str | None:
    """None: it is not from a queue."""
    return call.context.arn(source) if re.fullmatch(NAME_PATTERN, source) else None


def _first_sent(properties: Mapping[str, str]) -> str | None:
    """When a dead letter was sent first."""
    text = properties.get(SENT, "")
    return text if re.fullmatch("[0-9]{1,15}", text) else None


def _of_fifo(delivery: Delivery) -> Json:
    """A message without a key is a group of its own."""
    stored = delivery.stored
    return {
        "MessageGroupId": stored.message.key or uuid_of(stored.message_id),
        "MessageDeduplicationId": stored.message.properties.get(DEDUPLICATION),
        "SequenceNumber": sequence_number(stored.queue, stored.offset),
    }


# -- settling ---------------------------------------------------------------------------------------------------------

SETTLING = Actions()


# -- deleting ---------------------------------------------------------------------------------------------------------

_DELETE: Members = {"ReceiptHandle": TEXT}


@SETTLING.action("DeleteMessage", "consume", {"QueueUrl": TEXT, **_DELETE}, required=("ReceiptHandle",))
def delete_message(call: Call) -> Json:
    [error] = _deleted(call, [call.request["ReceiptHandle"]])
    if error:
        raise error
    return {}


@SETTLING.action(
    "DeleteMessageBatch",
    "consume",
    {"QueueUrl": TEXT, "Entries": List(Structure({"Id": TEXT, **_DELETE}))},
    required=("Entries",),
)
def delete_message_batch(call: Call) -> Json:
    entries = call.request["Entries"]
    demand_batch(entries, "DeleteMessageBatchRequestEntry")
    batch = Batch(entries, _handle)
    return batch.answer(error or {} for error in _deleted(call, batch.valid))


def _deleted(call: Call, handles: Sequence[str]) -> list[SqsError | None]:
    """Deletes messages in one settlement; the error of each. Deleting a message twice succeeds. So does deleting one
    that is visible again, except in a FIFO queue."""
    failed = call.service.consuming.ack(call.topic, call.queue.group, handles) if handles else []
    errors = {failure.receipt: _not_deleted(call, failure) for failure in failed}
    return [errors.get(handle) for handle in handles]


def _not_deleted(call: Call, failure: Failure) -> SqsError | None:
    if failure.code == RECEIPT_INVALID:
        return _no_handle(failure.receipt)
    return _expired(failure.receipt) if call.queue.is_fifo and _is_owed(call, failure.receipt) else None


def _expired(handle: str) -> SqsError:
    return bad_value(handle, "ReceiptHandle", "The receipt handle has expired.")


def _is_owed(call: Call, handle: str) -> bool:
    """Whether the message of a handle that no longer counts is still there: not deleted since, nor purged."""
    receipt = call.service.cursors.receipts.read(handle, call.topic.id)
    if receipt is None:
        return False
    [cursor] = read_again(call.service.env.store, [call.standing.group.cursor_key(receipt.queue)])
    return cursor is not None and cursor.epoch == receipt.epoch and not cursor.is_settled(receipt.offset)


def _no_handle(handle: str) -> SqsError:
    return SqsError("ReceiptHandleIsInvalid", f'The input receipt handle "{handle}" is not a valid receipt handle.')


def _handle(entry: Json) -> str:
    if "ReceiptHandle" not in entry:
        raise missing("ReceiptHandle")
    return str(entry["ReceiptHandle"])


# -- changing the visibility ------------------------------------------------------------------------------------------

_CHANGE: Members = {"ReceiptHandle": TEXT, "VisibilityTimeout": INTEGER}


@SETTLING.action(
    "ChangeMessageVisibility",
    "consume",
    {"QueueUrl": TEXT, **_CHANGE},
    required=("ReceiptHandle", "VisibilityTimeout"),
)
def change_message_visibility(call: Call) -> Json:
    change = _change(call, call.request)
    [error] = _changed(call, [change])
    if error:
        raise error
    return {}


@SETTLING.action(
    "ChangeMessageVisibilityBatch",
    "consume",
    {"QueueUrl": TEXT, "Entries": List(Structure({"Id": TEXT, **_CHANGE}))},
    required=("Entries",),
)
def change_message_visibility_batch(call: Call) -> Json:
    entries = call.request["Entries"]
    demand_batch(entries, "ChangeMessageVisibilityBatchRequestEntry")
    batch = Batch(entries, lambda entry: _change(call, entry))
    return batch.answer(error or {} for error in _changed(call, batch.valid))


_CURSOR_FULL = "CursorFull"

Change = tuple[str, int]
"""A receipt handle, and the seconds from now for which its message is to stay invisible."""


def _change(call: Call, given: Json) -> Change:
    """Raises SqsError."""
    handle, seconds = _handle(given), given.get("VisibilityTimeout")
    if seconds is None:
        raise missing("VisibilityTimeout")
    if not 0 <= seconds <= VISIBILITY_SECONDS_MAX:
        reason = f"VisibilityTimeout must be an integer between 0 and {VISIBILITY_SECONDS_MAX}"
        raise bad_value(seconds, "VisibilityTimeout", reason)
    receipt = call.service.cursors.receipts.read(handle, call.topic.id)
    until_ms = call.service.env.runtime.now() + seconds * SECOND_MS
    if receipt and receipt.taken_at_ms and until_ms > receipt.taken_at_ms + INVISIBLE_MS_MAX:
        limit = f"Total VisibilityTimeout for the message is beyond the limit [{VISIBILITY_SECONDS_MAX} seconds]"
        raise bad_value(seconds, "VisibilityTimeout", limit)
    return handle, seconds


def _changed(call: Call, changes: Sequence[Change]) -> list[SqsError | None]:
    """Changes the visibility of messages, those that get the same in one settlement; the error of each."""
    topic, group = call.topic, call.queue.group
    codes: dict[Change, str] = {}
    for seconds in dict.fromkeys(seconds for _, seconds in changes):
        handles = [handle for handle, own in changes if own == seconds]
        try:
            _, failed = call.service.consuming.extend(topic, group, handles, seconds * SECOND_MS)
        except CursorFull:  # perhaps some are changed: a repeat finds them so
            failed = [Failure(handle, _CURSOR_FULL) for handle in handles]
        codes |= {(failure.receipt, seconds): failure.code for failure in failed}
    return [_not_changed(call, change[0], codes.get(change)) for change in changes]


def _not_changed(call: Call, handle: str, code: str | None) -> SqsError | None:
    if code is None:
        return None
    if code == RECEIPT_INVALID:
        return SqsError("ReceiptHandleIsInvalid", "The input receipt handle is invalid.")
    if code == _CURSOR_FULL:
        return SqsError("RequestThrottled", "Too many messages of the queue were changed alone: delete some first.")
    if call.queue.is_fifo and _is_owed(call, handle):
        return _expired(handle)
    reason = "Message does not exist or is not available for visibility timeout change."
    return bad_value(handle, "ReceiptHandle", reason)
