"""Addresses and tokens by name."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from decant.testing import Server
from tests.cli.conftest import Run
from tests.client.support import servers


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "config" / "decant" / "contexts.json"


@pytest.fixture
def service() -> Iterator[Server]:
    with Server(access=True) as server:
        server.client.api.put_topic("orders")
        yield server


def token(server: Server) -> str:
    return str(server.client.settings.target.token)


def test_the_first_context_is_used(service: Server, run: Run, file: Path) -> None:
    assert run("context", "add", "test", service.url, "--token", stdin=f"{token(service)}\n").exit_code == 0
    assert file.stat().st_mode & 0o777 == 0o600
    assert run("topic", "ls", "-o", "ids").stdout == "orders\n"


def test_tokens_are_never_printed(service: Server, run: Run) -> None:
    run("context", "add", "test", service.url, "--token", stdin=f"{token(service)}\n")
    result = run("context", "ls")
    assert json.loads(result.stdout) == {"context": "test", "url": service.url, "token": "kept", "current": True}


def test_another_context_is_chosen_by_name(service: Server, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run("context", "add", "down", "http://127.0.0.1:9")
    run("context", "add", "test", service.url, "--token", stdin=token(service))
    assert run("topic", "ls", "--context", "test").exit_code == 0
    monkeypatch.setenv("DECANT_URL", "http://127.0.0.1:9")
    assert run("topic", "ls", "--context", "test").exit_code == 0
    monkeypatch.delenv("DECANT_URL")
    monkeypatch.setenv("DECANT_CONTEXT", "test")
    assert run("topic", "ls").exit_code == 0
    monkeypatch.delenv("DECANT_CONTEXT")
    assert run("context", "use", "test").exit_code == 0
    assert run("topic", "ls").exit_code == 0


def test_a_command_may_give_the_token(service: Server, run: Run, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.write_text(f"{token(service)}\nmore\n")
    run("context", "add", "test", service.url, "--token-command", f"cat '{kept}'")
    assert run("topic", "ls").exit_code == 0


@pytest.mark.parametrize("command", ["false", "true", "no-such-command", "'unclosed"])
def test_a_command_that_gives_none_is_a_line(run: Run, command: str) -> None:
    run("context", "add", "test", "http://127.0.0.1:9", "--token-command", command)
    result = run("topic", "ls")
    assert result.exit_code == 2
    assert "token_command" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_the_token_of_a_context_goes_to_no_other_address(service: Server, run: Run) -> None:
    run("context", "add", "elsewhere", "http://127.0.0.1:9", "--token", stdin=token(service))
    assert run("topic", "ls", "--url", service.url).exit_code == 4


def test_the_token_of_the_environment_goes_to_no_context_chosen_by_option(
    service: Server, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("context", "add", "test", service.url, "--token", stdin=token(service))
    with servers.serving(servers.answer(200, {"topics": [], "next": None})) as other:
        run("context", "add", "bare", other.url)
        monkeypatch.setenv("DECANT_TOKEN", "of-another")
        assert run("topic", "ls", "--context", "test").exit_code == 0
        assert run("topic", "ls", "--context", "bare").exit_code == 0
    assert [request.headers.get("authorization") for request in other.requests] == [None]


def test_the_source_of_a_copy_gets_the_token_of_its_context(
    service: Server, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("context", "add", "test", service.url, "--token", stdin=token(service))
    service.client.send("orders", "one")
    right: Any = {"operations": ["produce"], "topics": "orders"}
    monkeypatch.setenv("DECANT_TOKEN", service.client.api.make_token(name="sender", rights=[right])["token"])
    result = run("copy", "orders", "orders", "--to-url", service.url)
    assert (result.exit_code, result.stderr) == (0, "decant: copied 1 message to orders\n")


def test_a_file_that_others_may_read_is_refused(run: Run, file: Path) -> None:
    run("context", "add", "test", "http://127.0.0.1:9")
    file.chmod(0o644)
    result = run("topic", "ls")
    assert result.exit_code == 2
    assert result.stderr == (f"decant: {file} may hold tokens, and others may read it (mode 0644): chmod 600 {file}\n")
    assert run("context", "add", "other", "http://127.0.0.1:9").exit_code == 2


@pytest.mark.parametrize("rubbish", ["", "{", "[]", '{"contexts": {"a": 1}}', "\0", "[" * 100_000])
def test_a_file_of_rubbish_is_a_line(run: Run, file: Path, rubbish: str) -> None:
    file.parent.mkdir(parents=True)
    file.write_text(rubbish)
    file.chmod(0o600)
    for arguments in (["topic", "ls"], ["context", "ls"], ["context", "add", "a", "http://b"]):
        result = run(*arguments)
        assert result.exit_code == 2
        assert "is malformed" in result.stderr
        assert len(result.stderr.splitlines()) == 1
    assert file.read_text() == rubbish


def test_an_unknown_context_names_those_that_are(run: Run) -> None:
    run("context", "add", "test", "http://127.0.0.1:9")
    for arguments in (["topic", "ls", "--context", "tset"], ["context", "use", "tset"], ["context", "rm", "tset"]):
        result = run(*arguments)
        assert result.exit_code == 2
        assert "there are: test" in result.stderr


def test_a_removed_context_is_used_no_more(run: Run, file: Path) -> None:
    run("context", "add", "test", "http://127.0.0.1:9")
    assert run("context", "rm", "test").exit_code == 2
    assert run("context", "rm", "test", "--yes").exit_code == 0
    assert json.loads(file.read_text()) == {"current": None, "contexts": {}}


@pytest.mark.parametrize(
    "arguments", [["localhost"], ["http://a", "--token", "--token-command", "b"], ["http://a", "--token"]]
)
def test_wrong_contexts_are_not_kept(run: Run, file: Path, arguments: list[str]) -> None:
    assert run("context", "add", "test", *arguments, stdin="\n").exit_code == 2
    assert not file.exists()


def test_a_folder_that_cannot_be_written_is_a_line(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = tmp_path / "blocked"
    blocked.write_text("a file")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(blocked))
    result = run("context", "add", "test", "http://127.0.0.1:9")
    assert result.exit_code == 2
    assert "cannot write" in result.stderr
    assert os.listdir(tmp_path) == ["blocked"]
