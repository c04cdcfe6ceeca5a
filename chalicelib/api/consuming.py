"""Delivery of messages with leases, and the dead letters of a group."""

from __future__ import annotations

from collections.abc import Sequence

from chalicelib.api.messages import Message
from chalicelib.api.operation import GROUP, Family, Json, Page, page_of
from chalicelib.core.base.errors import GroupIsPushed, MessageNotFound
from chalicelib.core.base.fields import (
    Answer,
    Sometimes,
    array,
    batch,
    flag,
    integer,
    optional,
    request,
    required,
    string,
)
from chalicelib.core.base.limits import ID_CHARS_MAX, INVISIBLE_MS_MAX, NACK_DELAY_MS_MAX, REASON_CHARS_MAX
from chalicelib.core.catalogue.topic import Topic
from chalicelib.core.consuming.delivery import Delivery as Delivered
from chalicelib.core.consuming.receipt_batch import Failure
from chalicelib.core.consuming.request import RECEIPT, Pop
from chalicelib.core.consuming.settle import Extended
from chalicelib.core.dead_letters.bury import DeadLetter, RedriveResult
from chalicelib.service import Service

CONSUMING = Family(
    "Consuming",
    "Pop leases messages to the caller. A message that is not acked before its lease ends is delivered again.",
)

# -- types ------------------------------------------------------------------------------------------------------------

_REASON = string(REASON_CHARS_MAX, minLength=0, default="", examples=["no stock"])


@request
class AckRequest:
    """The messages to settle.

    receipts: The receipts of the messages."""

    receipts: list[str] = required(batch(RECEIPT))


@request
class NackRequest(AckRequest):
    """The messages to give back.

    delay_ms: Deliver again after this many milliseconds. By default the group's `backoff_ms` applies.
    reason: The reason, for people. It stays with the message in the dead letters."""

    delay_ms: int | None = optional(integer(most=NACK_DELAY_MS_MAX, examples=[5000]))
    reason: str = optional(_REASON)


@request
class BuryRequest(AckRequest):
    """The messages to bury.

    reason: The reason, for people. It stays with the message in the dead letters."""

    reason: str = optional(_REASON)


@request
class ExtendRequest(AckRequest):
    """The leases to extend.

    invisible_ms: How long the lease lasts from now, in milliseconds. 0: the messages can be delivered again at once."""

    invisible_ms: int = required(integer(0, INVISIBLE_MS_MAX, examples=[120000]))


class Delivery(Message, Delivered):
    """A message and its lease, with exactly one of `body` and `body_base64`."""


class _Failures(Answer):
    """failed: The receipts that did not count, and why."""

    failed = array(Failure)


class PopResult(_Failures):
    """The leased messages, if any, and the outcome of the receipts in `ack`.

    messages: Messages of one queue, in offset order; with `fill`, of one queue after the other. Empty if none was
        ready.
    acked: How many receipts in `ack` count.
    paused: The group is paused. Absent if it is not.
    limited: The limit that held messages back: `in_flight` for `max_in_flight`, `rate` for `rate_limit`. Absent
        otherwise.
    retry_after_ms: When the rate limit allows more, in milliseconds from now. Absent if it held nothing back."""

    messages = array(Delivery)
    acked = integer()
    paused = Sometimes(flag(const=True))
    limited = Sometimes(string(enum=["in_flight", "rate"]))
    retry_after_ms = Sometimes(integer())


class AckResult(_Failures):
    """The outcome of the receipts.

    acked: How many count."""

    acked = integer(examples=[1])


class NackResult(_Failures):
    """The outcome of the receipts.

    nacked: How many count."""

    nacked = integer(examples=[1])


class BuryResult(_Failures):
    """The outcome of the receipts.

    buried: How many count."""

    buried = integer(examples=[1])


class ExtendResult(_Failures):
    """The outcome of the receipts.

    extended: The leases that were extended."""

    extended = array(Extended)


# -- operations -------------------------------------------------------------------------------------------------------


@CONSUMING.operation("POST", GROUP + "/pop", "consume", PopResult, Pop, errors=(GroupIsPushed,), is_frequent=True)
def pop(service: Service, topic: Topic, group_name: str, request: Pop) -> Json:
    """Lease messages.

    Takes ready messages from one queue, or from several with `fill`. Returns none only if no queue has a ready message.
    A response holds at most {RESPONSE_BODY_BYTES_MAX} bytes of bodies and {RESPONSE_JSON_BYTES_MAX} bytes of JSON; a
    single message may exceed these."""
    popped = service.consuming.pop(topic, group_name, request)
    answer: Json = {
        "messages": [delivery.in_topic(topic.name) for delivery in popped.deliveries],
        **_outcome("acked", request.ack, popped.failed),
    }
    if popped.is_paused:
        answer["paused"] = True
    if popped.retry_after_ms is not None:
        answer |= {"limited": "rate", "retry_after_ms": popped.retry_after_ms}
    elif popped.is_limited:
        answer["limited"] = "in_flight"
    return answer


