"""Writes one HTML page from the tables that the other jobs have made of an export. It needs no network to be read."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Collection
from pathlib import Path

if not __package__:  # spark-submit runs this file by its path
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from datetime import UTC, datetime

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from spark import schemas
from spark.errors import BadInput
from spark.frame.command_line import positive
from spark.frame.job import Job, JobResult, main
from spark.frame.run import Run
from spark.reading.manifest import place_of
from spark.report import sections
from spark.report.page import Section, Tile, page

_ID = re.compile(r"([0-9]{13,14})-[0-9a-zA-Z]+")
"""An export's id begins with the instant of its request, in ms."""
DAYS = 31
_BY_EXPORT = {
    "violations": schemas.VIOLATIONS,
    "quarantine": schemas.QUARANTINE,
    "backlog": schemas.BACKLOG,
    "requests": schemas.REQUESTS,
    "delay_waiting": schemas.WAITING,
    "dead_letters": schemas.DEAD_LETTERS,
    "cost": schemas.COST,
}
_BY_DAY = {"traffic": schemas.TRAFFIC, "delays": schemas.LATENESS}
_SECTIONS = {
    "audit": ["violations"],
    "quarantine": ["quarantine"],
    "backlog": ["backlog"],
    "traffic": ["traffic"],
    "requests": ["requests"],
    "delays": ["delays", "delay_waiting"],
    "dead_letters": ["dead_letters"],
    "cost": ["cost"],
}
"""Functions of `sections`, and the tables that they show."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--export", required=True, metavar="PATH", help="the export, or its id: it need not exist any more"
    )
    parser.add_argument(
        "--days",
        type=positive,
        default=DAYS,
        metavar="N",
        help=f"the last days to show in tables by day (default: {DAYS})",
    )
    parser.add_argument("--out", default="report.html", metavar="FILE", help="the page (default: report.html)")


def run(run: Run) -> JobResult:
    export_id = place_of(run.given.export).name
    tables = _tables(run, export_id)
    if all(tables[name] is None for name in _BY_EXPORT):
        raise BadInput(f"{run.tables.root} has nothing of an export {export_id}: other jobs have to run first")
    made = [getattr(sections, name)(*(tables[table] for table in of)) for name, of in _SECTIONS.items()]
    _write(Path(run.given.out), page("Decant: report", _subtitle(export_id), _tiles(made), made))
    missing = sum(any(tables[table] is None for table in of) for of in _SECTIONS.values())
    said = f"{len(made) - missing} of {len(made)} tables" if missing else f"{len(made)} tables"
    return JobResult(said, run.given.out)


def _tables(run: Run, export_id: str) -> dict[str, pa.Table | None]:
    """The rows of this export, or of the last days; None: its job has not run."""
    version = run.tables.newest()

    def read(table: str, schema: StructType, parts: Collection[str]) -> pa.Table | None:
        return run.tables.arrow(table, to_arrow_schema(schema), parts) if parts else None

    part = f"export={export_id}"
    found = {
        table: read(table, schema, [part] if part in version.parts(table) else [])
        for table, schema in _BY_EXPORT.items()
    }
    for table, schema in _BY_DAY.items():
        found[table] = read(table, schema, sorted(version.parts(table))[-run.given.days :])
    return found


def _tiles(made: list[Section]) -> list[Tile]:
    return [Tile(section.title, section.headline, section.tone) for section in made]


def _subtitle(export_id: str) -> str:
    parsed = _ID.fullmatch(export_id)
    if not parsed:
        return f"Export {export_id}."
    at = datetime.fromtimestamp(int(parsed[1]) / 1000, UTC)
    return f"Export {export_id}, asked for at {at:%Y-%m-%d %H:%M} UTC."


def _write(out: Path, text: str) -> None:
    """Replaces the page only once it is complete."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        beside = out.with_name(f".{out.name}.{os.getpid()}")
        beside.write_text(text, encoding="utf-8")
        beside.replace(out)
    except OSError as error:
        raise BadInput(f"{out} cannot be written: {error.strerror}") from error


JOB = Job("report", __doc__ or "", run, add_arguments, reads_export=False, writes=False)

if __name__ == "__main__":
    sys.exit(main(JOB))
