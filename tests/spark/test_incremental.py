"""Exports that arrive one by one: each is read once, in the order of their times, whatever is wrong with others."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from spark.files import Place
from spark.frame.job import INTERRUPTED, main
from spark.jobs import incremental
from tests.spark.exports import change, write_export, write_items
from tests.spark.items import entry, segment, topic
from tests.synthetic.days import Days

LISTED_BYTES_MAX = 300

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


def test_a_day_asks_for_no_more_files_than_weeks_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The list of all files alone grows: by a line for each day, and for each table of exports."""
    days, asked, located = Days(tmp_path / "exports", 40), Counter[int](), Place.located
    tables, sizes = tmp_path / "tables", list[int]()
    for day in range(25):
        days.write()
        with monkeypatch.context() as patch:
            patch.setattr(Place, "located", lambda place, day=day: asked.update([day]) or located(place))
            assert main(incremental.JOB, ["--arriving", str(tmp_path / "exports"), "--tables", str(tables)]) == 0
        sizes.append(max(tables.glob("_versions/*.json")).stat().st_size)
    assert len({asked[day] for day in range(5, 25)}) == 1
    assert max(later - sooner for sooner, later in pairwise(sizes)) < LISTED_BYTES_MAX
    assert len(pq.read_table(tables / "messages")) == 25 * 40
