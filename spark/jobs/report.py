"""Writes one HTML page from the tables that the other jobs have made of an export. It needs no network to be read."""

from __future__ import annotations

import argparse
import os
import re
import sys
from pathlib import Path

if not __package__:  # spark-submit runs this file by its path
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from datetime import UTC, datetime

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from spark import schemas
from spark.errors import BadInput
from spark.frame.job import Job, Outcome, main
from spark.frame.run import Run
from spark.report import sections
from spark.report.page import Section, Tile, page

_ID = re.compile(r"([0-9]{13,14})-[0-9a-zA-Z]+")
"""An export's id begins with the instant at which it was asked for, in ms."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--export", required=True, metavar="PATH", help="the export, or its id: it need not exist any more"
    )
    parser.add_argument("--out", default="report.html", metavar="FILE", help="the page (default: report.html)")


def run(run: Run) -> Outcome:
    export_id = run.given.export.rstrip("/").rpartition("/")[2]
    tables = _sections(run, export_id)
    if not any(tables.values()):
        raise BadInput(f"{run.tables.root} has nothing of an export {export_id}: other jobs have to run first")
    made = {name: getattr(sections, name)(rows) for name, rows in tables.items()}
    _write(Path(run.given.out), page("Decant: report", _subtitle(export_id), _tiles(made), list(made.values())))
    missing = sum(rows is None for rows in tables.values())
    said = f"{len(made) - missing} of {len(made)} tables" if missing else f"{len(made)} tables"
    return Outcome(said, run.given.out)


def _sections(run: Run, export_id: str) -> dict[str, DataFrame | None]:
    part = f"export={export_id}"

    def read(table: str, schema: StructType) -> DataFrame | None:
        return run.read(table, schema, [part]) if part in run.parts(table) else None

    return {
        "audit": read("violations", schemas.VIOLATIONS),
        "quarantine": read("quarantine", schemas.QUARANTINE),
        "backlog": read("backlog", schemas.BACKLOG),
        "traffic": read("traffic", schemas.TRAFFIC),
        "requests": read("requests", schemas.REQUESTS),
        "delays": read("delays", schemas.LATENESS),
        "dead_letters": read("dead_letters", schemas.DEAD_LETTERS),
        "cost": read("cost", schemas.COST),
    }


def _tiles(made: dict[str, Section]) -> list[Tile]:
    return [Tile(section.title, section.headline, section.tone) for section in made.values()]


def _subtitle(export_id: str) -> str:
    parsed = _ID.fullmatch(export_id)
    if not parsed:
        return f"Export {export_id}."
    at = datetime.fromtimestamp(int(parsed[1]) / 1000, UTC)
    return f"Export {export_id}, asked for at {at:%Y-%m-%d %H:%M} UTC."


def _write(out: Path, text: str) -> None:
    """Replaces the page only when all of it is written."""
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
