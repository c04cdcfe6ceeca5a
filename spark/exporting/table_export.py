"""Exports a table: all of it, or the changes since the last export into the same folder.

A scan is not a snapshot. The time of an export is its beginning: writes during the export may or may not be in it. The
table does not record when an item was written, so an incremental export has the time when it found the change.
"""

from __future__ import annotations

import os
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import orjson

from spark.errors import BadInput
from spark.exporting import layout
from spark.exporting.layout import DataFileWriter, NewExport
from spark.exporting.source_table import Table
from spark.exporting.state import State
from spark.exporting.typed_json import Typed, change_line, full_line, in_base64

REDACTED = "redacted"
_SECRET = {"pk": {"S": "service"}, "sk": {"S": "signing-key"}}

Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Done:
    """`folder`: of the export; None: there is none, since nothing has changed. `items`: in the table. `changed`,
    `deleted`: of an incremental export."""

    folder: Path | None
    items: int
    changed: int = 0
    deleted: int = 0
    since_ms: int | None = None


def export_table(
    table: Table, root: Path, files: int, segments: int, is_incremental: bool, progress: Progress = lambda _: None
) -> Done:
    """Raises `BadInput`, `OSError`; then it leaves no export, not even a part."""
    at_ms = time.time_ns() // 1_000_000
    with State(root) as state:
        from_ms = _since(state, table, root) if is_incremental else None
        export = NewExport(root, f"{at_ms:014d}-{os.urandom(4).hex()}", table.name, at_ms, from_ms)
        with _all_or_nothing(export, files) as data_files:
            writer = _Writer(export, table, state, data_files)
            for page in table.pages(segments):
                writer.put(page)
                progress(len(page))
            done = writer.finish()
            if done.folder:
                layout.finish(export, [file.close() for file in data_files], time.time_ns() // 1_000_000)
            else:
                _remove(export, data_files)
        state.keep(table.name, export.id, at_ms)
    return done


def _since(state: State, table: Table, root: Path) -> int:
    last = state.last()
    if last is None:
        raise BadInput(f"{root} has no export yet; an incremental one needs a full one before it")
    if last.table != table.name:
        raise BadInput(f"the last export into {root} is of table {last.table!r}, not of {table.name!r}")
    return last.at_ms


@contextmanager
def _all_or_nothing(export: NewExport, files: int) -> Iterator[list[DataFileWriter]]:
    layout.begin(export)
    data_files: list[DataFileWriter] = []
    try:
        data_files += (DataFileWriter(export.file(number)) for number in range(files))
        yield data_files
    except BaseException:
        _remove(export, data_files)
        raise


def _remove(export: NewExport, files: list[DataFileWriter]) -> None:
    for file in files:
        with suppress(OSError):
            file.close()
    layout.remove(export, [file.path for file in files])


class _Writer:
    def __init__(self, export: NewExport, table: Table, state: State, files: list[DataFileWriter]) -> None:
        self._export, self._table, self._state, self._files = export, table, state, files
        self._items = self._changed = 0
        if not export.is_incremental:
            state.forget()

    def put(self, page: list[Typed]) -> None:
        for stored in page:
            item = _without_keys(stored)
            keys = {name: item[name] for name in self._table.keys}
            has_changed = self._state.has_changed(keys, item)
            self._items += 1
            if not self._export.is_incremental:
                self._write(keys, full_line(item))
            elif has_changed:
                self._changed += 1
                self._write(keys, change_line(self._written_us, keys, item))

    def finish(self) -> Done:
        """Writes the deleted items."""
        deleted = 0
        for keys in self._state.removed() if self._export.is_incremental else ():
            deleted += 1
            self._write(keys, change_line(self._written_us, keys, None))
        if self._export.is_incremental and not (self._changed or deleted):
            return Done(None, self._items, since_ms=self._export.from_ms)
        return Done(self._export.folder, self._items, self._changed, deleted, self._export.from_ms)

    @property
    def _written_us(self) -> int:
        return self._export.at_ms * 1_000

    def _write(self, keys: Typed, line: bytes) -> None:
        """Writes all items of one partition key to one file, as AWS does."""
        partition = orjson.dumps(keys[self._table.keys[0]], default=in_base64)
        self._files[zlib.crc32(partition) % len(self._files)].write(line)


def _without_keys(item: Typed) -> Typed:
    """Removes the key that signs receipts, the keys that sign calls of pushed groups, and the hashes of tokens'
    secrets. They must not leave the table: files get copied, and no reader needs them."""
    if item.items() >= _SECRET.items() and "value" in item:
        return {**item, "value": {"S": REDACTED}}
    if item["pk"].get("S", "").startswith("group#") and "secrets" in item:
        secrets = [secret["L"] for secret in item["secrets"]["L"]]
        redacted = [{"L": [secret_id, {"S": REDACTED}, made_at]} for secret_id, _key, made_at in secrets]
        return {**item, "secrets": {"L": redacted}}
    if item["pk"].get("S") == "tokens" and "secrets" in item:
        return {**item, "secrets": {"S": REDACTED}}
    return item
