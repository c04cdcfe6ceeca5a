"""Defects of the files of an export and of its manifests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from spark.exporting import layout
from spark.exporting.layout import DataFileWriter, NewExport, WrittenFile
from tests.synthetic.parameters import Defect, Shape

_GARBAGE = b'{"Item":{"pk":{"S":"log#'


def of_lines(export: NewExport, shape: Shape, files: list[WrittenFile], planted: list[dict[str, Any]]) -> None:
    """Plants the defects of data files, and notes those of the manifests, which `of_manifests` plants."""
    if shape.has(Defect.CORRUPT_LINE):
        extra = DataFileWriter(export.file(len(files)))
        extra.write(_GARBAGE)
        files.append(extra.close())
        _tell(planted, Defect.CORRUPT_LINE, files[-1].path)
    largest = max(range(len(files)), key=lambda at: files[at].size)
    if shape.has(Defect.WRONG_CHECKSUM):
        files[largest] = replace(files[largest], md5=bytes(16))
        _tell(planted, Defect.WRONG_CHECKSUM, files[largest].path)
    if shape.has(Defect.WRONG_COUNT):
        files[largest] = replace(files[largest], items=files[largest].items + 1)
        _tell(planted, Defect.WRONG_COUNT, files[largest].path)
    if shape.has(Defect.TRUNCATED_FILE):
        path = files[largest].path
        path.write_bytes(path.read_bytes()[: files[largest].size * 2 // 3])
        _tell(planted, Defect.TRUNCATED_FILE, path)
    if shape.has(Defect.MISSING_FILE):
        files[largest].path.unlink()
        _tell(planted, Defect.MISSING_FILE, files[largest].path)
    for defect in (Defect.NO_MANIFEST, Defect.WRONG_MANIFEST):
        if shape.has(defect):
            _tell(planted, defect, export.folder / "manifest-files.json")


def of_manifests(export: NewExport, shape: Shape, files: Sequence[WrittenFile]) -> None:
    """Writes the manifests, with their defects."""
    if shape.has(Defect.NO_MANIFEST):
        return
    layout.finish(export, files, shape.now_ms + 1_000)
    if shape.has(Defect.WRONG_MANIFEST):
        (export.folder / "manifest-files.md5").write_text("AAAAAAAAAAAAAAAAAAAAAA==")


def _tell(planted: list[dict[str, Any]], defect: Defect, path: Path) -> None:
    planted.append({"defect": defect.value, "file": path.name})
