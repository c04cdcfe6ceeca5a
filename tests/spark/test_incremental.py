"""Exports that arrive one by one: each is read once, in the order of their times, whatever is wrong with others."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from spark.files import Place
from spark.frame.job import INTERRUPTED, main
from spark.jobs import incremental
from spark.tables.versions import TableParts
from tests.spark.days import Days
from tests.spark.exports import change, write_export, write_items
from tests.spark.items import entry, segment, topic
from tests.spark.noting import noted

LISTED_BYTES_MAX = 260

FIRST, SECOND, BROKEN, UNFINISHED = (f"0176722560000{number}-0a1b2c3{number}" for number in range(4))


def test_what_has_arrived_is_read_once_and_what_is_broken_is_tried_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    arriving, tables = tmp_path / "arriving here", tmp_path / "tables"
    one, two = entry(b'{"b":"one"}'), entry(b'{"b":"two"}', b"two bytes"[:8])

    def run() -> tuple[int, str, str]:
        code = main(incremental.JOB, ["--arriving", str(arriving), "--tables", str(tables)])
        said = capsys.readouterr()
        return code, said.out.rpartition("incremental: ")[2].partition(" in ")[0], said.err

    assert run()[0] == 1
    write_items(arriving / "full", [topic(), segment(one)], export_id=FIRST)
    write_export(arriving, [[change(segment(one, two), 1)]], SECOND, is_incremental=True)
    broken = write_items(arriving, [topic(), segment(one)], export_id=BROKEN) / "manifest-summary.md5"
    checksum = broken.read_text()
    broken.write_text("wrong")
    (write_items(arriving, [topic()], export_id=UNFINISHED) / "manifest-summary.json").unlink()

    code, said, error = run()
    assert (code, said) == (1, "2 exports, 1 more that cannot be read")
    assert f"{BROKEN}/manifest-summary.json does not have the checksum" in error
    assert error.count("\n") == 1
    rows = sorted(pq.read_table(tables / "messages").to_pylist(), key=lambda row: row["offset"])
    assert [(row["body"].decode(), row["export"]) for row in rows] == [("one", FIRST), ("two", SECOND)]

    with monkeypatch.context() as patch:
        patch.setattr(incremental, "main", lambda *_: INTERRUPTED)
        assert run()[0] == INTERRUPTED
    broken.write_text(checksum)
    assert run() == (0, "1 export", "")
    assert run() == (0, "0 exports", "")
    assert pq.read_table(tables / "messages").num_rows == 2


def test_links_to_folders_elsewhere_are_not_followed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_items(tmp_path / "elsewhere", [topic()], export_id=FIRST)
    (tmp_path / "arriving").mkdir()
    (tmp_path / "arriving" / "linked").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "arriving" / "circle").symlink_to(tmp_path / "arriving")
    given = ["--arriving", str(tmp_path / "arriving"), "--tables", str(tmp_path / "tables")]
    assert main(incremental.JOB, given) == 0
    assert "incremental: 0 exports" in capsys.readouterr().out


def test_a_day_asks_for_no_more_files_than_weeks_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does it parse more partitions. The list of all files alone grows: by a line for each day and each export."""
    days, asked, located, parsed = Days(tmp_path / "exports", 40), list[str](), Place.located, TableParts.__getitem__
    tables, sizes, counts = tmp_path / "tables", list[int](), set[int]()
    monkeypatch.setattr(Place, "located", noted(located, asked, lambda place: place.name))
    monkeypatch.setattr(TableParts, "__getitem__", noted(parsed, asked, lambda _, name: name))
    for day in range(25):
        days.write()
        asked.clear()
        assert main(incremental.JOB, ["--arriving", str(tmp_path / "exports"), "--tables", str(tables)]) == 0
        sizes.append(max(tables.glob("_versions/*.json")).stat().st_size)
        if day >= 5:
            counts.add(len(asked))
    [asked_each_day] = counts
    assert asked_each_day > 0
    assert max(later - sooner for sooner, later in pairwise(sizes)) < LISTED_BYTES_MAX
    assert len(pq.read_table(tables / "messages")) == 25 * 40


def test_exports_that_are_done_and_folders_of_data_are_not_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arriving, asked, located = tmp_path / "arriving", list[Path](), Place.located
    days, given = Days(arriving, 40), ["--arriving", str(arriving), "--tables", str(tmp_path / "tables")]
    monkeypatch.setattr(Place, "located", noted(located, asked, lambda place: Path(place.path)))
    for _ in range(3):  # one in full, and two of changes
        new = days.write()
        asked.clear()
        assert main(incremental.JOB, given) == 0
        opened = {path.parent for path in asked if path.name == "manifest-summary.json"}
        assert opened == {arriving, new.parent, new}
    of_data = {path for path in asked if path.is_relative_to(new.parent / "data")}
    assert of_data == {max((new.parent / "data").iterdir())}


def test_exports_are_found_at_any_depth_and_under_the_prefix_data(tmp_path: Path) -> None:
    arriving, tables = tmp_path / "arriving", tmp_path / "tables"
    given = ["--arriving", str(arriving), "--tables", str(tables)]
    one, two = entry(b'{"b":"one"}'), entry(b'{"b":"two"}', b"two bytes"[:8])
    write_items(arriving / "data/of/orders", [topic(), segment(one)], export_id=FIRST)
    assert main(incremental.JOB, given) == 0
    write_export(arriving / "data/of/orders", [[change(segment(one, two), 1)]], SECOND, is_incremental=True)
    assert main(incremental.JOB, given) == 0
    assert pq.read_table(tables / "messages").num_rows == 2
