"""Asks `mypy`, which CI runs, about a mutant, in a copy of the product, where its daemon checks only changes again."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.mutants.changes import Mutant

_COPIED = ("pyproject.toml", "app.py", "chalicelib", "local")
_CHECKED = ("app.py", "chalicelib", "local")


class Types:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def rejected(self, mutant: Mutant) -> str | None:
        """The first error that the mutant makes."""
        file = self._folder / mutant.path
        as_it_is = file.read_text()
        file.write_text(mutant.text)
        try:
            return self.error()
        finally:
            file.write_text(as_it_is)

    def error(self) -> str | None:
        said = _dmypy(self._folder, "run", "--", *_CHECKED)
        return next((line for line in said.stdout.splitlines() if " error: " in line), None)


@contextmanager
def types() -> Iterator[Types]:
    with TemporaryDirectory() as name:
        folder = Path(name)
        for each in map(Path, _COPIED):
            (shutil.copytree if each.is_dir() else shutil.copy)(each, folder / each)
        try:
            if error := (asked := Types(folder)).error():
                raise RuntimeError(error)
            yield asked
        finally:
            _dmypy(folder, "stop")


def _dmypy(folder: Path, *asked: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mypy.dmypy", *asked], cwd=folder, capture_output=True, text=True, check=False
    )
