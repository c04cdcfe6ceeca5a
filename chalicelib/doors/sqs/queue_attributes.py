"""The attributes of queues: what each may be, where it lives, and how it is shown. All values are text."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NamedTuple

import orjson

from chalicelib.core.admin.groups import GroupDetails
from chalicelib.core.base.limits import INVISIBLE_MS_MAX, KIB, MIB, SECOND_MS, WAIT_MS_MAX
from chalicelib.core.catalogue.topic import Topic
from chalicelib.doors.sqs import redrives
from chalicelib.doors.sqs.errors import SqsError
from chalicelib.doors.sqs.queue import SqsQueue
from chalicelib.doors.sqs.redrives import ALLOW, REDRIVE
from chalicelib.doors.sqs.registry import Standing

Values = Mapping[str, str]
"""Values by the names of attributes. An empty one takes the attribute away."""

ALL = "All"
VISIBILITY, RETENTION, DELAY = "VisibilityTimeout", "MessageRetentionPeriod", "DelaySeconds"
SIZE, WAIT = "MaximumMessageSize", "ReceiveMessageWaitTimeSeconds"
FIFO, POLICY = "FifoQueue", "Policy"
CONTENT_BASED, SCOPE, THROUGHPUT = "ContentBasedDeduplication", "DeduplicationScope", "FifoThroughputLimit"
BY_GROUP, PER_GROUP = "messageGroup", "perMessageGroupId"
"""The values of the last two attributes that make groups independent of each other."""
_KMS, _SSE, _KEY_REUSE = "KmsMasterKeyId", "SqsManagedSseEnabled", "KmsDataKeyReusePeriodSeconds"
_ONE_ENCRYPTION = (
    "You can use one type of server-side encryption (SSE) at one time. You can either enable KMS SSE or SQS SSE."
)
_RETENTION_S_DEFAULT = 345_600

DELAY_SECONDS_MAX = 900
VISIBILITY_SECONDS_MAX = INVISIBLE_MS_MAX // SECOND_MS
WAIT_SECONDS_MAX = WAIT_MS_MAX // SECOND_MS
MESSAGE_BYTES_MAX = MIB

POLICY_BYTES_MAX = 8 * KIB
"""As in SQS. Lists of queues read their records whole."""
_KEY_ID_CHARS_MAX = 2_048
_SOURCES_MAX = 10
"""Queues that one `RedriveAllowPolicy` names."""

# -- values -----------------------------------------------------------------------------------------------------------


def _invalid(name: str, reason: str = "") -> SqsError:
    return SqsError(
        "InvalidAttributeValue", f"Invalid value for the parameter {name}.{reason and f' Reason: {reason}'}"
    )


def _unknown(name: str) -> SqsError:
    return SqsError("InvalidAttributeName", f"Unknown Attribute {name}.")


Parse = Callable[[str, str], str]
"""The value of the attribute of this name as it is kept. Raises SqsError."""


def _number(low: int, high: int) -> Parse:
    def parse(name: str, text: str) -> str:
        if not re.fullmatch("[0-9]{1,10}", text) or not low <= int(text) <= high:
            raise _invalid(name)
        return str(int(text))

    return parse


def flag(name: str, text: str) -> str:
    if text.lower() not in ("true", "false"):
        raise _invalid(name)
    return text.lower()


def _one_of(*values: str) -> Parse:
    def parse(name: str, text: str) -> str:
        if text not in values:
            raise _invalid(name)
        return text

    return parse


def _text(name: str, text: str) -> str:
    if len(text) > _KEY_ID_CHARS_MAX:
        raise _invalid(name)
    return text


def _object(name: str, text: str) -> dict[str, Any]:
    try:
        value = orjson.loads(text)
        orjson.dumps([value])  # which takes fewer levels, and is how it is stored once a permission was added
    except orjson.JSONDecodeError:
        raise _invalid(name, "It is not JSON.") from None
    except orjson.JSONEncodeError:
        raise _invalid(name, "It is nested too deep.") from None
    if not isinstance(value, dict) or len(text.encode()) > POLICY_BYTES_MAX:
        raise _invalid(name)
    return value


def _policy(name: str, text: str) -> str:
    """A policy as it was given; empty text removes it."""
    if text:
        _object(name, text)
    return text


def _allow_policy(name: str, text: str) -> str:
    if not text or not (policy := _object(name, text)):
        return ""
    permission, sources = policy.get("redrivePermission"), policy.get("sourceQueueArns", [])
    are_texts = isinstance(sources, list) and all(isinstance(source, str) for source in sources)
    if permission not in ("allowAll", "denyAll", "byQueue") or not are_texts or len(sources) > _SOURCES_MAX:
        raise _invalid(name)
    if (permission == "byQueue") != bool(sources):
        raise _invalid(name)
    return text


# -- the table --------------------------------------------------------------------------------------------------------


class Attribute(NamedTuple):
    """`default`: of a queue that does not have it; None: it is then left out. `of_setting`: its value, where a setting
    of the group or the topic holds it, and not the record."""

    parse: Parse
    default: str | None = None
    of_setting: Callable[[Standing], int] | None = None


_SETTABLE: dict[str, Attribute] = {
    VISIBILITY: Attribute(_number(0, VISIBILITY_SECONDS_MAX), of_setting=lambda standing: standing.group.invisible_ms),
    RETENTION: Attribute(_number(60, 1_209_600), of_setting=lambda standing: standing.topic.retention_ms),
    DELAY: Attribute(_number(0, DELAY_SECONDS_MAX), "0"),
    SIZE: Attribute(_number(KIB, MESSAGE_BYTES_MAX), str(MESSAGE_BYTES_MAX)),
    WAIT: Attribute(_number(0, WAIT_SECONDS_MAX), "0"),
    REDRIVE: Attribute(redrives.parse),
    ALLOW: Attribute(_allow_policy),
    POLICY: Attribute(_policy),
    _KMS: Attribute(_text),
    _KEY_REUSE: Attribute(_number(60, 86_400), "300"),
    _SSE: Attribute(flag),
}
_OF_FIFO: dict[str, Attribute] = {
    CONTENT_BASED: Attribute(flag, "false"),
    SCOPE: Attribute(_one_of("queue", BY_GROUP), "queue"),
    THROUGHPUT: Attribute(_one_of("perQueue", PER_GROUP), "perQueue"),
}
_ALL = {**_SETTABLE, **_OF_FIFO}
READY, IN_FLIGHT, DELAYED = (f"ApproximateNumberOfMessages{kind}" for kind in ("", "NotVisible", "Delayed"))
COUNTS = (READY, IN_FLIGHT, DELAYED)
_READ_ONLY = ("QueueArn", "CreatedTimestamp", "LastModifiedTimestamp", *COUNTS)


def parsed(given: Mapping[str, str], is_fifo: bool) -> dict[str, str]:
    """The values to set, without the kind of the queue, which does not change. Raises SqsError."""
    values = {name.strip(): text.strip() for name, text in given.items()}
    if is_fifo and flag(FIFO, values.pop(FIFO, "true")) == "false":
        raise _invalid(FIFO, "Modifying queue type is not supported.")
    for name in values:
        if name in (SCOPE, THROUGHPUT) and not is_fifo:
            reason = f"You can specify the {name} only when FifoQueue is set to true."
            raise SqsError("InvalidAttributeName", reason)
        if name not in (_ALL if is_fifo else _SETTABLE):
            raise _unknown(name)
    taken = {name: _ALL[name].parse(name, text) for name, text in values.items()}
    if taken.get(_KMS) and taken.get(_SSE) == "true":
        raise SqsError("InvalidAttributeName", _ONE_ENCRYPTION)
    if taken.get(_SSE) == "true":  # the later of the two counts
        return {_KMS: "", **taken}
    return {**taken, _SSE: "false"} if taken.get(_KMS) else taken


def are_same(name: str, text: str, kept: str) -> bool:
    """Whether two values of an attribute, as they are kept, say the same: of policies, as JSON."""
    is_json = name in (POLICY, ALLOW) and text and kept
    return text == kept or bool(is_json and orjson.loads(text) == orjson.loads(kept))


def demand_together(held: Values) -> None:
    """Raises SqsError unless one queue can have these of its record."""
    if held.get(THROUGHPUT) == PER_GROUP and held.get(SCOPE) != BY_GROUP:
        reason = f"The {PER_GROUP} value is allowed only when the value for {SCOPE} is {BY_GROUP}."
        raise _invalid(THROUGHPUT, reason)


def number(queue: SqsQueue, name: str) -> int:
    """The value of one that the queue's record holds, or its default."""
    return int(queue.attributes.get(name) or default_of(name) or 0)


