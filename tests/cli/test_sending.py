"""`decant send`."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from decant.testing import Server
from tests.cli.conftest import Run
from tests.client.support import servers

Start = Callable[..., subprocess.Popen[bytes]]


def stored(server: Server) -> list[Any]:
    return server.client.api.read_messages("orders", limit=1_000)["messages"]


def bodies(server: Server) -> list[Any]:
    return [message.get("body", message.get("body_base64")) for message in stored(server)]


def test_arguments_are_bodies(server: Server, run: Run) -> None:
    result = run("send", "orders", "4711", "4712", "-k", "customer-7", "-t", "paid", "-H", "region=eu", "-H", "x=a=b")
    assert result.exit_code == 0
    assert [json.loads(line)["offset"] for line in result.stdout.splitlines()] == [0, 1]
    first, _ = stored(server)
    assert first["key"], first["tag"] == ("customer-7", "paid")
    assert first["properties"] == {"region": "eu", "x": "a=b"}


def test_a_body_may_look_like_an_option(server: Server, run: Run) -> None:
    assert run("send", "orders", "--", "-1").exit_code == 0
    assert bodies(server) == ["-1"]


def test_each_line_of_a_pipe_is_a_message(server: Server, run: Run) -> None:
    assert run("send", "orders", "-k", "k", stdin="one\n\ntwo \r\nthree").exit_code == 0
    assert bodies(server) == ["one", "two \r", "three"]


def test_a_dash_is_the_pipe(server: Server, run: Run) -> None:
    assert run("send", "orders", "-", stdin="one\n").exit_code == 0
    assert bodies(server) == ["one"]


def test_nul_may_end_messages(server: Server, run: Run) -> None:
    assert run("send", "orders", "-k", "k", "--null", stdin="one\ntwo\0three\0").exit_code == 0
    assert bodies(server) == ["one\ntwo", "three"]


def test_the_whole_pipe_may_be_one_message(server: Server, run: Run) -> None:
    assert run("send", "orders", "--whole", stdin="one\ntwo\n").exit_code == 0
    assert bodies(server) == ["one\ntwo\n"]


def test_bytes_that_are_no_text_stay_bytes(server: Server, run: Run) -> None:
    assert run("send", "orders", stdin=b"\xff\xfe\n").exit_code == 0
    assert bodies(server) == ["//4="]


def test_an_empty_pipe_sends_nothing(server: Server, run: Run) -> None:
    result = run("send", "orders", stdin="")
    assert (result.exit_code, result.output) == (0, "")


def test_lines_go_in_batches_and_keep_their_order(server: Server, run: Run) -> None:
    lines = [str(number) for number in range(700)]
    assert run("send", "orders", "--quiet", "-k", "k", stdin="\n".join(lines)).output == ""
    assert bodies(server) == lines


def test_a_slow_pipe_is_sent_while_it_is_open(server: Server, start: Start) -> None:
    process = start("send", "orders", stdin=subprocess.PIPE)
    assert process.stdin
    assert process.stdout
    process.stdin.write(b"first\n")
    process.stdin.flush()
    assert b"message_id" in process.stdout.readline()
    assert bodies(server) == ["first"]
    process.stdin.close()
    assert process.wait(10) == 0


def test_what_peek_prints_can_be_sent(server: Server, run: Run) -> None:
    server.client.api.put_topic("archive")
    run("send", "orders", "one", "-k", "k", "-t", "t", "-H", "a=b")
    run("send", "orders", stdin=b"\xff")
    assert run("send", "archive", "-f", "-", stdin=run("peek", "orders").stdout).exit_code == 0
    kept = [
        [(each["key"], each["tag"], each["properties"], each.get("body"), each.get("body_base64")) for each in messages]
        for messages in (stored(server), server.client.api.read_messages("archive")["messages"])
    ]
    assert sorted(kept[0], key=str) == sorted(kept[1], key=str)


def test_options_fill_in_for_a_file(server: Server, run: Run, tmp_path: Path) -> None:
    file = tmp_path / "messages.jsonl"
    file.write_text('{"body": "one", "key": "own"}\n\n{"body": "two"}\n')
    assert run("send", "orders", "-f", str(file), "-k", "given").exit_code == 0
    assert {(message["body"], message["key"]) for message in stored(server)} == {("one", "own"), ("two", "given")}


def test_times_are_those_of_people(server: Server, run: Run) -> None:
    result = run("send", "orders", "later", "--delay", "1h30m")
    [message] = server.client.api.list_delayed("orders")["messages"]
    assert json.loads(result.stdout)["deliver_at_ms"] == message["deliver_at_ms"]
    assert 5_390_000 < message["deliver_at_ms"] - server.clock.now_ms() <= 5_400_000
    assert run("send", "orders", "later", "--at", "2999-01-01").exit_code == 1  # a year at most


def test_lines_that_fail_are_printed_and_the_others_are_sent(server: Server, run: Run) -> None:
    lines = '{"body": "one"}\nrubbish\n{"bodie": "two"}\n{"body": "three", "ttl_ms": -1}\n{"body": "four"}\n'
    result = run("send", "orders", "-f", "-", stdin=lines)
    assert result.exit_code == 1
    assert sorted(bodies(server)) == ["four", "one"]
    said = result.stderr.splitlines()
    assert "rubbish" in said
    assert '{"bodie": "two"}' in said
    assert [json.loads(line)["body"] for line in said if '"three"' in line] == ["three"]
    assert said[-1] == "decant: 2 sent, 3 not sent, which are printed above"


RUBBISH = [
    '{"body": 5}',
    '{"body": null}',
    '{"body_base64": []}',
    '{"body": "\\ud800"}',
    '{"body": ""}',
    '{"body": "a", "ttl_ms": NaN}',
    '{"body": "a", "key": 5}',
    '{"body": "a", "no": 1}',
    "5",
    "[]",
    "null",
    "{",
    "[" * 100_000,
]


@pytest.mark.parametrize("line", RUBBISH, ids=lambda line: line[:30])
def test_a_line_of_rubbish_fails_alone(server: Server, run: Run, line: str) -> None:
    lines = f'{{"body": "before"}}\n{line}\n{{"body": "after"}}\n'
    result = run("send", "orders", "-f", "-", stdin=lines)
    assert result.exit_code == 1
    assert sorted(bodies(server)) == ["after", "before"]
    assert result.stderr.endswith("decant: 2 sent, 1 not sent, which are printed above\n")


def test_an_id_stores_a_message_once(server: Server, run: Run) -> None:
    for _ in range(2):
        assert run("send", "orders", "one", "--id", "4711").exit_code == 0
        assert run("send", "orders", "--whole", "--id", "4712", stdin="two").exit_code == 0
    assert sorted(bodies(server)) == ["one", "two"]


def test_an_unknown_topic_ends_with_3_and_prints_the_message(server: Server, run: Run) -> None:
    result = run("send", "nowhere", "lost?")
    assert result.exit_code == 3
    told, line = result.stderr.splitlines()
    assert told == "decant: not sent: TopicNotFound: topic 'nowhere' does not exist"
    assert json.loads(line)["body"] == "lost?"


def test_an_unknown_outcome_ends_with_5_and_a_repeat_stores_nothing_twice(
    server: Server, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("decant.cli.service.TIMEOUT_S", 0.5)
    with servers.serving(servers.closes) as lossy:
        result = run("send", "orders", "perhaps", "--url", lossy.url)
    assert result.exit_code == 5
    [line] = [line for line in result.stderr.splitlines() if line.startswith("{")]
    for _ in range(2):
        assert run("send", "orders", "-f", "-", stdin=line).exit_code == 0
    assert bodies(server) == ["perhaps"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--null", "--whole"],
        ["a", "-f", "file"],
        ["a", "--delay", "5"],
        ["a", "--delay", "5s", "--at", "2027-01-01"],
        ["a", "-H", "region"],
        ["a", ""],
        ["a", "b", "--id", "1"],
        ["--id", "1"],
        ["-", "--id", "1"],
        ["-f", "-", "--id", "1"],
        ["a", "--linger", "soon"],
    ],
)
def test_wrong_usage_ends_with_2_and_sends_nothing(server: Server, run: Run, arguments: list[str]) -> None:
    assert run("send", "orders", *arguments, stdin="x").exit_code == 2
    assert bodies(server) == []


def test_a_file_that_is_missing_is_one_line(server: Server, run: Run) -> None:
    result = run("send", "orders", "-f", "missing.jsonl")
    assert (result.exit_code, result.stderr) == (1, "decant: missing.jsonl: No such file or directory\n")


def test_a_terminal_sees_how_far_a_file_is(server: Server, start: Start, tmp_path: Path) -> None:
    (tmp_path / "many.jsonl").write_text('{"body": "x"}\n' * 20_000)
    ours, theirs = pty.openpty()
    process = start("send", "orders", "-q", "-f", "many.jsonl", stderr=theirs)
    os.close(theirs)
    said = b""
    while b"% [" not in said:
        said += os.read(ours, 4_096)
    assert process.wait(60) == 0
    os.close(ours)


def test_ctrl_c_ends_with_130_and_says_so(server: Server, start: Start) -> None:
    process = start("send", "orders", stdin=subprocess.PIPE)
    assert process.stdin
    assert process.stdout
    process.stdin.write(b"one\n")
    process.stdin.flush()
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=10)
    assert (process.returncode, said) == (130, b"decant: interrupted\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_has_all_sent_that_was_read(server: Server, start: Start, number: int) -> None:
    process = start("send", "orders", "--linger", "1m", stdin=subprocess.PIPE)
    assert process.stdin
    assert process.stdout
    process.stdin.write(b"x\n" * 256 + b"one\ntwo\n")
    process.stdin.flush()
    for _ in range(256):  # the first call
        process.stdout.readline()
    time.sleep(0.3)
    process.send_signal(number)
    _, said = process.communicate(timeout=10)
    assert process.returncode == 128 + number
    assert said.splitlines()[0] == b"decant: 258 sent before the end"
    assert {"one", "two"} < {*bodies(server)}


def test_all_that_was_read_is_printed_if_the_service_fails(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DECANT_URL", f"http://127.0.0.1:{servers.free_port()}")
    lines = [f"line {number}" for number in range(600)]
    process = start("send", "orders", stdin=subprocess.PIPE)
    _, said = process.communicate("\n".join(lines).encode(), timeout=30)
    assert process.returncode == 5
    printed = [json.loads(line)["body"] for line in said.decode().splitlines() if line.startswith("{")]
    assert printed == lines


def test_a_second_signal_prints_what_is_not_sent(start: Start) -> None:
    with servers.serving("hangs") as hanging:
        process = start("send", "orders", "one", "two", "--url", hanging.url)
        while not hanging.requests:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        while len(hanging.requests) < 2:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=10)
    assert process.returncode == 130
    assert [json.loads(line)["body"] for line in said.decode().splitlines() if line.startswith("{")] == ["one", "two"]


def test_an_argument_of_bytes_stays_bytes(server: Server, binary: Path) -> None:
    line = f"PATH={binary}:$PATH; decant send orders \"$(printf '\\377')\""
    subprocess.run(["/bin/sh", "-c", line], check=True, capture_output=True)
    assert bodies(server) == ["/w=="]
