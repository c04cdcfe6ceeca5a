"""A run replaces what is in a table only when it has written everything that it writes."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow.dataset as ds
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark.frame.folder import Folder
from spark.frame.job import DONE, FAILED, Job, Outcome, Run, main
from spark.frame.tables import Tables
from spark.jobs import audit, messages
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


def write_within(tables: Tables, rows: DataFrame, export_id: str) -> int:
    count = tables.stage_within(rows, "messages", ["topic"], export_id)
    tables.commit()
    return count


def content(tables: Tables, table: str) -> list[tuple[int, str]]:
    rows = ds.dataset(tables.path(table), partitioning="hive").to_table(columns=["id", "export"]).to_pylist()
    return sorted((row["id"], row["export"]) for row in rows)


def files(tables: Tables) -> set[str]:
    root = Path(tables.root)
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}


@pytest.mark.parametrize("shuffles", [True, False], ids=["shuffled", "not shuffled"])
@pytest.mark.parametrize("table", ["quarantine", "topics"])
@pytest.mark.usefixtures("adaptive")
def test_a_query_that_fails_in_its_last_stage_keeps_the_old_partition(
    spark: SparkSession, tables: Tables, table: str, shuffles: bool
) -> None:
    assert tables.overwrite(numbers(spark, 2), table, ID) == 2
    before = files(tables)
    with pytest.raises(PySparkException, match="4 cannot be written"):
        tables.overwrite(failing(numbers(spark, 5), shuffles), table, ID)
    tables.discard()
    assert content(tables, table) == [(0, ID), (1, ID)]
    assert tables.has(f"{table}/export={ID}")
    assert files(tables) == before


@pytest.mark.usefixtures("adaptive")
def test_rows_of_many_partitions_that_fail_leave_the_table_as_it_was(spark: SparkSession, tables: Tables) -> None:
    assert write_within(tables, numbers(spark, 2), ID) == 2
    before = files(tables)
    with pytest.raises(PySparkException, match="4 cannot be written"):
        tables.stage_within(failing(numbers(spark, 5), True), "messages", ["topic"], ID)
    tables.discard()
    assert content(tables, "messages") == [(0, ID), (1, ID)]
    assert files(tables) == before


def test_rows_replace_no_partition_of_other_exports(spark: SparkSession, tables: Tables) -> None:
    spark.conf.set("spark.sql.sources.partitionOverwriteMode", "static")
    try:
        assert write_within(tables, numbers(spark, 1), ID) == 1
        assert write_within(tables, numbers(spark, 2), OTHER) == 2
    finally:
        spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    assert content(tables, "messages") == [(0, ID), (0, OTHER), (1, OTHER)]


@pytest.mark.usefixtures("adaptive")
def test_a_result_without_rows_clears_its_partition_and_no_other(spark: SparkSession, tables: Tables) -> None:
    tables.overwrite(numbers(spark, 2), "topics", ID)
    tables.overwrite(numbers(spark, 1), "topics", OTHER)
    assert tables.overwrite(numbers(spark, 2).where("id > 7").repartition(1), "topics", ID) == 0
    assert content(tables, "topics") == [(0, OTHER)]
    assert tables.has(f"topics/export={ID}")
    assert spark.read.parquet(tables.partition("topics", ID)).columns == ["id", "topic"]


def test_a_table_of_many_partitions_is_there_though_it_has_no_row(spark: SparkSession, tables: Tables) -> None:
    assert write_within(tables, numbers(spark, 0), ID) == 0
    assert tables.has("messages")
    assert tables.read("messages", numbers(spark, 0).schema).count() == 0
    assert {path.partition("/")[0] for path in files(tables)} == {"messages"}


def test_a_partition_may_be_made_from_what_is_in_it(spark: SparkSession, tables: Tables) -> None:
    tables.overwrite(numbers(spark, 2), "topics", ID)
    old = spark.read.parquet(tables.partition("topics", ID))
    assert tables.overwrite(old.unionByName(numbers(spark, 1)), "topics", ID) == 3
    assert content(tables, "topics") == [(0, ID), (0, ID), (1, ID)]


def test_a_partition_that_cannot_be_moved_leaves_the_old_one(
    spark: SparkSession, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables.overwrite(numbers(spark, 2), "topics", ID)
    move, moved = tables.files.move, list[str]()

    def second_fails(place: str, to: str) -> None:
        moved.append(to)
        if len(moved) == 2:
            raise OSError("no space left")
        move(place, to)

    monkeypatch.setattr(tables.files, "move", second_fails)
    with pytest.raises(OSError, match="no space left"):
        tables.overwrite(numbers(spark, 5), "topics", ID)
    assert content(tables, "topics") == [(0, ID), (1, ID)]


class Moves:
    """Moves as `Tables` makes them, of which those of these numbers fail. `half`: as on S3, a file at a time, so that
    what fails leaves one file at its target."""

    def __init__(self, tables: Tables, failing: set[int], half: bool = False) -> None:
        self._tables, self._move, self._failing, self._half = tables, tables.files.move, failing, half
        self.count = 0

    def __call__(self, place: str, to: str) -> None:
        self.count += 1
        if self.count not in self._failing:
            self._move(place, to)
            return
        if self._half:
            copy_one_file(Path(self._tables.path(place)), Path(self._tables.path(to)))
        raise OSError("no space left")


def copy_one_file(place: Path, to: Path) -> None:
    to.mkdir(parents=True, exist_ok=True)
    name = min(path.name for path in place.iterdir() if path.name.startswith("part-"))
    shutil.copy(place / name, to / name)


@pytest.fixture(scope="module")
def waiting(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Tables:
    """Three partitions of two tables, in place, and four that wait for `commit` to move them there."""
    tables = Tables(spark, str(tmp_path_factory.mktemp("waiting") / "tables"))
    tables.overwrite(numbers(spark, 2), "first", ID)
    write_within(tables, numbers(spark, 2).withColumn("topic", F.col("id").cast("string")), ID)
    tables.stage(numbers(spark, 5), "first", ID)
    tables.stage_within(numbers(spark, 3).withColumn("topic", F.col("id").cast("string")), "messages", ["topic"], ID)
    return tables


def copied(template: Tables, root: str) -> Tables:
    shutil.copytree(template.root, root)
    tables = Tables(template._spark, root)
    tables._staged, tables._wide = list(template._staged), list(template._wide)
    return tables


@pytest.mark.parametrize("half", [False, True], ids=["whole", "half"])
@pytest.mark.parametrize("number", range(1, 8))
def test_a_move_that_fails_undoes_those_before_it(
    waiting: Tables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, half: bool
) -> None:
    """Two moves for each of three partitions, and one for that which is new."""
    tables = copied(waiting, str(tmp_path / "tables"))
    before = {path for path in files(tables) if not path.startswith("_unfinished/")}
    with monkeypatch.context() as patch:
        patch.setattr(tables.files, "move", Moves(tables, {number}, half))
        with pytest.raises(OSError, match=r"^no space left"):
            tables.commit()
    assert content(tables, "first") == content(tables, "messages") == [(0, ID), (1, ID)]
    tables.discard()
    assert files(tables) == before


def test_the_next_run_restores_a_partition_that_could_not_be_put_back(
    spark: SparkSession, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables.overwrite(numbers(spark, 2), "topics", ID)
    before = files(tables)
    tables.stage(numbers(spark, 5), "topics", ID)
    monkeypatch.setattr(tables.files, "move", Moves(tables, {2, 3}, half=True))
    with pytest.raises(OSError, match=rf"^topics/export={ID} could not be put back, .*: no space left"):
        tables.commit()
    tables.discard()
    tables.restore("topics", ID)
    assert content(tables, "topics") == [(0, ID), (1, ID)]
    tables.discard()
    assert not [path for path in files(tables) - before if ".old" in path]


# -- after a kill: folders as it leaves them --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def staged(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Tables:
    """A partition of two rows, and five rows that wait to replace it."""
    tables = Tables(spark, str(tmp_path_factory.mktemp("staged") / "tables"))
    tables.overwrite(numbers(spark, 2), "topics", ID)
    tables.stage(numbers(spark, 5), "topics", ID)
    return tables


class Killed(NamedTuple):
    """What a run left that died as it replaced a partition: `place` of the partition, `old` where it is set aside, and
    `new` where the five rows wait."""

    tables: Tables
    place: Path
    old: Path
    new: Path

    def set_aside(self, marked: bool = True) -> None:
        self.place.rename(self.old)
        if marked:
            self.mark()

    def mark(self) -> None:
        Path(f"{self.old}.replaced").touch()

    def fail_again(self) -> list[tuple[int, str]]:
        """What is in the table after the next run, which fails."""
        with pytest.raises(PySparkException, match="4 cannot be written"):
            self.tables.stage(failing(numbers(self.tables._spark, 5), False), "topics", ID)
        self.tables.discard()
        return content(self.tables, "topics")


@pytest.fixture
def killed(staged: Tables, tables: Tables) -> Killed:
    shutil.copytree(staged.root, tables.root)
    place, root = Path(tables.partition("topics", ID)), Path(tables.path("_unfinished"))
    old = root / f"topics-{ID}.old" / place.name
    old.parent.mkdir()
    return Killed(tables, place, old, root / f"topics-{ID}" / place.name)


def test_what_a_killed_run_has_set_aside_is_back_though_the_next_run_fails(killed: Killed) -> None:
    killed.set_aside(marked=False)
    assert killed.fail_again() == [(0, ID), (1, ID)]
    assert not killed.old.parent.exists()


def test_half_of_a_new_partition_gives_way_to_the_old_one(killed: Killed) -> None:
    killed.set_aside()
    copy_one_file(killed.new, killed.place)
    assert killed.fail_again() == [(0, ID), (1, ID)]
    assert killed.tables.has(f"topics/export={ID}")


@pytest.mark.parametrize("is_copied", [False, True], ids=["while it is copied", "while what was copied is removed"])
def test_an_old_partition_of_which_half_is_set_aside_is_whole_again(killed: Killed, is_copied: bool) -> None:
    copy_one_file(killed.place, killed.old)
    if is_copied:
        (killed.place / next(killed.old.iterdir()).name).unlink()
    assert killed.fail_again() == [(0, ID), (1, ID)]
    assert killed.tables.has(f"topics/export={ID}")


def test_half_of_a_first_partition_does_not_stay(spark: SparkSession, killed: Killed) -> None:
    shutil.rmtree(killed.place)
    killed.mark()
    copy_one_file(killed.new, killed.place)
    killed.tables.overwrite(numbers(spark, 1), "topics", OTHER)
    assert killed.fail_again() == [(0, OTHER)]


def test_a_new_partition_stays_though_the_old_one_was_not_removed(killed: Killed) -> None:
    killed.set_aside()
    killed.new.rename(killed.place)
    assert killed.fail_again() == [(n, ID) for n in range(5)]
    assert not killed.old.parent.exists()


def test_partitions_set_aside_are_put_back_for_the_tables_only_writer(killed: Killed) -> None:
    killed.set_aside(marked=False)
    killed.tables.restore_all("topic")
    assert not killed.place.exists()
    killed.tables.restore_all("topics")
    assert content(killed.tables, "topics") == [(0, ID), (1, ID)]


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
    assert [content(tables, table) for table in ("first", "second")] == [[(0, ID), (1, ID)], [(0, ID)]]
    assert files(tables) == before
    assert main(job(3), given) == DONE
    assert [len(content(tables, table)) for table in ("first", "second")] == [6, 3]


def test_a_failed_messages_job_keeps_the_quarantine_of_unreadable_items(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_items(tmp_path / "export", [topic(), segment(entry(b"no message"))], files=1)
    given = ["--export", str(folder), "--tables", str(tmp_path / "tables")]
    assert main(messages.JOB, given) == FAILED
    with monkeypatch.context() as patch:
        patch.setattr(messages, "failures", _raise)
        assert main(messages.JOB, given) == FAILED
    assert main(audit.JOB, given) == FAILED
    said = capsys.readouterr().err.splitlines()
    assert ["1 row of this export cannot be read" in line for line in said] == [True, False, True]


@pytest.fixture(scope="module")
def done_once(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An export of one message, and the tables of a run of `messages` on it."""
    root = tmp_path_factory.mktemp("done")
    folder = write_items(root / "export", [topic(), segment(entry())], files=1)
    assert main(messages.JOB, ["--export", str(folder), "--tables", str(root / "tables")]) == DONE
    return root


