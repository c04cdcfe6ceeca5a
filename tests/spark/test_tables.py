"""Tables change by versions: all that a run writes at one instant, or nothing, whatever dies or runs beside it."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark import files
from spark.errors import BadInput
from spark.files import Place
from spark.frame.job import Job, JobResult, main
from spark.jobs import messages, tidy
from spark.landing.export_pass import ExportPass
from spark.landing.tasks import Workers
from spark.reading.manifest import read_export
from spark.tables.tables import Tables
from spark.tables.versions import Part, TablesChange, Version, Versions
from spark.tables.writing import PartWriter, read_rows, write_part
from tests.spark.exports import write_items
from tests.spark.items import Item, entry, payload, pointer, segment, topic
from tests.spark.killing import run_until
from tests.spark.noting import noted
from tests.spark.written import rows_of

DAY = "date=2026-01-01"
NOON = 1_767_268_800_000


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    return Tables(str(tmp_path / "tables"))


def rows(*numbers: int) -> pa.Table:
    return pa.table({"n": pa.array(numbers, pa.int64())})


def put(tables: Tables, table: str, part: str, *numbers: int) -> TablesChange:
    return TablesChange({(table, part): write_part(tables.root, table, part, rows(*numbers))})


def content(tables: Tables, table: str) -> list[int]:
    found: list[int] = tables.arrow(table, rows().schema)["n"].to_pylist()
    return sorted(found)


def data_files(tables: Tables) -> set[str]:
    return {each.name for each in tables.root.files() if each.name.endswith(".parquet")}


def test_a_commit_replaces_adds_and_removes_partitions_together(tables: Tables) -> None:
    tables.commit(put(tables, "a", "export=1", 1, 2))
    tables.commit(put(tables, "b", "export=1", 3))
    change = put(tables, "a", "export=1", 4)
    change.added = {("b", "export=1"): write_part(tables.root, "b", "export=1", rows(5)).files}
    change.put["c", "export=1"] = Part()
    tables.commit(change)
    assert (content(tables, "a"), content(tables, "b"), content(tables, "c")) == ([4], [3, 5], [])
    tables.commit(TablesChange({("a", "export=1"): None}))
    with pytest.raises(BadInput, match=r"there is no table .*/a: the job that writes it has to run first"):
        content(tables, "a")


def test_commits_at_once_follow_each_other_and_none_is_lost(tables: Tables) -> None:
    def commit(number: int) -> None:
        tables.commit(put(tables, "a", f"export={number}", number))

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(commit, range(40)))
    assert content(tables, "a") == list(range(40))
    assert tables.newest().number == 40


def test_a_change_is_made_anew_for_the_version_that_came_first(tables: Tables) -> None:
    seen: list[int] = []

    def change(newest: Version) -> TablesChange:
        seen.append(newest.number)
        if len(seen) == 1:
            Tables(str(tables.root)).commit(put(tables, "a", "export=1", 1))
        return put(tables, "a", "export=2", 2)

    tables.commit(change)
    assert (seen, content(tables, "a")) == ([0, 1], [1, 2])


def test_who_writes_keeps_others_out_and_leaves_no_file_that_is_not_named(tables: Tables) -> None:
    with tables.writing():
        tables.commit(put(tables, "a", "export=1", 1))
        tables.commit(put(tables, "a", "export=1", 2))
        with pytest.raises(BadInput, match="another run is at work on"), Tables(str(tables.root)).writing():
            pass
    assert data_files(tables) == tables.newest().named()
    with pytest.raises(KeyError), tables.writing():
        put(tables, "a", "export=1", 3).put.pop(("b", "export=1"))
    assert (content(tables, "a"), data_files(tables)) == ([2], tables.newest().named())


def test_a_run_that_fails_within_another_leaves_no_file(tables: Tables) -> None:
    with tables.writing():
        put(tables, "a", "export=1", 1)
        with pytest.raises(ZeroDivisionError), tables.writing():
            raise ZeroDivisionError
        assert data_files(tables) == set()


def test_a_version_is_read_once(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    tables.commit(put(tables, "a", "export=1", 1))
    other, read, reads = Tables(str(tables.root)), Place.read, list[Place]()
    monkeypatch.setattr(Place, "read", noted(read, reads, lambda place: place))
    assert [content(each, "a") for each in (tables, other, other)] == [[1]] * 3
    tables.commit(put(tables, "a", "export=2", 2))
    assert [content(each, "a") for each in (tables, other)] == [[1, 2]] * 2
    assert [place.name for place in reads] == ["000000000001.json", "000000000002.json"]


def test_a_repaired_export_is_read_anew_and_bad_entries_stay_named(tmp_path: Path) -> None:
    look = Job("look", "", lambda _: JobResult(""))
    given = _export(tmp_path, _small(0), segment(entry(b"{", (1).to_bytes(8), at=NOON), base=1), export_id="1-a")
    codes = [main(look, given), main(messages.JOB, given), main(look, given)]
    assert codes == [0, 1, 1]
    whole = {path: path.read_bytes() for path in (Path(given[1]) / "data").iterdir()}
    for repaired in (False, True):
        for path, content in whole.items():
            path.write_bytes(content if repaired else content[:-9])
        assert main(look, given) == 1
        found = rows_of(given[-1], "quarantine", "export=1-a")
        assert len(found) == (1 if repaired else 3)
        assert sum(row["reason"].startswith("entry ") for row in found) == 1


def test_files_of_others_in_the_folder_stay(tables: Tables) -> None:
    own = [tables.root / name for name in ("report.html", "mine/export=1/part-0.parquet", "replay/run=1/journal")]
    for place in own:
        place.create(b"mine")
    with tables.writing():
        tables.clean()
    assert all(place.size() for place in own)


def _export(folder: Path, *items: Item, export_id: str) -> list[str]:
    made = write_items(folder / export_id, [topic(), *items], files=2, export_id=export_id)
    return ["--export", str(made), "--tables", str(folder / "tables")]


def _large(number: int) -> list[Item]:
    entry_id = number.to_bytes(8)
    return [segment(pointer(entry_id, at=NOON), base=number), payload(b'{"b":"m%d"}' % number, entry_id)]


def _small(number: int) -> Item:
    return segment(entry(b'{"b":"m%d"}' % number, number.to_bytes(8), at=NOON), base=number)


def _bodies(tables: Tables) -> list[str]:
    found = pq.read_table(str(tables.root / "messages"))["body"].to_pylist() if tables.parts("messages") else []
    return sorted(body.decode() for body in found)


def _named(tables: Tables) -> list[str]:
    """The messages that the version names."""
    found = tables.arrow("messages", pa.schema([("body", pa.binary())]))["body"].to_pylist()
    return sorted(body.decode() for body in found)


def test_messages_killed_at_any_step_are_there_all_or_not_and_once(tmp_path: Path) -> None:
    first = _export(tmp_path, _small(0), *_large(1), export_id="1-a")
    later = _export(tmp_path, _small(0), *_large(1), *_large(2), _small(3), export_id="2-b")
    tables = Tables(str(tmp_path / "tables"))
    assert main(messages.JOB, first) == 0
    before, after = ["m0", "m1"], ["m0", "m1", "m2", "m3"]
    seen, step = set[tuple[str, ...]](), 0
    while run_until(step, messages.JOB, later):
        found = _named(tables)
        assert found in (before, after), step
        seen.add(tuple(found))
        step += 1
    assert step > 10
    assert seen == {tuple(before), tuple(after)}
    assert _bodies(tables) == after
    assert data_files(tables) == tables.newest().named()


def test_two_runs_that_bring_the_same_messages_bring_them_once(tmp_path: Path) -> None:
    """As in S3, where no lock keeps them apart."""
    given = _export(tmp_path, _small(0), export_id="1-a")
    other = _export(tmp_path, _small(0), _small(1), export_id="2-b")
    tables = Tables(given[-1])
    passes = [ExportPass(tables, read_export(each[1]), Workers(), unpacks=True) for each in (given, other)]
    for one in passes:
        one.land()
        one.unpack(keeps=True)
    tables.commit(passes[0].whole)
    with pytest.raises(BadInput, match=r"another run has written the same messages to .*; run the job again"):
        tables.commit(passes[1].whole)
    assert main(messages.JOB, other) == 0
    assert _named(tables) == ["m0", "m1"]


def test_rows_are_read_a_row_group_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row group has some megabytes. As many bodies of 4 MB as a batch may have rows fit into no memory."""
    monkeypatch.setattr("spark.tables.writing._GROUP_BYTES", 0)
    writer = PartWriter(Place(str(tmp_path)), "messages")
    for number in range(3):
        writer.add(pa.RecordBatch.from_pydict({"body": [number]}), "date=2026-01-31")
    [written] = writer.close()
    place = Place(str(tmp_path)) / written.table / written.part / written.file.name
    assert [batch["body"].to_pylist() for batch in read_rows([place])] == [[0], [1], [2]]


