"""Renders tables in Markdown, for the README."""

from __future__ import annotations

from collections.abc import Sequence

Cell = str | float


def table(title: str, headers: Sequence[str], rows: Sequence[Sequence[Cell]]) -> str:
    """Text to the left, numbers to the right."""
    texts = [list(headers), *([_text(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    is_number = [not isinstance(cell, str) for cell in rows[0]]
    rule = ["-" * (width - 1) + (":" if right else "-") for width, right in zip(widths, is_number, strict=True)]
    lines = [_line(row, widths, is_number) for row in (texts[0], rule, *texts[1:])]
    return "\n".join([f"### {title}", "", *lines, ""])


def size_name(size: int) -> str:
    return f"{size // 1_000} KB" if size >= 1_000 else f"{size} B"


def _line(texts: Sequence[str], widths: Sequence[int], is_number: Sequence[bool]) -> str:
    cells = [
        text.rjust(width) if right else text.ljust(width)
        for text, width, right in zip(texts, widths, is_number, strict=True)
    ]
    return f"| {' | '.join(cells)} |"


def _text(cell: Cell) -> str:
    if isinstance(cell, str):
        return cell
    return f"{cell:,.0f}".replace(",", " ") if isinstance(cell, int) or cell >= 100 else f"{cell:.2f}"
