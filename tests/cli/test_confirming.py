"""Destructive commands want the name on a terminal, and --yes elsewhere."""

from __future__ import annotations

import os
import pty
import subprocess
import time
from collections.abc import Callable

import pytest

from decant.testing import Server
from tests.cli.conftest import Run

Start = Callable[..., subprocess.Popen[bytes]]

DEEDS = [
    (["topic", "rm", "orders"], "orders"),
    (["group", "rm", "orders", "billing"], "billing"),
    (["group", "reset", "orders", "billing", "--to", "latest"], "billing"),
    (["dead", "purge", "orders", "billing"], "billing"),
]


@pytest.fixture
def before(server: Server) -> object:
    """A message, and a dead letter."""
    server.client.send_all("orders", ["one", "two"])
    [message] = server.client.api.pop("orders", "billing", max_messages=1)["messages"]
    server.client.api.bury("orders", "billing", receipts=[message["receipt"]])
    return state(server)


def state(server: Server) -> object:
    groups = server.client.api.list_groups("orders")["groups"]
    return [(group["ready"], group["dead"]) for group in groups]


@pytest.mark.parametrize(("arguments", "name"), DEEDS, ids=[" ".join(arguments) for arguments, _ in DEEDS])
class TestConfirming:
    def test_nothing_happens_without_a_terminal(
        self, server: Server, before: object, run: Run, arguments: list[str], name: str
    ) -> None:
        result = run(*arguments, stdin=f"{name}\n")
        assert result.exit_code == 2
        assert result.stderr.startswith("decant: nothing was done: this ")
        assert result.stderr.endswith("confirm with --yes\n")
        assert len(result.stderr.splitlines()) == 1
        assert state(server) == before

    def test_yes_does_it(self, server: Server, before: object, run: Run, arguments: list[str], name: str) -> None:
        assert run(*arguments, "--yes").exit_code == 0
        if arguments[:2] == ["topic", "rm"]:
            assert server.client.api.list_topics()["topics"] == []
        else:
            assert state(server) != before


@pytest.mark.parametrize(("typed", "code"), [("billing\n", 0), ("yes\n", 2), ("\n", 2), ("\x03", 130), ("\x04", 130)])
def test_a_terminal_wants_the_name(server: Server, before: object, start: Start, typed: str, code: int) -> None:
    ours, theirs = pty.openpty()
    options = {"stdin": theirs, "stderr": theirs, "start_new_session": True, "preexec_fn": _terminal}
    process = start("group", "rm", "orders", "billing", **options)
    os.close(theirs)
    said = b""
    while b"Type billing to go on:" not in said:
        said += os.read(ours, 1_024)
    os.write(ours, typed.encode())
    while process.poll() is None:
        time.sleep(0.2)
        if typed == "\x03":  # one that comes right before the read is noticed with the next
            os.write(ours, b"\x03")
    assert process.returncode == code
    os.close(ours)
    assert state(server) == (before if code else [])


def _terminal() -> None:
    """The terminal on stdin becomes that of the process, so that Ctrl-C is a signal."""
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
