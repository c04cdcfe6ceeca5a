"""Dead letters: list them, redrive them, throw them away."""

from __future__ import annotations

from chalicelib.base.limits import BATCH_MESSAGES_MAX, DEAD_MS, ID_CHARS_MAX, REASON_CHARS_MAX
from chalicelib.protocols.http.contract.messages import BODIES, MESSAGE, MESSAGE_FIELDS, ONE_BODY
from chalicelib.protocols.http.contract.operation import Body, Family, Operation
from chalicelib.protocols.http.contract.values import Json, answer, batch, instant, integer, page, request, string

_DEAD_PATH = "/topics/{topic}/groups/{group}/dead"

_SCHEMAS: Json = {
    "DeadMessage": answer(
        "A message that the group has given up, with exactly one of `body` and `body_base64`.",
        {
            **MESSAGE_FIELDS,
            "attempts": integer("How often it was delivered.", 1),
            "reason": string(
                "What the last nack, or the bury, gave as its reason; or that the lease expired; or that"
                " the message was lost.",
                REASON_CHARS_MAX,
                minLength=0,
            ),
            "dead_at_ms": instant("When it was given up."),
        },
        {
            **BODIES,
            "body": string("The payload; empty when the store has lost it, as `reason` then says.", minLength=0),
        },
        oneOf=ONE_BODY,
    ),
    "DeadMessageList": page("messages", "DeadMessage"),
    "RedriveRequest": request(
        "What to bring back. Without `message_ids`: all.",
        {"message_ids": batch("Messages that are dead.", string("A message's id.", ID_CHARS_MAX))},
    ),
    "RedriveResult": answer(
        "What was brought back.",
        {
            "redriven": integer("How many messages are no longer dead."),
            "remaining": integer("How many messages of the group are dead still."),
        },
    ),
    "PurgeResult": answer("What was thrown away.", {"purged": integer("How many dead letters were removed.")}),
}

_DEAD = {**MESSAGE, "attempts": 5, "reason": "no such customer", "dead_at_ms": 1767225999000}

DEAD_LETTERS = Family(
    "Dead letters",
    "Messages that a group has given up: delivered `max_attempts` times without an ack, or buried.",
    _SCHEMAS,
    (
        Operation(
            "get",
            _DEAD_PATH,
            "listDead",
            "List dead messages",
            "By queue and offset. A message that the log holds no more is left out. In a broadcast group a message is"
            " there once for each consumer that gave it up; with its id, a redrive brings it back to all of them.",
            {200: ("A page of dead messages.", Body("DeadMessageList", {"messages": [_DEAD], "next": None}))},
            parameters=("limit", "next"),
        ),
        Operation(
            "post",
            f"{_DEAD_PATH}/redrive",
            "redriveDead",
            "Bring dead messages back",
            "They are delivered to this group again, and to no other, from `attempt` 1 on. With `message_ids`, nothing"
            f" is done unless all of them are dead; at most {BATCH_MESSAGES_MAX}. One call goes on for {DEAD_MS} ms,"
            " and brings back no more than a queue has room for; `remaining` says what is left to call again for.",
            {200: ("What was brought back.", Body("RedriveResult", {"redriven": 1, "remaining": 0}))},
            request=Body("RedriveRequest", {"message_ids": [MESSAGE["message_id"]]}),
            names=("message_id",),
        ),
        Operation(
            "delete",
            _DEAD_PATH,
            "purgeDead",
            "Throw dead messages away",
            f"They stay in the log, and other groups notice nothing. One call goes on for {DEAD_MS} ms: call again"
            " until nothing is purged.",
            {200: ("What was thrown away.", Body("PurgeResult", {"purged": 2}))},
        ),
    ),
)
