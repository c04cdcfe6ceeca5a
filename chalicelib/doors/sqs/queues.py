"""The actions on queues themselves."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import orjson

from chalicelib.core.access.callers import is_limited
from chalicelib.core.base.errors import TopicNotFound
from chalicelib.core.base.limits import QUEUES_DEFAULT
from chalicelib.core.catalogue.group import EARLIEST, LATEST, NOW
from chalicelib.core.telemetry.record import note
from chalicelib.doors.sqs import queue_attributes as attributes
from chalicelib.doors.sqs import queue_tags, redrives
from chalicelib.doors.sqs.action import INTEGER, TEXT, TEXT_MAP, TEXTS, Actions, Call, Json, page
from chalicelib.doors.sqs.errors import SqsError, bad_value, missing
from chalicelib.doors.sqs.queue import NAME_CHARS_MAX, NAME_PATTERN, SqsQueue, is_fifo, keeps_delay, own_name
from chalicelib.doors.sqs.queue_attributes import POLICY, POLICY_BYTES_MAX
from chalicelib.doors.sqs.registry import Change, GroupUnfit, NewQueue, QueueGone, Standing, TopicStands, queues_of

QUEUES = Actions()

_ON_QUEUE = {"QueueUrl": TEXT}
_NAME = re.compile(f"[A-Za-z0-9_-]{{1,{NAME_CHARS_MAX}}}")
_BAD_NAME = f"Can only include alphanumeric characters, hyphens, or underscores. 1 to {NAME_CHARS_MAX} in length"
_BAD_FIFO_NAME = (
    "The name of a FIFO queue can only include alphanumeric characters, hyphens, or underscores, must end with .fifo"
    f" suffix and be 1 to {NAME_CHARS_MAX} in length."
)


# -- made and found ---------------------------------------------------------------------------------------------------


@QUEUES.action(
    "CreateQueue",
    "admin",
    {"QueueName": TEXT, "Attributes": TEXT_MAP, "tags": TEXT_MAP},
    required=("QueueName",),
    with_topic=True,
    demands=True,
    is_of_account=True,
)
def create_queue(call: Call) -> Json:
    name, tags = call.request["QueueName"], call.request.get("tags", {})
    topic, group = _place(name, tags)
    call.demand_at(name, topic, group, owns_topic=queue_tags.TOPIC not in tags)
    given = call.request.get("Attributes", {})
    values = attributes.parsed(given, _is_fifo(name, given))
    attributes.demand_together(values)
    queue_tags.demand_new(tags, name)
    note(topic=topic, group=group)
    standing = _existing(call, name) or _made(call, _new(call, name, values, tags), values)
    if standing:
        call.demand(standing.queue)
        _demand_same(standing, values, tags)
    return {"QueueUrl": call.context.url(name)}


def _place(name: str, tags: queue_tags.Tags) -> tuple[str, str]:
    """The names of the queue's topic and group."""
    return tags.get(queue_tags.TOPIC, own_name(name)), tags.get(queue_tags.GROUP, own_name(name))


def _is_fifo(name: str, given: Mapping[str, str]) -> bool:
    """Whether the attributes ask for a FIFO queue. Raises SqsError for names that no queue of its kind can have."""
    kinds = [text.strip() for attribute, text in given.items() if attribute.strip() == attributes.FIFO]
    if [attributes.flag(attributes.FIFO, text) for text in kinds] != ["true"]:
        if not _NAME.fullmatch(name):
            raise SqsError("InvalidParameterValue", _BAD_NAME)
        return False
    if not re.fullmatch(NAME_PATTERN, name) or not is_fifo(name):
        raise SqsError("InvalidParameterValue", _BAD_FIFO_NAME)
    return True


