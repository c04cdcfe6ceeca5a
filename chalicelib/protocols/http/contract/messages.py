"""Messages: produce them, and read them without leasing."""

from __future__ import annotations

from chalicelib.base.errors import StoreUnavailable
from chalicelib.base.limits import (
    BODY_BYTES_MAX,
    DEDUP_MS,
    DELAY_MS_MAX,
    ID_CHARS_MAX,
    KEY_BYTES_MAX,
    MESSAGE_JSON_BYTES_MAX,
    PROPERTIES_BYTES_MAX,
    TAG_CHARS_MAX,
    TRANSACTION_ITEMS_MAX,
)
from chalicelib.protocols.http.contract.operation import Body, Family, Operation
from chalicelib.protocols.http.contract.values import (
    OFFSET,
    QUEUE,
    Json,
    answer,
    array,
    batch,
    instant,
    integer,
    nullable,
    one_of,
    page,
    ref,
    request,
    string,
)

TAG_PATTERN = r"^[^|\s]([^|]*[^|\s])?$"
BASE64_PATTERN = r"^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/][AQgw]==|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=)?$"
"""The last character before the padding leaves over no bits that are set."""
BASE64_CHARS_MAX = -(-BODY_BYTES_MAX // 3) * 4

BODIES: Json = {
    "body": string(
        f"The payload as text, 1 to {BODY_BYTES_MAX} bytes of UTF-8. As JSON, with quotes and backslashes counted"
        f" twice, a message has at most {MESSAGE_JSON_BYTES_MAX} bytes, or no response could carry it.",
        BODY_BYTES_MAX,
    ),
    "body_base64": string(
        f"The payload as bytes, 1 to {BODY_BYTES_MAX} of them, in base64 (RFC 4648, section 4: standard"
        " alphabet, padded, no stray bits).",
        BASE64_CHARS_MAX,
        pattern=BASE64_PATTERN,
        contentEncoding="base64",
    ),
}
_KEY = string(
    f"Messages with one key go to one queue, in order. At most {KEY_BYTES_MAX} bytes of UTF-8.", KEY_BYTES_MAX
)
_TAG = string("What kind of message it is. No `|`, and no white space around it.", TAG_CHARS_MAX, pattern=TAG_PATTERN)
_PROPERTIES: Json = {
    "type": "object",
    "additionalProperties": {"type": "string"},
    "description": f"Names and values of the producer's own, together at most {PROPERTIES_BYTES_MAX} bytes of UTF-8.",
}
_PLACE: Json = {
    "message_id": string("The message's id. Id, queue and offset stay the same through every retry."),
    "queue": QUEUE,
    "offset": OFFSET,
}
MESSAGE_FIELDS: Json = {
    **_PLACE,
    "topic": string("The topic's name."),
    "key": nullable(_KEY),
    "tag": nullable(_TAG),
    "properties": _PROPERTIES,
    "stored_at_ms": instant("When the message was stored."),
}
ONE_BODY = [{"required": ["body"]}, {"required": ["body_base64"]}]
_ONE_BODY_GIVEN = [
    {"required": ["body"], "properties": {"body": {"type": "string"}, "body_base64": {"type": "null"}}},
    {"required": ["body_base64"], "properties": {"body": {"type": "null"}, "body_base64": {"type": "string"}}},
]
_TWO_DELAYS: Json = {
    "required": ["delay_ms", "deliver_at_ms"],
    "properties": {"delay_ms": {"type": "integer"}, "deliver_at_ms": {"type": "integer"}},
}
_NOT_STORED = answer(
    "Why the message was not stored.",
    {
        "code": string("As in a problem.", enum=[StoreUnavailable.__name__]),
        "detail": string("One sentence for people."),
    },
    {"outcome": string("The store's answer was lost: the message may be stored after all.", const="unknown")},
)
_SCHEMAS: Json = {
    "NewMessage": request(
        "A message to store. Exactly one of `body` and `body_base64` is given.",
        {
            **BODIES,
            "key": _KEY,
            "tag": _TAG,
            "properties": _PROPERTIES,
            "queue": {**QUEUE, "description": "Put it into exactly this queue, counted from 0; wins over `key`."},
            "delay_ms": integer("Not to be delivered before so long from now.", 0, DELAY_MS_MAX),
            "deliver_at_ms": instant(
                f"Not to be delivered before. A time in the past means now; at most {DELAY_MS_MAX} ms ahead. Excludes"
                " `delay_ms`."
            ),
            "dedup_id": string(
                f"The same id in the topic within {DEDUP_MS} ms is stored once and answered with the first result, from"
                " this request too. So a produce whose outcome is unknown can be repeated.",
                ID_CHARS_MAX,
            ),
        },
        oneOf=_ONE_BODY_GIVEN,
        **{"not": _TWO_DELAYS},
    ),
    "ProduceRequest": request(
        "The messages to store.",
        {},
        {"messages": batch(f"Their bodies are at most {BODY_BYTES_MAX} bytes in all.", ref("NewMessage"))},
    ),
    "Stored": answer(
        "Where a message was stored.",
        {**_PLACE, "offset": nullable({**OFFSET, "description": f"{OFFSET['description']} Null while it waits."})},
        {"deliver_at_ms": instant("It waits until then. Only of a message that was given a time to come.")},
    ),
    "NotStored": answer("A message that was not stored.", {"error": _NOT_STORED}),
    "ProduceResult": answer("What became of each message.", {"messages": array("In the order given.", ref("Stored"))}),
    "PartialProduceResult": answer(
        "What became of each message.",
        {"messages": array("In the order given.", one_of("Stored, or not.", ref("Stored"), ref("NotStored")))},
    ),
    "Message": answer(
        "A message, with exactly one of `body` and `body_base64`.", MESSAGE_FIELDS, BODIES, oneOf=ONE_BODY
    ),
    "MessageList": page("messages", "Message"),
}

_TEXT_STORED = {"message_id": "5c0a7f3e91d2b8460111", "queue": 1, "offset": 17}
_WAITING_STORED = {
    "message_id": "0d2f6b91c47e5a3801t19b76e8eb00",
    "queue": 1,
    "offset": None,
    "deliver_at_ms": 1767229200128,
}
_BYTES_STORED = {"message_id": "e1946b08d37fa25c0009", "queue": 0, "offset": 9}
_THROTTLED = {"error": {"code": "StoreUnavailable", "detail": "the store did not answer, after retries"}}
MESSAGE = {
    **_TEXT_STORED,
    "topic": "orders",
    "body": "order 4711 paid",
    "key": "customer-42",
    "tag": "paid",
    "properties": {"region": "eu"},
    "stored_at_ms": 1767225661000,
}
_NEW_MESSAGES = [
    {
        "body": "order 4711 paid",
        "key": "customer-42",
        "tag": "paid",
        "properties": {"region": "eu"},
        "dedup_id": "4711-paid",
    },
    {"body_base64": "3q2+7w==", "queue": 0},
    {"body": "order 4711 reminder", "key": "customer-42", "delay_ms": 3600000},
]

MESSAGES = Family(
    "Messages",
    "Producing, and reading without leasing.",
    _SCHEMAS,
    (
        Operation(
            "post",
            "/topics/{topic}/messages",
            "produce",
            "Produce messages",
            "Nothing is stored unless all messages are valid. Messages of one call that land in one queue have"
            f" consecutive offsets (of more than {TRANSACTION_ITEMS_MAX} with a `dedup_id`, each"
            f" {TRANSACTION_ITEMS_MAX} have). A message without `key` and `queue` goes to any queue.",
            {
                200: (
                    "All messages are stored.",
                    Body("ProduceResult", {"messages": [_TEXT_STORED, _BYTES_STORED, _WAITING_STORED]}),
                ),
                204: ("All messages are stored, and `Prefer: return=minimal` asked for no more.", None),
                207: (
                    "Some queues failed: the messages with an `error` are not stored, the others are.",
                    Body("PartialProduceResult", {"messages": [_TEXT_STORED, _THROTTLED]}),
                ),
            },
            request=Body("ProduceRequest", {"messages": _NEW_MESSAGES}),
            parameters=("Prefer", "traceparent"),
        ),
        Operation(
            "get",
            "/topics/{topic}/messages",
            "readMessages",
            "Read messages without leasing them",
            "With `queue`, the messages of that queue from `offset` or from `at_ms` on, in offset order. Without, those"
            " of all queues from `at_ms` on, by `stored_at_ms`. Where neither is given, from the start. `offset` needs"
            " `queue` and excludes `at_ms`. With `key`, which goes with none of these, the messages of a key by"
            " `stored_at_ms`, of a topic with `index_keys`: those stored since that was set. No group notices.",
            {200: ("A page of messages.", Body("MessageList", {"messages": [MESSAGE], "next": None}))},
            parameters=("queue", "offset", "at_ms", "key", "limit", "next"),
        ),
        Operation(
            "get",
            "/topics/{topic}/messages/{message_id}",
            "getMessage",
            "Read one message by its id",
            "Reads without leasing: no group notices.",
            {200: ("The message.", Body("Message", MESSAGE))},
        ),
    ),
)
