"""Topics: create, look at, list, delete."""

from __future__ import annotations

from chalicelib.base.limits import QUEUES_DEFAULT, QUEUES_MAX, RETENTION_MS_DEFAULT, RETENTION_MS_MAX, RETENTION_MS_MIN
from chalicelib.protocols.http.contract.operation import Body, Family, Operation
from chalicelib.protocols.http.contract.values import (
    END_OFFSET,
    QUEUE,
    Json,
    answer,
    array,
    flag,
    instant,
    integer,
    page,
    request,
    string,
)

_INDEX = "Whether messages can be looked up by `key`, from some seconds after this is set."
_RETENTION = "How long a message can be read after it was stored."
_FIELDS: Json = {
    "topic": string("The topic's name."),
    "queues": integer("How many queues (partitions) the topic has.", 1, QUEUES_MAX),
    "retention_ms": integer(_RETENTION, RETENTION_MS_MIN, RETENTION_MS_MAX),
    "index_keys": flag(_INDEX),
    "created_at_ms": instant("When the topic was created."),
}
_QUEUE_OFFSETS = answer(
    "What one queue holds.",
    {
        "queue": QUEUE,
        "first_offset": integer("The offset of the oldest message that can be read."),
        "end_offset": END_OFFSET,
    },
)
_SCHEMAS: Json = {
    "TopicSettings": request(
        "The settings of a topic.",
        {
            "queues": integer(
                "How many queues (partitions) to create the topic with. A topic that exists keeps its number, and"
                " another one is refused.",
                1,
                QUEUES_MAX,
                default=QUEUES_DEFAULT,
            ),
            "retention_ms": integer(_RETENTION, RETENTION_MS_MIN, RETENTION_MS_MAX, default=RETENTION_MS_DEFAULT),
            "index_keys": flag(_INDEX, default=False),
        },
    ),
    "Topic": answer("A topic.", _FIELDS),
    "TopicDetail": answer(
        "A topic, its groups, and what its queues hold.",
        {
            **_FIELDS,
            "groups": array("The names of its groups.", string("The group's name.")),
            "queue_offsets": array("One entry for each queue.", _QUEUE_OFFSETS),
        },
    ),
    "TopicList": page("topics", "Topic"),
}

_TOPIC = {
    "topic": "orders",
    "queues": 2,
    "retention_ms": RETENTION_MS_DEFAULT,
    "index_keys": False,
    "created_at_ms": 1767225600000,
}
_DETAIL = {
    **_TOPIC,
    "groups": ["billing"],
    "queue_offsets": [
        {"queue": 0, "first_offset": 0, "end_offset": 17},
        {"queue": 1, "first_offset": 0, "end_offset": 21},
    ],
}

TOPICS = Family(
    "Topics",
    "A topic is a set of queues. It is created on purpose, never by a typo in a produce.",
    _SCHEMAS,
    (
        Operation(
            "get",
            "/topics",
            "listTopics",
            "List the topics",
            "Paging while topics are created neither repeats nor skips one.",
            {200: ("A page of topics.", Body("TopicList", {"topics": [_TOPIC], "next": None}))},
            parameters=("limit", "next"),
        ),
        Operation(
            "put",
            "/topics/{topic}",
            "putTopic",
            "Create or change a topic",
            "Of a topic that exists, changes the settings that are given, and only those; the number of queues stays.",
            {
                200: ("The topic was there, and is changed where something else was given.", Body("Topic", _TOPIC)),
                201: ("The topic was created.", Body("Topic", _TOPIC)),
            },
            request=Body("TopicSettings", {"queues": 2}),
        ),
        Operation(
            "get",
            "/topics/{topic}",
            "getTopic",
            "Look at a topic",
            "The topic, the names of its groups, and the first and the end offset of each queue.",
            {200: ("The topic.", Body("TopicDetail", _DETAIL))},
        ),
        Operation(
            "delete",
            "/topics/{topic}",
            "deleteTopic",
            "Delete a topic",
            "Deletes its messages and groups too. A topic made again under the same name starts empty at offset 0, and"
            " no old receipt touches it.",
            {204: ("The topic is deleted.", None)},
        ),
    ),
)
