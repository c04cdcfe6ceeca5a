"""The layout of an export on disk, as AWS documents it ("DynamoDB table export output format").

AWSDynamoDB/<ExportId>/_started
AWSDynamoDB/<ExportId>/data/<name>.json.gz          of a full export; of an incremental one AWSDynamoDB/data/
AWSDynamoDB/<ExportId>/manifest-files.json          a line for each data file
AWSDynamoDB/<ExportId>/manifest-summary.json        written last: with it the export is whole
AWSDynamoDB/<ExportId>/manifest-*.md5               base64; the documentation calls them `.checksum`
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import os
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

import orjson

ROOT = "AWSDynamoDB"
_BUFFER_BYTES = 256 * 1024
_LEVEL = 1
"""The gzip level: higher ones take three times as long for a tenth less."""
_BUCKET = "local"
_ARN = "arn:aws:dynamodb:local:000000000000:table/"


@dataclass(frozen=True, slots=True)
class NewExport:
    """`at_ms`: the instant of the table's state; for an incremental export (`from_ms` is given), the end of its
    period."""

    root: Path
    id: str
    table: str
    at_ms: int
    from_ms: int | None = None

    @property
    def is_incremental(self) -> bool:
        return self.from_ms is not None

    @property
    def folder(self) -> Path:
        return self.root / ROOT / self.id

    @property
    def data(self) -> Path:
        return (self.folder.parent if self.is_incremental else self.folder) / "data"

    def file(self, number: int) -> Path:
        """The path of a data file. Names are unique over all exports."""
        return self.data / f"{self.id.replace('-', '')}{number:05d}.json.gz"


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A finished data file. `md5`: raw."""

    path: Path
    items: int
    md5: bytes
    size: int


class _Hashed:
    """A file that computes the checksum of its content as it is written."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.md5 = hashlib.md5(usedforsecurity=False)
        self.size = 0

    def write(self, data: bytes) -> int:
        self.md5.update(data)
        self.size += len(data)
        return self._file.write(data)

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._file.close()


class DataFileWriter:
    """Writes lines, one item each. The same lines make the same file, to the byte."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._raw = _Hashed(path.open("wb"))
        self._zipped = gzip.GzipFile("", "wb", _LEVEL, self._raw, mtime=0)
        self._lines: list[bytes] = []
        self._bytes = 0
        self._items = 0

    def write(self, line: bytes) -> None:
        """Writes a line, given without its end."""
        self._lines.append(line)
        self._bytes += len(line)
        self._items += 1
        if self._bytes > _BUFFER_BYTES:
            self._flush()

    def close(self) -> WrittenFile:
        self._flush()
        self._zipped.close()
        self._raw.close()
        return WrittenFile(self.path, self._items, self._raw.md5.digest(), self._raw.size)

    def _flush(self) -> None:
        if self._lines:
            self._lines.append(b"")
            self._zipped.write(b"\n".join(self._lines))
        self._lines, self._bytes = [], 0


def begin(export: NewExport) -> None:
    """Makes the folders. Raises `OSError` if they exist already or cannot be written."""
    export.folder.mkdir(parents=True)
    export.data.mkdir(exist_ok=True)
    (export.folder / "_started").touch()


def remove(export: NewExport, files: Iterable[Path]) -> None:
    """Removes an unfinished export: its folder, and these data files."""
    for path in files:
        path.unlink(missing_ok=True)
    shutil.rmtree(export.folder, ignore_errors=True)


def finish(export: NewExport, files: Sequence[WrittenFile], ended_ms: int) -> None:
    """Writes the manifests. Before that, readers do not see the folder as an export."""
    listed = b"".join(orjson.dumps(_listed(export, file)) + b"\n" for file in files)
    _write(export.folder, "manifest-files", listed)
    _write(export.folder, "manifest-summary", orjson.dumps(_summary(export, files, ended_ms)))


def _listed(export: NewExport, file: WrittenFile) -> dict[str, object]:
    """An etag is that of a multipart upload: the checksum of checksums, and how many there are."""
    return {
        "itemCount": file.items,
        "md5Checksum": base64.b64encode(file.md5).decode(),
        "etag": f"{hashlib.md5(file.md5, usedforsecurity=False).hexdigest()}-1",
        "dataFileS3Key": _key(export, file.path),
    }


def _summary(export: NewExport, files: Iterable[WrittenFile], ended_ms: int) -> dict[str, object]:
    began_ms = int(export.id.partition("-")[0])
    return {
        "version": "2023-08-01",
        "exportArn": f"{_ARN}{export.table}/export/{export.id}",
        "startTime": iso(began_ms),
        "endTime": iso(ended_ms),
        "tableArn": f"{_ARN}{export.table}",
        "tableId": "00000000-0000-0000-0000-000000000000",
        **_times(export),
        "s3Bucket": _BUCKET,
        "s3Prefix": None,
        "s3SseAlgorithm": "AES256",
        "s3SseKmsKeyId": None,
        "manifestFilesS3Key": _key(export, export.folder / "manifest-files.json"),
        "billedSizeBytes": 0,
        "itemCount": sum(file.items for file in files),
        "outputFormat": "DYNAMODB_JSON",
    }


def _times(export: NewExport) -> dict[str, str]:
    if export.from_ms is None:
        return {"exportTime": iso(export.at_ms), "exportType": "FULL_EXPORT"}
    times = {"exportFromTime": iso(export.from_ms), "exportToTime": iso(export.at_ms)}
    return {**times, "outputView": "NEW_IMAGE", "exportType": "INCREMENTAL_EXPORT"}


def _write(folder: Path, name: str, content: bytes) -> None:
    digest = hashlib.md5(content, usedforsecurity=False).digest()
    _put(folder / f"{name}.md5", base64.b64encode(digest))
    _put(folder / f"{name}.json", content)


def _put(path: Path, content: bytes) -> None:
    """Writes the whole content, or nothing."""
    unfinished = path.with_name(f".{path.name}")
    unfinished.write_bytes(content)
    os.replace(unfinished, path)


def _key(export: NewExport, path: Path) -> str:
    return path.relative_to(export.root).as_posix()


def iso(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
