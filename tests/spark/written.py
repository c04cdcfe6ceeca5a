"""Reads the tables that jobs have written: the rows of the newest version."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from spark.tables.tables import Tables
from spark.tables.writing import read_rows


def rows_of(tables: Path | str, table: str, part: str | None = None) -> list[dict[str, Any]]:
    """Without the partition's column. `part`: of this partition only."""
    there = Tables(str(tables))
    places = there.places(there.newest(), table, None if part is None else [part])
    return [row for batch in read_rows(places) for row in batch.to_pylist()]
