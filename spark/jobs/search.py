"""Finds messages in the table messages: shows the first, and writes all of them with --out."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

if not __package__:  # spark-submit runs this file by its path
    sys.path[0] = str(Path(__file__).resolve().parents[2])

import base64
from datetime import UTC, datetime
from typing import Any

import orjson
from pyspark.sql import DataFrame, Row

from spark import schemas
from spark.errors import BadInput
from spark.frame import message_options
from spark.frame.command_line import positive
from spark.frame.job import Job, JobResult, main
from spark.frame.run import Run
from spark.transforms.selection import in_order, only_selected

LIMIT = 20
_SHOWN_CHARS = 60


def add_arguments(parser: argparse.ArgumentParser) -> None:
    message_options.add_arguments(parser)
    parser.add_argument("--limit", type=positive, default=LIMIT, metavar="N", help=f"lines shown (default: {LIMIT})")
    parser.add_argument("--out", type=Path, metavar="FILE", help="all of them, one JSON object a line")


def run(run: Run) -> JobResult:
    limit, out = run.given.limit, run.given.out
    if out is not None:
        _demand_file(out)
    wanted = message_options.selection(run.given)
    archive = run.read("messages", schemas.MESSAGES)
    selected = archive.transform(only_selected, wanted).transform(in_order)
    rows = selected.limit(limit + 1).collect()
    for row in rows[:limit]:
        print(_line(row))
    more = ", and more" if len(rows) > limit else ""
    if out is None:
        return JobResult(f"{len(rows[:limit])} messages{more}")
    return JobResult(f"{_write(selected, out)} messages", str(out))


def _line(row: Row) -> str:
    at = datetime.fromtimestamp(row["stored_at_ms"] / 1000, UTC).isoformat(timespec="milliseconds")
    body = row["body"].decode() if row["is_text"] else f"({len(row['body'])} bytes)"
    shown = body if len(body) <= _SHOWN_CHARS else body[: _SHOWN_CHARS - 3] + "..."
    said = [at, row["topic"], f"{row['queue']}:{row['offset']}", row["message_id"], row["key"], row["tag"], shown]
    return "\t".join("-" if value is None else _printable(value) for value in said)


def _printable(text: str) -> str:
    """The text on one line, without characters that a terminal would interpret."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def _demand_file(out: Path) -> None:
    if not out.parent.is_dir():
        raise BadInput(f"there is no folder {out.parent} to write {out.name} into")
    if out.is_dir():
        raise BadInput(f"{out} is a folder, not a file to write into")


def _write(messages: DataFrame, out: Path) -> int:
    """Writes to a temporary file beside it first: an existing file stays until the new one is complete."""
    unfinished = out.with_name(out.name + ".unfinished")
    count = 0
    with unfinished.open("wb") as file:
        for row in messages.toLocalIterator():
            file.write(orjson.dumps(as_json(row)) + b"\n")
            count += 1
    unfinished.replace(out)
    return count


def as_json(row: Row) -> dict[str, Any]:
    """A message as the service shows it."""
    body = {"body": row["body"].decode()} if row["is_text"] else {"body_base64": base64.b64encode(row["body"]).decode()}
    names = ("message_id", "topic", "queue", "offset", "stored_at_ms", "key", "tag")
    return {**{name: row[name] for name in names}, "properties": row["properties"] or {}, **body}


JOB = Job("search", __doc__ or "", run, add_arguments, reads_export=False, writes=False)

if __name__ == "__main__":
    sys.exit(main(JOB))
