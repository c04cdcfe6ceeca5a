"""Puts the service into the wheel, under a name of its own.

The wheel has one package, `decant`: a top-level `chalicelib` or `local` would take the place of somebody else's. So
`chalicelib`, `local`, `infra` and `spark` go to `decant._engine`, and imports of them, in `decant` too, are rewritten.
`decant deploy` needs the service as Lambda runs it: that goes to `decant/_engine/source`, unchanged, as data.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGE = "decant"
ENGINE = "decant/_engine"
PARTS = ("chalicelib", "local", "infra", "spark")
SOURCE = ("chalicelib", "app.py", ".chalice/config.json", "requirements.txt", "constraints.txt")

_IMPORT = re.compile(rf"^(\s*)(from|import)(\s+)({'|'.join(PARTS)})(?=[.\s])", re.MULTILINE)


class CustomBuildHook(BuildHookInterface[Any]):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Writes the files beside the tree, and has them included."""
        if version == "editable":
            return
        self._made = Path(mkdtemp(prefix="decant-wheel-"))
        root = Path(self.root)
        for path in files(root, PACKAGE):
            _write(self._made / path, _content(root / path))
        for part in PARTS:
            for path in files(root, part):
                _write(self._made / ENGINE / path, _content(root / path))
        for name in SOURCE:
            for path in files(root, name):
                _write(self._made / ENGINE / "source" / path, (root / path).read_bytes())
        build_data["force_include"][str(self._made / PACKAGE)] = PACKAGE

    def finalize(self, _version: str, _build_data: dict[str, Any], _artifact_path: str) -> None:
        if made := getattr(self, "_made", None):
            shutil.rmtree(made)


def files(root: Path, name: str) -> Iterator[Path]:
    """The files of a folder, or the file, relative to the root: not what lies about in a clone."""
    found = [root / name] if (root / name).is_file() else sorted((root / name).rglob("*"))
    for path in found:
        if path.is_file() and "__pycache__" not in path.parts:
            yield path.relative_to(root)


def rewritten(text: str) -> str:
    return _IMPORT.sub(rf"\1\2\3{ENGINE.replace('/', '.')}.\4", text)


def _content(path: Path) -> bytes:
    content = path.read_bytes()
    return rewritten(content.decode()).encode() if path.suffix == ".py" else content


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
