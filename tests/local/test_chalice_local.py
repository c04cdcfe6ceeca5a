"""`chalice local` as a newcomer meets it: it does what `make run` does, in the background too."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.local.serving import ANSWER_SECONDS, START_SECONDS, Running, chalice_local, environment, running
from tests.support.emulators import ROOT, free_port

WALK = (ROOT / "README.md").read_text().partition("## Use it over HTTP\n")[2].partition("In this table")[0]
"""From the topic to the ack."""


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with chalice_local() as server:
        yield server


def pasted(server: Running, line: str) -> dict[str, object]:
    said = subprocess.check_output(["/bin/sh", "-c", line.replace(":8000/", f":{server.port}/")], text=True)
    answer: dict[str, object] = json.loads(said)
    return answer


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not here")
@pytest.mark.parametrize("serve", [running, chalice_local, lambda: chalice_local("--no-autoreload")])
def test_the_walk_of_the_readme_works_when_pasted(serve: Callable[[], AbstractContextManager[Running]]) -> None:
    topic, group, produce, pop, ack = re.findall("^    (curl .*)", WALK, re.MULTILINE)
    with serve() as server:
        assert pasted(server, topic)["topic"] == "orders"
        assert pasted(server, group)["group"] == "billing"
        stored = pasted(server, produce)["messages"]
        assert isinstance(stored, list)
        messages = pasted(server, pop)["messages"]
        assert isinstance(messages, list)
        assert len(messages) == len(stored) > 1, "from all queues"
        receipts = '", "'.join(message["receipt"] for message in messages)
        assert pasted(server, ack.replace("...", receipts)) == {"acked": len(messages), "failed": []}


def test_an_alarm_rises_without_anybody_who_asks(server: Running) -> None:
    server.ask("PUT", "/topics/watched")
    server.ask("PUT", "/topics/watched/groups/billing", '{"alarm": {"ready": 1}}')
    server.ask("POST", "/topics/watched/messages", '{"messages": [{"body": "a"}]}')
    until = time.monotonic() + ANSWER_SECONDS
    while server.ask("GET", "/topics/decant.alarms")[0] == 404:
        assert time.monotonic() < until
        time.sleep(0.1)


def test_head_works_and_leaves_the_connection_usable(server: Running) -> None:
    asked = b"%s /health HTTP/1.1\r\nHost: localhost\r\n%s\r\n"
    said = server.say(asked % (b"HEAD", b"") + asked % (b"GET", b"Connection: close\r\n"))
    assert re.findall(rb"^HTTP/1.1 (\d+)|(\{.status)", said, re.MULTILINE) == [
        (b"200", b""),
        (b"200", b""),
        (b"", b'{"status'),
    ]


def test_a_web_page_of_another_site_is_refused_here_too(server: Running) -> None:
    assert server.ask("PUT", "/topics/mine", origin="https://pages.example")[0] == 403
    assert server.ask("GET", "/topics/mine")[0] == 404


@pytest.mark.parametrize("settings", [{"ACCESS": "on"}, {"DECANT_ACCESS": "tokens"}])
def test_it_demands_the_first_token_that_it_prints(settings: dict[str, str]) -> None:
    with chalice_local(**settings) as guarded:
        [token] = re.findall("TOKEN=(.+)", guarded.banner)
        assert guarded.ask("GET", "/topics")[0] == 401
        assert guarded.ask("GET", "/topics", authorization=f"Bearer {token}")[0] == 200
        assert "AWS_SECRET_ACCESS_KEY=" in guarded.banner


def command(*arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """A command of Chalice that comes to its end."""
    program = [str(Path(sys.executable).with_name("chalice")), *arguments]
    return subprocess.run(
        program,
        cwd=ROOT,
        env=environment(**settings),
        capture_output=True,
        text=True,
        timeout=START_SECONDS,
        check=False,
    )


@pytest.mark.parametrize(
    ("settings", "reason", "options"),
    [
        ({"ACCESS": "yes"}, "ACCESS must be on or off; it is 'yes'", []),
        ({"LOG": "xml"}, "LOG must be 0, 1 or json; it is 'xml'", ["--no-autoreload"]),
        ({"DATA": "data", "DECANT_STORE": "dynamodb"}, "DATA is 'data', but only the memory store keeps a folder", []),
    ],
)
def test_it_refuses_at_its_start_what_cannot_work(settings: dict[str, str], reason: str, options: list[str]) -> None:
    said = command("local", "--port", str(free_port()), *options, **settings)
    assert said.stdout == ""
    assert said.stderr.startswith(f"decant: {reason}")
    assert said.stderr.count("\n") == 1


def test_another_command_of_chalice_starts_nothing() -> None:
    """Commands that start a server are refused, as above."""
    said = command("generate-models", ACCESS="yes")
    assert (said.returncode, said.stderr) == (0, "")
    assert '"/topics/{topic}"' in said.stdout
