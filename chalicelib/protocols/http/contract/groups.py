"""Groups: create, change, look at, list, delete, and move them."""

from __future__ import annotations

from chalicelib.base.limits import (
    ATTEMPTS_DEFAULT,
    ATTEMPTS_MAX,
    BACKOFF_MS,
    BACKOFF_STEPS_MAX,
    EXPRESSION_CHARS_MAX,
    FILTER_TAGS_MAX,
    GROUP_DETAILS_MAX,
    IN_FLIGHT_DEFAULT,
    IN_FLIGHT_MAX,
    INVISIBLE_MS_DEFAULT,
    INVISIBLE_MS_MAX,
    MULTIPLIER_MAX,
    NACK_DELAY_MS_MAX,
    OFFSET_MAX,
    RATE_MAX,
    RATE_MIN,
    RETENTION_MS_MAX,
    TAG_CHARS_MAX,
)
from chalicelib.protocols.http.contract.operation import Body, Family, Operation
from chalicelib.protocols.http.contract.values import (
    END_OFFSET,
    OFFSET,
    QUEUE,
    Json,
    answer,
    array,
    flag,
    instant,
    integer,
    nullable,
    one_of,
    page,
    request,
    string,
    without_defaults,
)

_TAGS = {
    **array("Tags.", {**string("A tag."), "minLength": 1, "maxLength": TAG_CHARS_MAX}),
    "minItems": 1,
    "maxItems": FILTER_TAGS_MAX,
}
_EXPRESSION = {**string("JMESPath."), "minLength": 1, "maxLength": EXPRESSION_CHARS_MAX}
_SETTINGS: Json = {
    "start": one_of(
        "Where the group began, or shall begin: the first message that can be read, only what comes after, or what was"
        " stored at or after an instant, in milliseconds since the Unix epoch. Counts at creation only.",
        {"type": "string", "enum": ["earliest", "latest"]},
        instant("The instant."),
        default="earliest",
    ),
    "mode": string(
        "`clustering`: the consumers of the group share its messages. `broadcast`: every `consumer_id` gets every"
        " message. A new consumer begins at the group's `start`, and is forgotten when it has not popped for 7 days."
        " The totals are sums over the consumers; with none yet, the group stands where the first will begin. `reset`"
        " moves all consumers that there are; dead letters are shared. Cannot be changed once the group exists.",
        enum=["clustering", "broadcast"],
        default="clustering",
    ),
    "invisible_ms": integer(
        "How long a lease lasts when pop does not say, in milliseconds.",
        1,
        INVISIBLE_MS_MAX,
        default=INVISIBLE_MS_DEFAULT,
    ),
    "max_attempts": integer(
        "How often a message is delivered before it counts as dead.", 1, ATTEMPTS_MAX, default=ATTEMPTS_DEFAULT
    ),
    "max_in_flight": integer(
        "How many messages of one queue may be leased at a time.", 1, IN_FLIGHT_MAX, default=IN_FLIGHT_DEFAULT
    ),
    "backoff_ms": one_of(
        "How long a message waits after its n-th attempt was nacked without a `delay_ms`: the n-th of a list, whose"
        " last one repeats, or a wait that grows. An expired lease comes back at once.",
        {
            **array("Milliseconds.", integer("One wait.", most=NACK_DELAY_MS_MAX)),
            "minItems": 1,
            "maxItems": BACKOFF_STEPS_MAX,
        },
        request(
            "A wait that grows.",
            {},
            {
                "initial_ms": integer("The first.", 1, NACK_DELAY_MS_MAX),
                "multiplier": {
                    "type": "number",
                    "minimum": 1,
                    "maximum": MULTIPLIER_MAX,
                    "description": "How many times as long as the one before each is.",
                },
                "max_ms": integer("The longest; not shorter than the first.", 1, NACK_DELAY_MS_MAX),
            },
        ),
        default=list(BACKOFF_MS),
    ),
    "paused": flag("Whether pop delivers nothing; what it acks still counts.", default=False),
    "rate_limit": {
        "type": "number",
        "minimum": RATE_MIN,
        "maximum": RATE_MAX,
        "default": None,
        "description": "How many messages a second the group is given, over all queues and consumers; what is delivered"
        " again counts too. Up to a second's messages may come at once. Once given it can be raised, not taken away.",
    },
    "ordered": flag(
        "Whether a queue gives nothing more until all that a pop took from it is settled, or due again. A message that"
        " failed is then not overtaken by later ones of its queue. Cannot be changed later.",
        default=False,
    ),
    "filter": {
        **one_of(
            "What the group is given: messages with one of these tags, or those that a JMESPath expression over `tag`,"
            " `key` and `properties` is true of. What does not match is settled when it is passed, and counts as"
            " `ready` until then. A changed filter applies to what is not yet passed; the expression"
            " `'all'` lets everything through again. The steps that an expression may take grow with the message's"
            " `tag`, `key` and `properties`. A message for which it takes more does not match.",
            request("Tags.", {"expression": one_of("Not given.")}, {"tags": _TAGS}),
            request("An expression.", {"tags": one_of("Not given.")}, {"expression": _EXPRESSION}),
        ),
        "default": None,
    },
}
_THRESHOLDS: Json = {
    "ready": integer("Messages that are ready.", 1, OFFSET_MAX),
    "age_ms": integer("How long ago the oldest ready message was stored, in milliseconds.", 1, RETENTION_MS_MAX),
}
_SETTINGS["alarm"] = {
    **request(
        "When the backlog is too long: as soon as one of the thresholds given is reached, a message goes to the topic"
        " `decant.alarms`, and another one when the backlog is below all of them. Checked every minute. The topic is"
        " made when it is first needed, and is like any other. The messages have the tag `raised` or `cleared`, the key"
        " `topic/group`, the properties `topic` and `group`, and as their body JSON with `topic`, `group`, `state`,"
        " `ready`, `age_ms`, `thresholds` and `at_ms`. New thresholds replace the old ones, both of them. An object"
        " without any takes the alarm away; if it was raised, it clears.",
        _THRESHOLDS,
    ),
    "default": None,
}
_ALARM = answer("The thresholds that were given.", {}, _THRESHOLDS)
_READY = integer("Messages that a pop can take now, those of expired leases included.")
_IN_FLIGHT = integer("Messages that are leased.")
_GROUP: Json = {
    "group": string("The group's name."),
    "topic": string("The topic's name."),
    **without_defaults(_SETTINGS),
    "rate_limit": nullable(without_defaults(_SETTINGS)["rate_limit"]),
    "filter": nullable(without_defaults(_SETTINGS)["filter"]),
    "alarm": nullable(_ALARM),
    "alarm_state": nullable(
        string("Whether the alarm is raised, as of the last check. Null: there is none.", enum=["raised", "cleared"])
    ),
    "created_at_ms": instant("When the group was created."),
    "ready": _READY,
    "in_flight": _IN_FLIGHT,
    "retrying": integer("Messages that wait for their retry after a nack; not part of `lag`."),
    "dead": integer("Messages that were delivered `max_attempts` times without an ack."),
    "lag": integer("`ready` and `in_flight` together."),
}
_QUEUE_PROGRESS = answer(
    "Where the group stands in one queue.",
    {
        "queue": QUEUE,
        "committed_offset": integer(
            "The lowest offset that is not settled, by any consumer of a broadcast group; a nacked message is"
            " passed, if the group is not ordered."
        ),
        "next_offset": integer("The lowest offset that was never taken."),
        "end_offset": END_OFFSET,
        "ready": _READY,
        "in_flight": _IN_FLIGHT,
        "oldest_ready_at_ms": nullable(instant("When the first ready message was stored. Null: none is ready.")),
        "last_pop_at_ms": nullable(instant("When a pop last took messages. Null: none did yet.")),
        "last_consumer_id": nullable(string("Who took them. Null: it did not say, or none did.")),
    },
)
_RESET_TO = one_of(
    "Where to: to the first message that can be read, past the last one, to what was stored at or after an instant, or"
    " to an offset of one queue, from its first to its end offset.",
    {"type": "string", "enum": ["earliest", "latest"]},
    request("To an instant.", {}, {"at_ms": instant("The instant.")}),
    request("To an offset of one queue; the others stay.", {}, {"queue": QUEUE, "offset": OFFSET}),
)
_SCHEMAS: Json = {
    "GroupSettings": request(
        "The settings of a group. What is not given gets its default when the group is created, and stays as it is when"
        " the group is changed.",
        _SETTINGS,
    ),
    "Group": answer("A group, its settings and its progress over all queues.", _GROUP),
    "GroupDetail": answer(
        "A group, its settings, and its progress over all queues and in each.",
        {**_GROUP, "queues": array("One entry for each queue.", _QUEUE_PROGRESS)},
    ),
    "GroupList": page("groups", "Group"),
    "ResetRequest": request("Where to move the group.", {}, {"to": _RESET_TO}),
}

