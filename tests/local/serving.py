"""`python -m local` as a process of its own, on a real port."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from email.message import Message
from pathlib import Path
from typing import Any

from local.asyncio_server import GRACE_SECONDS
from tests.support.emulators import ROOT, free_port

START_SECONDS = 30
"""A busy machine takes some seconds to start a server."""
ANSWER_SECONDS, END_SECONDS = 10, 2 * GRACE_SECONDS


class Running:
    """A server under way, with what it has printed up to its last line of help."""

    def __init__(self, process: subprocess.Popen[str], banner: str) -> None:
        self.process = process
        self.banner = banner
        self.port = int(re.findall(r"http://127\.0\.0\.1:(\d+)", banner)[0])

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Message, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=ANSWER_SECONDS)
        with contextlib.closing(connection):
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            return response.status, response.headers, response.read()

    def say(self, raw: bytes, ends: bool = False) -> bytes:
        """Sends these bytes, and returns all that comes until the server closes. `ends`: sends the end of the
        connection behind them, and still reads."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=ANSWER_SECONDS) as connection:
            connection.sendall(raw)
            if ends:
                connection.shutdown(socket.SHUT_WR)
            return b"".join(iter(lambda: connection.recv(65_536), b""))

    def end(self, ending: signal.Signals) -> tuple[int, str]:
        """The exit code, and all that was on stderr."""
        self.process.send_signal(ending)
        _, errors = self.process.communicate(timeout=END_SECONDS)
        return self.process.returncode, errors


def environment(**settings: str) -> dict[str, str]:
    ours = ("AWS_", "DECANT_", "DATA", "PORT", "LOG", "ACCESS")
    return {**{name: value for name, value in os.environ.items() if not name.startswith(ours)}, **settings}


def launched(*arguments: str, program: Sequence[str] = ("-m", "local"), **settings: str) -> subprocess.Popen[str]:
    """`program`: that of Python."""
    command = [sys.executable, *program, *arguments]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=ROOT, env=environment(**settings), stdout=pipe, stderr=pipe, text=True)


@contextlib.contextmanager
def running(program: Sequence[str] = ("-m", "local"), **settings: str) -> Iterator[Running]:
    process = launched(program=program, **{"PORT": "0", **settings})
    killer = threading.Timer(START_SECONDS, process.kill)
    killer.start()
    try:
        said = process.stderr if "json" in settings.values() else process.stdout
        assert said is not None
        lines: list[str] = []
        while not lines or (lines[-1] and "/pop" not in lines[-1]):
            lines.append(said.readline())
        killer.cancel()
        assert lines[-1], process.communicate()
        yield Running(process, "".join(lines))
    finally:
        killer.cancel()
        process.kill()
        process.communicate()


@contextlib.contextmanager
def chalice_local(*arguments: str, **settings: str) -> Iterator[Running]:
    """Chalice's local server, which runs in a child of the process unless the arguments have `--no-autoreload`."""
    command = [str(Path(sys.executable).with_name("chalice")), "local", "--port", str(free_port()), *arguments]
    variables = environment(PYTHONUNBUFFERED="1", **settings)
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env=variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    killer = threading.Timer(START_SECONDS, os.killpg, [process.pid, signal.SIGKILL])
    killer.start()
    try:
        assert process.stdout is not None
        lines: list[str] = []
        while not lines or (lines[-1] and "Serving on" not in lines[-1]):
            lines.append(process.stdout.readline())
        killer.cancel()
        yield Running(process, "".join(lines))
    finally:
        killer.cancel()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def refusal(*arguments: str, **settings: str) -> str:
    """The one line with which it declines to start."""
    process = launched(*arguments, **settings)
    with contextlib.ExitStack() as stack:
        stack.callback(process.kill)
        printed, errors = process.communicate(timeout=START_SECONDS)
    assert process.returncode not in (0, None)
    assert printed == ""
    assert len(errors.splitlines()) == 1, errors
    return errors


def in_raw(answer: bytes) -> tuple[int, str]:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"connection: close" in head.lower()
    assert b"application/problem+json" in head
    return int(head.split()[1]), json.loads(body)["code"]


def endpoint_in(banner: str) -> str:
    endpoint: str = re.findall("DynamoDB endpoint[^:]*: (\\S+)", banner)[0]
    return endpoint
