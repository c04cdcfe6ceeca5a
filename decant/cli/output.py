"""Data goes to stdout: a table on a terminal, JSON Lines in a pipe, or in the form of `--output`."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import sys
import time
import unicodedata
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

import click

from decant.cli.values import shown_instant, shown_ms

Json = dict[str, Any]

FORMS = ("table", "json", "jsonl", "ids")
IDS = ("message_id", "transaction_id", "token_id", "secret_id", "group", "topic", "context")
"""The first of these that an item has is its id."""
CHUNK = 256
_FIELD = re.compile(r"\{([A-Za-z_][^{}]*)\}")


class Out:
    """Writes items. `columns`: those of a table, all others are in JSON alone."""

    def __init__(
        self, columns: Sequence[str], form: str | None = None, template: str | None = None, kind: str | None = None
    ) -> None:
        """Raises UsageError for a template that names no field of this type of `decant.types`."""
        if kind and template:
            _demand_fields(kind, template)
        if form and template:
            raise click.UsageError("--output and --template exclude each other")
        if sys.stdout is None:  # >&-
            raise OSError("stdout is closed")
        self.is_terminal = is_terminal(sys.stdout)
        self.form = "template" if template else form or ("table" if self.is_terminal else "jsonl")
        self._template = _unescaped(template or "")
        self._columns = columns
        self._table = Table(columns, is_cut=self.is_terminal)
        self._count = 0

    def many(self, items: Iterable[Any]) -> None:
        """Writes items of a list that may go on. All are written out when this returns."""
        iterator = iter(items)
        while chunk := list(islice(iterator, CHUNK)):
            self.write(self._text(chunk))
            self._count += len(chunk)
            self.flush()

    def finish(self) -> None:
        """The list is whole."""
        if not self._count:
            self._none()
        self.end()

    def end(self) -> None:
        """The list ends, whole or not."""
        if self.form == "json" and self._count:
            self.write("\n]\n")
            self.flush()
        self._count = 0

    def whole(self, items: Iterable[Any]) -> None:
        """Writes a list."""
        try:
            self.many(items)
            self.finish()
        finally:
            self.end()

    def one(self, item: Any) -> None:
        """Writes a single item, in full."""
        if self.form == "table":
            self.write("".join(f"{line}\n" for line in details(item)))
        elif self.form == "json":
            self.write(json.dumps(item, indent=2, ensure_ascii=False) + "\n")
        else:
            self.write(self._line(item))
        self.flush()

    def restart(self) -> None:
        """Begins a table anew, with its head."""
        self._table = Table(self._columns, is_cut=self.is_terminal)

    def _none(self) -> None:
        """The list is empty."""
        if self.form == "json":
            self.write("[]\n")
            self.flush()
        if self.form == "table" and self.is_terminal:
            click.echo("none", err=True)

    def _text(self, chunk: Sequence[Json]) -> bytes:
        if self.form == "table":
            return encoded("".join(f"{line}\n" for line in self._table.lines(chunk)))
        if self.form == "json":
            texts = (json.dumps(item, indent=2, ensure_ascii=False).replace("\n", "\n  ") for item in chunk)
            return encoded(("," if self._count else "[") + ",".join(f"\n  {text}" for text in texts))
        return b"".join(map(self._line, chunk))

    def _line(self, item: Json) -> bytes:
        if self.form == "template":
            return _filled(self._template, item, is_safe=self.is_terminal) + b"\n"
        if self.form == "ids":
            return encoded(f"{next((item[name] for name in IDS if item.get(name)), '')}\n")
        return encoded(json.dumps(item, ensure_ascii=False, separators=(",", ":")) + "\n")

    def write(self, data: str | bytes) -> None:
        left = memoryview(encoded(data) if isinstance(data, str) else data)
        while left:  # with PYTHONUNBUFFERED, one write may take a part of it
            written = sys.stdout.buffer.write(left)
            if written is None:
                raise BlockingIOError("stdout takes no more for now")
            left = left[written:]

    def flush(self) -> None:
        sys.stdout.buffer.flush()


def encoded(text: str) -> bytes:
    return text.encode(errors="surrogatepass")


def is_terminal(stream: Any) -> bool:
    return stream is not None and not stream.closed and stream.isatty()


class Table:
    """Columns that are as wide as the first rows need. The last one ends where the terminal does."""

    def __init__(self, columns: Sequence[str], *, is_cut: bool = False) -> None:
        """`is_cut`: lines end where the terminal does."""
        self._columns = columns
        self._is_cut = is_cut
        self._widths: list[int] = []

    def lines(self, items: Sequence[Json]) -> list[str]:
        rows = [[cell(name, _at(item, name)) for name in self._columns] for item in items]
        head = [] if self._widths else [[_title(name) for name in self._columns]]
        before = self._widths or [0] * len(self._columns)
        columns = zip(*head, *rows, strict=True) if head or rows else ()
        self._widths = [max(old, *map(width, cells)) for old, cells in zip(before, columns, strict=False)] or before
        numeric = [all(isinstance(_at(item, name), int | None) for item in items) for name in self._columns]
        lines = [self._line(row, numeric) for row in [*head, *rows]]
        if head and self._is_cut and not os.environ.get("NO_COLOR"):
            lines[0] = click.style(lines[0], bold=True)
        return lines

    def _line(self, row: Sequence[str], numeric: Sequence[bool]) -> str:
        cells = [
            " " * (size - width(text)) + text if is_number else text + " " * (size - width(text))
            for text, size, is_number in zip(row, self._widths, numeric, strict=True)
        ]
        line = "  ".join(cells).rstrip()
        return cut(line, shutil.get_terminal_size().columns) if self._is_cut else line


def details(item: Json) -> list[str]:
    """An item, a line for each field, and a table for each field that is a list of objects."""
    plain = {name: value for name, value in item.items() if not _is_table(value)}
    size = max((len(_title(name)) for name in plain), default=0)
    lines = [f"{_title(name):{size}}  {cell(name, value)}".rstrip() for name, value in plain.items()]
    for name, value in item.items():
        if _is_table(value):
            columns = list(dict.fromkeys(key for entry in value for key in entry if not _is_table(entry[key])))
            lines += ["", f"{_title(name)}:", *(f"  {line}" for line in Table(columns).lines(value))]
            for entry in value:
                for key in entry:
                    if _is_table(entry[key]):
                        lines += ["", f"{cell('', next(iter(entry.values())))}, {key}:"]
                        lines += [f"  {line}" for line in Table(list(entry[key][0])).lines(entry[key])]
    return lines


def _is_table(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(entry, dict) for entry in value)


def _title(name: str) -> str:
    return name.removesuffix("_ms").removesuffix("_at") if name.endswith("_ms") else name


def _at(item: Json, name: str) -> Any:
    if name == "body" and "body" not in item and "body_base64" in item:
        return base64.b64decode(item["body_base64"])
    return item.get(name)


def cell(name: str, value: Any) -> str:
    """A value for people, in one line and without what a terminal would obey."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if name.endswith("_ms") and isinstance(value, int):
        return shown_instant(value) if name.endswith(("at_ms", "until_ms")) else shown_ms(value)
    if isinstance(value, bytes):
        return f"({len(value)} bytes)"
    if isinstance(value, list) and name.endswith("_ms"):
        return ",".join(cell(name, part) for part in value)
    if isinstance(value, list) and all(isinstance(part, str | int) for part in value):
        return ",".join(cell("", part) for part in value) or "-"
    if isinstance(value, dict | list):
        return safe(json.dumps(value, ensure_ascii=False)) if value else "-"
    return safe(str(value))