_EXAMPLE = {
    "group": "billing",
    "topic": "orders",
    "start": "earliest",
    "mode": "clustering",
    "invisible_ms": 60000,
    "max_attempts": 5,
    "max_in_flight": 1000,
    "backoff_ms": [10000, 60000, 600000],
    "paused": False,
    "ordered": False,
    "rate_limit": None,
    "filter": None,
    "alarm": {"ready": 10000, "age_ms": 600000},
    "alarm_state": "cleared",
    "created_at_ms": 1767225600000,
    "ready": 3,
    "in_flight": 1,
    "retrying": 0,
    "dead": 0,
    "lag": 4,
}
_DETAIL = {
    **_EXAMPLE,
    "queues": [
        {
            "queue": 0,
            "committed_offset": 17,
            "next_offset": 18,
            "end_offset": 21,
            "ready": 3,
            "in_flight": 1,
            "oldest_ready_at_ms": 1767225661000,
            "last_pop_at_ms": 1767225662000,
            "last_consumer_id": "worker-1",
        }
    ],
}
_FOUND = Body("GroupDetail", _DETAIL)

GROUPS = Family(
    "Groups",
    "A group reads every message of its topic, at its own pace; what one group does, no other sees.",
    _SCHEMAS,
    (
        Operation(
            "get",
            "/topics/{topic}/groups",
            "listGroups",
            "List the groups of a topic",
            "Paging while groups are created neither repeats nor skips one. A page has at most"
            f" {GROUP_DETAILS_MAX} groups, whatever its `limit`.",
            {200: ("A page of groups.", Body("GroupList", {"groups": [_EXAMPLE], "next": None}))},
            parameters=("limit", "next"),
        ),
        Operation(
            "put",
            "/topics/{topic}/groups/{group}",
            "putGroup",
            "Create or change a group",
            "Changes the settings that are given, and only those.",
            {200: ("The group was there, and is changed.", _FOUND), 201: ("The group was created.", _FOUND)},
            request=Body("GroupSettings", {"invisible_ms": 60000, "max_attempts": 5}),
        ),
        Operation(
            "get",
            "/topics/{topic}/groups/{group}",
            "getGroup",
            "Look at a group",
            "Its settings and its progress.",
            {200: ("The group.", _FOUND)},
        ),
        Operation(
            "delete",
            "/topics/{topic}/groups/{group}",
            "deleteGroup",
            "Delete a group",
            "A group made again under the same name has nothing of it, and no old receipt touches it.",
            {204: ("The group is deleted.", None)},
        ),
        Operation(
            "post",
            "/topics/{topic}/groups/{group}/reset",
            "resetGroup",
            "Move a group",
            "Leases from before neither bring messages back nor settle anything, and retries that wait are dropped; the"
            " same goes for one queue when only that one is moved.",
            {200: ("The group is moved; this is its progress.", _FOUND)},
            request=Body("ResetRequest", {"to": "earliest"}),
        ),
    ),
)