def _new(call: Call, name: str, values: attributes.Values, tags: queue_tags.Tags) -> NewQueue:
    topic, group = _place(name, tags)
    owns_topic = queue_tags.TOPIC not in tags
    queues = queue_tags.number_of_queues(tags, _queues(name, values))
    made = {**attributes.new_topic_settings(values), "queues": queues} if owns_topic else None
    has_delay = keeps_delay(name, owns_topic)
    redriven = redrives.group_settings(call, name, topic, group, values.get(redrives.REDRIVE))
    return NewQueue(
        name,
        topic,
        made,
        group,
        {**attributes.group_settings(values, has_delay), **queue_tags.group_settings(tags), **redriven},
        _kept(attributes.of_record(values, has_delay)),
        tags,
        EARLIEST if owns_topic else tags.get(queue_tags.START, LATEST),
    )


def _queues(name: str, values: attributes.Values) -> int:
    """How many queues the topic gets by default. Messages without an order among them need no single one."""
    is_single = is_fifo(name) and values.get(attributes.THROUGHPUT) != attributes.PER_GROUP
    return 1 if is_single else QUEUES_DEFAULT


def _kept(values: Mapping[str, str]) -> dict[str, str]:
    """Without those that are taken away."""
    return {name: text for name, text in values.items() if text}


def _existing(call: Call, name: str) -> Standing | None:
    try:
        return queues_of(call.service).current(name)
    except QueueGone:
        return None


def _made(call: Call, wanted: NewQueue, values: attributes.Values) -> Standing | None:
    """The queue that stood before. Raises SqsError."""
    try:
        if wanted.topic_settings is None:
            attributes.demand_subscribed(values, call.service.env.catalogue.current_topic(wanted.topic))
        return queues_of(call.service).make(wanted)
    except TopicStands:
        reads = f"With tag {queue_tags.TOPIC}={wanted.topic} a queue reads it."
        raise SqsError("QueueNameExists", f"A topic '{wanted.topic}' exists that is not the queue's. {reads}") from None
    except TopicNotFound:
        raise queue_tags.invalid(queue_tags.TOPIC, wanted.topic, "There is no such topic.") from None
    except GroupUnfit as unfit:
        raise queue_tags.invalid(queue_tags.GROUP, wanted.group, f"{unfit}.") from None


def _demand_same(standing: Standing, values: attributes.Values, tags: queue_tags.Tags) -> None:
    """Raises SqsError if the existing queue differs from the requested one."""
    queue_tags.demand_same(tags, standing.queue.tags)
    existing = attributes.settable(standing)
    for name, text in values.items():
        if not attributes.are_same(name, text, existing.get(name, "")):
            about = f"the same name and a different value for attribute {name}"
            raise SqsError("QueueNameExists", f"A queue already exists with {about}")


@QUEUES.action(
    "GetQueueUrl", "read", {"QueueName": TEXT, "QueueOwnerAWSAccountId": TEXT}, required=("QueueName",), demands=True
)
def get_queue_url(call: Call) -> Json:
    name = call.request["QueueName"]
    try:
        call.demand(queues_of(call.service).named(name))
    except QueueGone:
        call.demand_absent(name)
        raise
    return {"QueueUrl": call.context.url(name)}


@QUEUES.action(
    "ListQueues",
    "read",
    {"QueueNamePrefix": TEXT, "MaxResults": INTEGER, "NextToken": TEXT},
    demands=True,
    is_of_account=True,
)
def list_queues(call: Call) -> Json:
    call.demand_anywhere()
    prefix, is_wanted = call.request.get("QueueNamePrefix") or "", call.is_shown if is_limited() else None
    urls, rest = page(call, prefix, is_wanted)
    return {"QueueUrls": urls, "NextToken": rest}


# -- ended ------------------------------------------------------------------------------------------------------------


@QUEUES.action("DeleteQueue", "admin", _ON_QUEUE, with_topic=True)
def delete_queue(call: Call) -> Json:
    queues_of(call.service).delete(call.queue.name, call.demand)
    return {}


@QUEUES.action("PurgeQueue", "admin", _ON_QUEUE)
def purge_queue(call: Call) -> Json:
    standing = call.current()
    call.service.admin.groups.reset(standing.topic, standing.group.name, NOW)
    queues_of(call.service).forget(standing.queue.name)  # sends count its purges
    return {}


