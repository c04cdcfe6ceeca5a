"""Tables, JSON, ids and templates."""

from __future__ import annotations

import io
import json
import os
import pty
import subprocess
from collections.abc import Callable
from contextlib import redirect_stdout
from datetime import datetime

import pytest

from decant.cli import output
from decant.cli.output import Out
from decant.testing import Server
from tests.cli.conftest import Run

MESSAGES = [
    {"message_id": "m1", "queue": 0, "key": None, "properties": {"a": "1"}, "body": "hello"},
    {
        "message_id": "m2",
        "queue": 10,
        "key": "k",
        "properties": {},
        "body_base64": "/wA=",
    },
]


def written(form: str | None = None, template: str | None = None) -> bytes:
    stream = io.TextIOWrapper(io.BytesIO())
    with redirect_stdout(stream):
        out = Out(("message_id", "queue", "key", "body"), form, template)
        out.whole(MESSAGES)
        out.flush()
    data: bytes = stream.buffer.getvalue()
    return data


def test_a_pipe_gets_a_line_of_json_for_each() -> None:
    assert [json.loads(line) for line in written().splitlines()] == MESSAGES


def test_json_is_one_list() -> None:
    assert json.loads(written("json")) == MESSAGES


def test_ids_are_lines() -> None:
    assert written("ids") == b"m1\nm2\n"


def test_a_table_has_columns_and_no_colour_outside_of_a_terminal() -> None:
    assert written("table").decode().splitlines() == [
        "message_id  queue  key  body",
        "m1              0  -    hello",
        "m2             10  k    (2 bytes)",
    ]


def test_a_template_takes_fields_properties_and_raw_bytes() -> None:
    assert written(template=r"{key}\t{properties.a}\t{body}") == b"\t1\thello\nk\t\t\xff\0\n"


def test_a_template_leaves_other_braces_alone() -> None:
    assert written(template='{"id": "{message_id}"}') == b'{"id": "m1"}\n{"id": "m2"}\n'


def test_an_empty_list_is_json_too(server: Server, run: Run) -> None:
    assert run("dead", "ls", "orders", "billing", "-o", "json").stdout == "[]\n"
    assert run("take", "orders", "billing", "-o", "json").stdout == "[]\n"
    assert run("dead", "ls", "orders", "nobody", "-o", "json").stdout == ""  # a failure
    assert run("dead", "ls", "orders", "billing", "-o", "table").output == ""


def test_a_terminal_is_told_that_a_list_is_empty(server: Server, start: Callable[..., subprocess.Popen[bytes]]) -> None:
    ours, theirs = pty.openpty()
    process = start("dead", "ls", "orders", "billing", stdout=theirs)
    os.close(theirs)
    _, said = process.communicate(timeout=20)
    os.close(ours)
    assert said == b"none\n"


@pytest.mark.parametrize("text", ["\x1b[31mred", "two\nlines", "tab\t", "\x07", "‮right"])
def test_a_terminal_obeys_no_body(text: str) -> None:
    shown = output.cell("body", text)
    assert shown.isprintable()


def test_wide_characters_take_two_columns() -> None:
    assert output.width("注文x") == 5
    assert output.cut("注文注文", 5) == "注文…"
    assert output.cut("short", 5) == "short"


def test_times_are_local_and_those_of_today_have_no_day() -> None:
    now = datetime.now().astimezone()
    assert output.cell("at_ms", int(now.timestamp() * 1_000)) == now.strftime("%H:%M:%S")
    other = datetime(2026, 1, 2, 3, 4, 5).astimezone()
    assert output.cell("stored_at_ms", round(other.timestamp() * 1_000)) == "2026-01-02 03:04:05"


def test_durations_have_units() -> None:
    assert output.cell("retention_ms", 600_000) == "10m"
    assert output.cell("backoff_ms", [10_000, 60_000]) == "10s,1m"


def on_a_terminal(start: Callable[..., subprocess.Popen[bytes]], *arguments: str) -> str:
    ours, theirs = pty.openpty()
    process = start(*arguments, stdin=theirs, stdout=theirs, stderr=subprocess.PIPE)
    os.close(theirs)
    process.wait(20)
    text = os.read(ours, 65_536).decode()
    os.close(ours)
    return text.replace("\r\n", "\n")


def test_a_terminal_gets_a_table(server: Server, start: Callable[..., subprocess.Popen[bytes]]) -> None:
    server.client.send("orders", "\x1b[31mred" + "x" * 500)
    head, row = on_a_terminal(start, "peek", "orders").splitlines()
    assert head.startswith("\x1b[1mmessage_id")
    assert r"\x1b[31mred" in row
    assert len(row) <= 80


def test_a_terminal_obeys_no_body_in_a_template(server: Server, start: Callable[..., subprocess.Popen[bytes]]) -> None:
    server.client.send("orders", "\x1b[31mred\n")
    text = on_a_terminal(start, "peek", "orders", "--template", r"{offset}\t{body}")
    assert text.split() == ["0", r"\x1b[31mred\n"]


def test_no_color_is_heard(
    server: Server, start: Callable[..., subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in on_a_terminal(start, "topic", "ls")


def test_details_show_lists_of_objects_as_tables(server: Server, run: Run) -> None:
    lines = run("topic", "show", "orders", "-o", "table").stdout.splitlines()
    assert "retention   3d" in lines
    assert lines[-3:] == [
        "  queue  first_offset  end_offset",
        "      0             0           0",
        "      1             0           0",
    ]


def test_output_and_template_exclude_each_other(run: Run) -> None:
    assert run("topic", "ls", "-o", "ids", "--template", "{topic}").exit_code == 2
