"""Charts as inline SVG, in the colours of the page, light or dark."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape

Said = Callable[[float], str]
"""Formats a value with its unit, for readers."""

_WIDTH = 760
_LABEL_WIDTH, _VALUE_WIDTH = 230, 90
_LABEL_CHARS_MAX = 30
_ROW, _BAR = 26, 16
_AXIS = 44
"""Room below, for the axis and its label."""
_COLUMNS_HEIGHT, _COLUMNS_LEFT, _COLUMNS_TOP = 220, 80, 12
_TICKS = 5
_LABELS_BELOW = 6


def bars(values: Sequence[tuple[str, float]], axis: str, said: Said) -> str:
    """A horizontal bar for each value. `axis`: the measure and its unit."""
    ticks = _ticks(max(value for _, value in values))
    room = _WIDTH - _LABEL_WIDTH - _VALUE_WIDTH
    scale = room / ticks[-1]
    bottom = len(values) * _ROW + 4
    drawn = [_line(_LABEL_WIDTH + tick * scale, 0, _LABEL_WIDTH + tick * scale, bottom) for tick in ticks]
    for place, (label, value) in enumerate(values):
        top = place * _ROW + (_ROW - _BAR) / 2
        width = max(value * scale, 1 if value else 0)
        drawn += [
            _text(_LABEL_WIDTH - 8, top + 12, _short(label), "end"),
            _bar(_LABEL_WIDTH, top, width, _BAR, f"{label}: {said(value)}"),
            _text(_LABEL_WIDTH + width + 6, top + 12, said(value), "start"),
        ]
    drawn += [_text(_LABEL_WIDTH + tick * scale, bottom + 16, said(tick), "middle", "tick") for tick in ticks]
    drawn.append(_text(_LABEL_WIDTH + room / 2, bottom + 36, axis, "middle", "axis"))
    return _svg(bottom + _AXIS, axis, drawn)


def columns(values: Sequence[tuple[str, float]], axis: str, below: str, said: Said) -> str:
    """A column for each value, in order of time. `below`: the label of the horizontal axis."""
    ticks = _ticks(max(value for _, value in values))
    scale = (_COLUMNS_HEIGHT - _COLUMNS_TOP) / ticks[-1]
    step = (_WIDTH - _COLUMNS_LEFT - 8) / len(values)
    drawn: list[str] = []
    for tick in ticks:
        height = _COLUMNS_HEIGHT - tick * scale
        drawn += [_line(_COLUMNS_LEFT, height, _WIDTH - 8, height)]
        drawn += [_text(_COLUMNS_LEFT - 8, height + 4, said(tick), "end", "tick")]
    every = math.ceil(len(values) / _LABELS_BELOW)
    for place, (label, value) in enumerate(values):
        left, height = _COLUMNS_LEFT + place * step, value * scale
        width = min(max(step * 0.8, 1), 48)
        middle, top = left + (step - width) / 2, _COLUMNS_HEIGHT - height
        drawn.append(_bar(middle, top, width, height, f"{label}: {said(value)}"))
        if place % every == 0:
            drawn.append(_text(left + step / 2, _COLUMNS_HEIGHT + 16, label, "middle", "tick"))
    drawn.append(_text(_COLUMNS_LEFT + (_WIDTH - _COLUMNS_LEFT) / 2, _COLUMNS_HEIGHT + 38, below, "middle", "axis"))
    turned = f'transform="translate(14 {_COLUMNS_HEIGHT / 2}) rotate(-90)"'
    drawn.append(f'<text class="axis" text-anchor="middle" {turned}>{escape(axis)}</text>')
    return _svg(_COLUMNS_HEIGHT + _AXIS + 4, f"{axis} by {below}", drawn)


def _ticks(largest: float) -> list[float]:
    """From 0 to the largest value or beyond, in whole steps of 1, 2 or 5 times a power of ten."""
    if largest <= 1:
        return [0.0, 1.0]
    power = 10.0 ** math.floor(math.log10(largest / _TICKS))
    step = next(factor * power for factor in (1, 2, 5, 10) if largest / (factor * power) <= _TICKS)
    step = max(step, 1)
    return [place * step for place in range(math.ceil(largest / step - 1e-9) + 1)]


def _short(label: str) -> str:
    return label if len(label) <= _LABEL_CHARS_MAX else f"{label[: _LABEL_CHARS_MAX - 1]}…"


def _bar(x: float, y: float, width: float, height: float, title: str) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
    return f'<rect class="bar" {place}><title>{escape(title)}</title></rect>'


def _line(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line class="grid" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _text(x: float, y: float, text: str, anchor: str, kind: str = "label") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _svg(height: float, title: str, drawn: Sequence[str]) -> str:
    head = f'<svg viewBox="0 0 {_WIDTH} {height:.0f}" role="img" aria-label="{escape(title)}">'
    return f"{head}{''.join(drawn)}</svg>"
