"""A producer collects messages and sends them in few calls. `Lanes` decides, without I/O, what goes into a call;
`Producer` sends from threads of its own. `decant.aio_producer` has the one for asyncio."""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Self, TypeVar, Unpack

from decant import flows
from decant.calls import Json
from decant.errors import DecantError, SettingError
from decant.flows import BATCH_BYTES_MAX, BATCH_MESSAGES_MAX, Batch, weight_of
from decant.messages import Options, Outgoing, Sent
from decant.payloads import Topic

if TYPE_CHECKING:
    from decant.client import Decant

T = TypeVar("T")
F = TypeVar("F")

_log = logging.getLogger("decant.producer")


class Waiting(NamedTuple, Generic[F]):
    """A message that is to be sent, and the future of its result."""

    message: Json
    future: F
    since: float


class Lanes(Generic[F]):
    """Messages on their way into calls. Those of one key, or for one queue, are in one call at a time: so they keep
    their order. `now` is in seconds."""

    def __init__(self, linger_s: float) -> None:
        self._linger_s = linger_s
        self._ready: deque[Waiting[F]] = deque()
        self._held: dict[str, deque[Waiting[F]]] = {}
        """For each key that is in a call, the messages that wait for its end."""
        self.count = 0
        """Messages that have no result yet."""

    def add(self, message: Json, future: F, now: float) -> None:
        self.count += 1
        self._ready.append(Waiting(message, future, now))

    def due_s(self, now: float, *, is_hurried: bool = False) -> float | None:
        """How long until the next call is to be made, 0 if now. None: there is nothing to send."""
        if not self._ready:
            return None
        if is_hurried or len(self._ready) >= BATCH_MESSAGES_MAX:
            return 0.0
        return max(self._ready[0].since + self._linger_s - now, 0.0)

    def take(self) -> list[Waiting[F]]:
        """The messages of the next call. `done` must follow."""
        taken: list[Waiting[F]] = []
        lanes: dict[str, deque[Waiting[F]]] = {}
        size = 0
        while self._ready and len(taken) < BATCH_MESSAGES_MAX:
            lane = _lane(self._ready[0].message)
            if lane in self._held:
                self._held[lane].append(self._ready.popleft())
                continue
            size += weight_of(self._ready[0].message)
            if taken and size > BATCH_BYTES_MAX:
                break
            taken.append(self._ready.popleft())
            if lane:
                lanes[lane] = deque()
        self._held |= lanes
        return taken

    def done(self, taken: Sequence[Waiting[F]]) -> None:
        """The messages have their results: what waited for them is next."""
        self.count -= len(taken)
        for lane in dict.fromkeys(_lane(waiting.message) for waiting in taken):
            self._ready.extendleft(reversed(self._held.pop(lane, ())))


def _lane(message: Json) -> str:
    """Messages of one lane keep their order. Empty: in none."""
    if "queue" in message:
        return f"queue {message['queue']}"
    return f"key {message['key']}" if "key" in message else ""


class DedupIds:
    """Ids that no other producer gives: so a message is stored once however often it is sent."""

    def __init__(self) -> None:
        self._prefix = os.urandom(9).hex()
        self._count = 0

    def mark(self, message: Json) -> None:
        """Gives the message an id, unless it has one."""
        if "dedup_id" not in message:
            self._count += 1
            message["dedup_id"] = f"{self._prefix}-{self._count}"


class Producer(Generic[T]):
    """Collects messages, and sends them from threads of its own. `mq.producer(topic)` makes one.

        with mq.producer(orders, linger=0.02) as out:
            future = out.send(order, key="customer-7")
        future.result()  # Sent(...)

    Threads can share it.
    """

    def __init__(
        self, mq: Decant, topic: Topic[T], linger_s: float, max_pending: int, in_flight: int, dedup: bool
    ) -> None:
        demand_counts(max_pending, in_flight)
        self._mq, self._topic, self._max_pending = mq, topic, max_pending
        self._ids = DedupIds() if dedup else None
        self._lanes: Lanes[Future[Sent]] = Lanes(linger_s)
        self._changed = threading.Condition()
        self._hurried = 0
        """Flushes under way."""
        self._is_closed = False
        self._process = os.getpid()
        self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(in_flight)]
        for thread in self._threads:
            thread.start()

    def send(self, value: T, **options: Unpack[Options]) -> Future[Sent]:
        """Adds a message, and returns the future of its place; waits while `max_pending` messages have none. `options`:
        those of a send."""
        self._demand_threads()
        message = Outgoing(value, **options).as_json(self._topic)
        future: Future[Sent] = Future()
        future.set_running_or_notify_cancel()  # from here on it cannot be cancelled
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or self._lanes.count < self._max_pending)
            if self._is_closed:
                raise SettingError("the producer is closed")
            if self._ids:
                self._ids.mark(message)
            before = self._lanes.due_s(now := self._mq.settings.clock())
            self._lanes.add(message, future, now)
            if self._lanes.due_s(now) != before:  # the first of a call, or the last that fits
                self._changed.notify_all()
        return future

    def flush(self, timeout: float | None = None) -> bool:
        """Sends what waits, and waits for the results. Returns whether all have one in time."""
        self._demand_threads()
        with self._changed:
            self._hurried += 1
            self._changed.notify_all()
            try:
                return self._changed.wait_for(lambda: self._lanes.count == 0, timeout)
            finally:
                self._hurried -= 1

    def _demand_threads(self) -> None:
        """Raises SettingError in a fork, where no thread sends."""
        if self._process != os.getpid():
            raise SettingError("the producer belongs to the process that made it; after a fork, make another")

    def close(self) -> None:
        """Sends what waits, and ends the threads. In a fork it does nothing."""
        if self._process != os.getpid():
            return
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        """Sends one call after another, until the end."""
        while taken := self._taken():
            batch = Batch(self._topic.name, [waiting.message for waiting in taken], is_shared=True)
            try:
                self._mq.follow(flows.sending(batch, self._mq.settings.time))
            except Exception as error:  # noqa: BLE001 - each future gets a result, whatever happens
                batch.failed(DecantError(f"{type(error).__name__}: {error}"))
            settle(taken, batch.results)
            with self._changed:
                self._lanes.done(taken)
                self._changed.notify_all()

    def _taken(self) -> list[Waiting[Future[Sent]]]:
        """Waits for the messages of the next call. None at the end."""
        with self._changed:
            while True:
                is_hurried = self._is_closed or self._hurried > 0
                due_s = self._lanes.due_s(self._mq.settings.clock(), is_hurried=is_hurried)
                if due_s == 0 and (taken := self._lanes.take()):
                    return taken
                if self._is_closed and self._lanes.count == 0:
                    return []
                self._changed.wait(due_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def settle(taken: Sequence[Waiting[Any]], results: Sequence[Sent | DecantError | None]) -> None:
    """Gives each future its result. Logs failures, since nobody may look at the futures."""
    errors = [result for result in results if isinstance(result, DecantError)]
    if errors:
        _log.warning("%d of %d messages were not sent, the first: %s", len(errors), len(results), errors[0])
    for waiting, result in zip(taken, results, strict=True):
        if waiting.future.cancelled():
            continue
        if isinstance(result, Sent):
            waiting.future.set_result(result)
        else:
            waiting.future.set_exception(result or DecantError("the producer ended before the answer came"))


def demand_counts(max_pending: int, in_flight: int) -> None:
    """Raises SettingError."""
    for name, count in (("max_pending", max_pending), ("in_flight", in_flight)):
        if type(count) is not int or count < 1:
            raise SettingError(f"{name} must be an integer, at least 1; it is {count!r}")
