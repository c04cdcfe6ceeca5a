"""Exports that overlap, in any order and again: the table `messages` has each message once."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from spark.frame.job import main
from spark.jobs.messages import JOB
from tests.spark.exports import change, write_export, write_items
from tests.spark.items import Item, entry, payload, pointer, segment, topic

DAY = 86_400_000
NOON = 1_767_268_800_000


def _entry(number: int, day: int) -> Item:
    return entry(b'{"b":"m%d"}' % number, number.to_bytes(8), at=NOON + day * DAY)


def _brought(tables: Path) -> dict[int, tuple[str, str, str]]:
    """By offset: body, date and the export that brought it. No offset is there twice."""
    rows = pq.read_table(tables / "messages").to_pylist()
    brought = {row["offset"]: (row["body"].decode(), str(row["date"]), row["export"]) for row in rows}
    assert len(brought) == len(rows)
    return brought


def test_of_several_images_of_a_segment_the_newest_counts(tmp_path: Path) -> None:
    full = write_items(tmp_path / "1", [topic(), segment(_entry(0, 0))], export_id="1-a")
    grown = [segment(*(_entry(number, 0) for number in range(count))) for count in (2, 4, 3)]
    gone = segment(_entry(5, 0), base=5)
    lines = [change(grown[0], 5), change(gone, 6), change(grown[1], 8), change(grown[2], 7)]
    lines += [change(gone, 9, is_deleted=True)]
    for name, files in (("in one file", [lines]), ("in several", [[line] for line in lines])):
        changed = write_export(tmp_path / name, files, "2-b", is_incremental=True)
        for export in (full, changed):
            assert main(JOB, ["--export", str(export), "--tables", str(tmp_path / f"{name}.tables")]) == 0
        assert sorted(_brought(tmp_path / f"{name}.tables")) == [0, 1, 2, 3, 5]


def test_an_entry_that_overlaps_what_is_there_brings_only_the_rest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    three = entry(b'{"b":"m0"}\n{"b":"m1"}\n{"b":"m2"}', count=3, at=NOON)
    two = entry(b'{"b":"x1"}\n{"b":"x2"}\n{"b":"m3"}', bytes(8), count=3, at=NOON)
    said = []
    for number, held in enumerate([segment(three), segment(two, base=1)]):
        export = write_items(tmp_path / f"{number}", [topic(), held], export_id=f"{number}-a")
        assert main(JOB, ["--export", str(export), "--tables", str(tmp_path / "tables")]) == 0
        said.append(capsys.readouterr().out.partition(" in ")[0])
    assert said == ["messages: 3 messages, 0 already there", "messages: 1 messages, 2 already there"]
    assert [body for _, (body, *_) in sorted(_brought(tmp_path / "tables").items())] == ["m0", "m1", "m2", "m3"]


def test_a_message_of_many_exports_is_there_once_after_any_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    third, fourth = _entry(2, day=1), _entry(3, day=1)
    large = pointer(b"a large!", at=NOON + 2 * DAY)
    early = write_items(
        tmp_path / "1", [topic(), segment(_entry(0, 0), _entry(1, 0)), segment(third, base=2)], export_id="1-a"
    )
    late_items = [topic(), segment(third, fourth, base=2), segment(large, base=4), payload(b'{"b":"m4"}', b"a large!")]
    late = write_items(tmp_path / "2", late_items, export_id="2-b")
    changes = [
        change(segment(third, base=2), 6, is_deleted=True),
        change(segment(large, _entry(5, 2), base=4), 5),
    ]
    changed = write_export(tmp_path / "3", [changes], "3-c", is_incremental=True)
    tables = tmp_path / "tables"

    def run(export: Path) -> str:
        assert main(JOB, ["--export", str(export), "--tables", str(tables)]) == 0
        return capsys.readouterr().out.partition(" in ")[0]

    assert main(JOB, ["--export", str(changed), "--tables", str(tables)]) == 1
    assert "there is no table" in capsys.readouterr().err  # of names: the first export must be a full one
    assert run(late) == "messages: 3 messages, 0 already there"
    assert run(early) == "messages: 2 messages, 1 already there"
    assert run(changed) == "messages: 1 messages, 1 already there"  # whose payload this export does not have
    brought = _brought(tables)
    assert brought == {
        0: ("m0", "2026-01-01", "1-a"),
        1: ("m1", "2026-01-01", "1-a"),
        2: ("m2", "2026-01-02", "2-b"),
        3: ("m3", "2026-01-02", "2-b"),
        4: ("m4", "2026-01-03", "2-b"),
        5: ("m5", "2026-01-03", "3-c"),
    }
    assert run(early) == "messages: 0 messages, 3 already there"
    assert _brought(tables) == brought