# -- attributes -------------------------------------------------------------------------------------------------------


@QUEUES.action("GetQueueAttributes", "read", {**_ON_QUEUE, "AttributeNames": TEXTS})
def get_queue_attributes(call: Call) -> Json:
    standing = call.current()
    names = attributes.wanted(call.request.get("AttributeNames", []), call.standing.queue.is_fifo)
    known = {
        **attributes.visible(standing),
        **attributes.read_only(standing, call.context.arn(call.queue.name)),
        **(_counts(call, standing) if names & {*attributes.COUNTS} else {}),
    }
    if redrives.REDRIVE in known:
        known[redrives.REDRIVE] = redrives.shown(call, known[redrives.REDRIVE])
    return {"Attributes": {name: text for name, text in known.items() if name in names}}


def _counts(call: Call, standing: Standing) -> dict[str, str]:
    topic, service = standing.topic, call.service
    details = service.admin.groups.details(topic, standing.group.name)
    return attributes.counts(details, service.delays.messages.counts(topic, purged_at_ms=details.group.purged_at_ms))


@QUEUES.action(
    "SetQueueAttributes",
    "admin",
    {**_ON_QUEUE, "Attributes": TEXT_MAP},
    required=("Attributes",),
    with_topic=True,
)
def set_queue_attributes(call: Call) -> Json:
    if not call.request["Attributes"]:
        raise missing("Attributes")
    values = attributes.parsed(call.request["Attributes"], call.queue.is_fifo)

    def change(standing: Standing) -> Change:
        queue, group, topic = standing.queue, standing.group, standing.topic
        if not queue.owns_topic:
            attributes.demand_subscribed(values, topic)
        held = _kept({**queue.attributes, **attributes.of_record(values, queue.keeps_delay)})
        attributes.demand_together(held)
        policy = values.get(redrives.REDRIVE)
        redriven = redrives.group_settings(call, queue.name, topic.name, group.name, policy)
        new_group = _new_ones({**attributes.group_settings(values, queue.keeps_delay), **redriven}, group)
        return Change(held, queue.tags, new_group, _new_ones(attributes.topic_settings(values), topic))

    call.change(change)
    return {}


def _new_ones(settings: Mapping[str, Any], existing: object) -> dict[str, Any]:
    """The settings that differ from those of the topic or the group."""
    return {name: value for name, value in settings.items() if getattr(existing, name) != value}


# -- tags -------------------------------------------------------------------------------------------------------------


@QUEUES.action("TagQueue", "admin", {**_ON_QUEUE, "Tags": TEXT_MAP}, required=("Tags",))
def tag_queue(call: Call) -> Json:
    return _retagged(call, lambda queue: queue_tags.added(queue.tags, call.request["Tags"], queue.name))


@QUEUES.action("UntagQueue", "admin", {**_ON_QUEUE, "TagKeys": TEXTS}, required=("TagKeys",))
def untag_queue(call: Call) -> Json:
    return _retagged(call, lambda queue: queue_tags.without(queue.tags, call.request["TagKeys"]))


def _retagged(call: Call, new_tags: Callable[[SqsQueue], dict[str, str]]) -> Json:
    def change(standing: Standing) -> Change:
        queue = standing.queue
        tags = new_tags(queue)
        return Change(queue.attributes, tags, queue_tags.group_settings(tags, queue.tags), {})

    call.change(change)
    return {}


@QUEUES.action("ListQueueTags", "read", _ON_QUEUE)
def list_queue_tags(call: Call) -> Json:
    return {"Tags": call.current().queue.tags}


# -- permissions ------------------------------------------------------------------------------------------------------

PERMISSIONS = Actions()

