"""Each failure is a line on stderr and an exit code that says of which kind it is."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from itertools import chain, repeat
from pathlib import Path

import pytest

from decant.calls import NoAnswer, NotSent
from decant.testing import Server
from tests.cli.conftest import Run
from tests.client.support import servers
from tests.client.support.servers import Turn

Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture(autouse=True)
def _in_haste(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("decant.cli.service.TIMEOUT_S", 0.5)


@pytest.mark.parametrize(
    ("turn", "code", "said"),
    [
        (servers.problem(400, "InvalidField", "limit"), 2, "InvalidField: limit"),
        (servers.problem(401, "Unauthenticated"), 4, "Unauthenticated: it is so"),
        (servers.problem(403, "Forbidden"), 4, "Forbidden: it is so"),
        (servers.problem(404, "TopicNotFound"), 3, "TopicNotFound: it is so"),
        (servers.problem(409, "GroupIsPushed"), 1, "GroupIsPushed: it is so"),
        (servers.problem(429, "QueueFull"), 5, "QueueFull: it is so"),
        (servers.problem(500, "Internal"), 5, "Internal: it is so"),
        (servers.problem(503, "StoreUnavailable"), 5, "StoreUnavailable: it is so"),
        (servers.problem(404, "TopicNotFound", "two\nlines\x1b[2J"), 3, r"TopicNotFound: two lines\x1b[2J"),
        (servers.answer(302, location="http://elsewhere"), 5, "was redirected to http://elsewhere"),
        (servers.raw(b"SSH-2.0-OpenSSH_9.6\r\n", then_close=True), 5, "does not answer as Decant does"),
        (servers.answer(200, "text"), 5, "does not answer as Decant does"),
        (servers.closes, 5, "did not carry out GET /topics"),
        (servers.resets, 5, "did not carry out GET /topics"),
    ],
    ids=lambda value: str(value) if isinstance(value, int) else "",
)
def test_the_exit_code_says_of_which_kind_it_is(run: Run, turn: Turn, code: int, said: str) -> None:
    with servers.serving(turn) as server:
        result = run("topic", "ls", "--url", server.url)
    assert result.exit_code == code, result.stderr
    assert result.stdout == ""
    assert said in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_server_that_hangs_is_unavailable(run: Run) -> None:
    with servers.serving("hangs") as server:
        assert run("topic", "ls", "--url", server.url).exit_code == 5


@pytest.mark.parametrize("timeout_s", [0.5, 60])
def test_a_server_that_is_down_is_unavailable(run: Run, monkeypatch: pytest.MonkeyPatch, timeout_s: float) -> None:
    monkeypatch.setattr("decant.cli.service.TIMEOUT_S", timeout_s)
    port = servers.free_port()
    result = run("topic", "ls", "--url", f"http://127.0.0.1:{port}")
    assert result.exit_code == 5
    assert f"cannot connect to 127.0.0.1:{port}: Connection refused" in result.stderr


def test_a_server_that_starts_is_waited_for(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("decant.cli.service.TIMEOUT_S", 10)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    timer = threading.Timer(0.5, _answer, [port])
    timer.start()
    assert run("topic", "ls", "--url", f"http://127.0.0.1:{port}").exit_code == 3
    timer.join()


def _answer(port: int) -> None:
    with socket.create_server(("127.0.0.1", port)) as listener, listener.accept()[0] as connection:
        connection.recv(10_000)
        connection.sendall(b"HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}")


def test_a_write_whose_answer_is_lost_has_an_unknown_outcome(run: Run) -> None:
    with servers.serving(servers.closes) as server:
        result = run("group", "reset", "orders", "billing", "--to", "earliest", "--yes", "--url", server.url)
    assert result.exit_code == 5
    assert "may have carried out" in result.stderr


def test_a_service_that_dies_after_a_lost_answer_leaves_it_unknown(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    ends: Iterator[Exception] = chain([NoAnswer("the connection broke")], repeat(NotSent("refused")))

    def send(*_: object) -> None:
        raise next(ends)

    monkeypatch.setattr("decant.cli.service.FIRST_S", 0)
    monkeypatch.setattr("decant.transport.HttpTransport.send", send)
    result = run("send", "orders", "one", "--url", "http://127.0.0.1:9")
    assert result.exit_code == 5
    assert "may have carried out" in result.stderr


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://localhost", "http://", "http://user:secret@host/"])
def test_an_address_that_is_none_is_wrong_usage(run: Run, url: str) -> None:
    result = run("topic", "ls", "--url", url)
    assert result.exit_code == 2
    assert len(result.stderr.splitlines()) == 1
    assert "secret" not in result.stderr


def test_an_unknown_command_is_wrong_usage(run: Run) -> None:
    assert run("snd", "orders").exit_code == 2
    assert run("topic", "list").exit_code == 2


def test_there_is_no_option_for_a_token(run: Run) -> None:
    assert "--token " not in run("send", "--help").stdout
    assert run("topic", "ls", "--token", "x").exit_code == 2


def test_access_is_refused_with_4(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with Server(access=True) as server:
        monkeypatch.setenv("DECANT_URL", server.url)
        assert run("topic", "ls").exit_code == 4
        right = {"operations": ["read"], "topics": "a*"}
        made = server.client.api.make_token(name="reader", rights=[right])  # type: ignore[list-item]
        monkeypatch.setenv("DECANT_TOKEN", made["token"])
        assert run("topic", "ls").exit_code == 0
        assert run("topic", "show", "orders").exit_code == 4
        monkeypatch.setenv("DECANT_TOKEN", "with space")
        assert run("topic", "ls").exit_code == 2


# -- processes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "lines"),
    [(["peek", "orders", "--follow"], 1), (["group", "stats", "orders", "billing", "--watch"], 1)],
)
@pytest.mark.parametrize(("number", "code", "said"), [(2, 130, "interrupted"), (15, 143, "ended by SIGTERM")])
def test_signals_end_it_with_a_line(
    server: Server, start: Start, arguments: list[str], lines: int, number: int, code: int, said: str
) -> None:
    server.client.send("orders", "one")
    process = start(*arguments)
    assert process.stdout
    process.stdout.readline()
    process.send_signal(number)
    _, stderr = process.communicate(timeout=10)
    assert (process.returncode, stderr.decode()) == (code, f"decant: {said}\n")


def test_a_pipe_that_closes_is_a_line(server: Server, binary: Path) -> None:
    server.client.send_all("orders", [f"{number} {'x' * 1_000}" for number in range(500)])
    line = f"PATH={binary}:$PATH; decant export orders | head -n 1 > /dev/null; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["/bin/bash", "-c", line], capture_output=True, text=True, timeout=30, check=True)
    assert (done.stdout, done.stderr) == ("1\n", "decant: the reader of the output has closed it\n")


@pytest.mark.parametrize(
    "arguments", [["topic", "ls"], ["peek", "orders"], ["export", "orders"], ["api", "GET", "/topics"], ["--help"]]
)
def test_a_full_disk_is_a_line(server: Server, start: Start, arguments: list[str]) -> None:
    server.client.send("orders", "one")
    with Path("/dev/full").open("wb") as full:
        process = start(*arguments, stdout=full)
        _, said = process.communicate(timeout=10)
    assert (process.returncode, said.decode()) == (1, "decant: No space left on device\n")


def test_a_closed_stdin_and_stderr_are_no_failure(server: Server, binary: Path) -> None:
    line = f"PATH={binary}:$PATH; decant topic ls -o ids <&- 2>&-"
    done = subprocess.run(["/bin/sh", "-c", line], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout == "orders\n"


def test_a_closed_stdout_is_a_line(server: Server, binary: Path) -> None:
    line = f"PATH={binary}:$PATH; decant topic ls >&-"
    done = subprocess.run(["/bin/sh", "-c", line], capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stderr) == (1, "decant: stdout is closed\n")


def test_a_signal_that_is_ignored_stays_so(server: Server, binary: Path, tmp_path: Path) -> None:
    line = f"PATH={binary}:$PATH; trap '' HUP; exec decant peek orders --follow"
    server.client.send("orders", "one")
    process = subprocess.Popen(["/bin/sh", "-c", line], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout
    process.stdout.readline()
    process.send_signal(signal.SIGHUP)
    time.sleep(0.2)
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=10)
    assert process.returncode == 143


def test_a_language_without_utf_8_prints_utf_8(server: Server, start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    monkeypatch.setenv("LC_ALL", "C")
    server.client.send("orders", "ü")
    out, _ = start("peek", "orders").communicate(timeout=10)
    assert json.loads(out)["body"] == "ü"
    assert os.environ["LC_ALL"] == "C"
