"""Runs `messages` on every export that has arrived in a folder since the last run, in the order of their times."""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path
from typing import Any

if not __package__:  # spark-submit runs this file by its path
    sys.path[0] = str(Path(__file__).resolve().parents[2])

import orjson
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from spark import schemas
from spark.errors import BadInput
from spark.files import Place
from spark.frame.job import DONE, FAILED, INTERRUPTED, Job, Outcome, main
from spark.frame.run import Run
from spark.jobs import messages
from spark.landing.export_pass import ALL
from spark.tables.versions import Change, Version
from spark.tables.writing import read_rows, write_part

ABOUT = """Runs the job messages on every export, full or incremental, that has arrived in a folder since the last run,
in the order of their times. The table arrived records them. An export without a manifest is still being written, and
waits for the next run. An export that cannot be read is reported on stderr and does not stop the others; each run tries
it again until it can be read, or is removed."""

_MANIFEST = "manifest-summary.json"
_TABLE = "arrived"
_ARRIVED = to_arrow_schema(schemas.ARRIVED)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--arriving", required=True, metavar="PATH", help="folder that exports arrive in, at any depth")
    parser.add_argument("--blobs", metavar="PATH", help="as of the job messages")
    parser.add_argument("--allow-quarantine", action="store_true", help="as of the job messages")


def run(run: Run) -> Outcome:
    folder = Place(run.given.arriving)
    if not folder.is_folder():
        raise BadInput(f"there is no folder {folder}, in which exports could arrive")
    outcomes = [_one(run, place, at) for at, place in _arrived(folder, _done(run))]
    read, broken = outcomes.count(True), outcomes.count(False)
    text = f"{read} {'export' if read == 1 else 'exports'}" + (f", {broken} more that cannot be read" if broken else "")
    return Outcome(text, run.tables.path("messages"), FAILED if broken else DONE)


def _done(run: Run) -> set[str]:
    """The ids of the exports that were read."""
    if not run.parts(_TABLE):
        return set()
    rows = run.tables.arrow(_TABLE, _ARRIVED).to_pylist()
    return {Place(row["path"]).name for row in rows if row["is_done"]}


def _arrived(folder: Place, done: set[str]) -> list[tuple[str, Place]]:
    """The exports in the folder that are not done, each with its time, in the order of their times."""
    found = [folder / found.name for found in folder.files() if found.name.rpartition("/")[2] == _MANIFEST]
    new = [(_time(manifest), manifest.parent) for manifest in found if manifest.parent.name not in done]
    return sorted(new, key=lambda export: (export[0], export[1].name))


def _time(manifest: Place) -> str:
    """The export's time as its manifest has it; empty if it has none, which the job messages reports."""
    try:
        summary = orjson.loads(manifest.read())
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


def _noted(run: Run, row: dict[str, Any], newest: Version) -> Change:
    """The table with this row."""
    earlier = [each for batch in read_rows(run.tables.places(newest, _TABLE)) for each in batch.to_pylist()]
    rows = [*(each for each in earlier if each["path"] != row["path"]), row]
    part = write_part(run.tables.root, _TABLE, ALL, pa.Table.from_pylist(rows, _ARRIVED))
    return Change({(_TABLE, ALL): part})


JOB = Job("incremental", ABOUT, run, add_arguments, reads_export=False)

if __name__ == "__main__":
    sys.exit(main(JOB))