def safe(text: str) -> str:
    """Without line ends and control characters."""
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text)


def width(text: str) -> int:
    """The columns that the text takes."""
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(sign) else 1 + (unicodedata.east_asian_width(sign) in "WF") for sign in text)


def cut(text: str, columns: int) -> str:
    """The beginning of the text, if it has not the room."""
    if width(text) <= columns:
        return text
    taken = 0
    for place, sign in enumerate(text):
        taken += width(sign)
        if taken >= columns:
            return text[:place] + "…"
    return text


def _demand_fields(kind: str, template: str) -> None:
    from decant import types

    fields = list(getattr(types, kind).__annotations__)
    for named in _FIELD.findall(template):
        if named.partition(".")[0] not in fields:
            raise click.UsageError(f"--template: there is no field {named!r}; fields are {', '.join(fields)}")


def _unescaped(template: str) -> str:
    signs = {r"\n": "\n", r"\t": "\t", r"\0": "\0", r"\\": "\\"}
    return re.sub(r"\\[nt0\\]", lambda found: signs[found[0]], template)


def _filled(template: str, item: Json, *, is_safe: bool) -> bytes:
    """The template with `{key}` and `{properties.region}` filled in. A body of bytes is put in as it is. `is_safe`:
    values are put in as a terminal may get them."""
    parts = _FIELD.split(template)
    fields = [_field(item, part) if place % 2 else encoded(part) for place, part in enumerate(parts)]
    if is_safe:
        fields[1::2] = [encoded(safe(field.decode(errors="backslashreplace"))) for field in fields[1::2]]
    return b"".join(fields)


def _field(item: Json, path: str) -> bytes:
    value: Any = item
    for name in path.split(".", 1) if path.startswith("properties.") else [path]:
        value = _at(value, name) if isinstance(value, dict) else None
    if isinstance(value, bytes):
        return value
    if value is None:
        return b""
    return encoded(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


class Progress:
    """How far a long work is, in one line of stderr, on a terminal alone."""

    SECONDS = 0.1

    def __init__(self, what: str, total: int | None = None) -> None:
        self._what, self.total = what, total
        self._is_shown = is_terminal(sys.stderr) and os.environ.get("TERM") != "dumb"
        self._begun = self._last = time.monotonic()
        self._has_written = False
        self._done = self._count = 0

    def at(self, done: int | None = None, count: int | None = None) -> None:
        """`done`: of the total. `count`: what is counted, if that is something else. None: as before."""
        self._done = self._done if done is None else done
        self._count = self._count if count is None else count
        now = time.monotonic()
        if not self._is_shown or now - self._last < self.SECONDS:
            return
        self._last, self._has_written = now, True
        counted = self._count or self._done
        rate = counted / max(now - self._begun, 0.001)
        share = f"{min(self._done / self.total, 1):4.0%} {_bar(self._done / self.total)} " if self.total else ""
        click.echo(f"\r\x1b[K{share}{counted:,} {self._what}, {rate:,.0f}/s", err=True, nl=False)

    def end(self) -> None:
        if self._has_written:
            click.echo("\r\x1b[K", err=True, nl=False)


def _bar(share: float) -> str:
    return f"[{'#' * round(min(share, 1) * 20):20}]"
