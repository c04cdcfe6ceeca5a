"""The producer for asyncio: it sends from tasks of its own."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import TYPE_CHECKING, Generic, Self, TypeVar, Unpack

from decant import flows
from decant.errors import DecantError, SettingError
from decant.flows import Batch
from decant.messages import Options, Outgoing, Sent
from decant.payloads import Topic
from decant.producer import DedupIds, Lanes, Waiting, demand_counts, settle

if TYPE_CHECKING:
    from decant.aio import AsyncDecant

T = TypeVar("T")


class AsyncProducer(Generic[T]):
    """Collects messages, and sends them from tasks of its own. `mq.producer(topic)` makes one.

        async with mq.producer(orders, linger=0.02) as out:
            future = await out.send(order, key="customer-7")
        await future  # Sent(...)

    Tasks can share it.
    """

    def __init__(
        self, mq: AsyncDecant, topic: Topic[T], linger_s: float, max_pending: int, in_flight: int, dedup: bool
    ) -> None:
        demand_counts(max_pending, in_flight)
        self._mq, self._topic, self._max_pending, self._in_flight = mq, topic, max_pending, in_flight
        self._ids = DedupIds() if dedup else None
        self._lanes: Lanes[asyncio.Future[Sent]] = Lanes(linger_s)
        self._calls: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._hurried = 0
        """Flushes under way."""
        self._is_closed = False
        self._room = asyncio.Condition()

    async def send(self, value: T, **options: Unpack[Options]) -> asyncio.Future[Sent]:
        """Adds a message, and returns the future of its place; waits while `max_pending` messages have none. `options`:
        those of a send."""
        message = Outgoing(value, **options).as_json(self._topic)
        while self._lanes.count >= self._max_pending and not self._is_closed:
            async with self._room:
                await self._room.wait()
        if self._is_closed:
            raise SettingError("the producer is closed")
        if self._ids:
            self._ids.mark(message)
        future: asyncio.Future[Sent] = asyncio.get_running_loop().create_future()
        self._lanes.add(message, future, self._mq.settings.clock())
        self._go()
        return future

    async def flush(self) -> None:
        """Sends what waits, and waits for the results."""
        self._hurried += 1
        try:
            while self._lanes.count:
                self._go()
                await asyncio.wait(self._calls, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._hurried -= 1

    async def close(self) -> None:
        """Sends what waits."""
        self._is_closed = True
        await self.flush()
        if self._timer:
            self._timer.cancel()

    def _go(self) -> None:
        """Begins the calls that are due, and sets the timer for the next."""
        while len(self._calls) < self._in_flight:
            due_s = self._lanes.due_s(self._mq.settings.clock(), is_hurried=self._hurried > 0)
            if due_s is None:
                return
            if due_s > 0:
                if self._timer is None:
                    self._timer = asyncio.get_running_loop().call_later(due_s, self._ring)
                return
            if taken := self._lanes.take():
                task = asyncio.get_running_loop().create_task(self._sent(taken))
                self._calls.add(task)
                task.add_done_callback(self._calls.discard)

    def _ring(self) -> None:
        self._timer = None
        self._go()

    async def _sent(self, taken: list[Waiting[asyncio.Future[Sent]]]) -> None:
        batch = Batch(self._topic.name, [waiting.message for waiting in taken], is_shared=True)
        try:
            await self._mq.follow(flows.sending(batch, self._mq.settings.time))
        except Exception as error:  # noqa: BLE001 - each future gets a result, whatever happens
            batch.failed(DecantError(f"{type(error).__name__}: {error}"))
        finally:
            settle(taken, batch.results)
            self._lanes.done(taken)
        async with self._room:
            self._room.notify_all()
        asyncio.get_running_loop().call_soon(self._go)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
