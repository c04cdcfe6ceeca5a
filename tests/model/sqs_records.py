"""The model of queues of SQS clients: their records, the messages that each has, and the tasks that move them."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field

from tests.model.values import Json
from tests.sqs.client import Refused

ARN = "arn:aws:sqs:us-east-1:000000000000:"
REDRIVE, ALLOW = "RedrivePolicy", "RedriveAllowPolicy"
VISIBILITY, RETENTION = "VisibilityTimeout", "MessageRetentionPeriod"
DEFAULTS = {
    "MaximumMessageSize": "1048576",
    "ReceiveMessageWaitTimeSeconds": "0",
    "SqsManagedSseEnabled": "true",
    "DelaySeconds": "0",
    VISIBILITY: "30",
}
FIFO_DEFAULTS = {
    "ContentBasedDeduplication": "false",
    "DeduplicationScope": "queue",
    "FifoThroughputLimit": "perQueue",
    "FifoQueue": "true",
}
RETENTION_DEFAULT = "345600"
NO_SOURCE = "CouldNotDetermineMessageSource"
NO_QUEUE = "AWS.SimpleQueueService.NonExistentQueue"
AT_ONCE_MS, AT_ONCE_PAUSE_MS = 2_000, 100
SWEEP_MS, SWEEP_PAUSE_MS = 45_000, 1_000
"""How long the call that starts a task works on it, and a sweep; and how long either waits for the next message."""


def refused(code: str, message: str) -> Refused:
    """An error as clients see it. `code`: without prefix, as in the query protocol."""
    shapes = {
        "InvalidParameterValue": "InvalidParameterValueException",
        "NonExistentQueue": "QueueDoesNotExist",
        "QueueAlreadyExists": "QueueNameExists",
    }
    return Refused(404 if code == "ResourceNotFoundException" else 400, shapes.get(code, code), code, message)


def bad_value(value: object, name: str, reason: str) -> Refused:
    return refused("InvalidParameterValue", f"Value {value} for parameter {name} is invalid. Reason: {reason}")


MISSING = refused("NonExistentQueue", "The specified queue does not exist.")


@dataclass(eq=False)
class Message:
    """A message of a topic. `id`: as clients see it, once one has. A message that a queue has given up stays the one
    that it was, as `origin`, which that queue (`source`) had received `count` times."""

    body: str
    number: int
    id: str | None = None
    count: int = 0
    source: str | None = None
    origin: Message | None = None


@dataclass(eq=False)
class SqsTopic:
    name: str
    retention: str
    messages: list[Message] = field(default_factory=list)
    queues: list[Queue] = field(default_factory=list)

    def store(self, message: Message) -> None:
        self.messages.append(message)
        for queue in self.queues:
            queue.has(message)


@dataclass
class Item:
    """A message in a queue, received `attempt` times, and invisible until then."""

    message: Message
    until_ms: int = 0
    attempt: int = 0


@dataclass(eq=False)
class Queue:
    """`values`: the attributes that were set. `purges` counts."""

    name: str
    id: int
    topic: SqsTopic
    owns_topic: bool
    values: dict[str, str]
    tags: dict[str, str]
    created_at_ms: int
    changed_at_ms: int
    purges: int = 0
    items: list[Item] = field(default_factory=list)

    @property
    def is_fifo(self) -> bool:
        return self.name.endswith(".fifo")

    @property
    def policy(self) -> tuple[str, int] | None:
        """The name of the dead-letter queue, and after how many receives messages move there."""
        text = self.values.get(REDRIVE)
        policy = json.loads(text) if text else None
        return policy and (policy["deadLetterTargetArn"].removeprefix(ARN), policy["maxReceiveCount"])

    def change(self, values: dict[str, str]) -> None:
        """The retention is the topic's."""
        kept = {**self.values, **values}
        self.topic.retention = kept.pop(RETENTION, self.topic.retention)
        self.values = {name: text for name, text in kept.items() if text}

    def attributes(self) -> dict[str, str]:
        own = FIFO_DEFAULTS if self.is_fifo else {}
        return {**DEFAULTS, **own, **self.values, RETENTION: self.topic.retention}

    def shown(self, now: int) -> dict[str, str]:
        ready, held = len(self.ready(now)), sum(item.until_ms > now for item in self.items)
        counts = {"": ready, "NotVisible": held, "Delayed": 0}
        times = {"CreatedTimestamp": self.created_at_ms, "LastModifiedTimestamp": self.changed_at_ms}
        return {
            **self.attributes(),
            "QueueArn": ARN + self.name,
            **{name: str(at_ms // 1_000) for name, at_ms in times.items()},
            **{f"ApproximateNumberOfMessages{kind}": str(count) for kind, count in counts.items()},
        }

    # -- messages -----------------------------------------------------------------------------------------------------

    def has(self, message: Message) -> None:
        """It has the message from now on, unless it has it."""
        if self.item(message) is None:
            self.items.append(Item(message))
            self.items.sort(key=lambda item: item.message.number)

    def item(self, message: Message | None) -> Item | None:
        return next((item for item in self.items if item.message is message), None)

    def ready(self, now: int) -> list[Item]:
        return [item for item in self.items if item.until_ms <= now]


def policy_text(target: str, count: int) -> str:
    policy = {"deadLetterTargetArn": ARN + target, "maxReceiveCount": count}
    return json.dumps(policy, separators=(",", ":"))


@dataclass
class World:
    topics: dict[str, SqsTopic] = field(default_factory=dict)
    queues: dict[str, Queue] = field(default_factory=dict)
    sent: int = 0

    def send(self, topic: SqsTopic, body: str, id_: str | None = None) -> None:
        self.sent += 1
        topic.store(Message(body, self.sent, id_))

    def doomed(self, queue: Queue, now: int) -> list[Item]:
        policy = queue.policy
        if policy is None or policy[0] not in self.queues:
            return []
        return [item for item in queue.ready(now) if item.attempt >= policy[1]]

    def bury(self, queue: Queue, now: int) -> None:
        """Messages that were received often enough move to the dead-letter queue."""
        for item in self.doomed(queue, now):
            queue.items.remove(item)
            self.sent += 1
            message, count = item.message, item.message.count + item.attempt
            dead = Message(message.body, self.sent, message.id, count, queue.name, message)
            self.queues[(queue.policy or ("", 0))[0]].topic.store(dead)


# -- tasks ------------------------------------------------------------------------------------------------------------


@dataclass
class Task:
    """A task that moves messages. `to`: the destination, if one was named, and its incarnation."""

    id: str
    source: Queue
    to: Queue | None
    rate: int | None
    count: int
    started_at_ms: int
    moved: int = 0
    state: str = "RUNNING"
    reason: str | None = None
    next_ms: int = 0

    @property
    def handle(self) -> str:
        told = {"taskId": self.id, "sourceArn": ARN + self.source.name}
        return base64.b64encode(json.dumps(told, separators=(",", ":")).encode()).decode()

    @property
    def left(self) -> int:
        return self.count - self.moved

    def shown(self) -> Json:
        known = {
            "TaskHandle": self.handle if self.state == "RUNNING" else None,
            "Status": self.state,
            "SourceArn": ARN + self.source.name,
            "DestinationArn": self.to and ARN + self.to.name,
            "MaxNumberOfMessagesPerSecond": self.rate,
            "ApproximateNumberOfMessagesMoved": self.moved,
            "ApproximateNumberOfMessagesToMove": self.count,
            "FailureReason": self.reason,
            "StartedTimestamp": self.started_at_ms,
        }
        return {name: value for name, value in known.items() if value is not None}

    def end(self, state: str, reason: str | None = None) -> bool:
        self.state, self.reason = state, reason
        return False


@dataclass
class Work:
    """The steps of tasks, from one instant to another."""

    world: World
    now: int
    until_ms: int
    pause_ms_max: int
    going: list[Task]

    def run(self) -> int:
        """Returns when it ends."""
        while self.going and self.now <= self.until_ms:
            task = min(self.going, key=lambda task: task.next_ms)
            pause_ms = task.next_ms - self.now
            if pause_ms > min(self.pause_ms_max, self.until_ms - self.now):
                break
            self.now += max(0, pause_ms)
            if not self._step(task):
                self.going.remove(task)
        return self.now

    def _step(self, task: Task) -> bool:
        """Whether the task goes on at once."""
        if not task.left:
            return task.end("COMPLETED")
        self.world.bury(task.source, self.now)
        items = task.source.ready(self.now)[: max(1, min((task.rate or 500) // 10, 50, task.left))]
        for name in dict.fromkeys(self._target(task, item) for item in items):
            own = [item for item in items if self._target(task, item) == name]
            if reason := self._why_not(task, name, own):
                return task.end("FAILED", reason)
            for item in own:
                task.source.items.remove(item)
                self._arrive(self.world.queues[name], item.message)
            task.moved += len(own)
            task.next_ms = max(task.next_ms, self.now) - -1_000 * len(own) // (task.rate or 500)
        return (bool(items) and task.left > 0) or task.end("COMPLETED")

    def _target(self, task: Task, item: Item) -> str:
        return task.to.name if task.to else item.message.source or ""

    def _why_not(self, task: Task, name: str, items: list[Item]) -> str | None:
        if not name:
            return NO_SOURCE
        target = self.world.queues.get(name)
        if target is None or (task.to and task.to is not target):
            return NO_QUEUE
        if not task.to and (target.policy is None or target.policy[0] != task.source.name):
            return NO_SOURCE
        if target.owns_topic or all(item.message.origin in target.topic.messages for item in items):
            return None
        return f"topic '{target.topic.name}' no longer has one of the messages"

    def _arrive(self, target: Queue, message: Message) -> None:
        """As a new message or, where others read its topic too, as the one that it was."""
        if target.owns_topic:
            self.world.send(target.topic, message.body)
        elif message.origin:
            target.has(message.origin)
