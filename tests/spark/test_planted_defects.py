"""The jobs find every defect that is planted in a synthetic export: by the audit, or as unreadable data."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark.frame.job import VIOLATED, main
from spark.jobs.audit import JOB
from tests.spark.written import rows_of
from tests.synthetic import Defect, Shape, answers, generate

FOUND = {
    Defect.HOLE: "hole",
    Defect.OVERLAP: "overlap",
    Defect.WRONG_END: "segment_end",
    Defect.DUPLICATE_ENTRY: "entry_twice",
    Defect.UNDECODABLE: "unreadable",
    Defect.MISSING_PAYLOAD: "payload_missing",
    Defect.ORPHAN_PAYLOAD: "orphan_payload",
    Defect.CURSOR_BEYOND_END: "next_beyond_end",
    Defect.LEASE_BEYOND_NEXT: "lease_beyond_next",
    Defect.OWED_TWICE: "owed_twice",
    Defect.PARKED_TWICE: "owed_twice",
    Defect.PROMOTED_STILL_WAITING: "still_waiting",
}
UNREAD = {Defect.UNKNOWN_KIND, Defect.UNKNOWN_CODEC, Defect.CORRUPT_LINE, Defect.WRONG_CHECKSUM, Defect.WRONG_COUNT}
REFUSED = {Defect.NO_MANIFEST, Defect.WRONG_MANIFEST, Defect.MISSING_FILE}


def test_every_planted_defect_is_found_and_nothing_else(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    planted = frozenset({*FOUND, *UNREAD})
    assert planted | REFUSED | {Defect.TRUNCATED_FILE} == set(Defect)
    folder = generate(tmp_path / "exports", Shape(8_000, files=2, topics=2, queues=2, defects=planted))
    tables = tmp_path / "tables"
    code = main(JOB, ["--export", str(folder), "--tables", str(tables), "--allow-quarantine"])
    assert (code, capsys.readouterr().err) == (VIOLATED, "")
    rows = rows_of(tables, "violations")
    assert {row["topic"] for row in rows} == {"topic-0"}
    assert {row["invariant"] for row in rows} == set(FOUND.values())
    assert {row["severity"] for row in rows} == {"violation", "cost"}
    places = {(row["invariant"], row["offset"]) for row in rows}
    known = {defect["defect"]: defect for defect in answers(folder)["planted"]}
    assert {("hole", known["hole"]["offset"]), ("overlap", known["overlap"]["offset"])} <= places
    unread = rows_of(tables, "quarantine")
    assert len(unread) >= len(UNREAD)


@pytest.mark.parametrize("defect", sorted(REFUSED, key=str))
def test_an_export_that_is_not_whole_is_refused_in_one_line(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str], defect: Defect
) -> None:
    folder = generate(tmp_path / "exports", Shape(2_000, files=2, topics=1, queues=2, defects=frozenset({defect})))
    assert main(JOB, ["--export", str(folder), "--tables", str(tmp_path / "tables")]) == 1
    assert capsys.readouterr().err.count("\n") == 1
    assert not (tmp_path / "tables").exists()
