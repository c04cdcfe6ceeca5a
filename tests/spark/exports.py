"""Writes exports for tests, in the layout that AWS documents: a few lines, so that tests can break each of them. Reads
them, too."""

from __future__ import annotations

import base64
import gzip
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from spark.reading.data_file import FileReader
from spark.reading.manifest import read_export

ID = "01767225600000-0a1b2c3d"
AT = "2026-01-01T00:00:00.000Z"


def typed(value: Any) -> dict[str, Any]:
    """A value as DynamoDB's typed JSON has it."""
    match value:
        case bool():
            return {"BOOL": value}
        case str():
            return {"S": value}
        case int():
            return {"N": str(value)}
        case bytes():
            return {"B": base64.b64encode(value).decode()}
        case list() | tuple():
            return {"L": [typed(element) for element in value]}
        case None:
            return {"NULL": True}
    return {"M": typed_item(value)}


def typed_item(item: Mapping[str, Any]) -> dict[str, Any]:
    return {name: typed(value) for name, value in item.items()}


def line(item: Mapping[str, Any]) -> bytes:
    """As a full export has it."""
    return orjson.dumps({"Item": typed_item(item)})


def change(item: Mapping[str, Any], written_us: int, is_deleted: bool = False) -> bytes:
    """As an incremental export has it."""
    keys = typed_item({name: item[name] for name in ("pk", "sk")})
    image = {"OldImage" if is_deleted else "NewImage": typed_item(item)}
    return orjson.dumps({"Metadata": {"WriteTimestampMicros": {"N": str(written_us)}}, "Keys": keys, **image})


def write_items(root: Path, items: Iterable[Mapping[str, Any]], files: int = 2, export_id: str = ID) -> Path:
    """A full export of these items."""
    lines = [line(item) for item in items]
    return write_export(root, [lines[at::files] for at in range(files)], export_id)


def write_export(
    root: Path, files: Sequence[Sequence[bytes]], export_id: str = ID, is_incremental: bool = False
) -> Path:
    """The folder of an export with these lines in its data files."""
    folder = root / "AWSDynamoDB" / export_id
    data = folder.parent / "data" if is_incremental else folder / "data"
    data.mkdir(parents=True, exist_ok=True)
    listed = []
    folder.mkdir(exist_ok=True)
    (folder / "_started").touch()
    for number, lines in enumerate(files):
        path = data / f"{export_id[-4:]}-{number}.json.gz"
        path.write_bytes(gzip.compress(b"".join(text + b"\n" for text in lines)))
        key = f"somewhere/{path.relative_to(root)}"
        listed.append({"itemCount": len(lines), "md5Checksum": md5(path), "etag": "0-1", "dataFileS3Key": key})
    write_manifest(folder, "manifest-files.json", b"".join(orjson.dumps(file) + b"\n" for file in listed))
    kind = {"exportType": "INCREMENTAL_EXPORT", "exportToTime": AT} if is_incremental else {"exportTime": AT}
    count = sum(len(lines) for lines in files)
    summary = {"itemCount": count, "outputFormat": "DYNAMODB_JSON", "manifestFilesS3Key": "manifest-files.json", **kind}
    write_manifest(folder, "manifest-summary.json", orjson.dumps(summary))
    return folder


def write_manifest(folder: Path, name: str, content: bytes) -> None:
    (folder / name).write_bytes(content)
    (folder / name).with_suffix(".md5").write_text(md5(folder / name))


def md5(path: Path) -> str:
    return base64.b64encode(hashlib.md5(path.read_bytes(), usedforsecurity=False).digest()).decode()


def read(folder: Path) -> tuple[list[dict[str, Any]], list[tuple[str, int, str, str]]]:
    """The items of an export in the order of their keys, and what cannot be read: file, line, reason and text."""
    export, rows, troubles = read_export(str(folder)), list[dict[str, Any]](), list[tuple[str, int, str, str]]()
    for file in export.files:
        reader = FileReader(file, export.is_incremental)
        rows += (row for batch in reader for row in batch.to_pylist())
        troubles += ((file.name, *trouble) for trouble in reader.troubles)
    return sorted(rows, key=lambda row: (row["pk"], row["sk"])), sorted(troubles)
