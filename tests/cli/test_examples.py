"""Every example of every `--help` runs as it stands there."""

from __future__ import annotations

import inspect
import os
import re
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from decant import Decant
from decant.cli import COMMANDS, main
from decant.testing import Server
from tests.cli.conftest import Run
from tests.support.emulators import ROOT

ELSEWHERE = {"deploy", "undeploy", "package", "first-token", "spark"}
"""Their arguments and help are those of `infra`, whose tests run them."""


def _leaves(command: click.Command, words: list[str]) -> Iterator[tuple[list[str], click.Command]]:
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from _leaves(found, [*words, name])
    else:
        yield words, command


LEAVES = [(words, command) for words, command in _leaves(main, []) if words[0] not in ELSEWHERE]


def _examples(words: list[str], command: click.Command) -> list[str]:
    """The lines of the help that are commands: those that click leaves as they are."""
    paragraphs = inspect.cleandoc(command.help or "").split("\n\n")
    lines = [line for text in paragraphs if text.startswith("\b") for line in text.splitlines()[1:]]
    assert all(f"decant {' '.join(words)}" in line for line in lines)
    return lines


EXAMPLES = [(" ".join(words), example) for words, command in LEAVES for example in _examples(words, command)]


def test_each_command_has_an_example() -> None:
    assert [" ".join(words) for words, command in LEAVES if not _examples(words, command)] == []


def test_each_command_of_the_list_is_there() -> None:
    assert {words[0] for words, _ in _leaves(main, [])} == COMMANDS.keys()


def test_the_page_names_every_command() -> None:
    page = (ROOT / "docs/cli.md").read_text()
    rows = "\n".join(line.split("|")[1] for line in page.splitlines() if line.startswith("| `"))
    for words, _ in _leaves(main, []):
        assert all(re.search(rf"\b{word}\b", rows) for word in words), words


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Server]:
    """A service with something of everything."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PORT", "0")  # of `decant serve`
    (tmp_path / "topics.toml").write_text("")
    with Server(access=True) as server:
        monkeypatch.setenv("DECANT_URL", server.url)
        monkeypatch.setenv("DECANT_TOKEN", str(server.client.settings.target.token))
        for topic in ("orders", "archive", "sums"):
            server.client.api.put_topic(topic, index_keys=True)
        server.client.api.put_group("orders", "billing", max_attempts=3)
        server.client.api.put_group("sums", "adders")
        server.client.send("orders", "4711 paid")
        server.client.send("orders", "4712 paid")
        server.client.api.request("sums", body="1+2", wait_ms=0, timeout_ms=600_000)
        yield server


def _ids(mq: Decant, words: str) -> dict[str, str]:
    """The ids that the examples of a command name as variables."""
    if words in ("dead show", "dead redrive"):
        [message] = mq.api.pop("orders", "billing", max_messages=1)["messages"]
        mq.api.bury("orders", "billing", receipts=[message["receipt"]], reason="an example")
        return {"ID": message["message_id"]}
    if words == "delayed cancel":
        return {"ID": mq.send("orders", "later", delay=3_600).id}
    if words == "trace":
        return {"ID": mq.api.read_messages("orders")["messages"][0]["message_id"]}
    if words.startswith("transaction"):
        return {"TRANSACTION": mq.api.begin_transaction("orders", messages=[{"body": "half"}])["transaction_id"]}
    if words.startswith("token"):
        right = {"operations": ["produce"], "topics": "*"}
        return {"TOKEN_ID": mq.api.make_token(name="example", rights=[right])["token_id"]}  # type: ignore[list-item]
    return {}


@pytest.mark.parametrize(("words", "example"), EXAMPLES, ids=[example for _, example in EXAMPLES])
def test_the_example_runs(
    world: Server, run: Run, binary: Path, words: str, example: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in _ids(world.client, words).items():
        monkeypatch.setenv(name, value)
    if words.startswith("context") and words != "context add":
        assert run("context", "add", "local", "http://127.0.0.1:8000").exit_code == 0
    if words == "request":
        threading.Thread(target=_reply, args=(world.client,), daemon=True).start()
    if "|" in example or ">" in example or _is_endless(words, example):
        _in_shell(example, binary, world.client, _is_endless(words, example))
        return
    result = run(*_arguments(example))
    assert result.exit_code == 0, result.output


def _arguments(example: str) -> list[str]:
    return [os.path.expandvars(word) if word.startswith("$") else word for word in shlex.split(example)][1:]


def _reply(mq: Decant) -> None:
    for _ in range(2):  # one is there from the beginning
        [message] = mq.api.pop("sums", "adders", wait_ms=10_000, max_messages=1)["messages"]
        mq.api.reply(message["correlation_id"], body="3", receipt=message["receipt"])


def _is_endless(words: str, example: str) -> bool:
    if words in ("listen", "serve") or "--follow" in example or "--watch" in example:
        return True
    return words == "reply" and "-n" not in example


def _in_shell(example: str, binary: Path, mq: Decant, is_endless: bool) -> None:
    environment = {**os.environ, "PATH": f"{binary}:{os.environ['PATH']}"}
    said = binary / "said"
    with said.open("wb") as file:
        line = f"exec {example}" if is_endless else example
        process = subprocess.Popen(["/bin/sh", "-c", line], env=environment, stdout=file, stderr=file)
    try:
        until = time.monotonic() + 30
        while is_endless and not said.stat().st_size and _is_any_ready(mq):
            assert process.poll() is None, said.read_text()
            assert time.monotonic() < until
            time.sleep(0.05)
        if is_endless:
            assert process.poll() is None, said.read_text()
            process.send_signal(signal.SIGTERM)
        process.wait(30)
    finally:
        process.kill()
    expected = 143 if is_endless and "serve" not in example else 0
    assert process.returncode == expected, said.read_text()
    assert "Traceback" not in said.read_text()


def _is_any_ready(mq: Decant) -> bool:
    """Whether the messages for consumers are still there."""
    return bool(mq.api.get_group("orders", "billing")["ready"] and mq.api.get_group("sums", "adders")["ready"])
