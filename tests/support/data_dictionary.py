"""The data dictionary of `docs/table.md`, as tests read it."""

from __future__ import annotations

import re

from tests.support.emulators import ROOT

_TEXT = (ROOT / "docs" / "table.md").read_text()


def _rows(text: str) -> list[list[str]]:
    """The cells of the first table in a text, without its head."""
    lines = text[text.index("\n|") + 1 :].partition("\n\n")[0].splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def _pattern(cell: str) -> str:
    """Returns a pattern of the keys that a cell describes, such as `cursor#<gid>#<queue>`."""

    def pattern(key: str) -> str:
        return "#".join("[^#]+" if part.startswith("<") else re.escape(part) for part in key.split("#"))

    return "|".join(map(pattern, re.findall("`([^`]+)`", cell)))


ITEMS = {kind: (_pattern(pk), _pattern(sk)) for kind, pk, sk, _ in _rows(_TEXT)}
"""Each kind of item, with the patterns of its keys."""

ATTRIBUTES = {
    section.partition("\n")[0].lower(): {
        name.strip("`"): types.split(" or ") for names, types, _ in _rows(section) for name in names.split(", ")
    }
    for section in _TEXT.split("\n## ")[1:]
    if "| attribute |" in section
}
"""Each kind of item, and the entry, with the types of its attributes. A row may name several."""


def kind_of(pk: str, sk: str) -> str:
    [kind] = [kind for kind, (one, other) in ITEMS.items() if re.fullmatch(one, pk) and re.fullmatch(other, sk)]
    return kind
