"""Move tasks: a dead-letter queue's messages go back to the queues that they are from, or to another queue.

Queues are named by the ends of their ARNs. Clients make and read handles of tasks themselves."""

from __future__ import annotations

import base64
import binascii
from typing import Any

import orjson

from chalicelib.core.access.callers import is_limited, may
from chalicelib.core.access.rights import Need
from chalicelib.core.base.fields import quoted
from chalicelib.core.moves.carrier import NO_SOURCE
from chalicelib.core.moves.task import FAILED, MOVED_PER_SECOND_MAX, MoveTask
from chalicelib.core.moves.tasks import TASKS_SHOWN_MAX, NoTask, TaskRuns
from chalicelib.core.moves.worker import IS_PUSHED, NO_TARGET
from chalicelib.core.telemetry.record import note
from chalicelib.doors.sqs.action import INTEGER, TEXT, Actions, Call, Json, present
from chalicelib.doors.sqs.errors import SqsError, bad_value, denied
from chalicelib.doors.sqs.messages import random_uuid
from chalicelib.doors.sqs.queue import SqsQueue, own_name
from chalicelib.doors.sqs.redrive_policies import name_of, sources_of
from chalicelib.doors.sqs.registry import QueueGone, Standing, moves_of, queues_of

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
def start_message_move_task(call: Call) -> Json:
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


def _target(call: Call, source: Standing) -> Standing | None:
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
def list_message_move_tasks(call: Call) -> Json:
    most = _within(call, "MaxResults", TASKS_SHOWN_MAX) or 1
    source = _source(call, call.request[_SOURCE])
    tasks = moves_of(call.service).tasks.list(source.queue.id, most)
    return {"Results": [_shown(call, source, task) for task in tasks]}


def _shown(call: Call, source: Standing, task: MoveTask) -> Json:
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
def cancel_message_move_task(call: Call) -> Json:
    task_id, source_arn = _parts(call.request[_HANDLE])
    source = _source(call, source_arn)
    try:
        task = moves_of(call.service).tasks.cancel(source, task_id)
    except NoTask:
        raise SqsError("ResourceNotFoundException", _NO_TASK) from None
    return {"ApproximateNumberOfMessagesMoved": task.moved}


# -- members ----------------------------------------------------------------------------------------------------------


def _within(call: Call, name: str, most: int) -> int | None:
    """The number of this name, from 1 to `most`; None: it is not given. Raises SqsError."""
    number: int | None = call.request.get(name)
    if number is not None and not 1 <= number <= most:
        raise bad_value(number, name, f"Must be between 1 and {most}, if provided.")
    return number


def _source(call: Call, arn: str) -> Standing:
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
    """Whether the caller may have messages move to the queue: may send to its own topic, or administer the group that
    gets them back, as whoever redrives its dead letters."""
    return may(Need("produce", queue.topic) if queue.owns_topic else Need("admin", queue.topic, queue.group))


def _handle(call: Call, source: Standing, task_id: str) -> str:
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
