"""Works on move tasks in steps: leases messages of a subscription and has the carrier move them.

| failure | result |
| --- | --- |
| a worker crashes | its messages are visible again after `LEASE_MS`, and another worker continues after `HELD_MS` |
| a worker is suspended for long | its hold and its leases end; its next transaction is refused |
| the task is cancelled | the same: no more messages move |
| two workers want one task | one holds it, the other skips it |
| a consumer of the subscription takes a message | the task does not move it |
| the destination is deleted during a step | the transaction is refused; the next step fails the task |"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from chalicelib.core.admin.groups import Groups
from chalicelib.core.base.errors import GroupIsPushed, GroupNotFound, StoreUnavailable, TopicNotFound
from chalicelib.core.base.limits import SECOND_MS
from chalicelib.core.base.records import mutable
from chalicelib.core.catalogue.agenda import ALWAYS_MS, MOVE
from chalicelib.core.catalogue.catalogue import Env
from chalicelib.core.consuming import Consuming
from chalicelib.core.consuming.delivery import Delivery
from chalicelib.core.consuming.receipt_batch import Owed
from chalicelib.core.consuming.request import Pop
from chalicelib.core.consuming.taker import Popped
from chalicelib.core.cursors.cursor import Cursor
from chalicelib.core.dead_letters.bury import DEAD_TOGETHER_MAX
from chalicelib.core.dead_letters.move import SOURCE
from chalicelib.core.delays.promoter import Promoter
from chalicelib.core.moves import task as move_task
from chalicelib.core.moves.carrier import NO_SOURCE, MessageCarrier, NoRoom, Unmovable
from chalicelib.core.moves.task import (
    CANCELLED,
    COMPLETED,
    FAILED,
    HELD_MS,
    MoveTask,
    Subscription,
    SubscriptionGone,
    Subscriptions,
)
from chalicelib.core.store import Keys, Range
from chalicelib.core.table import keys
from chalicelib.core.table.writes import Refused
from chalicelib.core.telemetry.record import count

TURN_MS = SECOND_MS // 10
"""The time whose share of its rate a task uses in one step, if that is at least one message."""
LEASE_MS = HELD_MS // 2
"""How long a worker leases messages. If it crashes, they are visible again by the time another worker continues."""
REFUSALS_MAX = 3
"""Refused steps in a row before the worker leaves the task to another worker or a later minute."""

NO_TARGET = "no target"
"""The reason of a task that fails since its destination no longer exists."""
IS_PUSHED = "pushed"
"""The reason of a task that fails since its source is pushed, which only the push can read."""

_NAME_CHARS = 8


@mutable
class TaskRun:
    """The work of one worker, `by`, on a task of the subscription of this name. `moved`: how many messages it has
    moved. `refusals`: steps in a row that were refused."""

    source_name: str
    task: MoveTask
    by: str
    moved: int = 0
    refusals: int = 0


class TaskWorker:
    def __init__(
        self, env: Env, consuming: Consuming, groups: Groups, subscriptions: Subscriptions, carrier: MessageCarrier
    ) -> None:
        self._store, self._runtime, self._telemetry = env.store, env.runtime, env.telemetry
        self._consuming, self._groups, self._subscriptions, self._carrier = consuming, groups, subscriptions, carrier

    def new_name(self) -> str:
        return self._runtime.name(_NAME_CHARS)

    def taken(self, source_name: str, task: MoveTask) -> TaskRun | None:
        """None: another worker holds the task, or it has ended."""
        now = self._runtime.now()
        if task.held_until_ms > now:
            return None
        run = TaskRun(source_name, task, self.new_name())
        try:
            self._store.write(move_task.take(task, run.by, now))
        except Refused:
            return None
        return run

    def work(self, runs: Sequence[TaskRun], until_ms: int, pause_ms_max: int) -> int:
        """Moves messages of these tasks in turn, until all have ended, the time is over, or no task may move a message
        within `pause_ms_max`. Returns how many have moved. Raises StoreUnavailable after it has finished the other
        tasks."""
        going, troubles = list(runs), []
        while going and self._runtime.uptime() <= until_ms:
            run = min(going, key=lambda run: run.task.next_ms)
            pause_ms = min(run.task.next_ms - self._runtime.now(), SECOND_MS)
            if pause_ms > min(pause_ms_max, until_ms - self._runtime.uptime()):
                break
            if pause_ms > 0:
                self._runtime.sleep(pause_ms)
            try:
                goes_on = self._step(run)
            except StoreUnavailable as trouble:  # its hold ends with the leases that it may have made
                troubles.append(trouble)
                goes_on = False
            if not goes_on:
                going.remove(run)
        for run in going:
            self._let_go(run)
        if troubles:
            raise troubles[0]
        return sum(run.moved for run in runs)

    def _step(self, run: TaskRun) -> bool:
        """Moves some messages. False: this worker has finished with the task."""
        if not self._is_mine(run):
            return False
        if not run.task.left:
            return self._end(run, COMPLETED)
        try:
            source = self._subscriptions.find(run.source_name)
            if source.id != run.task.queue_id:
                return False
            popped = self._pop(source, run.task)
            is_over = not popped.deliveries and not self.ready(source)  # a pop may miss messages that have just come
        except SubscriptionGone:
            return False
        except (TopicNotFound, GroupNotFound):
            self._subscriptions.forget(run.source_name)
            return self._is_refused(run)
        except GroupIsPushed:
            return self._end(run, FAILED, IS_PUSHED)
        if popped.deliveries:
            return self._carry(run, source, popped.deliveries)
        if popped.is_paused or popped.is_limited or popped.retry_after_ms is not None:
            return self._let_go(run)
        return self._end(run, COMPLETED) if is_over else self._is_refused(run)

    def _is_mine(self, run: TaskRun) -> bool:
        """Reads the task again."""
        items = self._store.read([Keys([run.task.key], strong=True)])[0]
        if not items:
            return False
        run.task = MoveTask.of(items[0])
        return run.task.is_running and run.task.by == run.by

    def _pop(self, source: Subscription, task: MoveTask) -> Popped:
        most = max(1, min(task.per_second * TURN_MS // SECOND_MS, DEAD_TOGETHER_MAX, task.left))
        ask = Pop(max_messages=most, invisible_ms=LEASE_MS)
        return self._consuming.pop(source.topic, source.group.name, ask)

    def ready(self, source: Subscription) -> int:
        """How many messages can be received now."""
        return sum(queue.ready for queue in self._groups.details(source.topic, source.group.name).queues)

    # -- carried ------------------------------------------------------------------------------------------------------

    def _carry(self, run: TaskRun, source: Subscription, deliveries: Sequence[Delivery]) -> bool:
        """Moves these messages. Messages that cannot move now become visible again, as if they had not been
        received."""
        left = list(deliveries)
        try:
            for name, own in _by_target(run.task, deliveries).items():
                self._carry_to(run, source, name, own)
                left = [delivery for delivery in left if delivery not in own]
        except Unmovable as reason:
            self._give_back(source, left)
            return self._end(run, FAILED, str(reason))
        except NoRoom:
            self._give_back(source, left)
            return self._let_go(run)
        except (Refused, TopicNotFound, GroupNotFound):
            self._give_back(source, left)
            return self._is_refused(run)
        run.refusals = 0
        return run.task.left > 0 or self._end(run, COMPLETED)

    def _carry_to(self, run: TaskRun, source: Subscription, name: str, deliveries: Sequence[Delivery]) -> None:
        target = self._target(run.task, source, name)
        topic, group_name = source.topic, source.group.name

        now = self._runtime.now()
        carry = self._carrier.taking(target, deliveries, lambda number: move_task.moved(run.task, run.by, number, now))

        def take(cursor: Cursor, owed: Sequence[Owed]) -> tuple[Cursor | None, Sequence[Owed]]:
            after, taken = carry(cursor, owed)
            number = sum(len(indexes) for _, indexes in taken)
            run.task, run.moved = run.task.after(number, now), run.moved + number
            count("moved", number, topic.name, group_name)
            return after, taken

        try:
            self._consuming.settler.take_out(topic, group_name, [delivery.receipt for delivery in deliveries], take)
        except (Refused, TopicNotFound, GroupNotFound):
            self._subscriptions.forget(name)
            self._subscriptions.forget(run.source_name)
            raise

    def _target(self, task: MoveTask, source: Subscription, name: str) -> Subscription:
        """The subscription of this name. A recreated one is no longer the task's destination. A subscription that a
        message names gets it back only if its own dead messages move to the source, since any sender can set such a
        property. Raises Unmovable."""
        if not name:
            raise Unmovable(NO_SOURCE)
        try:
            target = self._subscriptions.find(name)
        except SubscriptionGone:
            raise Unmovable(NO_TARGET) from None
        if task.to_id not in (None, target.id):
            raise Unmovable(NO_TARGET)
        if task.to is None and target.group.dead_topic != source.topic.name:
            raise Unmovable(NO_SOURCE)
        return target

    def _give_back(self, source: Subscription, deliveries: Sequence[Delivery]) -> None:
        receipts = [delivery.receipt for delivery in deliveries]
        with suppress(TopicNotFound, GroupNotFound):  # they are gone
            self._consuming.settler.give_back(source.topic, source.group.name, receipts)

    # -- left ---------------------------------------------------------------------------------------------------------

    def _is_refused(self, run: TaskRun) -> bool:
        """Whether to try again after reading everything again."""
        run.refusals += 1
        return run.refusals < REFUSALS_MAX or self._let_go(run)

    def _let_go(self, run: TaskRun) -> bool:
        """Leaves the task to another worker. Returns False: this one has finished with it."""
        with suppress(Refused):
            self._store.write(move_task.let_go(run.task, run.by))
        return False

    def _end(self, run: TaskRun, state: str, reason: str | None = None) -> bool:
        """Ends the task. Returns False: no worker continues it."""
        with suppress(Refused):
            self._store.write(move_task.end(run.task, state, self._runtime.now(), reason, run.by))
            self.tell(run.source_name, replace(run.task, state=state, reason=reason))
        return False

    def tell(self, source_name: str, task: MoveTask) -> None:
        """Writes the log line of a task that has ended."""
        about: dict[str, Any] = {"queue": source_name, "state": task.state, "moved": task.moved, "to_move": task.count}
        with self._telemetry.call("move_task", **about, **({"reason": task.reason} if task.reason else {})):
            pass


def _by_target(task: MoveTask, deliveries: Sequence[Delivery]) -> dict[str, list[Delivery]]:
    """The messages by the name of their destination subscription; empty if their source is unknown."""
    by_name: dict[str, list[Delivery]] = {}
    for delivery in deliveries:
        name = task.to or delivery.stored.message.properties.get(SOURCE, "")
        by_name.setdefault(name, []).append(delivery)
    return by_name


# -- tasks of subscriptions -------------------------------------------------------------------------------------------

TASKS_SHOWN_MAX = 10
WORKED_AT_ONCE_MS = 2 * SECOND_MS
"""How long the call that starts a task works on it: most are done by then."""


class TaskRuns(Exception):
    """The subscription already has an active task."""


class NoTask(Exception):
    """The subscription has no cancellable task with this id."""


class MoveTasks:
    """Starts, lists and cancels move tasks, and finds the active one of a subscription."""

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
