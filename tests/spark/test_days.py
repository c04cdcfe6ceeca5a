"""Tables by day: what has not changed is not counted again, and what is put together of days is right."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark.frame.job import main
from spark.jobs import compact, delays, messages, traffic
from spark.tables.tables import Tables
from tests.spark.exports import write_items
from tests.spark.items import entry, segment, topic
from tests.spark.written import rows_of

AT, DAY = 1_767_225_600_000, 86_400_000
TABLES = ("traffic", "hot_keys", "skew", "delays", "delay_histogram")


def test_only_days_with_new_messages_are_counted_again(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tables, given = Tables(str(tmp_path / "tables")), ["--tables", str(tmp_path / "tables")]
    first = entry(b'{"b":"one","k":"a"}\n{"b":"two","k":"b"}', count=2)
    later = entry(b'{"b":"three","k":"a"}', b"later in", at=AT + DAY)
    named = []
    for number, entries in enumerate(([first], [first, later], [first, later])):
        held = [topic(), segment(*entries)]
        folder = write_items(tmp_path / str(number), held, export_id=f"0176722560000{number}-0a1b2c3d")
        for job in (messages.JOB, traffic.JOB, delays.JOB):
            assert main(job, ["--export", str(folder), *given]) == 0
        assert main(compact.JOB, given) == 0
        named.append({name for name in tables.newest().named() if name.startswith(TABLES)})
        assert {row["key"]: row["offset"] for row in rows_of(tmp_path / "tables", "compact")} == (
            {"a": 0, "b": 1} if number == 0 else {"a": 2, "b": 1}
        )
    said = capsys.readouterr().out
    assert said.count("traffic: 2 messages of 1 day") == 1
    assert said.count("traffic: 1 messages of 1 day") == 1
    assert "traffic: every day is counted already" in said
    assert "compact: 2 keys, nothing new" in said
    assert named[0] < named[1] == named[2]
    assert [row["messages"] for row in rows_of(tmp_path / "tables", "traffic")] == [2, 1]


def test_an_export_without_messages_is_counted_as_none(spark: SparkSession, tmp_path: Path) -> None:
    folder = write_items(tmp_path / "export", [topic()])
    for job in (messages.JOB, traffic.JOB):
        assert main(job, ["--export", str(folder), "--tables", str(tmp_path / "tables")]) == 0
    assert rows_of(tmp_path / "tables", "traffic") == []
    assert main(compact.JOB, ["--tables", str(tmp_path / "tables")]) == 0
