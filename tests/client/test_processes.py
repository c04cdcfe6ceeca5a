"""Handlers in processes: their leases are kept here, and a process that dies takes nothing along."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from decant import SettingError
from decant.testing import Server
from tests.client.support import crashing
from tests.client.support.crews import Crew, until


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        server.client.api.put_topic("orders", queues=1)
        server.client.api.put_group("orders", "billing", max_attempts=1)
        yield server


@pytest.fixture
def crew(server: Server) -> Crew:
    crew = Crew(server, "threads")
    crew.adopt(crashing.bill)
    return crew


def reasons(server: Server) -> dict[str, str | None]:
    dead = server.client.api.list_dead("orders", "billing")["messages"]
    return {message["body"]: message["reason"] for message in dead}


def test_a_process_that_dies_nacks_its_message(server: Server, crew: Crew) -> None:
    server.client.send_all("orders", ["exit", "kill", "sys.exit", "raise", "well"])
    with crew.running():
        until(lambda: server.client.api.get_group("orders", "billing")["lag"] == 0)
    assert reasons(server) == {
        "exit": "the process exited with 3",
        "kill": "the process was ended by signal 9",
        "sys.exit": "SystemExit: 1",
        "raise": "ValueError: no such customer",
    }


def open_files() -> int:
    return len(list(Path("/dev/fd").iterdir()))


def test_processes_that_end_leave_no_descriptors(server: Server, crew: Crew) -> None:
    for orders in (["exit"], ["exit"] * 3):
        before = open_files()
        server.client.send_all("orders", orders)
        with crew.running():
            until(lambda: server.client.api.get_group("orders", "billing")["lag"] == 0)
    until(lambda: open_files() <= before)  # the first starts a process that tracks resources


def test_a_process_replies(server: Server, crew: Crew) -> None:
    answers: list[str] = []
    asking = threading.Thread(
        target=lambda: answers.extend(server.client.request("orders", "well", timeout=3_000) for _ in range(2))
    )
    with crew.running():
        asking.start()
        asking.join(30)
    [answer] = set(answers)  # the same process serves again
    assert answer.startswith("well by ")


def test_the_lease_of_a_process_that_hangs_is_kept_until_the_grace_ends(server: Server, crew: Crew) -> None:
    server.client.send("orders", "hang")
    with crew.running(grace=5):
        until(lambda: crew.wire.named("pop") and server.client.api.get_group("orders", "billing")["in_flight"] == 1)
        server.clock.advance(seconds=18)
        until(lambda: crew.wire.named("extend"))
    progress = server.client.api.get_group("orders", "billing")
    assert (progress["ready"], progress["in_flight"], progress["dead"]) == (0, 0, 1)


def test_a_lost_lease_ends_the_process(server: Server, crew: Crew, caplog: pytest.LogCaptureFixture) -> None:
    server.client.send("orders", "hang")
    with crew.running(grace=1_000):
        until(lambda: server.client.api.get_group("orders", "billing")["in_flight"] == 1)
        server.client.api.reset_group("orders", "billing", to="latest")
        server.clock.advance(seconds=18)
        until(lambda: "is lost" in caplog.text)
        crew.mq.stop()
        until(lambda: not crew.is_running, server.clock, 1)
    assert server.client.api.get_group("orders", "billing")["dead"] == 0


def test_a_handler_that_another_process_cannot_find_is_refused(server: Server) -> None:
    crew = Crew(server, "threads")
    crew.consumer(lambda order: order, executor="process")
    with pytest.raises(SettingError, match="decorated at the top of its module"):
        crew.run()
