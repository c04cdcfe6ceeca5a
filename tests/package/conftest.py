"""The wheel of this clone, installed in an environment of its own."""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

import pytest

from tests.support.emulators import ROOT


class Installed:
    def __init__(self, wheel: Path, folder: Path) -> None:
        """`folder`: outside the clone, where commands run."""
        self.wheel, self.folder = wheel, folder
        self.bin = folder / "environment/bin"

    def run(self, *command: str, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self.bin / command[0]), *command[1:]], cwd=self.folder, capture_output=True, text=True, check=False
        )


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """With the extra `serve` and pytest, and the versions of the clone."""
    folder = tmp_path_factory.mktemp("installed")
    _pip(sys.executable, "wheel", "--no-deps", "--wheel-dir", str(folder), str(ROOT))
    [wheel] = folder.glob("*.whl")
    venv.create(folder / "environment", with_pip=True)
    python = str(folder / "environment/bin/python")
    _pip(python, "install", f"{wheel}[serve]", "pytest", "--constraint", str(ROOT / "constraints.txt"))
    return Installed(wheel, folder)


def _pip(python: str, *arguments: str) -> None:
    command = [python, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
