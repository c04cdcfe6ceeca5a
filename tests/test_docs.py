"""Links of the documents lead somewhere, and the files that they name exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from decant.cli.serve import serve
from local.__main__ import HELP

ROOT = Path(__file__).parent.parent
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("[a-z]*/**/*.md")]
FOLDERS = ("", "chalicelib", "chalicelib/core", "chalicelib/doors", "infra/parts", "spark", "tests")
"""Where the names of files begin."""
_CODE = re.compile(r"^```.*?^```|^    .*?$|`[^`\n]+`", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"`((?:[\w-]+/)+[\w-]+\.(?:md|py|txt|yaml))`")
_LINK = re.compile(r"\]\(([^)\s]+)\)")


def anchors(page: Path) -> set[str]:
    """As GitHub makes them of headings."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def broken(page: Path) -> Iterator[str]:
    for link in _LINK.findall(_CODE.sub("", page.read_text())):
        path, _, anchor = link.partition("#")
        if "://" in link or link.startswith("mailto:"):
            continue
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            yield link


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    assert list(broken(page)) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_file_that_is_named_exists(page: Path) -> None:
    named = set(_FILE.findall(page.read_text()))
    folders = [page.parent, *(ROOT / folder for folder in FOLDERS)]
    assert {name for name in named if not any((folder / name).exists() for folder in folders)} == set()


def test_the_guide_lists_each_option_and_variable_of_the_server() -> None:
    page = (ROOT / "docs/running.md").read_text()
    options = [option for parameter in serve.params for option in parameter.opts]
    assert [option for option in options if f"| `{option}" not in page] == []
    variables = re.findall(r"^  ([A-Z_]+) ", HELP, re.MULTILINE)
    assert [variable for variable in variables if f"| `{variable}" not in page] == []
