"""Landing an export: what is known is not unpacked, and tasks of Spark do what one process does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from spark import schemas
from spark.files import Place
from spark.frame import at_hand
from spark.frame.job import main, parser
from spark.frame.run import JobContext, Run
from spark.jobs import compact, messages, traffic
from spark.landing import export_pass
from spark.landing.export_pass import ExportPass
from spark.landing.known import SCHEMA, KnownOffsets
from spark.landing.tasks import Workers
from spark.landing.unpacked import reader_of
from spark.reading.manifest import read_export
from spark.tables.tables import Tables
from spark.transforms.traffic import traffic as traffic_of
from tests.spark.exports import write_items
from tests.spark.items import entry, segment, topic
from tests.spark.service import busy_world
from tests.spark.written import rows_of


def entries(*places: tuple[str, int, int, int]) -> pa.RecordBatch:
    names = ("topic_id", "queue", "offset", "count")
    return pa.RecordBatch.from_pylist(
        [dict(zip(names, place, strict=True)) for place in places],
        pa.schema([("topic_id", pa.string()), ("queue", pa.int32()), ("offset", pa.int64()), ("count", pa.int32())]),
    )


def test_only_what_lies_among_the_blobs_is_read_as_one(tmp_path: Path) -> None:
    """The id of a topic is whatever stands in the export."""
    blobs = tmp_path / "blobs" / "payloads" / "topic"
    for folder in (blobs, tmp_path):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "ab").write_bytes(b"a body")
    read = reader_of(Place(str(tmp_path / "blobs")))
    assert read is not None
    assert read("topic", b"\xab") == b"a body"
    for topic_id in ("../..", "topic/../../..", str(tmp_path), "..", "", "%2e%2e"):
        assert read(topic_id, b"\xab") is None


def test_an_entry_is_known_if_all_of_its_messages_are() -> None:
    known = KnownOffsets.of_entries(
        entries(("a", 0, 0, 5), ("a", 0, 5, 5), ("a", 1, 3, 2), ("b", 0, 7, 1), ("a", 0, 20, 1))
    )
    assert known.rows().to_pylist() == [
        dict(zip(SCHEMA.names, row, strict=True))
        for row in [("a", 0, 0, 10), ("a", 0, 20, 21), ("a", 1, 3, 5), ("b", 0, 7, 8)]
    ]
    asked = entries(
        ("a", 0, 4, 2), ("a", 0, 9, 2), ("a", 0, 20, 1), ("a", 1, 2, 1), ("a", 1, 4, 1), ("b", 0, 7, 1), ("c", 0, 7, 1)
    )
    assert known.has(asked).to_pylist() == [True, False, True, False, True, True, False]
    assert KnownOffsets.of(known.rows()).rows() == known.rows()
    assert not known.overlaps(KnownOffsets({("a", 0): [(10, 20)]}))
    assert known.overlaps(KnownOffsets({("a", 0): [(9, 20)]}))


def _rows(tables: Path, table: str) -> list[dict[str, Any]]:
    rows = pq.read_table(tables / table).to_pylist()
    return sorted(rows, key=lambda row: [str(row.get(name)) for name in ("topic_id", "queue", "offset", "reason")])


def test_a_run_reads_one_version_whatever_others_commit(spark: SparkSession, tmp_path: Path) -> None:
    """As in S3, where no lock keeps the others out until it ends."""
    held = [segment(entry(b'{"b":"m"}', number.to_bytes(8)), base=number) for number in (0, 1)]
    exports = [write_items(tmp_path / f"{n}", [topic(), *held[:n]], export_id=f"{n}-a") for n in (1, 2)]
    given = ["--export", str(exports[0]), "--tables", str(tmp_path / "tables")]
    assert main(messages.JOB, given) == 0
    arguments = parser(traffic.JOB).parse_args(given)
    one, next_one = (Run(JobContext("one", arguments), arguments, read_export(str(exports[0]))) for _ in range(2))
    one.land()
    days = one.stale_days("traffic", "messages")
    rows = traffic_of(one.read("messages", schemas.MESSAGES, days))
    other = ExportPass(Tables(given[-1]), read_export(str(exports[1])), Workers(), unpacks=True)
    other.land()
    other.unpack(keeps=True)
    Tables(given[-1]).commit(other.whole)
    assert (one.write_days(rows, "traffic", "messages", days), one.items["segment"].count()) == (1, 1)
    one.commit()
    assert next_one.stale_days("traffic", "messages") == days


def test_the_last_of_each_key_stays_though_too_many_for_a_plan(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(at_hand, "BYTES_MAX", -1)
    held = [
        segment(entry(b'{"b":"m","k":"k%d"}' % (number % 2), number.to_bytes(8)), base=number) for number in (0, 1, 2)
    ]
    given = ["--tables", str(tmp_path / "tables")]
    for count in (2, 3):
        export = write_items(tmp_path / f"{count}", [topic(), *held[:count]], export_id=f"{count}-a")
        assert main(messages.JOB, ["--export", str(export), *given]) == 0
        assert main(compact.JOB, given) == 0
    assert sorted((row["key"], row["offset"]) for row in rows_of(given[1], "compact")) == [("k0", 2), ("k1", 1)]


@pytest.mark.parametrize("workers", [["--cores", "2"], ["--master", "local[1]"]], ids=["processes", "spark"])
def test_processes_and_tasks_of_spark_bring_what_one_process_brings(
    workers: list[str],
    spark: SparkSession,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    export = str(write_items(tmp_path / "export", busy_world().items, files=3))
    said = []
    for name, given in (("here", ["--cores", "1"]), ("tasks", workers)):
        if name == "tasks":
            for limit in ("_TASK_BYTES", "_TASK_BYTES_MAX", "_BUCKET_BYTES"):
                monkeypatch.setattr(export_pass, limit, 2_000)
        common = ["--export", export, "--tables", str(tmp_path / name), "--allow-quarantine"]
        assert main(messages.JOB, [*common, *given]) == 0
        said.append(capsys.readouterr().out.partition(" in ")[0])
    assert said[0] == said[1]
    for table in ("messages", "quarantine"):
        assert _rows(tmp_path / "here", table) == _rows(tmp_path / "tasks", table)
    here, tasks = (Tables(str(tmp_path / name)) for name in ("here", "tasks"))
    assert len(tasks.newest().named()) > len(here.newest().named())
    assert tasks.arrow("_known", SCHEMA) == here.arrow("_known", SCHEMA)
