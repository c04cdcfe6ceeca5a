"""Reads the manifest of an export, and checks it.

The layout is the one that AWS documents. In the folder of an export lie `manifest-summary.json` (one object) and
`manifest-files.json` (one object a line, for each data file), each with its checksum beside it. Data files of a full
export lie under the folder, those of an incremental one beside it. Their keys begin with the prefix that the export was
made with; an export that was copied elsewhere is found all the same, by what comes after `AWSDynamoDB/`.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

import orjson

from spark.errors import BadInput
from spark.reading.files import Place

T = TypeVar("T")

_ROOT = "AWSDynamoDB/"
_CHECKSUMS = ("md5", "checksum")
"""How the checksum files end: as exports have them, and as the documentation calls them."""
_FORMAT = "DYNAMODB_JSON"
_INCREMENTAL = "INCREMENTAL_EXPORT"


@dataclass(frozen=True, slots=True)
class DataFile:
    """One data file, as the manifest has it. `md5`: base64, of the file as it lies there, compressed."""

    place: Place
    items: int
    md5: str

    @property
    def name(self) -> str:
        return self.place.name


@dataclass(frozen=True, slots=True)
class Export:
    """`at_ms`: the state of the table that it shows; of an incremental one, the end of its time."""

    id: str
    place: Place
    at_ms: int
    items: int
    is_incremental: bool
    files: tuple[DataFile, ...]


def read_export(path: str) -> Export:
    """The export in this folder. Raises `BadInput` if it has no manifest, a manifest has a wrong checksum, a data file
    is missing, counts disagree, or the export is empty."""
    place = Place(path.rstrip("/"))
    summary = _parsed(_verified(place / "manifest-summary.json"), place / "manifest-summary.json")
    if summary.get("outputFormat", _FORMAT) != _FORMAT:
        raise BadInput(f"{place} is an export in {summary['outputFormat']}; only {_FORMAT} is read")
    is_incremental = summary.get("exportType") == _INCREMENTAL
    files = tuple(_data_files(place))
    items = _field(summary, "itemCount", int, place / "manifest-summary.json")
    _demand_whole(place, files, items)
    at = _field(summary, "exportToTime" if is_incremental else "exportTime", str, place / "manifest-summary.json")
    return Export(place.name, place, _ms(at, place), items, is_incremental, files)


def _demand_whole(place: Place, files: tuple[DataFile, ...], items: int) -> None:
    if not sum(file.items for file in files):
        raise BadInput(f"{place} is an export without any items")
    if sum(file.items for file in files) != items:
        listed = sum(file.items for file in files)
        raise BadInput(f"{place}: manifest-files.json counts {listed} items, manifest-summary.json {items}")
    missing = [file.name for file in files if file.place.size() is None]
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise BadInput(f"{place} misses the data file {missing[0]}{more}, which its manifest names")


def _data_files(place: Place) -> Iterator[DataFile]:
    manifest = place / "manifest-files.json"
    for line in _verified(manifest).splitlines():
        if not line.strip():
            continue
        listed = _parsed(line, manifest)
        key = _field(listed, "dataFileS3Key", str, manifest)
        below = key.rpartition(_ROOT)[2]
        yield DataFile(
            place.parent / below,
            _field(listed, "itemCount", int, manifest),
            _field(listed, "md5Checksum", str, manifest),
        )


def _verified(manifest: Place) -> bytes:
    """Returns the manifest's content after comparing its checksum."""
    if manifest.size() is None:
        raise BadInput(f"{manifest.parent} is not a finished export: it has no {manifest.name}")
    content = manifest.read()
    stem = manifest.path.removesuffix("json")
    checksum = next((Place(stem + end) for end in _CHECKSUMS if Place(stem + end).size() is not None), None)
    if checksum is None:
        raise BadInput(f"{manifest.parent} has no checksum of {manifest.name}")
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
