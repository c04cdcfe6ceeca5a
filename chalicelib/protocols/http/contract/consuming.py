"""Consuming: pop leases messages; ack, nack and extend show their receipts."""

from __future__ import annotations

from chalicelib.base.limits import (
    BATCH_MESSAGES_MAX,
    ID_CHARS_MAX,
    INVISIBLE_MS_MAX,
    NACK_DELAY_MS_MAX,
    POP_MESSAGES_DEFAULT,
    REASON_CHARS_MAX,
    RECEIPT_CHARS_MAX,
    RESPONSE_BODY_BYTES_MAX,
    RESPONSE_JSON_BYTES_MAX,
    WAIT_MS_MAX,
)
from chalicelib.consuming.receipt_batch import LEASE_LOST, RECEIPT_INVALID
from chalicelib.protocols.http.contract.messages import BODIES, MESSAGE, MESSAGE_FIELDS, ONE_BODY
from chalicelib.protocols.http.contract.operation import Body, Family, Operation
from chalicelib.protocols.http.contract.values import (
    Json,
    answer,
    array,
    batch,
    flag,
    instant,
    integer,
    ref,
    request,
    string,
)

_GROUP_PATH = "/topics/{topic}/groups/{group}"

_RECEIPT = string("What a pop, or the last extend, gave for the message. Opaque.", maxLength=RECEIPT_CHARS_MAX)
_UNTIL = instant("When the lease ends, and the message can be delivered again.")
_RECEIPTS: Json = {"receipts": batch("The receipts of the messages.", _RECEIPT)}
_FAILED: Json = {"failed": array("The receipts that did not count, and why.", ref("Failure"))}
_REASON = string("Why, for people. It stays with the message when it is dead.", REASON_CHARS_MAX, minLength=0)

_POP: Json = {
    "max_messages": integer("How many messages to take, at most.", 1, BATCH_MESSAGES_MAX, default=POP_MESSAGES_DEFAULT),
    "invisible_ms": integer(
        "How long the lease lasts, in milliseconds. By default the group's `invisible_ms`.", 1, INVISIBLE_MS_MAX
    ),
    "wait_ms": integer("How long to wait for a message, in milliseconds.", most=WAIT_MS_MAX, default=0),
    "consumer_id": string("Who asks; the group's progress shows it. Must be given in a broadcast group.", ID_CHARS_MAX),
    "attempt_id": string(
        "Makes a lost answer recoverable: the same id of the same consumer again gets those messages that are still"
        " leased under it, with the same receipts, and is a new pop when none are.",
        ID_CHARS_MAX,
    ),
    "ack": batch("Receipts to ack in the same call.", _RECEIPT, least=0),
}
_SCHEMAS: Json = {
    "PopRequest": request("What to take.", _POP),
    "Delivery": answer(
        "A message and its lease, with exactly one of `body` and `body_base64`.",
        {
            **MESSAGE_FIELDS,
            "attempt": integer("1 when the message is delivered to the group for the first time.", 1),
            "invisible_until_ms": _UNTIL,
            "receipt": _RECEIPT,
        },
        BODIES,
        oneOf=ONE_BODY,
    ),
    "PopResult": answer(
        "What was taken, and what became of the receipts in `ack`.",
        {
            "messages": array("Messages of one queue, in offset order; none if none was ready.", ref("Delivery")),
            "acked": integer("How many receipts of `ack` count."),
            **_FAILED,
        },
        {
            "paused": flag("The group is paused. Missing when it is not.", const=True),
            "limited": string(
                "The group's `max_in_flight`, or its `rate_limit`, held messages back. Missing otherwise.",
                enum=["in_flight", "rate"],
            ),
            "retry_after_ms": integer("When the rate allows more. Missing where it held nothing back."),
        },
    ),
    "Failure": answer(
        "A receipt that did not count.",
        {
            "receipt": string("The receipt as it was given."),
            "code": string(
                f"`{LEASE_LOST}`: the lease expired and someone else took the message, or the receipt is from before an"
                " extend or a reset, or the message was nacked; to nack and extend, also a message that is settled."
                f" `{RECEIPT_INVALID}`: it was not issued by this service for this group, or was altered, or the topic"
                " or the group was deleted since.",
                enum=[LEASE_LOST, RECEIPT_INVALID],
            ),
        },
    ),
    "AckRequest": request("What to ack.", {}, _RECEIPTS),
    "AckResult": answer("What became of the receipts.", {"acked": integer("How many count."), **_FAILED}),
    "NackRequest": request(
        "What to give back.",
        {
            "delay_ms": integer(
                "Deliver again after so many milliseconds. By default the group's `backoff_ms` says how long.",
                most=NACK_DELAY_MS_MAX,
            ),
            "reason": _REASON,
        },
        _RECEIPTS,
    ),
    "BuryRequest": request("What to give up.", {"reason": _REASON}, _RECEIPTS),
    "BuryResult": answer("What became of the receipts.", {"buried": integer("How many count."), **_FAILED}),
    "NackResult": answer("What became of the receipts.", {"nacked": integer("How many count."), **_FAILED}),
    "ExtendRequest": request(
        "Which leases to extend.",
        {},
        {**_RECEIPTS, "invisible_ms": integer("From now, in milliseconds.", 1, INVISIBLE_MS_MAX)},
    ),
    "Extended": answer(
        "A lease that was extended.",
        {
            "receipt": string("The receipt as it was given. It counts no more."),
            "new_receipt": string("The receipt to use from now on."),
            "invisible_until_ms": _UNTIL,
        },
    ),
    "ExtendResult": answer(
        "What became of the receipts.", {"extended": array("Those that count.", ref("Extended")), **_FAILED}
    ),
}

