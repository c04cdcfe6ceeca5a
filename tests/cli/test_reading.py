"""`decant peek`, `export`, `copy`, `trace` and `top`."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from decant.testing import Server
from tests.cli.conftest import Run

Start = Callable[..., subprocess.Popen[bytes]]
BODY = "{body}"


@pytest.fixture
def numbers(server: Server) -> Server:
    """Twelve messages, an hour apart, one queue after the other."""
    for number in range(12):
        server.client.send("orders", str(number), key=f"k{number % 3}", queue=number % 2)
        server.clock.advance(hours=1)
    return server


def peeked(run: Run, *arguments: str) -> list[str]:
    result = run("peek", "orders", "--template", BODY, *arguments)
    assert result.exit_code == 0, result.stderr
    return result.stdout.split()


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ([], range(2, 12)),
        (["-n", "3"], range(9, 12)),
        (["--from", "earliest", "-n", "3"], range(3)),
        (["--from", "latest"], range(0)),
        (["--from", "-2"], range(10, 12)),
        (["--from", "1:4", "-n", "5"], (9, 11)),
        (["--from", "1:0", "-n", "2"], (1, 3)),
        (["--key", "k1"], (1, 4, 7, 10)),
        (["--key", "k1", "-n", "2"], (1, 4)),
    ],
)
def test_it_reads_from_a_place_on(numbers: Server, run: Run, arguments: list[str], found: Any) -> None:
    assert peeked(run, *arguments) == [str(number) for number in found]


def test_it_reads_from_a_time_on(numbers: Server, run: Run) -> None:
    at = numbers.clock.now_ms() - 2 * 3_600_000 - 1_800_000
    assert peeked(run, "--from", str(at)) == ["10", "11"]


def test_it_finds_a_message_by_its_id(numbers: Server, run: Run) -> None:
    message = numbers.client.api.read_messages("orders", limit=1)["messages"][0]
    result = run("peek", "orders", "--id", message["message_id"])
    assert json.loads(result.stdout) == message
    assert run("peek", "orders", "--id", "none").exit_code == 3


def test_no_group_notices(numbers: Server, run: Run) -> None:
    before = numbers.client.api.get_group("orders", "billing")
    peeked(run)
    assert numbers.client.api.get_group("orders", "billing") == before


def test_following_prints_what_is_sent_later_each_once(numbers: Server, start: Start) -> None:
    process = start("peek", "orders", "--from", "1:4", "--follow", "--template", BODY)
    assert process.stdout
    assert [process.stdout.readline() for _ in range(2)] == [b"9\n", b"11\n"]
    numbers.client.send("orders", "elsewhere", queue=0)
    numbers.client.send("orders", "new", queue=1)
    assert process.stdout.readline() == b"new\n"
    numbers.client.send("orders", "newer", queue=1)
    assert process.stdout.readline() == b"newer\n"


def test_following_notices_a_topic_made_anew(numbers: Server, start: Start) -> None:
    process = start("peek", "orders", "--from", "-1", "--follow", "--template", BODY)
    assert process.stdout
    assert process.stdout.readline() == b"11\n"
    numbers.client.api.delete_topic("orders")
    numbers.client.api.put_topic("orders")
    numbers.client.send("orders", "again")
    assert process.stdout.readline() == b"again\n"


@pytest.mark.parametrize(
    "arguments",
    [["--key", "k", "--follow"], ["--key", "k", "--from", "-1"], ["--id", "i", "--key", "k"], ["--from", "soon"]],
)
def test_wrong_usage_ends_with_2(server: Server, run: Run, arguments: list[str]) -> None:
    assert run("peek", "orders", *arguments).exit_code == 2


# -- export and copy --------------------------------------------------------------------------------------------------


def test_an_export_can_be_sent_again(numbers: Server, run: Run, tmp_path: Path) -> None:
    file = tmp_path / "orders.jsonl"
    result = run("export", "orders", "--to", str(file))
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == f"decant: wrote 12 messages to {file}\n"
    numbers.client.api.put_topic("archive", queues=1)
    assert run("send", "archive", "-f", str(file), "-q").exit_code == 0
    bodies = [message["body"] for message in numbers.client.api.read_messages("archive", limit=100)["messages"]]
    assert bodies == [*map(str, range(0, 12, 2)), *map(str, range(1, 12, 2))]


def test_an_export_begins_where_it_is_told(numbers: Server, run: Run) -> None:
    at = str(numbers.clock.now_ms() - 2 * 3_600_000 - 1_800_000)
    for start, found in ((at, ["10", "11"]), ("-1", ["10", "11"]), ("1:4", ["9", "11"]), ("latest", [])):
        lines = run("export", "orders", "--from", start).stdout.splitlines()
        assert [json.loads(line)["body"] for line in lines] == found


def test_an_export_that_fails_leaves_no_file(numbers: Server, run: Run, tmp_path: Path) -> None:
    assert run("export", "nowhere", "--to", str(tmp_path / "file")).exit_code == 3
    result = run("export", "orders", "--to", str(tmp_path / "missing" / "file"))
    assert result.exit_code == 1
    assert "No such file or directory" in result.stderr
    assert not [*tmp_path.glob("file*")]


def test_a_copy_keeps_what_senders_gave(numbers: Server, run: Run) -> None:
    numbers.client.api.put_topic("archive", queues=1)
    for _ in range(2):  # a repeat stores nothing twice
        result = run("copy", "orders", "archive")
        assert (result.exit_code, result.stderr) == (0, "decant: copied 12 messages to archive\n")
    copies = numbers.client.api.read_messages("archive", limit=100)["messages"]
    assert len(copies) == 12
    assert {(copy["body"], copy["key"]) for copy in copies} == {(str(number), f"k{number % 3}") for number in range(12)}


def test_a_copy_goes_to_another_service(numbers: Server, run: Run) -> None:
    numbers.client.api.put_topic("archive")
    run("context", "add", "other", numbers.url)
    assert run("copy", "orders", "archive", "--from", "-1", "--to-context", "other").exit_code == 0
    assert len(numbers.client.api.read_messages("archive")["messages"]) == 2
    assert run("copy", "orders", "archive", "--to-url", "http://127.0.0.1:9").exit_code == 5


def test_a_copy_needs_its_target(server: Server, run: Run) -> None:
    server.client.send("orders", "one")
    result = run("copy", "orders", "nowhere")
    assert result.exit_code == 3
    assert result.stderr == "decant: not sent: TopicNotFound: topic 'nowhere' does not exist\n"


# -- trace and top ----------------------------------------------------------------------------------------------------


def test_a_trace_shows_each_group_and_event(server: Server, run: Run) -> None:
    server.client.api.put_topic("orders", trace=True)
    id_ = server.client.send("orders", "one").id
    run("take", "orders", "billing")
    lines = run("trace", "orders", id_, "-o", "table").stdout.splitlines()
    assert [line.split()[0] for line in lines[-2:]] == ["popped", "acked"]
    assert json.loads(run("trace", "orders", id_).stdout)["groups"][0]["state"] == "settled"
    assert run("trace", "orders", "none").exit_code == 3


def test_top_shows_the_longest_backlog_first(numbers: Server, run: Run) -> None:
    numbers.client.api.put_group("orders", "audit", start="latest")
    numbers.client.send("orders", "one")
    groups = [json.loads(line) for line in run("top").stdout.splitlines()]
    assert [(group["group"], group["lag"]) for group in groups] == [("billing", 13), ("audit", 1)]
