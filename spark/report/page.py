"""The page: sections with a sentence, a chart and a table each. All text is escaped here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

_STYLE = """
:root { color-scheme: light dark; --ink: #1c2430; --paper: #fbfbf9; --faint: #667085; --rule: #dcdfe4; --bar: #2f6f9f;
  --card: #ffffff; --bad: #b42318; --good: #1a7f4b; --odd: #8a6100; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ee; --paper: #14181e; --faint: #9aa4b2; --rule: #2c343f;
  --bar: #6bb0e0; --card: #1b2129; --bad: #ff8a7a; --good: #5fd39a; --odd: #e5b95c; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2rem 1.25rem 4rem; max-width: 60rem; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", "Liberation Sans", sans-serif; }
h1 { font-size: 1.6rem; margin: 0 0 .25rem; } h2 { font-size: 1.2rem; margin: 0 0 .25rem; }
p { margin: .25rem 0 .75rem; max-width: 46rem; } .about, footer { color: var(--faint); }
section { background: var(--card); border: 1px solid var(--rule); border-radius: 8px; padding: 1.1rem 1.25rem;
  margin-top: 1.25rem; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(7.6rem, 1fr)); gap: .75rem;
  margin-top: 1.25rem; }
.tile { background: var(--card); border: 1px solid var(--rule); border-radius: 8px; padding: .7rem .9rem; }
.tile b { display: block; font-size: 1.1rem; font-variant-numeric: tabular-nums; } .tile span { color: var(--faint); }
.bad { color: var(--bad); } .good { color: var(--good); } .odd { color: var(--odd); }
svg { display: block; width: 100%; height: auto; margin: .5rem 0 1rem; font-size: 13px; }
svg .bar { fill: var(--bar); } svg .grid { stroke: var(--rule); } svg .label { fill: var(--ink); }
svg .tick, svg .axis { fill: var(--faint); } svg .tick { font-size: 12px; }
.wide { overflow-x: auto; } table { border-collapse: collapse; width: 100%; font-size: .9rem; }
caption { text-align: left; color: var(--faint); padding-bottom: .25rem; }
th, td { text-align: left; padding: .3rem .75rem .3rem 0; border-bottom: 1px solid var(--rule); vertical-align: top;
  overflow-wrap: anywhere; } th { font-weight: 600; }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; overflow-wrap: normal; }
@media (max-width: 44rem) { .wide svg { min-width: 40rem; } thead { display: none; }
  table, tbody, tr, td { display: block; } tr { border-bottom: 1px solid var(--rule); padding: .5rem 0; }
  td { display: flex; justify-content: space-between; gap: 1.5rem; padding: .1rem 0; border: 0; text-align: right; }
  td::before { content: attr(data-column); flex: none; max-width: 45%; color: var(--faint); text-align: left;
    white-space: normal; } }
"""
"""On a narrow screen a chart scrolls, since its labels would shrink with it, and each row of a table becomes a list
with the column's name before each cell, since columns side by side would be one letter wide."""


@dataclass(frozen=True, slots=True)
class Column:
    """`is_number`: its cells are right-aligned."""

    title: str
    is_number: bool = False


@dataclass(frozen=True, slots=True)
class Section:
    """`headline`: its main number. `verdict`: the result in words, always given if there is no chart; `tone` is `good`,
    `bad`, `odd` or empty. `chart`: SVG, or empty. `hidden`: the number of rows that are not shown."""

    title: str
    about: str
    headline: str
    verdict: str = ""
    tone: str = ""
    chart: str = ""
    columns: Sequence[Column] = ()
    rows: Sequence[Sequence[str]] = field(default_factory=list)
    hidden: int = 0


@dataclass(frozen=True, slots=True)
class Tile:
    """A main number, at the top of the page."""

    name: str
    value: str
    tone: str = ""


def page(title: str, subtitle: str, tiles: Sequence[Tile], sections: Sequence[Section]) -> str:
    """The page as HTML."""
    tiled = "".join(map(_tile, tiles))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head>\n"
        f"<body><header><h1>{escape(title)}</h1><p class='about'>{escape(subtitle)}</p></header>\n"
        f'<div class="tiles">{tiled}</div>\n<main>{"".join(map(_section, sections))}</main>\n'
        "<footer><p>Times are UTC. Sizes are in powers of 1000.</p></footer></body></html>\n"
    )


def _tile(tile: Tile) -> str:
    value = f'<b class="{escape(tile.tone)}">{escape(tile.value)}</b>'
    return f'<div class="tile">{value}<span>{escape(tile.name)}</span></div>'


def _section(section: Section) -> str:
    verdict = f'<p class="{escape(section.tone)}">{escape(section.verdict)}</p>' if section.verdict else ""
    chart = f'<div class="wide" tabindex="0">{section.chart}</div>' if section.chart else ""
    return (
        f"<section><h2>{escape(section.title)}</h2><p class='about'>{escape(section.about)}</p>"
        f"{verdict}{chart}{_table(section)}</section>\n"
    )


def _table(section: Section) -> str:
    if not section.rows:
        return ""
    head = "".join(f'<th scope="col" class="{_kind(column)}">{escape(column.title)}</th>' for column in section.columns)
    body = "".join(f"<tr>{_cells(row, section.columns)}</tr>" for row in section.rows)
    more = f"<p class='about'>{section.hidden} more rows are in the table.</p>" if section.hidden else ""
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>{more}'


def _cells(row: Sequence[str], columns: Sequence[Column]) -> str:
    return "".join(
        f'<td class="{_kind(column)}" data-column="{escape(column.title)}"><span>{escape(cell)}</span></td>'
        for cell, column in zip(row, columns, strict=True)
    )


def _kind(column: Column) -> str:
    return "number" if column.is_number else ""