_ACTIONS_MAX = 7
_LABEL = re.compile("[A-Za-z0-9_-]{1,80}")
_ACCOUNT = re.compile("[0-9]{12}")
_GRANTABLE = (
    *("*", "SendMessage", "ReceiveMessage", "DeleteMessage", "ChangeMessageVisibility", "PurgeQueue"),
    *("GetQueueAttributes", "GetQueueUrl", "ListDeadLetterSourceQueues"),
)
_VERSION = "2008-10-17"

Statements = list[Any]


@PERMISSIONS.action(
    "AddPermission",
    "admin",
    {"QueueUrl": TEXT, "Label": TEXT, "AWSAccountIds": TEXTS, "Actions": TEXTS},
    required=("Label", "AWSAccountIds", "Actions"),
)
def add_permission(call: Call) -> Json:
    label = call.request["Label"]
    statement = _statement(call)

    def with_statement(statements: Statements) -> Statements:
        if _labelled(statements, label):
            raise bad_value(label, "Label", "Already exists.")
        return [*statements, statement]

    return _changed_policy(call, with_statement)


@PERMISSIONS.action("RemovePermission", "admin", {"QueueUrl": TEXT, "Label": TEXT}, required=("Label",))
def remove_permission(call: Call) -> Json:
    label = call.request["Label"]

    def without_statement(statements: Statements) -> Statements:
        removed = _labelled(statements, label)
        if not removed:
            raise bad_value(label, "Label", "can't find label.")
        return [each for each in statements if each not in removed]

    return _changed_policy(call, without_statement)


def _labelled(statements: Statements, label: str) -> Statements:
    return [each for each in statements if isinstance(each, dict) and each.get("Sid") == label]


def _statement(call: Call) -> Json:
    """Raises SqsError."""
    label, accounts, actions = (call.request[name] for name in ("Label", "AWSAccountIds", "Actions"))
    if not _LABEL.fullmatch(label):
        reason = "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length"
        raise bad_value(label, "Label", reason)
    if not actions:
        raise missing("Actions")
    if len(actions) > _ACTIONS_MAX:
        raise SqsError("OverLimit", f"{len(actions)} Actions were found, maximum allowed is {_ACTIONS_MAX}.")
    for action in actions:
        if action not in _GRANTABLE:
            reason = "Only the queue owner is allowed to invoke this action."
            raise bad_value(f"SQS:{action}", "ActionName", reason)
    if not accounts or not all(map(_ACCOUNT.fullmatch, accounts)):
        raise bad_value(f"[{', '.join(accounts)}]", "PrincipalId", "Unable to verify.")
    return {
        "Sid": label,
        "Effect": "Allow",
        "Principal": {"AWS": _one_or_all([f"arn:aws:iam::{account}:root" for account in accounts])},
        "Action": _one_or_all([f"SQS:{action}" for action in actions]),
        "Resource": call.context.arn(call.queue.name),
    }


def _one_or_all(texts: list[str]) -> str | list[str]:
    return texts if len(texts) > 1 else texts[0]


def _changed_policy(call: Call, change: Callable[[Statements], Statements]) -> Json:
    """Changes the statements of the policy, which goes with the last of them. Raises SqsError."""
    new = {"Version": _VERSION, "Id": f"{call.context.arn(call.queue.name)}/SQSDefaultPolicy"}

    def changed(standing: Standing) -> Change:
        queue = standing.queue
        policy = orjson.loads(queue.attributes.get(POLICY) or "{}")
        statements = policy.get("Statement", [])
        kept = change(statements if isinstance(statements, list) else [statements])
        others = {name: text for name, text in queue.attributes.items() if name != POLICY}
        if not kept:
            return Change(others, queue.tags, {}, {})
        text = orjson.dumps({**(policy or new), "Statement": kept}).decode()
        if len(text.encode()) > POLICY_BYTES_MAX:
            raise SqsError(
                "OverLimit", f"The policy of queue {queue.name} would have more than {POLICY_BYTES_MAX} bytes."
            )
        return Change({**others, POLICY: text}, queue.tags, {}, {})

    call.change(changed)
    return {}
