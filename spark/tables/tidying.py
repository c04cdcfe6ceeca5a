"""Keeps the tables small: joins a day's many small files, and removes files that no version names."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta
from uuid import uuid4

from spark.errors import BadInput
from spark.files import Place, bundled
from spark.tables.tables import OURS, SCRATCH, Tables
from spark.tables.versions import FOLDER, Part, TablesChange, Version
from spark.tables.writing import PartWriter, WrittenPart, read_rows

FILES_MAX = 8
"""The most small files of a partition before they are joined."""
_SMALL_BYTES = 32 << 20
_JOINED_BYTES_MAX = 256 << 20
_CLOCK = ".now-"

SmallFiles = tuple[str, list[str]]
"""A partition, and the names of its files to join into one."""
Joined = tuple[SmallFiles, list[WrittenPart]]


def small_parts(version: Version, table: str) -> list[SmallFiles]:
    """The groups of files of the table to join."""
    groups: list[SmallFiles] = []
    for name, part in sorted(version.parts(table).items()):
        small = [file for file in part.files if file.bytes < _SMALL_BYTES]
        if len(small) > FILES_MAX:
            groups += [
                (name, [file.name for file in files]) for files in bundled(small, _JOINED_BYTES_MAX) if files[1:]
            ]
    return groups


def joined(folder: Place, open_writer: Callable[[], PartWriter], group: SmallFiles) -> Joined:
    """Writes the rows of a group to a new file. `folder`: of the table."""
    part, names = group
    writer = open_writer()
    for batch in read_rows([folder / part / name for name in names]):
        writer.add(batch, part)
    return group, writer.close()


def replacement(table: str, results: Iterable[Joined]) -> Callable[[Version], TablesChange]:
    """The change that replaces the small files by the joined ones. It raises `BadInput` if the small files no longer
    exist."""

    def change(newest: Version) -> TablesChange:
        parts = dict(newest.parts(table))
        for (name, names), written in results:
            old = parts[name]
            kept = [file for file in old.files if file.name not in names]
            if len(kept) + len(names) != len(old.files):
                raise BadInput("another run has joined the same files; nothing is left to do")
            parts[name] = Part((*kept, *(each.file for each in written)), old.made_from)
        return TablesChange({(table, name): part for name, part in parts.items() if part != newest.parts(table)[name]})

    return change


def remove_unnamed(tables: Tables, hours: int) -> int:
    """Removes the files that no version names, in S3 only those that are older. Returns how many."""
    if tables.root.is_local:
        return tables.clean()
    clock = tables.root / FOLDER / f"{_CLOCK}{uuid4().hex}"
    clock.create(clock.name.encode())
    found = {each.name: each.at for each in tables.root.files()}
    until = found[f"{FOLDER}/{clock.name}"] - timedelta(hours=hours)
    clock.delete()
    newest = tables.newest()
    kept = newest.named() | tables.versions.kept(newest.number)
    old = [name for name, at in found.items() if at < until and name not in kept and _is_ours(name)]
    for name in old:
        (tables.root / name).delete()
    return len(old)


def _is_ours(name: str) -> bool:
    return OURS.fullmatch(name) is not None or name.startswith((f"{SCRATCH}/", f"{FOLDER}/"))
