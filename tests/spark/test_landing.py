"""Landing an export: what is known is not unpacked, and tasks of Spark do what one process does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from spark.frame.job import main
from spark.jobs import messages
from spark.landing import export_pass
from spark.landing.known import SCHEMA, Known
from spark.tables.tables import Tables
from tests.spark.exports import write_items
from tests.spark.service import busy_world


def entries(*places: tuple[str, int, int, int]) -> pa.RecordBatch:
    names = ("topic_id", "queue", "offset", "count")
    return pa.RecordBatch.from_pylist(
        [dict(zip(names, place, strict=True)) for place in places],
        pa.schema([("topic_id", pa.string()), ("queue", pa.int32()), ("offset", pa.int64()), ("count", pa.int32())]),
    )


def test_an_entry_is_known_if_all_of_its_messages_are() -> None:
    known = Known.of_entries(entries(("a", 0, 0, 5), ("a", 0, 5, 5), ("a", 1, 3, 2), ("b", 0, 7, 1), ("a", 0, 20, 1)))
    assert known.rows().to_pylist() == [
        dict(zip(SCHEMA.names, row, strict=True))
        for row in [("a", 0, 0, 10), ("a", 0, 20, 21), ("a", 1, 3, 5), ("b", 0, 7, 8)]
    ]
    asked = entries(
        ("a", 0, 4, 2), ("a", 0, 9, 2), ("a", 0, 20, 1), ("a", 1, 2, 1), ("a", 1, 4, 1), ("b", 0, 7, 1), ("c", 0, 7, 1)
    )
    assert known.has(asked).to_pylist() == [True, False, True, False, True, True, False]
    assert Known.of(known.rows()).rows() == known.rows()
    assert (known.overlaps(Known({("a", 0): [(10, 20)]})), known.overlaps(Known({("a", 0): [(9, 20)]}))) == (
        False,
        True,
    )


def _rows(tables: Path, table: str) -> list[dict[str, Any]]:
    rows = pq.read_table(tables / table).to_pylist()
    return sorted(rows, key=lambda row: [str(row.get(name)) for name in ("topic_id", "queue", "offset", "reason")])


def test_tasks_of_spark_bring_what_one_process_brings(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    export = str(write_items(tmp_path / "export", busy_world().items, files=3))
    said = []
    for name in ("here", "tasks"):
        if name == "tasks":
            for limit in ("_TASK_BYTES", "_TASK_BYTES_MAX", "_HERE_BYTES_MAX"):
                monkeypatch.setattr(export_pass, limit, 0)
        given = ["--export", export, "--tables", str(tmp_path / name), "--allow-quarantine"]
        assert main(messages.JOB, given) == 0
        said.append(capsys.readouterr().out.partition(" in ")[0])
    assert said[0] == said[1]
    for table in ("messages", "quarantine"):
        assert _rows(tmp_path / "here", table) == _rows(tmp_path / "tasks", table)
    here, tasks = (Tables(str(tmp_path / name)) for name in ("here", "tasks"))
    assert len(tasks.newest().named()) > len(here.newest().named())
    assert tasks.arrow("_known", SCHEMA) == here.arrow("_known", SCHEMA)
