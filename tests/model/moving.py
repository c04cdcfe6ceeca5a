"""The model of move tasks: which messages a task moves, when, to where, and how it ends."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field

from tests.model.cursor import Hold
from tests.model.model import Json
from tests.model.sqs import ARN, ID, ORIGIN, SOURCE, Pending, Queue, World, as_new

NO_SOURCE = "CouldNotDetermineMessageSource"
NO_QUEUE = "AWS.SimpleQueueService.NonExistentQueue"
AT_ONCE_MS, AT_ONCE_PAUSE_MS = 2_000, 100
SWEEP_MS, SWEEP_PAUSE_MS = 45_000, 1_000
"""How long the call that starts a task works on it, and a sweep; and how long either waits for the next message."""


@dataclass
class Task:
    """A move task. `to`: the destination, if one was named, and its incarnation."""

    id: str
    source: Queue
    to: tuple[str, int] | None
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
            "DestinationArn": self.to and ARN + self.to[0],
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
class Moving:
    """What the steps of tasks do, from one instant to another."""

    world: World
    now: int
    until_ms: int
    pause_ms_max: int
    going: list[Task] = field(default_factory=list)

    def run(self) -> None:
        while self.going and self.now <= self.until_ms:
            task = min(self.going, key=lambda task: task.next_ms)
            pause_ms = task.next_ms - self.now
            if pause_ms > min(self.pause_ms_max, self.until_ms - self.now):
                break
            self.now += max(0, pause_ms)
            if not self._step(task):
                self.going.remove(task)

    def _step(self, task: Task) -> bool:
        """Whether the task goes on at once."""
        source, [cursor] = task.source, task.source.group.cursors
        if not task.left:
            return task.end("COMPLETED")
        most = max(1, min((task.rate or 500) // 10, 50, task.left))
        offsets = source.in_turn(0, self.now, most, self.world.max_attempts(source))[:most]
        if not offsets:
            return False if self._waits(source) else task.end("COMPLETED")
        before = {offset: cursor.attempts_of(offset) for offset in offsets}
        for offset in offsets:
            cursor.take(offset, Hold(self.now, before[offset]), source.passed(0, self.now))
        for name, own in self._by_target(task, offsets).items():
            reason = self._why_not(task, name, own)
            if reason:
                return task.end("FAILED", reason)
            for offset in own:
                del cursor.holds[offset]
                self._arrive(self.world.queues[name], source.topic.logs[0][offset])
            task.moved += len(own)
            task.next_ms = max(task.next_ms, self.now) - -1_000 * len(own) // (task.rate or 500)
        return task.left > 0 or task.end("COMPLETED")

    def _waits(self, source: Queue) -> bool:
        """Whether there are messages behind others in flight."""
        doomed = source.group.cursors[0].doomed(self.now, self.world.max_attempts(source))
        return source.ready_count(0, self.now) > len(doomed)

    def _by_target(self, task: Task, offsets: list[int]) -> dict[str, list[int]]:
        own: dict[str, list[int]] = {}
        for offset in offsets:
            source = task.source.topic.logs[0][offset]["properties"].get(SOURCE, "")
            own.setdefault(task.to[0] if task.to else source, []).append(offset)
        return own

    def _why_not(self, task: Task, name: str, offsets: list[int]) -> str | None:
        if not name:
            return NO_SOURCE
        target = self.world.queues.get(name)
        if target is None or (task.to and task.to[1] != target.id):
            return NO_QUEUE
        if not task.to and (target.policy is None or target.policy[0] != task.source.topic.name):
            return NO_SOURCE
        messages = [task.source.topic.logs[0][offset] for offset in offsets]
        if target.owns_topic or all(self._is_there(target, message) for message in messages):
            return None
        return f"topic '{target.topic.name}' no longer has one of the messages"

    def _is_there(self, target: Queue, message: Json) -> bool:
        number, offset = map(int, message["properties"][ORIGIN].split(":"))
        logs = target.topic.logs
        if number >= len(logs) or offset >= len(logs[number]) or target.topic.has_expired(number, offset, self.now):
            return False
        there = logs[number][offset]
        return bool(there["properties"].get(ID, there["message_id"]) == message["properties"][ID])

    def _arrive(self, target: Queue, message: Json) -> None:
        if target.owns_topic:
            target.topic.let_wait(self.now)
            target.topic.pending.append(Pending(as_new(message), None, self.now, self.now))
            return
        number, offset = map(int, message["properties"][ORIGIN].split(":"))
        cursor = target.group.cursors[number]
        if offset < cursor.next and offset not in cursor.holds:
            cursor.holds[offset] = Hold(self.now, 0)
            target.first_at_ms.pop((number, cursor.epoch, offset), None)
