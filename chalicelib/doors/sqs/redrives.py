"""Redrive policies: the dead-letter queue of a queue, and how often a message is received before it moves there.

In Decant they are two settings of the group, `max_attempts` and `dead_letters`, which say all that is shown. The record
keeps the policy too, so that the sources of a dead-letter queue are found. A dead-letter queue is named by the end of
its ARN."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Any

import orjson

from chalicelib.core.access.callers import is_limited, may
from chalicelib.core.access.rights import Need
from chalicelib.core.base.fields import quoted
from chalicelib.core.base.limits import ATTEMPTS_MAX
from chalicelib.core.catalogue.group import ENDLESS, Group
from chalicelib.core.catalogue.group_forms import DeadLetterTopic
from chalicelib.core.moves.carrier import NO_SOURCE
from chalicelib.core.moves.task import FAILED, MOVED_PER_SECOND_MAX, MoveTask
from chalicelib.core.moves.worker import IS_PUSHED, NO_TARGET, TASKS_SHOWN_MAX, NoTask, TaskRuns
from chalicelib.core.telemetry.record import note
from chalicelib.doors.sqs.action import INTEGER, TEXT, ActionCall, Actions, Json, page, present
from chalicelib.doors.sqs.errors import SqsError, bad_value, denied
from chalicelib.doors.sqs.messages import random_uuid
from chalicelib.doors.sqs.queue import NAME_PATTERN, OWN_PREFIX, SqsQueue, is_fifo, own_name
from chalicelib.doors.sqs.registry import QueueGone, Standing, moves_of, queues_of

REDRIVES = Actions()

REDRIVE, ALLOW = "RedrivePolicy", "RedriveAllowPolicy"
_TARGET, _COUNT = "deadLetterTargetArn", "maxReceiveCount"
_ARN = re.compile(f"arn:[^:]*:sqs:[^:]*:[^:]*:{NAME_PATTERN}")


# -- values -----------------------------------------------------------------------------------------------------------


def parse(_: str, text: str) -> str:
    """The policy as it is kept, with the name of its dead-letter queue; empty: there is none. Raises SqsError."""
    try:
        policy = orjson.loads(text or "{}")
    except orjson.JSONDecodeError:
        raise _bad(text, "Redrive policy is not a valid JSON map.") from None
    if not isinstance(policy, dict):
        raise _bad(text, "Redrive policy is not a valid JSON map.")
    if not policy:
        return ""
    if unknown := policy.keys() - {_TARGET, _COUNT}:
        raise _bad(text, f"Unknown key: {min(unknown)}.")
    for name in (_TARGET, _COUNT):
        if name not in policy:
            raise _bad(text, f"Redrive policy does not contain mandatory attribute: {name}.")
    target, count = policy[_TARGET], policy[_COUNT]
    if not isinstance(target, str) or not _ARN.fullmatch(target):
        raise _bad(text, f"Invalid value for {_TARGET}.")
    is_number = isinstance(count, str | int) and re.fullmatch("[0-9]{1,5}", str(count))
    if not is_number or not 1 <= int(count) <= ATTEMPTS_MAX:
        raise _bad(text, f"Invalid value for {_COUNT}: valid values are from 1 to {ATTEMPTS_MAX} both inclusive.")
    return _text(name_of(target), int(count))


def of_group(group: Group) -> str | None:
    """The policy that the group's settings are; None: there is none."""
    if group.dead_topic is None or group.max_attempts == ENDLESS:
        return None
    return _text(group.dead_topic.removeprefix(OWN_PREFIX), group.max_attempts)


def shown(call: ActionCall, text: str) -> str:
    """The policy as clients see it."""
    policy = orjson.loads(text)
    return _text(call.context.arn(policy[_TARGET]), policy[_COUNT])


def _text(target: str, count: int) -> str:
    return orjson.dumps({_TARGET: target, _COUNT: count}).decode()


def name_of(arn: str) -> str:
    return arn.rpartition(":")[2]


def _bad(text: object, reason: str) -> SqsError:
    return bad_value(text, REDRIVE, reason)


# -- set --------------------------------------------------------------------------------------------------------------


def group_settings(call: ActionCall, name: str, topic: str, group: str, text: str | None) -> dict[str, Any]:
    """The settings that the policy gives the group of the queue of this name, which reads this topic. None: it is not
    given. Raises SqsError."""
    if text is None:
        return {}
    if not text:
        return {"max_attempts": ENDLESS, "dead_letters": DeadLetterTopic({})}
    policy = orjson.loads(text)
    call.demand_consumer(name, topic, group)
    _demand_right(policy[_TARGET], own_name(policy[_TARGET]))  # before it hears anything of the target
    try:
        target = queues_of(call.service).current(policy[_TARGET])
        _demand_right(policy[_TARGET], target.topic.name)
    except QueueGone:
        raise _bad(shown(call, text), "Dead letter target does not exist.") from None
    _demand_target(target, name, topic, shown(call, text))
    dead_letters = DeadLetterTopic({"topic": target.topic.name, "source": name})
    return {"max_attempts": policy[_COUNT], "dead_letters": dead_letters}


