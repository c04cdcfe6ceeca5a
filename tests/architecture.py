"""Draws the rooms of the service and their floors, from what they import: `python -m tests.architecture` writes
docs/architecture.svg."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape
from itertools import groupby
from pathlib import Path

from tests.test_layers import MODULES, ROOMS, ROOT, Module, ours, room_of

PATH = ROOT / "docs/architecture.svg"

WIDTH, GAP, HEIGHT, PAD = 860, 10, 34, 16
CHAR = 8.2
"""The width of a character of the font, about."""
STYLE = (
    "text{font:13px ui-monospace,Menlo,Consolas,monospace;fill:#1b2733}"
    ".head{font-weight:bold}.core{fill:#e8f1f8;stroke:#3b6e96}.above{fill:#f2efe6;stroke:#8a7a4a}"
    ".doors{fill:#eaf4ea;stroke:#4c8150}"
)


def floors(rooms: Iterable[str]) -> list[list[str]]:
    """The rooms by floor, the ground last: a room stands above all that it imports."""
    chosen = list(rooms)
    imports = {room: {room_of(name) for module in _in(room) for name in ours(module)} - {room} for room in chosen}
    height: dict[str, int] = {}
    for room in chosen:  # ROOMS are listed from the ground up
        height[room] = max((height[below] + 1 for below in imports[room] if below in height), default=0)
    ranked = sorted(chosen, key=lambda room: (-height[room], room))
    return [list(floor) for _, floor in groupby(ranked, key=lambda room: height[room])]


def svg() -> str:
    core = [room for room in ROOMS if room.startswith("core.")]
    above = ["push", "service", "api", "settings", "wiring", "hooks"]
    parts: list[str] = []
    y = PAD
    for title, kind, rows in (
        ("doors: each answers the clients of one protocol", "doors", [_doors()]),
        (
            "above the core: each imports those to its right",
            "above",
            [[room for floor in floors(above) for room in floor]],
        ),
        ("core: each imports those below it", "core", floors(core)),
    ):
        parts.append(f'<text class="head" x="{PAD}" y="{y + 14}">{title}</text>')
        y += 24
        for row in rows:
            parts += _row([name.removeprefix("core.") for name in row], kind, y)
            y += HEIGHT + GAP
        y += PAD
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{y}" viewBox="0 0 {WIDTH} {y}">'
    return "\n".join((head, f"<style>{STYLE}</style>", *parts, "</svg>", ""))


def _row(names: list[str], kind: str, y: int) -> Iterator[str]:
    widths = [len(name) * CHAR + 2 * GAP for name in names]
    x = (WIDTH - sum(widths) - GAP * (len(names) - 1)) / 2
    for name, width in zip(names, widths, strict=True):
        yield f'<rect class="{kind}" x="{x:.0f}" y="{y}" width="{width:.0f}" height="{HEIGHT}" rx="5"/>'
        yield f'<text x="{x + GAP:.0f}" y="{y + 22}">{escape(name)}</text>'
        x += width + GAP


def _doors() -> list[str]:
    folder = Path(ROOT, "chalicelib/doors")
    return [*sorted(path.parent.name for path in folder.glob("*/__init__.py")), "functions"]


def _in(room: str) -> list[Module]:
    return [module for module in MODULES if module.part == room]


if __name__ == "__main__":
    PATH.write_text(svg())
