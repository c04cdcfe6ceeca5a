"""Runs `messages` on every export that has arrived in a folder since the last run, in the order of their times."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

if not __package__:  # spark-submit runs this file by its path
    sys.path[0] = str(Path(__file__).resolve().parents[2])

import orjson
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema

from spark import schemas
from spark.errors import BadInput
from spark.files import Place
from spark.frame.job import DONE, FAILED, INTERRUPTED, Job, JobResult, main
from spark.frame.run import Run
from spark.jobs import messages
from spark.landing.export_pass import ALL
from spark.reading.inside import demand_in
from spark.tables.versions import TablesChange, Version
from spark.tables.writing import read_rows, write_part

ABOUT = """Runs the job messages on every export, full or incremental, that has arrived in a folder since the last run,
in the order of their times. The table arrived records them. An export without a manifest is still being written, and
waits for the next run. An export that cannot be read is reported on stderr and does not stop the others; each run tries
it again until it can be read, or is removed."""

_MANIFEST = "manifest-summary.json"
_DATA = "data"
"""The folder of data files: inside a full export's folder, and beside those of incremental exports."""
_TABLE = "arrived"
_ARRIVED = to_arrow_schema(schemas.ARRIVED)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--arriving", required=True, metavar="PATH", help="folder that exports arrive in, at any depth")
    parser.add_argument("--blobs", metavar="PATH", help="as of the job messages")
    parser.add_argument("--allow-quarantine", action="store_true", help="as of the job messages")


def run(run: Run) -> JobResult:
    folder = Place(run.given.arriving)
    if not folder.is_folder():
        raise BadInput(f"there is no folder {folder}, in which exports could arrive")
    outcomes = [_one(run, place, at) for at, place in _arrived(folder, _done(run))]
    read, broken = outcomes.count(True), outcomes.count(False)
    text = f"{read} {'export' if read == 1 else 'exports'}" + (f", {broken} more that cannot be read" if broken else "")
    return JobResult(text, run.tables.path("messages"), FAILED if broken else DONE)


def _done(run: Run) -> set[str]:
    """The ids of the exports read so far."""
    if not run.parts(_TABLE):
        return set()
    rows = run.tables.arrow(_TABLE, _ARRIVED, where=pc.field("is_done"))
    return {Place(path).name for path in rows["path"].to_pylist()}


def _arrived(folder: Place, done: set[str]) -> list[tuple[str, Place]]:
    """The exports in the folder that are not done, each with its time, in the order of their times."""
    new = [(_time(place), place) for place in _exports(folder, done) if place.name not in done]
    return sorted(new, key=lambda export: (export[0], export[1].name))


def _exports(folder: Place, done: set[str]) -> Iterator[Place]:
    """The exports in the folder, at any depth. Does not open folders of finished exports and of data files, whose
    number grows each day."""
    is_export = (folder / _MANIFEST).size() is not None
    if is_export:
        yield folder
    names = folder.folders()
    if is_export or names & done:  # elsewhere, exports may have been made with the prefix `data`
        names.discard(_DATA)
    for name in names - done:
        yield from _exports(folder / name, done)


def _time(export: Place) -> str:
    """The export's time in its manifest; empty if it has none, which the job `messages` reports."""
    try:
        demand_in(export, export / _MANIFEST)
        summary = orjson.loads((export / _MANIFEST).read())
        return str(summary.get("exportTime") or summary.get("exportToTime") or "")
    except (BadInput, ValueError, AttributeError):
        return ""


def _one(run: Run, place: Place, at: str) -> bool:
    given = run.given
    more = ["--blobs", given.blobs] if given.blobs else []
    more += ["--allow-quarantine"] if given.allow_quarantine else []
    code = main(messages.JOB, ["--export", place.path, "--tables", given.tables, *more], run.context)
    if code == INTERRUPTED:
        raise KeyboardInterrupt
    run.tables.commit(partial(_noted, run, {"path": place.path, "at": at, "is_done": code == DONE}))
    return code == DONE


def _noted(run: Run, row: dict[str, Any], newest: Version) -> TablesChange:
    """The table with this row."""
    earlier = pa.Table.from_batches(read_rows(run.tables.places(newest, _TABLE)), _ARRIVED)
    others = earlier.filter(pc.field("path") != row["path"])
    rows = pa.concat_tables([others, pa.Table.from_pylist([row], _ARRIVED)])
    return TablesChange({(_TABLE, ALL): write_part(run.tables.root, _TABLE, ALL, rows)})


JOB = Job("incremental", ABOUT, run, add_arguments, reads_export=False)

if __name__ == "__main__":
    sys.exit(main(JOB))