def _outcome(counted: str, receipts: Sequence[str], failed: Sequence[Failure]) -> Json:
    """`counted`: under which name the answer says how many of the receipts count."""
    return {counted: len(receipts) - len(failed), "failed": [failure.as_json() for failure in failed]}


@CONSUMING.operation("POST", GROUP + "/ack", "consume", AckResult, AckRequest, is_frequent=True)
def ack(service: Service, topic: Topic, group_name: str, request: AckRequest) -> Json:
    """Settle messages.

    Acking twice succeeds. So does acking after the lease has ended, until another pop takes the message."""
    failed = service.consuming.ack(topic, group_name, request.receipts)
    return _outcome("acked", request.receipts, failed)


@CONSUMING.operation("POST", GROUP + "/nack", "consume", NackResult, NackRequest, is_frequent=True)
def nack(service: Service, topic: Topic, group_name: str, request: NackRequest) -> Json:
    """Give messages back.

    The group delivers them again later, or moves them to the dead letters if this was their last attempt."""
    failed = service.consuming.nack(topic, group_name, request.receipts, request.delay_ms, request.reason)
    return _outcome("nacked", request.receipts, failed)


@CONSUMING.operation("POST", GROUP + "/bury", "consume", BuryResult, BuryRequest, is_frequent=True)
def bury(service: Service, topic: Topic, group_name: str, request: BuryRequest) -> Json:
    """Give messages up.

    They go to the dead letters at once, whatever their attempt, and the group does not deliver them again."""
    failed = service.consuming.bury(topic, group_name, request.receipts, request.reason)
    return _outcome("buried", request.receipts, failed)


@CONSUMING.operation("POST", GROUP + "/extend", "consume", ExtendResult, ExtendRequest, is_frequent=True)
def extend(service: Service, topic: Topic, group_name: str, request: ExtendRequest) -> Json:
    """Extend leases.

    The group's `settle_by` decides about the receipts. With `receipt`, each message gets a new receipt and the old one
    is void. With `delivery` or `message`, the lease is extended in place and the receipt stays valid."""
    extended, failed = service.consuming.extend(topic, group_name, request.receipts, request.invisible_ms)
    return {"extended": [lease.as_json() for lease in extended], "failed": [failure.as_json() for failure in failed]}


# -- dead letters -----------------------------------------------------------------------------------------------------

DEAD_LETTERS = Family(
    "Dead letters", "Messages that a group has given up: delivered `max_attempts` times without an ack, or buried."
)

_DEAD = GROUP + "/dead"


class DeadMessage(Message, DeadLetter):
    """A message that the group has given up, with exactly one of `body` and `body_base64`.

    body: The payload. Empty if the store has lost it; `reason` then says so."""

    body = Sometimes(string(examples=["order 4711 paid"]))


@request
class RedriveRequest:
    """The messages to redrive: all, unless `message_ids` is given.

    message_ids: The ids of dead letters."""

    message_ids: list[str] | None = optional(batch(string(ID_CHARS_MAX, examples=["5c0a7f3e91d2b8460111"])))


class PurgeResult(Answer):
    """The outcome of a purge.

    purged: How many dead letters were removed."""

    purged = integer(examples=[2])


@DEAD_LETTERS.operation("GET", _DEAD, "read", page_of("messages", DeadMessage), Page)
def list_dead(service: Service, topic: Topic, group_name: str, request: Page) -> Json:
    """List dead letters.

    The list is ordered by queue and offset. It leaves out messages that are no longer in the log. A broadcast group
    lists a message once for each consumer that gave it up; a redrive by its id brings it back to all of them."""
    page, rest = service.dead_letters.queue.page(topic, group_name, request.limit, request.next)
    messages = [{**message.stored.as_json(topic.name), **message.letter.as_json()} for message in page]
    return {"messages": messages, "next": rest}


@DEAD_LETTERS.operation("POST", _DEAD + "/redrive", "admin", RedriveResult, RedriveRequest, errors=(MessageNotFound,))
def redrive_dead(service: Service, topic: Topic, group_name: str, request: RedriveRequest) -> Json:
    """Bring dead letters back.

    This group, and no other, delivers them again, starting at `attempt` 1. `message_ids` names at most
    {BATCH_MESSAGES_MAX} messages; unless all of them are dead letters, the call does nothing. One call takes at most
    {DEAD_MS} ms and brings back no more messages than the queue has room for: call again until `remaining` is 0."""
    redrive, ids = service.dead_letters.redrive, request.message_ids
    result = redrive.all(topic, group_name) if ids is None else redrive.some(topic, group_name, ids)
    service.stored(topic)
    return result.as_json()


@DEAD_LETTERS.operation("DELETE", _DEAD, "admin", PurgeResult)
def purge_dead(service: Service, topic: Topic, group_name: str) -> Json:
    """Throw dead letters away.

    The messages stay in the log for other groups. One call takes at most {DEAD_MS} ms: call again until `purged` is
    0."""
    return {"purged": service.dead_letters.queue.purge(topic, group_name)}
