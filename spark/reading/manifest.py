"""Reads the manifest of an export, and checks it.

The layout is the one that AWS documents. In the folder of an export lie `manifest-summary.json` (one object) and
`manifest-files.json` (one object a line, for each data file), each with its checksum beside it. Data files of a full
export lie in its folder `data`, those of an incremental one in that beside it. Their keys begin with the export's
original prefix; for a copied export, only the part after `AWSDynamoDB/` counts. The reader opens no file outside these
folders, whatever a manifest names or a link leads to.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

import orjson

from spark.errors import BadInput
from spark.files import Place
from spark.reading.inside import data_file, demand_in

T = TypeVar("T")

_CHECKSUMS = ("md5", "checksum")
"""The suffixes of checksum files: the real one, and the documented one."""
_FORMAT = "DYNAMODB_JSON"
_INCREMENTAL = "INCREMENTAL_EXPORT"
_EMPTY_BYTES = len(gzip.compress(b""))
"""A file without items has this size: it need not be read."""
_ASKED_AT_ONCE = 16
"""Sizes of files that are requested at the same time: in S3 each takes a round trip."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """One data file in the manifest. `bytes`, and `md5` in base64: of the compressed file."""

    place: Place
    items: int
    md5: str
    bytes: int

    @property
    def name(self) -> str:
        return self.place.name


@dataclass(frozen=True, slots=True)
class Export:
    """`at_ms`: the instant of the table's state; for an incremental export, the end of its period."""

    id: str
    place: Place
    at_ms: int
    items: int
    is_incremental: bool
    files: tuple[DataFile, ...]

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)


def place_of(path: str) -> Place:
    """The place of an export. Its name is its id, so it must be the folder's own name, not `.` or a link that may point
    elsewhere tomorrow."""
    return Place(os.path.realpath(path) if Place(path).is_local else path.rstrip("/"))


def read_export(path: str) -> Export:
    """The export in this folder. Raises `BadInput` if it has no manifest, a manifest has a wrong checksum, a data file
    is missing or outside of the export, counts disagree, or the export is empty."""
    place = place_of(path)
    manifest = place / "manifest-summary.json"
    summary = _parsed(_verified(manifest), manifest)
    if summary.get("outputFormat", _FORMAT) != _FORMAT:
        raise BadInput(f"{place} is an export in {summary['outputFormat']}; only {_FORMAT} is read")
    is_incremental = summary.get("exportType") == _INCREMENTAL
    items = _field(summary, "itemCount", int, manifest)
    at_ms = _ms(_field(summary, "exportToTime" if is_incremental else "exportTime", str, manifest), place)
    files = tuple(_data_files(place, is_incremental))
    listed = sum(file.items for file in files)
    if not listed:
        raise BadInput(f"{place} is an export without any items")
    if listed != items:
        raise BadInput(f"{place}: manifest-files.json counts {listed} items, manifest-summary.json {items}")
    return Export(place.name, place, at_ms, items, is_incremental, files)


def files_with_items(export: Export) -> list[DataFile]:
    """The files with items, largest first, so that the slowest start first."""
    files = [file for file in export.files if file.items or file.bytes != _EMPTY_BYTES]
    return sorted(files, key=lambda file: -file.bytes)


def _data_files(place: Place, is_incremental: bool) -> Iterator[DataFile]:
    """The files that the manifest names, with their sizes."""
    manifest = place / "manifest-files.json"
    named = [_parsed(line, manifest) for line in _verified(manifest).splitlines() if line.strip()]
    folder, below = (place.parent / "data", "data/") if is_incremental else (place / "data", f"{place.name}/data/")
    places = [data_file(folder, below, _field(file, "dataFileS3Key", str, manifest), manifest) for file in named]
    sizes = _sizes(places, is_incremental)
    missing = [file.name for file in places if sizes.get(file) is None]
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise BadInput(f"{place} misses the data file {missing[0]}{more}, which its manifest names")
    for at, file in zip(places, named, strict=True):
        items, md5 = _field(file, "itemCount", int, manifest), _field(file, "md5Checksum", str, manifest)
        yield DataFile(at, items, md5, sizes[at] or 0)


def _sizes(files: list[Place], is_incremental: bool) -> dict[Place, int | None]:
    """The sizes of the existing files. One call lists those of a full export. The folder of an incremental one has the
    files of every day."""
    if not is_incremental:
        folders = {file.parent for file in files}
        return {folder / name: size for folder in folders for name, size in folder.sizes().items()}
    with ThreadPoolExecutor(_ASKED_AT_ONCE) as threads:
        return dict(zip(files, threads.map(Place.size, files), strict=True))


def _verified(manifest: Place) -> bytes:
    """Returns the manifest's content after comparing its checksum."""
    if manifest.size() is None:
        raise BadInput(f"{manifest.parent} is not a finished export: it has no {manifest.name}")
    demand_in(manifest.parent, manifest)
    content = manifest.read()
    stem = manifest.path.removesuffix("json")
    checksum = next((Place(stem + end) for end in _CHECKSUMS if Place(stem + end).size() is not None), None)
    if checksum is None:
        raise BadInput(f"{manifest.parent} has no checksum of {manifest.name}")
    demand_in(manifest.parent, checksum)
    digest = hashlib.md5(content, usedforsecurity=False).digest()
    given = checksum.read().decode("ascii", "replace").strip()
    if given not in (base64.b64encode(digest).decode(), digest.hex()):
        raise BadInput(f"{manifest} does not have the checksum that {checksum.name} gives")
    return content


def _parsed(text: bytes, manifest: Place) -> dict[str, Any]:
    try:
        parsed = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise BadInput(f"{manifest} is not JSON: {error}") from error
    if not isinstance(parsed, dict):
        raise BadInput(f"{manifest} holds no object")
    return parsed


def _field(parsed: dict[str, Any], name: str, kind: type[T], manifest: Place) -> T:
    value = parsed.get(name)
    if not isinstance(value, kind):
        raise BadInput(f"{manifest} gives no {name}")
    return value


def _ms(text: str, place: Place) -> int:
    try:
        at = datetime.fromisoformat(text)
    except ValueError as error:
        raise BadInput(f"{place} has {text!r} for the time of the export") from error
    return round(at.timestamp() * 1000)
