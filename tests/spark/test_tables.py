"""A run replaces what is in a table only when it has written everything that it writes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark.job import DONE, FAILED, Job, Outcome, Run, main
from spark.jobs import audit, messages
from spark.tables import Tables
from spark.transforms import messages as unpacking
from tests.spark.exports import write_items
from tests.spark.items import entry, segment, topic

ID, OTHER = "01767225600000-0a1b2c3d", "01767225600001-0a1b2c3e"


@pytest.fixture(params=["true", "false"], ids=["adaptive", "not adaptive"])
def adaptive(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[None]:
    before = spark.conf.get("spark.sql.adaptive.enabled")
    spark.conf.set("spark.sql.adaptive.enabled", request.param)
    yield
    spark.conf.set("spark.sql.adaptive.enabled", str(before))


@pytest.fixture
def tables(spark: SparkSession, tmp_path: Path) -> Tables:
    return Tables(spark, str(tmp_path / "tables"))


def numbers(spark: SparkSession, count: int) -> DataFrame:
    return spark.range(count).withColumn("topic", F.lit("orders"))


def failing(rows: DataFrame, shuffles: bool) -> DataFrame:
    """The same rows, of which the last cannot be written."""
    spread = rows.repartition(2) if shuffles else rows
    fail = F.raise_error(F.lit("4 cannot be written")).cast("long")
    return spread.withColumn("id", F.when(F.col("id") == 4, fail).otherwise(F.col("id")))


def found(tables: Tables, table: str) -> list[tuple[int, str]]:
    return sorted((row["id"], row["export"]) for row in tables.read(table).collect())


def files(tables: Tables) -> set[str]:
    root = Path(tables.root)
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}


@pytest.mark.parametrize("shuffles", [True, False], ids=["shuffled", "not shuffled"])
@pytest.mark.parametrize("table", ["quarantine", "topics"])
@pytest.mark.usefixtures("adaptive")
def test_a_query_that_fails_in_its_last_stage_leaves_the_partition_as_it_was(
    spark: SparkSession, tables: Tables, table: str, shuffles: bool
) -> None:
    assert tables.overwrite(numbers(spark, 2), table, ID) == 2
    before = files(tables)
    with pytest.raises(PySparkException, match="4 cannot be written"):
        tables.overwrite(failing(numbers(spark, 5), shuffles), table, ID)
    tables.discard()
    assert found(tables, table) == [(0, ID), (1, ID)]
    assert tables.has(f"{table}/export={ID}")
    assert files(tables) == before


@pytest.mark.usefixtures("adaptive")
def test_rows_of_many_partitions_that_fail_leave_the_table_as_it_was(spark: SparkSession, tables: Tables) -> None:
    assert tables.overwrite_within(numbers(spark, 2), "messages", ["topic"], ID) == 2
    before = files(tables)
    with pytest.raises(PySparkException, match="4 cannot be written"):
        tables.overwrite_within(failing(numbers(spark, 5), True), "messages", ["topic"], ID)
    assert found(tables, "messages") == [(0, ID), (1, ID)]
    assert files(tables) == before


def test_rows_of_many_partitions_replace_none_of_other_exports_whatever_the_session_says(
    spark: SparkSession, tables: Tables
) -> None:
    spark.conf.set("spark.sql.sources.partitionOverwriteMode", "static")
    try:
        assert tables.overwrite_within(numbers(spark, 1), "messages", ["topic"], ID) == 1
        assert tables.overwrite_within(numbers(spark, 2), "messages", ["topic"], OTHER) == 2
    finally:
        spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    assert found(tables, "messages") == [(0, ID), (0, OTHER), (1, OTHER)]


@pytest.mark.usefixtures("adaptive")
def test_a_result_without_rows_clears_its_partition_and_no_other(spark: SparkSession, tables: Tables) -> None:
    tables.overwrite(numbers(spark, 2), "topics", ID)
    tables.overwrite(numbers(spark, 1), "topics", OTHER)
    assert tables.overwrite(numbers(spark, 2).where("id > 7").repartition(1), "topics", ID) == 0
    assert found(tables, "topics") == [(0, OTHER)]
    assert tables.has(f"topics/export={ID}")
    assert spark.read.parquet(tables.partition("topics", ID)).columns == ["id", "topic"]


def test_a_partition_may_be_made_from_what_is_in_it(spark: SparkSession, tables: Tables) -> None:
    tables.overwrite(numbers(spark, 2), "topics", ID)
    old = spark.read.parquet(tables.partition("topics", ID))
    assert tables.overwrite(old.unionByName(numbers(spark, 1)), "topics", ID) == 3
    assert found(tables, "topics") == [(0, ID), (0, ID), (1, ID)]


def test_a_partition_that_cannot_be_moved_to_its_place_leaves_the_old_one_there(
    spark: SparkSession, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables.overwrite(numbers(spark, 2), "topics", ID)
    move, moved = tables._move, list[str]()

    def second_fails(place: str, to: str) -> None:
        moved.append(to)
        if len(moved) == 2:
            raise OSError("no space left")
        move(place, to)

    monkeypatch.setattr(tables, "_move", second_fails)
    with pytest.raises(OSError, match="no space left"):
        tables.overwrite(numbers(spark, 5), "topics", ID)
    assert found(tables, "topics") == [(0, ID), (1, ID)]


# -- jobs -------------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("adaptive")
def test_a_job_that_fails_at_its_second_table_has_overwritten_none(
    spark: SparkSession, tmp_path: Path, tables: Tables, capsys: pytest.CaptureFixture[str]
) -> None:
    export = write_items(tmp_path / "export", [topic()])

    def job(count: int) -> Job:
        def run(run: Run) -> Outcome:
            written = run.write(numbers(spark, 2 * count), "first")
            assert run.written("first", numbers(spark, 0).schema).count() == written == 2 * count
            run.write(failing(numbers(spark, count), True), "second")
            return Outcome(str(count))

        return Job("some", "", run)

    given = ["--export", str(export), "--tables", tables.root]
    assert main(job(1), given) == DONE
    before = files(tables)
    assert main(job(5), given) == FAILED
    assert "4 cannot be written" in capsys.readouterr().err
    assert [found(tables, table) for table in ("first", "second")] == [[(0, ID), (1, ID)], [(0, ID)]]
    assert files(tables) == before
    assert main(job(3), given) == DONE
    assert [len(found(tables, table)) for table in ("first", "second")] == [6, 3]


def test_messages_that_fails_leaves_what_was_found_unreadable_in_the_quarantine(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_items(tmp_path / "export", [topic(), segment(entry(b"no message"))], files=1)
    given = ["--export", str(folder), "--tables", str(tmp_path / "tables")]
    assert main(messages.JOB, given) == FAILED
    with monkeypatch.context() as patch:
        patch.setattr(unpacking, "failures", _raise)
        assert main(messages.JOB, given) == FAILED
    assert main(audit.JOB, given) == FAILED
    said = capsys.readouterr().err.splitlines()
    assert ["1 row of this export cannot be read" in line for line in said] == [True, False, True]


def _raise(_: DataFrame) -> DataFrame:
    raise RuntimeError("no space left")