def test_a_days_small_files_are_joined_and_killed_anywhere_nothing_is_lost(tmp_path: Path) -> None:
    tables = Tables(str(tmp_path / "tables"))
    for number in range(10):
        assert main(messages.JOB, _export(tmp_path, _small(number), export_id=f"{number}-a")) == 0
    assert len(tables.parts("messages")[DAY].files) == 10
    step = 0
    while run_until(step, tidy.JOB, ["--tables", str(tables.root)]):
        assert len(tables.parts("messages")[DAY].files) in (1, 10)
        step += 1
    assert step
    (file,) = tables.parts("messages")[DAY].files
    assert file.rows == 10
    assert _bodies(tables) == [f"m{number}" for number in range(10)]
    assert main(messages.JOB, _export(tmp_path, _small(9), export_id="9-b")) == 0
    assert len(_bodies(tables)) == 10


def test_tables_of_an_older_layout_are_refused_with_what_converts_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = _export(tmp_path, _small(0), export_id="1-a")
    (tmp_path / "tables" / "messages").mkdir(parents=True)
    (tmp_path / "tables" / "messages" / "_SUCCESS").touch()
    assert main(messages.JOB, given) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert f"python -m spark.jobs.convert --tables {tmp_path / 'tables'}" in said


@pytest.mark.parametrize(
    ("content", "said"), [(b'{"layout":3,"tables":{}}', "is of layout 3"), (b'{"lay', "does not tell the files")]
)
def test_a_version_that_cannot_be_read_is_named_and_changes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes, said: str
) -> None:
    given = _export(tmp_path, _small(0), export_id="1-a")
    version = Tables(given[-1]).root / Versions.path(1)
    version.create(content)
    assert main(messages.JOB, given) == 1
    error = capsys.readouterr().err
    assert (error.count("\n"), f"{version} {said}" in error) == (1, True)
    assert not (tmp_path / "tables" / "messages").exists()


