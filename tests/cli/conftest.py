"""The command line against the real service in this process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from decant.cli import main
from decant.testing import Server
from tests.support.emulators import ROOT

Run = Callable[..., Result]


@pytest.fixture(autouse=True)
def _own_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The settings of this machine do not count."""
    for variable in [name for name in os.environ if name.startswith("DECANT_")]:
        monkeypatch.delenv(variable)
    for variable in ("HOST", "PORT", "DATA", "ACCESS", "SEED", "LOG", "NO_COLOR"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    with Server() as server:
        server.client.api.put_topic("orders", queues=2, index_keys=True)
        server.client.api.put_group("orders", "billing", backoff_ms=[60_000])
        monkeypatch.setenv("DECANT_URL", server.url)
        yield server


@pytest.fixture
def run() -> Run:
    """Runs `decant` in this process."""

    def run(*arguments: str, stdin: str | bytes | None = None) -> Result:
        result = CliRunner().invoke(main, arguments, input=stdin, prog_name="decant")
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return run


@pytest.fixture
def binary(tmp_path: Path) -> Path:
    """A folder with the command `decant`, for the PATH of a shell."""
    folder = tmp_path / "bin"
    folder.mkdir()
    script = folder / "decant"
    script.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m decant.cli "$@"\n')
    script.chmod(0o755)
    return folder


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Starts `decant` as a process, killed at the end of the test."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*arguments: str, **options: Any) -> subprocess.Popen[bytes]:
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL, **options}
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-m", "decant.cli", *arguments]
        process = subprocess.Popen(command, cwd=tmp_path, env=environment, **options)
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe:
                pipe.close()
