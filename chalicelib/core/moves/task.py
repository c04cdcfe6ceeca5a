"""A move task: moves the messages of one subscription back to their source, or to another subscription.

Tasks of a subscription are numbered, from 1. A caller starts number n + 1 only after it has read number n as the newest
and ended, and the write demands that n + 1 does not exist. So at most one task is active. One worker at a time holds
the task, and each transaction that moves messages demands its hold. Once a task has ended, or has another worker, no
older transaction is applied."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any, Protocol

from chalicelib.core.base.limits import DAY_MS, MINUTE_MS, SECOND_MS
from chalicelib.core.base.records import record
from chalicelib.core.catalogue.group import Group
from chalicelib.core.catalogue.topic import Topic
from chalicelib.core.table import keys
from chalicelib.core.table.writes import Absent, AtMost, Effect, Equals, Item, Key, Set, Write, sets

RUNNING, COMPLETED, CANCELLED, FAILED = "RUNNING", "COMPLETED", "CANCELLED", "FAILED"
"""The states of a task. A cancelled task moves no more messages."""

MOVED_PER_SECOND_MAX = 500
HELD_MS = MINUTE_MS
"""How long a worker holds a task after its last write: its transactions take seconds at most."""
KEPT_MS = 14 * DAY_MS
"""How long a task is shown after its last change."""


@record
class MoveTask:
    """`to`, `to_id`: the name and the incarnation of the destination subscription; None: each message returns to its
    source. `rate`: the client's limit, in messages a second. `count`: how many messages there were to move. `by`: the
    worker that holds the task until `held_until_ms`. `next_ms`: when the next messages may move. `reason`: why it
    failed."""

    queue_id: str
    number: int
    id: str
    started_at_ms: int
    count: int
    to: str | None = None
    to_id: str | None = None
    rate: int | None = None
    state: str = RUNNING
    moved: int = 0
    by: str = ""
    held_until_ms: int = 0
    next_ms: int = 0
    reason: str | None = None

    @classmethod
    def of(cls, item: Item) -> MoveTask:
        stored: dict[str, Any] = {field: item[name] for field, name in _ATTRIBUTES.items() if name in item}
        return cls(item["pk"].rpartition("#")[2], keys.number_of(item["sk"]), **stored)

    @cached_property
    def key(self) -> Key:
        return keys.move_task(self.queue_id, self.number)

    @property
    def is_running(self) -> bool:
        return self.state == RUNNING

    @property
    def left(self) -> int:
        """A task moves at most the initial number of messages, or those that die again would move in circles."""
        return max(0, self.count - self.moved)

    @property
    def per_second(self) -> int:
        return self.rate or MOVED_PER_SECOND_MAX

    def after(self, count: int, now: int) -> MoveTask:
        """The task after this many more messages have moved."""
        next_ms = max(self.next_ms, now) - -count * SECOND_MS // self.per_second
        return replace(self, moved=self.moved + count, next_ms=next_ms, held_until_ms=now + HELD_MS)


_ATTRIBUTES = {
    "id": "id",
    "started_at_ms": "started_at_ms",
    "count": "count",
    "to": "to",
    "to_id": "to_id",
    "rate": "rate",
    "state": "state",
    "moved": "moved",
    "by": "by",
    "held_until_ms": "held",
    "next_ms": "next",
    "reason": "reason",
}
"""The stored attributes, by field."""


def start(task: MoveTask) -> Write:
    """Refused if another caller has started one."""
    values = {name: getattr(task, field) for field, name in _ATTRIBUTES.items()}
    made = {name: value for name, value in values.items() if value is not None}
    return Write(
        task.key,
        (Absent(("id",)),),
        (*sets(made), _kept(task.started_at_ms)),
        landed=lambda before: before["id"] == task.id,
    )


def take(task: MoveTask, by: str, now: int) -> Write:
    """Gives the task to a worker of this new name, unless another one holds it."""
    return Write(
        task.key,
        (_RUNS, AtMost(("held",), now)),
        sets({"by": by, "held": now + HELD_MS}),
        landed=lambda before: before.get("by") == by,
    )


def let_go(task: MoveTask, by: str) -> Write:
    """Lets another worker take the task at once."""
    return Write(task.key, (_RUNS, Equals(("by",), by)), sets({"held": 0}))


def moved(task: MoveTask, by: str, count: int, now: int) -> Write:
    """Counts messages that move in the same transaction, and says when more may."""
    after = task.after(count, now)
    told = {"moved": after.moved, "held": after.held_until_ms, "next": after.next_ms}
    return Write(task.key, (_RUNS, Equals(("by",), by)), (*sets(told), _kept(now)))


def end(task: MoveTask, state: str, now: int, reason: str | None = None, by: str | None = None) -> Write:
    """`by`: the worker that ends it; None: a caller cancels it."""
    guards = (_RUNS,) if by is None else (_RUNS, Equals(("by",), by))
    told = {"state": state} if reason is None else {"state": state, "reason": reason}
    return Write(task.key, guards, (*sets(told), _kept(now)), landed=lambda before: before.get("state") == state)


_RUNS = Equals(("state",), RUNNING)


def _kept(now: int) -> Effect:
    return Set(("ttl",), (now + KEPT_MS) // SECOND_MS)


# -- subscriptions ----------------------------------------------------------------------------------------------------


class SubscriptionGone(Exception):
    """No subscription has this name."""


class Subscription(Protocol):
    """`id`: the incarnation. `owns_topic`: the topic was made for it: messages that move here are sent to the topic."""

    @property
    def name(self) -> str: ...

    @property
    def id(self) -> str: ...

    @property
    def owns_topic(self) -> bool: ...

    @property
    def topic(self) -> Topic: ...

    @property
    def group(self) -> Group: ...


class Subscriptions(Protocol):
    """Looks subscriptions up. A door implements it and defines what they are to its clients."""

    def find(self, name: str) -> Subscription:
        """The subscription, at most some seconds old. Raises SubscriptionGone."""

    def id_of(self, name: str) -> str:
        """Its id, from the cheapest read; its topic or group may no longer exist. Raises SubscriptionGone."""

    def forget(self, name: str) -> None:
        """Makes the next `find` read it again."""