@pytest.fixture
def messages_of_one(done_once: Path, tables: Tables) -> list[str]:
    """The arguments of `messages`, which has run once."""
    shutil.copytree(done_once / "tables", tables.root)
    (folder,) = (done_once / "export" / "AWSDynamoDB").iterdir()
    return ["--export", str(folder), "--tables", tables.root]


@pytest.mark.parametrize("step", ["create", "move"])
def test_messages_that_cannot_be_moved_leaves_all_tables_as_they_were(
    tables: Tables, messages_of_one: list[str], monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    before = files(tables)
    assert any(path.startswith("messages/topic=") for path in before)
    real = getattr(Folder, step)

    def last_fails(of: Folder, *places: str) -> None:
        if places[-1].startswith("messages/") and ".old/" not in places[0]:
            raise OSError("no space left")
        real(of, *places)

    monkeypatch.setattr(Folder, step, last_fails)
    assert main(messages.JOB, messages_of_one) == FAILED
    assert without_quarantine(files(tables)) == without_quarantine(before)


def test_a_quarantine_that_cannot_be_counted_changes_no_table(
    spark: SparkSession, tmp_path: Path, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(run: Run) -> Outcome:
        run.write(numbers(spark, 1), "some")
        run.__dict__.pop("quarantined", None)
        monkeypatch.setattr(Tables, "count_quarantine", _raise)
        return Outcome("")

    export = write_items(tmp_path / "export", [topic()])
    assert main(Job("some", "", run), ["--export", str(export), "--tables", tables.root]) == FAILED
    assert not Path(tables.path("some")).exists()


def test_a_job_without_work_puts_back_what_a_killed_one_set_aside(
    tables: Tables, messages_of_one: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = files(tables)
    (place,) = Path(tables.path("messages")).glob("topic=*/date=*/export=*")
    (export_id,) = (path.name.removeprefix("export=") for path in Path(tables.path("topics")).glob("export=*"))
    old = Path(tables.path(f"_unfinished/messages-{export_id}.old")) / place.relative_to(tables.path("messages"))
    old.parent.mkdir(parents=True)
    place.rename(old)
    monkeypatch.setattr(Run, "check_quarantine", _raise)
    assert main(messages.JOB, messages_of_one) == FAILED
    assert files(tables) == before


def without_quarantine(paths: set[str]) -> set[str]:
    return {path for path in paths if not path.startswith("quarantine/")}


def _raise(*_: object, **__: object) -> DataFrame:
    raise RuntimeError("no space left")
