"""Consumers for asyncio. Handlers are tasks of the event loop; all else has threads of its own, so a handler that holds
up the loop loses no lease."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from decant.calls import HttpRequest, HttpResponse
from decant.client import Decant
from decant.consumer import AsyncConsumer
from decant.engine import Engine, warn_of_failures
from decant.lanes import Task
from decant.messages import Message
from decant.running import Run, calls_of, chosen, one_pop
from decant.settling import RELEASE, Verdict
from decant.transport import HttpTransport

if TYPE_CHECKING:
    from decant.aio import AsyncDecant
    from decant.aio_transport import AsyncTransport

_log = logging.getLogger("decant.consumer")


class Tasks:
    """Runs the handler in tasks of the loop."""

    def __init__(self, consumer: AsyncConsumer[Any], loop: asyncio.AbstractEventLoop, engine: Engine) -> None:
        self.consumer, self._loop, self._engine = consumer, loop, engine
        self._tasks: dict[Task, asyncio.Task[list[Verdict]]] = {}
        self._thread = threading.get_ident()

    def begin(self, task: Task) -> None:
        self._soon(self._begin, task)

    def cancel(self, task: Task) -> None:
        self._soon(self._cancel, task)

    def abandon(self) -> bool:
        self._soon(self._cancel_all)
        return True

    def close(self) -> None:
        pass

    def _soon(self, function: Callable[..., None], *arguments: Any) -> None:
        is_here = threading.get_ident() == self._thread  # then nobody has to wake the loop
        with contextlib.suppress(RuntimeError):  # the loop is closed
            (self._loop.call_soon if is_here else self._loop.call_soon_threadsafe)(function, *arguments)

    def _begin(self, task: Task) -> None:
        under_way = self._tasks[task] = self._loop.create_task(self._attend(task.messages))
        under_way.add_done_callback(functools.partial(self._ended, task))

    def _cancel(self, task: Task) -> None:
        if under_way := self._tasks.get(task):
            under_way.cancel()

    def _cancel_all(self) -> None:
        for under_way in self._tasks.values():
            under_way.cancel()

    async def _attend(self, messages: Sequence[Message[Any]]) -> list[Verdict]:
        try:
            return await self.consumer.attend_and_reply(messages)
        except Exception as error:  # noqa: BLE001 - a defect must not take the message along
            return self.consumer.failed(error, messages)

    def _ended(self, task: Task, under_way: asyncio.Task[list[Verdict]]) -> None:
        """Called also for a task that is cancelled before its first step, which runs no `finally`."""
        del self._tasks[task]
        verdicts = [RELEASE] * len(task.leases)  # nobody knows how far a cancelled task came: its messages go back
        if not (under_way.cancelled() or under_way.exception()):
            verdicts = under_way.result()
        self._engine.finished(task, verdicts)


class AsyncCrew:
    """The consumers of a client."""

    def __init__(self, mq: AsyncDecant) -> None:
        self._mq = mq
        self.consumers: list[AsyncConsumer[Any]] = []
        self._runs: list[Run] = []

    async def run(self, consumers: Sequence[AsyncConsumer[Any]], grace_s: float) -> None:
        loop = asyncio.get_running_loop()
        settings = self._mq.settings
        run = Run(settings.clock, grace_s)
        with _for_threads(self._mq, loop) as twin:
            engines = [
                Engine(
                    consumer,
                    twin.call,
                    functools.partial(Tasks, consumer, loop),
                    settings.clock,
                    settings.random,
                    run.report,
                )
                for consumer in chosen(consumers, self.consumers)
            ]
            self._runs.append(run)
            try:
                with _signals(loop, run.signalled):
                    await _in_thread(loop, run, engines)
            finally:
                self._runs.remove(run)

    def stop(self) -> None:
        for run in list(self._runs):
            run.stop()

    async def work(self, consumers: Sequence[AsyncConsumer[Any]]) -> int:
        total, those = 0, chosen(consumers, self.consumers)
        while count := sum([await self._worked(consumer) for consumer in those]):
            total += count
        return total

    async def _worked(self, consumer: AsyncConsumer[Any]) -> int:
        """Handles the messages of one pop."""
        messages = consumer.messages((await self._mq.call(one_pop(consumer)))["messages"])
        if not messages:
            return 0
        verdicts = [RELEASE] * len(messages)
        try:
            verdicts = await consumer.attend_and_reply(messages)
        finally:
            for call in calls_of(consumer, messages, verdicts):
                warn_of_failures(consumer, await self._mq.call(call))
        return len(messages)


async def _in_thread(loop: asyncio.AbstractEventLoop, run: Run, engines: Sequence[Engine]) -> None:
    """Carries the run out in a thread. A cancelled task stops it, and waits for its end."""
    done: asyncio.Future[None] = loop.create_future()

    def tell(error: BaseException | None) -> None:
        if not done.done():
            done.set_exception(error) if error else done.set_result(None)

    def carry_out() -> None:
        error: BaseException | None = None
        try:
            run.carry_out(engines)
        except BaseException as raised:  # noqa: BLE001 - the task raises it
            error = raised
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(tell, error)

    threading.Thread(target=carry_out, name="decant-run", daemon=True).start()
    try:
        await asyncio.shield(done)
    except asyncio.CancelledError:
        run.signalled()
        try:
            await asyncio.shield(done)
        except asyncio.CancelledError:
            run.signalled()
        raise


@contextlib.contextmanager
def _signals(loop: asyncio.AbstractEventLoop, signalled: Callable[[], None]) -> Iterator[None]:
    """Has SIGTERM and SIGINT call this, if the loop is that of the main thread."""
    added = []
    for number in (signal.SIGTERM, signal.SIGINT):
        with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
            loop.add_signal_handler(number, signalled)
            added.append(number)
    try:
        yield
    finally:
        for number in added:
            loop.remove_signal_handler(number)


@contextlib.contextmanager
def _for_threads(mq: AsyncDecant, loop: asyncio.AbstractEventLoop) -> Iterator[Decant]:
    """The same client for threads."""
    settings = mq.settings
    transport = getattr(mq.transport, "blocking", lambda: ThroughLoop(mq.transport, loop))()
    sleep = getattr(settings.clock, "sleep", time.sleep)
    try:
        yield Decant(
            settings.target.url,
            settings.target.token,
            timeout=settings.timeout_s,
            transport=transport,
            clock=settings.clock,
            random=settings.random,
            sleep=sleep,
        )
    finally:
        if isinstance(transport, HttpTransport):  # any other is that of the client
            transport.close()


class ThroughLoop:
    """A transport of asyncio that has none for threads: its loop carries the requests, and so it must not be held
    up."""

    def __init__(self, transport: AsyncTransport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop

    @property
    def address(self) -> str:
        return self._transport.address

    def send(self, request: HttpRequest, timeout_s: float) -> HttpResponse:
        return asyncio.run_coroutine_threadsafe(self._transport.send(request, timeout_s), self._loop).result()

    def close(self) -> None:
        pass