def _demand_right(target: str, topic: str) -> None:
    """Raises SqsError if the caller may not send where messages would move."""
    if not may(Need("produce", topic)):
        raise denied(f"let messages move to queue {quoted(target)}, to which it may not send")


def _demand_target(target: Standing, name: str, topic: str, text: str) -> None:
    """Raises SqsError for a queue that cannot be the dead-letter queue of this one. It can be its own: what is dead
    goes to its end, and comes again."""
    if target.queue.is_fifo != is_fifo(name):
        raise _bad(text, "Dead-letter queue must be same type of queue as the source.")
    if not target.queue.owns_topic:
        raise _bad(text, f"Queue '{target.queue.name}' reads topic '{target.topic.name}', and nothing is sent to it.")
    if target.topic.name == topic and target.queue.name != name:
        raise _bad(text, f"Queue '{name}' reads topic '{topic}' itself: its dead messages would come again.")
    allowed = orjson.loads(target.queue.attributes.get(ALLOW) or "{}")
    sources = [name_of(arn) for arn in allowed.get("sourceQueueArns", [])]
    permission = allowed.get("redrivePermission", "allowAll")
    if permission == "denyAll" or (permission == "byQueue" and name not in sources):
        raise _bad(text, f"The {ALLOW} of queue '{target.queue.name}' does not allow this source.")


# -- listed -----------------------------------------------------------------------------------------------------------


@REDRIVES.action("ListDeadLetterSourceQueues", "read", {"QueueUrl": TEXT, "MaxResults": INTEGER, "NextToken": TEXT})
def list_dead_letter_source_queues(call: ActionCall) -> Json:
    target = call.standing
    urls, rest = page(call, is_wanted=lambda queue: call.is_shown(queue) and _is_source(call, queue, target))
    return {"queueUrls": urls, "NextToken": rest}


def sources_of(call: ActionCall, target: Standing, most: int) -> list[SqsQueue]:
    """The first queues whose dead messages move to this queue."""
    return queues_of(call.service).page("", most, "", lambda queue: _is_source(call, queue, target))[0]


def _is_source(call: ActionCall, queue: SqsQueue, target: Standing) -> bool:
    """Whether its messages move to this queue when they are dead. Only of those that say so the group is read."""
    policy = queue.attributes.get(REDRIVE)
    if not policy or orjson.loads(policy)[_TARGET] != target.queue.name:
        return False
    try:
        return queues_of(call.service).current(queue.name).group.dead_topic == target.topic.name
    except QueueGone:
        return False


# -- move tasks -------------------------------------------------------------------------------------------------------

MOVE_TASKS = Actions()

_REASONS = {
    NO_SOURCE: "CouldNotDetermineMessageSource",
    NO_TARGET: "AWS.SimpleQueueService.NonExistentQueue",
    IS_PUSHED: "AWS.SimpleQueueService.UnsupportedOperation",
}
"""Why a task failed, as SQS spells it."""

_SOURCE, _DESTINATION, _RATE, _HANDLE = "SourceArn", "DestinationArn", "MaxNumberOfMessagesPerSecond", "TaskHandle"
_ALL = 10**9
"""More sources than a queue can have."""
_NO_TASK = "Task does not exist."
_NO_DEAD_LETTER_QUEUE = "Source queue must be configured as a Dead Letter Queue."
_IS_ACTIVE = "There is already a task running. Only one active task is allowed for a source queue arn at a given time."


@MOVE_TASKS.action(
    "StartMessageMoveTask",
    "admin",
    {_SOURCE: TEXT, _DESTINATION: TEXT, _RATE: INTEGER},
    required=(_SOURCE,),
    demands=True,
)
def start_message_move_task(call: ActionCall) -> Json:
    rate = _within(call, _RATE, MOVED_PER_SECOND_MAX)
    source = _source(call, call.request[_SOURCE])
    call.demand_consumer(source.queue.name, source.queue.topic, source.queue.group)
    sources = sources_of(call, source, _ALL if is_limited() else 1)
    if not sources:
        raise SqsError("InvalidParameterValue", _NO_DEAD_LETTER_QUEUE)
    target = _target(call, source)
    if target is None and not all(map(_may_arrive, sources)):
        raise denied("move messages back to every queue that they can be from")
    task_id = random_uuid(call.service.env.runtime.entropy(16))
    try:
        moves_of(call.service).tasks.start(source, target, rate, task_id)
    except TaskRuns:
        raise SqsError("InvalidParameterValue", _IS_ACTIVE) from None
    return {_HANDLE: _handle(call, source, task_id)}


