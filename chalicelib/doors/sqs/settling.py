"""Deleting messages, and changing how long they stay invisible."""

from __future__ import annotations

from collections.abc import Sequence

from chalicelib.core.base.limits import INVISIBLE_MS_MAX, SECOND_MS
from chalicelib.core.consuming.receipt_batch import RECEIPT_INVALID, CursorFull, Failure
from chalicelib.core.cursors.cursor import read_again
from chalicelib.doors.sqs.action import (
    INTEGER,
    TEXT,
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
from chalicelib.doors.sqs.queue_attributes import VISIBILITY_SECONDS_MAX

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
