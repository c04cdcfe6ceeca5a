"""Consumers of one face alone, and consumers whose tokens have few rights."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from decant import AsyncDecant, Decant, Forbidden, Message, SettingError
from decant.calls import HttpRequest, HttpResponse
from decant.errors import GroupNotFound
from decant.testing import Server
from decant.testing.server import ADDRESS, InProcess
from decant.transport import HttpTransport
from decant.worker import Service
from tests.client.support.crews import Crew, Wire, until


@pytest.fixture
def crew(server: Server) -> Crew:
    return Crew(server, "asyncio")


def in_flight(server: Server) -> int:
    return server.client.api.get_group("orders", "billing")["in_flight"]


# -- asyncio -----------------------------------------------------------------------------------------------------------


def test_a_handler_that_holds_up_the_loop_keeps_its_lease(server: Server, crew: Crew) -> None:
    begun, go = threading.Event(), threading.Event()

    @crew.mq.consumer("orders", group="billing")  # type: ignore[untyped-decorator]
    async def bill(_order: str) -> None:
        begun.set()
        go.wait(30)

    server.client.send("orders", "4711")
    with crew.running():
        until(begun.is_set)
        server.clock.advance(seconds=18)
        until(lambda: crew.wire.named("extend"))
        go.set()
        until(lambda: in_flight(server) == 0)


def test_a_lost_lease_cancels_the_task(server: Server, crew: Crew) -> None:
    begun: list[Message[str]] = []
    cancelled: list[str] = []

    @crew.mq.consumer("orders", group="billing")  # type: ignore[untyped-decorator]
    async def bill(order: str, message: Message[str]) -> None:
        begun.append(message)
        try:
            await asyncio.sleep(1_000)
        except asyncio.CancelledError:
            cancelled.append(order)
            raise

    server.client.send("orders", "4711")
    with crew.running():
        until(lambda: begun)
        server.client.api.reset_group("orders", "billing", to="latest")
        server.clock.advance(seconds=18)
        until(lambda: cancelled)
    assert begun[0].lost


def test_a_task_that_is_cancelled_before_it_begins_frees_its_place(
    server: Server, crew: Crew, caplog: pytest.LogCaptureFixture
) -> None:
    values: list[str] = []
    go = threading.Event()

    @crew.mq.consumer("orders", group="billing")  # type: ignore[untyped-decorator]
    async def bill(order: str) -> None:
        values.append(order)
        if order == "hold up":
            loop = asyncio.get_running_loop()
            loop.call_soon(loop.call_soon, go.wait, 30)  # once this task has ended

    server.client.send("orders", "hold up")
    with crew.running():
        until(lambda: values and in_flight(server) == 0)
        server.client.send("orders", "lost")
        until(lambda: in_flight(server) == 1)
        server.client.api.reset_group("orders", "billing", to="latest")
        server.clock.advance(seconds=18)
        until(lambda: "is lost" in caplog.text)
        go.set()
        server.client.send("orders", "next")
        until(lambda: "next" in values)


def test_a_run_that_is_cancelled_gives_its_messages_back(server: Server, crew: Crew) -> None:
    begun = threading.Event()

    @crew.mq.consumer("orders", group="billing")  # type: ignore[untyped-decorator]
    async def bill(_order: str) -> None:
        begun.set()
        await asyncio.sleep(1_000)

    async def main() -> None:
        running = asyncio.ensure_future(crew.mq.run(grace=1))
        await asyncio.to_thread(until, begun.is_set)
        running.cancel()
        await asyncio.to_thread(until, running.done, server.clock, 1)
        with contextlib.suppress(asyncio.CancelledError):
            await running

    server.client.send("orders", "4711")
    asyncio.run(main())
    progress = server.client.api.get_group("orders", "billing")
    assert (progress["ready"], progress["in_flight"]) == (1, 0)


def test_a_transport_of_asyncio_alone_carries_consumers(server: Server) -> None:
    class OnlyInLoop:
        address = ADDRESS

        async def send(self, request: Any, timeout_s: float) -> Any:
            return await asyncio.to_thread(InProcess(server).send, request, timeout_s)

        async def close(self) -> None:
            pass

    mq, values = AsyncDecant(ADDRESS, transport=OnlyInLoop()), list[str]()

    @mq.consumer("orders", group="billing", wait=0.1)
    async def bill(order: str) -> None:
        values.append(order)
        mq.stop()

    server.client.send("orders", "4711")
    asyncio.run(mq.run())
    assert values == ["4711"]
    assert in_flight(server) == 0


def test_a_run_that_fails_closes_its_connections(server: Server) -> None:
    closed: list[str] = []

    class Transport(HttpTransport):
        def close(self) -> None:
            closed.append("closed")
            super().close()

    mq = AsyncDecant(server.url)
    mq.transport.blocking = lambda: Transport(mq.settings.address())  # type: ignore[attr-defined]

    @mq.consumer("orders", group="missing")
    async def bill(_order: str) -> None:
        pass

    with pytest.raises(GroupNotFound):
        asyncio.run(mq.run())
    assert closed == ["closed"]


# -- declarations ------------------------------------------------------------------------------------------------------


def test_each_face_refuses_handlers_of_the_other(server: Server) -> None:
    async def later(_order: str) -> None:
        pass

    with pytest.raises(SettingError, match="needs AsyncDecant"):
        server.client.consumer("orders", group="billing")(later)
    with pytest.raises(SettingError, match="needs Decant"):
        server.async_client.consumer("orders", group="billing")(print)  # type: ignore[arg-type]


def takes_three(_a: Any, _b: Any, _c: Any) -> None: ...


def takes_none() -> None: ...


def generates(_order: str) -> Iterator[int]:
    yield 1


@pytest.mark.parametrize("function", [takes_three, takes_none, generates, 5])
def test_what_is_no_handler_is_refused(server: Server, function: Any) -> None:
    with pytest.raises(SettingError, match="handler"):
        server.client.consumer("orders", group="billing")(function)


def test_a_handler_can_still_be_called(server: Server) -> None:
    @server.client.consumer("orders", group="billing")
    def double(order: str) -> str:
        """Doubles."""
        return order * 2

    assert (double("a"), double.__doc__, double.__name__) == ("aa", "Doubles.", "double")  # type: ignore[attr-defined]


def test_a_broadcast_group_needs_a_name(server: Server) -> None:
    server.client.api.put_group("orders", "news", mode="broadcast")
    server.client.consumer("orders", group="news")(print)
    with pytest.raises(SettingError, match="consumer_id"):
        server.client.run()


# -- rights ------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def guarded(*operations: Any) -> Iterator[tuple[Server, Decant]]:
    """A service with access control, and a client that may do this alone."""
    with Server(access=True) as server:
        server.client.api.put_topic("orders")
        server.client.api.put_group("orders", "billing")
        made = server.client.api.make_token(name="t", rights=[{"operations": list(operations), "topics": "*"}])
        yield server, Decant(ADDRESS, made["token"], transport=InProcess(server))


def test_the_right_to_consume_is_enough() -> None:
    with guarded("consume") as (server, mq):
        values: list[str] = []

        @mq.consumer("orders", group="billing", wait=0.1)
        def bill(order: str) -> None:
            values.append(order)
            if len(values) == 3:
                mq.stop()

        server.client.send_all("orders", list("abc"))
        mq.run()
    assert sorted(values) == list("abc")


def test_without_the_right_to_consume_the_run_ends() -> None:
    with guarded("read") as (_, mq):
        mq.consumer("orders", group="billing")(print)
        with pytest.raises(Forbidden):
            mq.run()


def test_a_worker_whose_pop_fails_acks_what_it_has_done(server: Server) -> None:
    wire = Wire(server)

    def forbid(request: HttpRequest) -> HttpResponse | None:
        is_second = request.operation == "pop" and len(wire.named("pop")) == 2
        return HttpResponse(403, {}, b'{"code":"Forbidden","detail":"the token is revoked"}') if is_second else None

    wire.before = forbid
    service = Service(ADDRESS)
    service.mq.transport = wire
    server.client.send("orders", "4711")
    with pytest.raises(Forbidden):
        service.worker(lambda _message: None).run("orders", "billing")
    assert in_flight(server) == 0


def test_an_answer_that_is_none_ends_the_run(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    crew = Crew(server, "threads")

    def half(request: Any, response: Any) -> Any:
        return response._replace(body=b"{}") if request.operation == "pop" else response

    crew.wire.after = half
    crew.consumer(print, wait=0.1)
    with pytest.raises(Exception, match="no messages"):
        crew.run()