def default_of(name: str) -> str | None:
    return _ALL[name].default


# -- where they live --------------------------------------------------------------------------------------------------


def of_record(values: Values, keeps_delay: bool) -> dict[str, str]:
    """Those that the queue's record holds. `keeps_delay`: the delay too, and not the group."""
    own = {name: text for name, text in values.items() if not _ALL[name].of_setting}
    return own if keeps_delay else {name: text for name, text in own.items() if name != DELAY}


def group_settings(values: Values, keeps_delay: bool) -> dict[str, int]:
    of_group = {VISIBILITY: "invisible_ms"} if keeps_delay else {VISIBILITY: "invisible_ms", DELAY: "delay_ms"}
    return {setting: int(values[name]) * SECOND_MS for name, setting in of_group.items() if name in values}


def topic_settings(values: Values) -> dict[str, int]:
    return {"retention_ms": int(values[RETENTION]) * SECOND_MS} if RETENTION in values else {}


def new_topic_settings(values: Values) -> dict[str, int]:
    return {"retention_ms": _RETENTION_S_DEFAULT * SECOND_MS, **topic_settings(values)}


def demand_subscribed(values: Values, topic: Topic) -> None:
    """Raises SqsError for what a queue that reads another's topic cannot have."""
    if int(values.get(RETENTION, topic.retention_ms // SECOND_MS)) != topic.retention_ms // SECOND_MS:
        raise _invalid(RETENTION, f"The queue reads topic '{topic.name}', whose retention it has.")


# -- shown ------------------------------------------------------------------------------------------------------------


def settable(standing: Standing) -> dict[str, str]:
    """The values of all attributes that can be set and are, as they are kept."""
    queue, held = standing.queue, standing.queue.attributes
    shown: dict[str, str | None] = {
        name: str(attribute.of_setting(standing) // SECOND_MS)
        if attribute.of_setting
        else held.get(name, attribute.default)
        for name, attribute in (_ALL if queue.is_fifo else _SETTABLE).items()
    }
    if queue.is_fifo:
        shown[FIFO] = "true"
    if not queue.keeps_delay:
        shown[DELAY] = str(standing.group.delay_ms // SECOND_MS)
    shown[REDRIVE] = redrives.of_group(standing.group)
    shown[_SSE] = "false" if held.get(_KMS) else held.get(_SSE, "true")
    return {name: text for name, text in shown.items() if text is not None}


def visible(standing: Standing) -> dict[str, str]:
    """The same without how long a key is used, while that is the default and no key is."""
    values = settable(standing)
    is_told = values.get(_KMS) or values[_KEY_REUSE] != default_of(_KEY_REUSE)
    return values if is_told else {name: text for name, text in values.items() if name != _KEY_REUSE}


def read_only(standing: Standing, arn: str) -> dict[str, str]:
    """Those that only the queue itself changes, but for the counts."""
    queue = standing.queue
    times = {"CreatedTimestamp": queue.created_at_ms, "LastModifiedTimestamp": queue.changed_at_ms}
    return {"QueueArn": arn, **{name: str(at_ms // SECOND_MS) for name, at_ms in times.items()}}


def counts(details: GroupDetails, waiting: Iterable[int]) -> dict[str, str]:
    queues = details.queues
    shown = {
        READY: sum(queue.ready for queue in queues),
        IN_FLIGHT: sum(queue.in_flight + queue.retrying for queue in queues),
        DELAYED: sum(waiting) + sum(queue.delayed for queue in queues),
    }
    return {name: str(count) for name, count in shown.items()}


def wanted(names: Collection[str], is_fifo: bool) -> set[str]:
    """The attributes that a request names. Raises SqsError."""
    stripped = [name.strip() for name in names]
    known = {*_SETTABLE, *_READ_ONLY} | ({*_OF_FIFO, FIFO} if is_fifo else set())
    for name in stripped:
        if name not in known | {ALL}:
            raise _unknown(name)
    return known if ALL in stripped else {*stripped}
