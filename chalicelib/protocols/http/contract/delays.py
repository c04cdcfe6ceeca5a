"""Delayed messages: list those that wait, and cancel one."""

from __future__ import annotations

from chalicelib.base.errors import AlreadyDelivered
from chalicelib.protocols.http.contract.messages import BODIES, MESSAGE_FIELDS, ONE_BODY
from chalicelib.protocols.http.contract.operation import Body, Family, Operation
from chalicelib.protocols.http.contract.values import Json, answer, flag, instant, page

_LATER = ("offset", "stored_at_ms")
"""What a message has from its delivery on."""

_KEY = (
    "Messages with one key go to one queue, by when they are due; those of one request that are due at once in its"
    " order, those of different requests in any."
)

_SCHEMAS: Json = {
    "DelayedMessage": answer(
        "A message that waits, with exactly one of `body` and `body_base64`. It keeps its id when it is delivered.",
        {
            **{field: schema for field, schema in MESSAGE_FIELDS.items() if field not in _LATER},
            "key": {**MESSAGE_FIELDS["key"], "description": _KEY},
            "deliver_at_ms": instant("It is not delivered before."),
        },
        BODIES,
        oneOf=ONE_BODY,
    ),
    "DelayedMessageList": page("messages", "DelayedMessage"),
    "CancelResult": answer(
        "The message is not delivered.", {"cancelled": flag("That it was cancelled, now.", const=True)}
    ),
}

_WAITING = {
    "message_id": "0d2f6b91c47e5a3801t19b76e8eb00",
    "topic": "orders",
    "queue": 1,
    "deliver_at_ms": 1767229200128,
    "body": "order 4711 reminder",
    "key": "customer-42",
    "tag": None,
    "properties": {},
}

DELAYS = Family(
    "Delays",
    "Messages that were produced with `delay_ms` or `deliver_at_ms`, until they are delivered: never early.",
    _SCHEMAS,
    (
        Operation(
            "get",
            "/topics/{topic}/delayed",
            "listDelayed",
            "List the messages that wait",
            "By when they are due; those of one request that are due at once in its order."
            " A page may hold fewer than `limit` where a response would not hold them.",
            {200: ("A page of messages.", Body("DelayedMessageList", {"messages": [_WAITING], "next": None}))},
            parameters=("limit", "next"),
        ),
        Operation(
            "delete",
            "/topics/{topic}/delayed/{message_id}",
            "cancelDelayed",
            "Cancel a message that waits",
            "The answer is the truth: a message that was cancelled is never delivered, and one that is said to be"
            " delivered is in its queue. Of a message that was cancelled before, 404.",
            {200: ("The message is cancelled.", Body("CancelResult", {"cancelled": True}))},
            conflict=(AlreadyDelivered,),
        ),
    ),
)
