"""Which messages a consumer may handle at once. Without I/O."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Literal

from decant.leases import Lease
from decant.messages import Message

Ordered = bool | Literal["key"]
Lane = tuple[int, str | None]
"""Messages of one lane are handled one after another: a queue, or a key of it."""
CAREFUL_S = 600.0


class Task:
    """Messages that a handler gets at once."""

    __slots__ = ("lane", "leases")

    def __init__(self, leases: Sequence[Lease], lane: Lane | None) -> None:
        self.leases, self.lane = leases, lane

    @property
    def messages(self) -> list[Message[object]]:
        return [lease.message for lease in self.leases]


class Lanes:
    """Tasks that wait for their turn."""

    def __init__(self, ordered: Ordered, batch: int) -> None:
        self._ordered, self._batch = ordered, batch
        self._ready: deque[Task] = deque()
        self._held: dict[Lane, deque[Task]] = {}
        """For each lane that has a task at work, or ready, those behind it."""
        self._failed: dict[Lane, float] = {}
        """Lanes whose first message waits for a retry, and since when."""
        self._unlaned = 0

    @property
    def busy(self) -> int:
        """Lanes that have a task, each of the messages without a lane in one of its own."""
        return len(self._held) + self._unlaned

    def is_careful(self, now: float) -> bool:
        """Whether a message at the head of a lane fails. Each pop that takes others with it costs these an attempt, so
        pops then take single ones."""
        self._failed = {lane: since for lane, since in self._failed.items() if now - since < CAREFUL_S}
        return bool(self._failed)

    def add(self, leases: Iterable[Lease]) -> None:
        """Messages in the order of their pop."""
        lanes: dict[Lane | None, list[Lease]] = {}
        for lease in leases:
            lanes.setdefault(lane_of(lease.message, self._ordered), []).append(lease)
        for lane, those in lanes.items():
            for start in range(0, len(those), self._batch):
                self._put(Task(those[start : start + self._batch], lane))

    def take(self) -> Task | None:
        """The next task that can begin."""
        while self._ready:
            task = self._ready.popleft()
            if task.leases:
                return task
            self.done(task, is_kept=True, now=0.0)
        return None

    def done(self, task: Task, *, is_kept: bool, now: float) -> list[Lease]:
        """The task has ended. `is_kept`: its messages are settled. If not, those behind it, which must not overtake
        them, are returned: they go back."""
        if task.lane is None:
            self._unlaned -= 1
            return []
        behind = self._held.pop(task.lane)
        if is_kept:
            self._failed.pop(task.lane, None)
            if behind:
                self._ready.appendleft(behind.popleft())
                self._held[task.lane] = behind
            return []
        self._failed[task.lane] = now
        return [lease for each in behind for lease in each.leases]

    def clear(self) -> list[Lease]:
        """Takes all that has not begun."""
        tasks = [*self._ready, *(task for behind in self._held.values() for task in behind)]
        for task in self._ready:
            if task.lane is None:
                self._unlaned -= 1
            else:
                del self._held[task.lane]
        self._ready.clear()
        for behind in self._held.values():
            behind.clear()
        return [lease for task in tasks for lease in task.leases]

    def drop(self, lost: Lease) -> None:
        """A message is lost that may not have begun."""
        for task in [*self._ready, *(task for behind in self._held.values() for task in behind)]:
            if lost in task.leases:
                task.leases = [lease for lease in task.leases if lease is not lost]

    def _put(self, task: Task) -> None:
        if task.lane is None:
            self._unlaned += 1
            self._ready.append(task)
        elif (behind := self._held.get(task.lane)) is not None:
            behind.append(task)
        else:
            self._held[task.lane] = deque()
            self._ready.append(task)


def lane_of(message: Message[object], ordered: Ordered | None) -> Lane | None:
    """The lane of a message. None: it needs to wait for no other."""
    if ordered == "key":
        return None if message.key is None else (message.queue, message.key)
    return (message.queue, None) if ordered else None
