"""The first steps of README.md work as they stand there, with the installed wheel."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.local.serving import Running
from tests.package.conftest import Installed
from tests.package.test_serving import serving
from tests.support.emulators import ROOT

README = (ROOT / "README.md").read_text()
WORKER, TEST = re.findall(r"^```python\n(.*?)^```", README, re.M | re.S)
COMMANDS = re.findall(r"^    (decant .*)", README.partition("## Write a worker")[0], re.M)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "worker.py").write_text(WORKER)
    (tmp_path / "test_worker.py").write_text(TEST)
    return tmp_path


@pytest.fixture(scope="module")
def server(installed: Installed) -> Iterator[Running]:
    with serving(installed) as server:
        yield server


@pytest.fixture
def environment(installed: Installed, server: Running) -> dict[str, str]:
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("DECANT_", "PYTHON"))}
    path = f"{installed.bin}{os.pathsep}{os.environ['PATH']}"
    return {**ours, "PATH": path, "DECANT_URL": f"http://127.0.0.1:{server.port}"}


def test_its_commands_send_a_message_and_take_it(environment: dict[str, str], folder: Path) -> None:
    serve, *commands = COMMANDS
    assert serve.split("#")[0].split() == ["decant", "serve"]
    said = [
        subprocess.check_output(["/bin/sh", "-c", command], cwd=folder, env=environment, text=True)
        for command in commands
    ]
    assert "4711 paid" in said[-1]
    assert '"attempt":1' in said[-1]


def test_its_worker_handles_what_its_command_sends(
    environment: dict[str, str], folder: Path, installed: Installed
) -> None:
    [send] = [command for command in COMMANDS if command.startswith("decant send")]
    command = [str(installed.bin / "python"), "worker.py"]
    with subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True) as worker:
        try:
            assert worker.stdout is not None
            for _ in range(50):  # until the worker has made the topic
                if subprocess.run(["/bin/sh", "-c", send], env=environment, capture_output=True).returncode == 0:
                    break
            assert worker.stdout.readline() == "billed 4711 paid\n"
        finally:
            worker.send_signal(signal.SIGKILL)


def test_its_tests_of_the_worker_pass(environment: dict[str, str], folder: Path, installed: Installed) -> None:
    assert shutil.which("pytest", path=str(installed.bin))
    command = [str(installed.bin / "pytest"), "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert "2 passed" in done.stdout, done.stdout + done.stderr