def _target(call: ActionCall, source: Standing) -> Standing | None:
    arn = call.request.get(_DESTINATION)
    if not arn:
        return None
    name = name_of(arn)
    try:
        target = queues_of(call.service).current(name)
        is_allowed = _may_arrive(target.queue)
    except QueueGone:
        target, is_allowed = None, may(Need("produce", own_name(name)))
    if not is_allowed:  # before it hears anything of the destination
        raise denied(f"move messages to queue {quoted(name)}")
    if target is None:
        raise _no_resource(_DESTINATION)
    if target.queue.id == source.queue.id:
        raise bad_value(arn, _DESTINATION, "The destination must be another queue than the source.")
    if target.queue.is_fifo != source.queue.is_fifo:
        raise bad_value(arn, _DESTINATION, "The destination must be same type of queue as the source.")
    return target


@MOVE_TASKS.action(
    "ListMessageMoveTasks", "admin", {_SOURCE: TEXT, "MaxResults": INTEGER}, required=(_SOURCE,), demands=True
)
def list_message_move_tasks(call: ActionCall) -> Json:
    most = _within(call, "MaxResults", TASKS_SHOWN_MAX) or 1
    source = _source(call, call.request[_SOURCE])
    tasks = moves_of(call.service).tasks.list(source.queue.id, most)
    return {"Results": [_shown(call, source, task) for task in tasks]}


def _shown(call: ActionCall, source: Standing, task: MoveTask) -> Json:
    shown = {
        _HANDLE: _handle(call, source, task.id) if task.is_running else None,
        "Status": task.state,
        _SOURCE: call.context.arn(source.queue.name),
        _DESTINATION: call.context.arn(task.to) if task.to else None,
        _RATE: task.rate,
        "ApproximateNumberOfMessagesMoved": task.moved,
        "ApproximateNumberOfMessagesToMove": task.count,
        "FailureReason": _REASONS.get(task.reason or "", task.reason) if task.state == FAILED else None,
        "StartedTimestamp": task.started_at_ms,
    }
    return present(shown)


@MOVE_TASKS.action("CancelMessageMoveTask", "admin", {_HANDLE: TEXT}, required=(_HANDLE,), demands=True)
def cancel_message_move_task(call: ActionCall) -> Json:
    task_id, source_arn = _parts(call.request[_HANDLE])
    source = _source(call, source_arn)
    try:
        task = moves_of(call.service).tasks.cancel(source, task_id)
    except NoTask:
        raise SqsError("ResourceNotFoundException", _NO_TASK) from None
    return {"ApproximateNumberOfMessagesMoved": task.moved}


# -- members ----------------------------------------------------------------------------------------------------------


def _within(call: ActionCall, name: str, most: int) -> int | None:
    """The number of this name, from 1 to `most`; None: it is not given. Raises SqsError."""
    number: int | None = call.request.get(name)
    if number is not None and not 1 <= number <= most:
        raise bad_value(number, name, f"Must be between 1 and {most}, if provided.")
    return number


def _source(call: ActionCall, arn: str) -> Standing:
    """Raises SqsError."""
    try:
        source = queues_of(call.service).current(name_of(arn))
    except QueueGone:
        call.demand_absent(name_of(arn))
        raise _no_resource(_SOURCE) from None
    note(topic=source.queue.topic, group=source.queue.group)
    call.demand(source.queue)
    return source


def _no_resource(member: str) -> SqsError:
    text = f"The resource that you specified for the {member} parameter doesn't exist."
    return SqsError("ResourceNotFoundException", text)


def _may_arrive(queue: SqsQueue) -> bool:
    """Whether the caller may move messages to the queue. It needs the right to send to the queue's own topic or, as for
    a redrive, to administer the group that gets them back."""
    return may(Need("produce", queue.topic) if queue.owns_topic else Need("admin", queue.topic, queue.group))


def _handle(call: ActionCall, source: Standing, task_id: str) -> str:
    told = {"taskId": task_id, "sourceArn": call.context.arn(source.queue.name)}
    return base64.b64encode(orjson.dumps(told)).decode()


def _parts(handle: str) -> tuple[str, str]:
    """The id of the task, and the ARN of its queue. Raises SqsError."""
    try:
        told: Any = orjson.loads(base64.b64decode(handle, validate=True))
    except (ValueError, binascii.Error):
        told = None
    task_id, source_arn = (told.get("taskId"), told.get("sourceArn")) if isinstance(told, dict) else (None, None)
    if not isinstance(task_id, str) or not isinstance(source_arn, str):
        raise SqsError("InvalidParameterValue", f"Value for parameter {_HANDLE} is invalid.")
    return task_id, source_arn
