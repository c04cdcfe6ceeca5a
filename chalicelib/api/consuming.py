"""Pop leases messages to the caller. A message that is not acked before its lease ends is delivered again."""

from __future__ import annotations

from collections.abc import Sequence

from chalicelib.api.messages import Message
from chalicelib.api.operation import GROUP, Family, Json
from chalicelib.core.base.errors import GroupIsPushed
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
from chalicelib.core.base.limits import INVISIBLE_MS_MAX, NACK_DELAY_MS_MAX, REASON_CHARS_MAX
from chalicelib.core.catalogue.topic import Topic
from chalicelib.core.consuming.delivery import Delivery as Delivered
from chalicelib.core.consuming.receipt_batch import Failure
from chalicelib.core.consuming.request import RECEIPT, Pop
from chalicelib.core.consuming.settle import Extended
from chalicelib.service import Service

CONSUMING = Family("Consuming", __doc__)

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
