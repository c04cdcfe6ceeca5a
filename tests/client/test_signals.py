"""Programs with consumers that are interrupted, terminated and killed."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from decant import Decant
from decant.testing import Server
from tests.local.serving import Running, environment
from tests.support.emulators import ROOT

KILLS, SIGNALS, MESSAGES, LEASE_MS = 200, 30, 1_200, 400


class Program:
    """A program under way, line by line."""

    def __init__(self, server: Server, face: str) -> None:
        command = [sys.executable, "-m", "tests.client.support.consuming", server.url, face]
        pipe, self.face = subprocess.PIPE, face
        self.process = subprocess.Popen(command, cwd=ROOT, env=environment(), stdout=pipe, stderr=pipe, text=True)
        self.reads("ready")

    def reads(self, line: str) -> None:
        assert self.process.stdout
        assert self.process.stdout.readline() == f"{line}\n"

    def signal(self, number: signal.Signals) -> None:
        time.sleep(0.05)
        self.process.send_signal(number)

    def ends(self) -> tuple[int, str, str]:
        out, errors = self.process.communicate(timeout=20)
        return self.process.returncode, out, errors


@pytest.fixture(params=["threads", "asyncio"])
def program(request: pytest.FixtureRequest, server: Server) -> Iterator[Program]:
    program = Program(server, request.param)
    with program.process:
        yield program
        program.process.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_the_handler_finish(
    server: Server, program: Program, number: signal.Signals, tmp_path: Path
) -> None:
    server.client.send("orders", str(tmp_path / "go"))
    program.reads("begun")
    program.signal(number)
    time.sleep(0.1)
    (tmp_path / "go").touch()
    code, out, _ = program.ends()
    assert (code, out) == (0, "done\nended\n")
    assert server.client.api.get_group("orders", "billing")["lag"] == 0


def test_an_idle_program_ends_with_its_poll(program: Program) -> None:
    time.sleep(0.2)
    program.signal(signal.SIGTERM)
    code, out, _ = program.ends()
    assert (code, out) == (0, "ended\n")


def test_a_second_signal_ends_at_once(server: Server, program: Program, tmp_path: Path) -> None:
    server.client.send("orders", str(tmp_path / "never"))
    program.reads("begun")
    program.signal(signal.SIGTERM)
    program.signal(signal.SIGTERM)
    if program.face == "threads":  # asyncio itself waits for its threads, which handlers use here
        code, out, errors = program.ends()
        assert (code, out) == (0, "ended\n")
        assert "1 messages are still at work" in errors
    assert server.client.api.get_group("orders", "billing")["in_flight"] == 1
    (tmp_path / "never").touch()


def test_a_consumer_that_is_killed_loses_and_doubles_nothing(
    service: Running, url: str, name: str, tmp_path: Path
) -> None:
    """At 200 random moments. Another delivery of a message comes after the lease of the one before, and only then."""
    doubled = 0
    for deliveries in consumed(url, name, tmp_path / "log", KILLS, "SIGKILL"):
        attempts = [attempt for attempt, _, _ in deliveries]
        assert len(set(attempts)) == len(attempts), "a lease was handled twice"
        for (_, until_ms, _), (_, _, began_ms) in zip(deliveries, deliveries[1:], strict=False):
            assert began_ms >= until_ms - 1, "a message was delivered again within its lease"
            doubled += 1
    assert 0 < doubled < KILLS * 8, "no more than a consumer holds"


@pytest.mark.parametrize("number", ["SIGTERM", "SIGINT"])
def test_a_consumer_that_is_told_to_end_handles_each_message_once(
    service: Running, url: str, name: str, number: str, tmp_path: Path
) -> None:
    """At random moments. It gives back what it has not begun."""
    assert {len(deliveries) for deliveries in consumed(url, name, tmp_path / "log", SIGNALS, number)} == {1}


def consumed(url: str, topic: str, log: Path, times: int, number: str) -> list[list[tuple[int, int, int]]]:
    """Has consumers end at random moments until all messages are handled. Returns the deliveries of each."""
    with Decant(url) as mq:
        mq.api.put_topic(topic, queues=2)
        mq.api.put_group(topic, "billing", invisible_ms=LEASE_MS, max_attempts=1_000)
        sent = {each.id for each in mq.send_all(topic, [str(number) for number in range(MESSAGES)])}
        arguments = [url, topic, "billing", str(log), number, str(times), "1"]
        command = [sys.executable, "-m", "tests.client.support.killed", *arguments]
        done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        progress = mq.api.get_group(topic, "billing")
    assert (progress["lag"], progress["retrying"], progress["dead"]) == (0, 0, 0)
    handled = _handled(log)
    assert handled.keys() == sent
    return list(handled.values())


def _handled(log: Path) -> dict[str, list[tuple[int, int, int]]]:
    """For each message, its deliveries in order: attempt, end of the lease, and when the handler began."""
    found: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
    for line in log.read_text().splitlines():
        id_, *numbers = line.split()
        attempt, until_ms, began_ms = map(int, numbers)
        found[id_].append((attempt, until_ms, began_ms))
    return {id_: sorted(deliveries) for id_, deliveries in found.items()}
