"""Consumers of both faces under the same tests, over the service in this process, whose clock the test moves."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from decant.aio import AsyncDecant
from decant.aio_transport import InThreads
from decant.calls import HttpRequest, HttpResponse
from decant.client import Decant
from decant.testing import Server
from decant.testing.clock import Clock, Seconds
from decant.testing.server import ADDRESS, InProcess

PATIENCE_S = 20.0


def until(condition: Callable[[], Any], clock: Clock | None = None, step_s: float = 0) -> Any:
    """Waits for something that other threads do; the clock moves by such steps meanwhile."""
    ends = time.monotonic() + PATIENCE_S
    while not (value := condition()):
        assert time.monotonic() < ends, "it does not happen"
        if clock:
            clock.advance(seconds=step_s)
        time.sleep(0.002)
    return value


class Wire:
    """Carries requests to the service, records them, and fails as a test says."""

    def __init__(self, server: Server) -> None:
        self.address = ADDRESS
        self._inner = InProcess(server)
        self.requests: list[HttpRequest] = []
        self.before: Callable[[HttpRequest], HttpResponse | None] = lambda _request: None
        self.after: Callable[[HttpRequest, HttpResponse], HttpResponse] = lambda _request, response: response

    def send(self, request: HttpRequest, timeout_s: float) -> HttpResponse:
        self.requests.append(request)
        return self.before(request) or self.after(request, self._inner.send(request, timeout_s))

    def close(self) -> None:
        pass

    def named(self, operation: str) -> list[HttpRequest]:
        return [request for request in self.requests if request.operation == operation]


class Crew:
    """A client with consumers."""

    def __init__(self, server: Server, face: str, **settings: Any) -> None:
        self.server, self.face, self.wire = server, face, Wire(server)
        self.error: BaseException | None = None
        self.is_running = False
        self._pool = ThreadPoolExecutor(32)  # that of the loop is for few
        seconds = Seconds(server.clock)
        settings = {"clock": seconds, "random": lambda: 0.5, **settings}
        self.mq: Any = (
            Decant(ADDRESS, transport=self.wire, sleep=seconds.sleep, **settings)
            if face == "threads"
            else AsyncDecant(ADDRESS, transport=InThreads(self.wire), sleep=self._sleep, **settings)
        )

    async def _sleep(self, seconds: float) -> None:
        await asyncio.to_thread(Seconds(self.server.clock).sleep, seconds)

    def consumer(self, handle: Callable[..., Any], topic: Any = "orders", group: str = "billing", **how: Any) -> Any:
        """Declares a handler, which is awaited in a thread if the face is that of asyncio."""
        function = handle
        if self.face == "asyncio":

            @functools.wraps(handle)
            async def function(*arguments: Any) -> Any:
                return await asyncio.get_running_loop().run_in_executor(self._pool, handle, *arguments)

        return self.mq.consumer(topic, group=group, **how)(function)

    def adopt(self, consumer: Any) -> None:
        """Runs the consumer of a module, in place of its client."""
        consumer.mq = self.mq
        self.mq._crew.consumers.append(consumer)

    @property
    def is_stopping(self) -> bool:
        return all(run.is_stopping for run in self.mq._crew._runs)

    def run(self, grace: float = 25) -> None:
        """As the main program does."""
        if self.face == "threads":
            self.mq.run(grace=grace)
        else:
            asyncio.run(self.mq.run(grace=grace))

    def work(self) -> int:
        return int(self.mq.work() if self.face == "threads" else asyncio.run(self.mq.work()))

    @contextlib.contextmanager
    def running(self, grace: float = 25) -> Iterator[None]:
        """Runs in a thread, and is stopped at the end: the clock then passes the end of the poll."""
        thread = threading.Thread(target=self._caught, args=(grace,), daemon=True)
        thread.start()
        self.is_running = True
        try:
            yield
        finally:
            self.mq.stop()
            ends = time.monotonic() + PATIENCE_S
            while thread.is_alive():
                assert time.monotonic() < ends, "the run does not end"
                self.server.clock.advance(seconds=1)
                thread.join(0.01)
        if self.error:
            raise self.error

    def _caught(self, grace: float) -> None:
        try:
            self.run(grace)
        except BaseException as error:  # noqa: BLE001 - `running` raises it
            self.error = error
        self.is_running = False
