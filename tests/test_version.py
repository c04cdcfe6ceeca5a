"""The version is spelled in one place: `chalicelib.VERSION`. Answers, metrics and stacks are tested beside theirs."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

from chalicelib import VERSION

ROOT = Path(__file__).parent.parent

RELEASE = VERSION.partition(".dev")[0]
SOURCE = ROOT / "chalicelib" / "__init__.py"
CHANGELOG = ROOT / "CHANGELOG.md"
FOLDERS = ("benchmarks", "chalicelib", "decant", "docs", "examples", "infra", "local", "spark", "tests")
SUFFIXES = {".json", ".md", ".py", ".svg", ".toml", ".txt", ".yaml"}


def _files() -> Iterator[Path]:
    yield from (path for path in ROOT.iterdir() if path.suffix in SUFFIXES or path.name == "Makefile")
    for folder in FOLDERS:
        yield from (path for path in (ROOT / folder).rglob("*") if path.suffix in SUFFIXES)


def _releases() -> list[str]:
    """The headings of the changelog, newest first."""
    return re.findall(r"^## \[(.+?)\]", CHANGELOG.read_text(), re.MULTILINE)


def test_the_version_is_one_that_pip_orders() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+(\.dev0)?", VERSION)


def test_one_file_spells_the_version() -> None:
    spelled = re.compile(rf"(?<![\d.]){re.escape(RELEASE)}(?!\.?\d)")
    assert {path for path in _files() if spelled.search(path.read_text())} - {CHANGELOG} == {SOURCE}


def test_the_package_takes_its_version_from_the_code() -> None:
    package = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "version" not in package["project"]
    assert package["project"]["dynamic"] == ["version"]
    assert package["tool"]["hatch"]["version"]["path"] == "chalicelib/__init__.py"


def test_the_changelog_begins_with_this_version() -> None:
    newest, *older = _releases()
    assert newest == ("Unreleased" if VERSION != RELEASE else VERSION)
    assert RELEASE not in older