_RECEIPT_TEXT = "MTo3ZDFhOmMyOWI6MTowOms5czJ4MTc"
_OTHER_TEXT = "MTo3ZDFhOmMyOWI6MTowOnA0d3o4MTg"
_LOST = {"receipt": _OTHER_TEXT, "code": LEASE_LOST}
_DELIVERY = {**MESSAGE, "attempt": 1, "invisible_until_ms": 1767225722000, "receipt": _RECEIPT_TEXT}
_EXTENDED = {"receipt": _RECEIPT_TEXT, "new_receipt": _OTHER_TEXT, "invisible_until_ms": 1767225782000}

CONSUMING = Family(
    "Consuming",
    "Pop leases messages to the caller. What is not acked before its lease ends is delivered again.",
    _SCHEMAS,
    (
        Operation(
            "post",
            f"{_GROUP_PATH}/pop",
            "pop",
            "Lease messages",
            "Takes what is ready in one queue, and none only if none was ready in any. An answer holds at most"
            f" {RESPONSE_BODY_BYTES_MAX} bytes of bodies and {RESPONSE_JSON_BYTES_MAX} bytes of JSON.",
            {
                200: (
                    "What was taken; perhaps nothing.",
                    Body("PopResult", {"messages": [_DELIVERY], "acked": 0, "failed": [_LOST]}),
                )
            },
            request=Body("PopRequest", {"max_messages": 1, "wait_ms": 20000, "ack": [_OTHER_TEXT]}),
        ),
        Operation(
            "post",
            f"{_GROUP_PATH}/ack",
            "ack",
            "Settle messages",
            "Acking twice is fine, and so is acking after the lease ended until someone else has taken the message.",
            {200: ("What became of the receipts.", Body("AckResult", {"acked": 1, "failed": [_LOST]}))},
            request=Body("AckRequest", {"receipts": [_RECEIPT_TEXT, _OTHER_TEXT]}),
        ),
        Operation(
            "post",
            f"{_GROUP_PATH}/nack",
            "nack",
            "Give messages back",
            "They are delivered again later, or count as dead when this was their last attempt.",
            {200: ("What became of the receipts.", Body("NackResult", {"nacked": 1, "failed": []}))},
            request=Body("NackRequest", {"receipts": [_RECEIPT_TEXT], "delay_ms": 5000, "reason": "no stock"}),
        ),
        Operation(
            "post",
            f"{_GROUP_PATH}/bury",
            "bury",
            "Give messages up",
            "They count as dead at once, however often they were delivered, and are not delivered to the group again.",
            {200: ("What became of the receipts.", Body("BuryResult", {"buried": 1, "failed": []}))},
            request=Body("BuryRequest", {"receipts": [_RECEIPT_TEXT], "reason": "no such customer"}),
        ),
        Operation(
            "post",
            f"{_GROUP_PATH}/extend",
            "extend",
            "Extend leases",
            "Each message gets a new receipt; the one shown is lost.",
            {200: ("What became of the receipts.", Body("ExtendResult", {"extended": [_EXTENDED], "failed": []}))},
            request=Body("ExtendRequest", {"receipts": [_RECEIPT_TEXT], "invisible_ms": 120000}),
        ),
    ),
)