def test_files_whose_versions_are_lost_are_neither_removed_nor_doubled(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = _export(tmp_path, _small(0), export_id="1-a")
    assert main(messages.JOB, given) == 0
    shutil.rmtree(tmp_path / "tables/_versions")
    for _ in range(2):
        assert main(messages.JOB, given) == 1
        assert f"{tmp_path}/tables/_versions is missing" in capsys.readouterr().err
    assert pq.read_table(tmp_path / "tables/messages").num_rows == 1


def test_messages_that_an_export_has_twice_are_brought_once(tmp_path: Path) -> None:
    """One data file is a copy of another."""
    given = _export(tmp_path, _small(0), *_large(1), _small(2), export_id="1-a")
    data = sorted((Path(given[1]) / "data").iterdir())
    for path in data[1:]:
        path.write_bytes(data[0].read_bytes())
    tables = Tables(given[-1])
    assert main(messages.JOB, [*given, "--allow-quarantine"]) == 0
    bodies = _named(tables)
    assert bodies
    assert len({*bodies}) == len(bodies) == sum(part.rows for part in tables.parts("messages").values())


def test_files_outlive_a_power_failure_before_a_version_names_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = _export(tmp_path, _small(0), *_large(1), export_id="1-a")
    tables = Tables(given[-1])
    synced, before = list[str](), set[str]()
    sync, create = files._sync, Place.create

    def noting(path: Path) -> None:
        synced.append(str(path))
        sync(path)

    def creating(place: Place, content: bytes) -> bool:
        before.update(synced)
        return create(place, content)

    monkeypatch.setattr(files, "_sync", noting)
    monkeypatch.setattr(Place, "create", creating)
    assert main(messages.JOB, given) == 0
    named = {f"{tables.root}/{name}" for name in tables.newest().named()}
    assert named
    assert named | {path.rpartition("/")[0] for path in named} <= before
