"""Starts, lists and cancels move tasks, and finds the active one of a subscription."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from chalicelib.core.base.errors import StoreUnavailable
from chalicelib.core.base.limits import SECOND_MS
from chalicelib.core.catalogue.agenda import ALWAYS_MS, MOVE
from chalicelib.core.catalogue.catalogue import Env
from chalicelib.core.delays.promoter import Promoter
from chalicelib.core.moves import task as move_task
from chalicelib.core.moves.subscriptions import Subscription, SubscriptionGone, Subscriptions
from chalicelib.core.moves.task import CANCELLED, HELD_MS, MoveTask
from chalicelib.core.moves.worker import TURN_MS, TaskRun, TaskWorker
from chalicelib.core.store import Range
from chalicelib.core.table import keys
from chalicelib.core.table.writes import Refused

TASKS_SHOWN_MAX = 10
WORKED_AT_ONCE_MS = 2 * SECOND_MS
"""How long the call that starts a task works on it: most are done by then."""


class TaskRuns(Exception):
    """The subscription already has an active task."""


class NoTask(Exception):
    """The subscription has no cancellable task with this id."""


class MoveTasks:
    def __init__(self, env: Env, promoter: Promoter, subscriptions: Subscriptions, worker: TaskWorker) -> None:
        self._store, self._runtime, self._agenda = env.store, env.runtime, env.agenda
        self._promoter, self._subscriptions, self._worker = promoter, subscriptions, worker

    def start(self, source: Subscription, target: Subscription | None, rate: int | None, task_id: str) -> None:
        """Starts a task and works on it for a while; a sweep does the rest. `target`: None: each message returns to its
        source. `rate`: messages a second at most. `task_id`: a new one. Raises TaskRuns, TopicNotFound, GroupNotFound,
        StoreUnavailable."""
        newest = self.newest(source.id)
        if newest and newest.is_running:
            self._agenda.appoint(MOVE, source.name, ALWAYS_MS)  # its starter may have been suspended
            raise TaskRuns(source.name)
        now, number = self._runtime.now(), newest.number + 1 if newest else 1
        to, to_id = (target.name, target.id) if target else (None, None)
        task = MoveTask(source.id, number, task_id, now, self._ready(source), to, to_id, rate)
        task = replace(task, by=self._worker.new_name(), held_until_ms=now + HELD_MS)
        self._agenda.appoint(MOVE, source.name, ALWAYS_MS)
        try:
            self._store.write(move_task.start(task))
        except Refused:
            raise TaskRuns(source.name) from None
        with suppress(StoreUnavailable):  # the task is there
            until_ms = self._runtime.uptime() + WORKED_AT_ONCE_MS
            self._worker.work([TaskRun(source.name, task, task.by)], until_ms, TURN_MS)

    def _ready(self, source: Subscription) -> int:
        """How many messages can be received now, including those that moved here just now."""
        topic, until_ms = source.topic, self._runtime.uptime() + WORKED_AT_ONCE_MS
        for queue in range(topic.readers if topic.delays else 0):
            while self._promoter.promote(topic, queue) and self._runtime.uptime() <= until_ms:
                pass
        return self._worker.ready(source)

    def active(self, name: str) -> MoveTask | None:
        """The active task of the subscription of this name."""
        with suppress(SubscriptionGone):
            task = self.newest(self._subscriptions.id_of(name))
            return task if task and task.is_running else None
        return None

    def newest(self, queue_id: str) -> MoveTask | None:
        """The only task of the subscription that may be active."""
        return next(iter(self.list(queue_id, 1)), None)

    def list(self, queue_id: str, limit: int = TASKS_SHOWN_MAX) -> Sequence[MoveTask]:
        """The last tasks of the subscription, the newest first."""
        tasks = keys.move_tasks(queue_id)
        read = Range(tasks, keys.FIRST, keys.LAST, limit=limit, descending=True, strong=True)
        return [MoveTask.of(item) for item in self._store.read([read])[0]]

    def cancel(self, source: Subscription, task_id: str) -> MoveTask:
        """Ends an active task, which then moves no more messages. A repeat finds it cancelled. Raises NoTask."""
        while True:
            task = next((task for task in self.list(source.id) if task.id == task_id), None)
            if task is None or task.state not in (move_task.RUNNING, CANCELLED):
                raise NoTask(task_id)
            if task.state == CANCELLED:
                return task
            with suppress(Refused):  # it has ended meanwhile
                item = self._store.write(move_task.end(task, CANCELLED, self._runtime.now()))
                cancelled = MoveTask.of(item)
                self._worker.tell(source.name, cancelled)
                return cancelled
