"""`python -m spark.exporting` exports a table. Exit codes: 0 done, 1 failed, 64 wrong arguments, 130 interrupted."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from spark.errors import BadInput
from spark.exporting.layout import iso
from spark.exporting.source_table import Table
from spark.exporting.table_export import Done, export_table
from spark.frame.command_line import Parser, positive
from spark.progress import Bar

ENDPOINT = "http://127.0.0.1:8001"
"""The default address of the store of `make run`."""
SEGMENTS_MAX = 64


def main(arguments: Sequence[str] | None = None) -> int:
    given = _parser().parse_args(arguments)
    began = time.monotonic()
    bar = Bar(0, "items")
    try:
        table = Table.open(given.endpoint, given.table)
        bar = Bar(table.items, "items")
        done = export_table(table, given.to, given.files, given.segments, given.incremental, bar.add)
    except (BadInput, OSError) as error:
        return _failed(bar, str(error), 1)
    except KeyboardInterrupt:
        return _failed(bar, "interrupted", 130)
    bar.close()
    print(f"export: {_said(done, given.table)} in {time.monotonic() - began:.1f} s{_where(done)}")
    return 0


def _failed(bar: Bar, reason: str, code: int) -> int:
    bar.close()
    print(f"export: {reason}", file=sys.stderr)
    return code


def _said(done: Done, table: str) -> str:
    if done.since_ms is None:
        return f"{done.items} items of table {table}"
    if done.folder is None:
        return f"nothing has changed in table {table} since {iso(done.since_ms)}; no export was made"
    return f"{done.changed} changed and {done.deleted} deleted items of table {table} since {iso(done.since_ms)}"


def _where(done: Done) -> str:
    return f" -> {done.folder}" if done.folder else ""


def _parser() -> Parser:
    made = Parser(
        prog="export",
        description="Writes a table of any DynamoDB endpoint to files, in the layout of AWS's own exports.",
        epilog="The value of the key that receipts are signed with is not written.",
    )
    endpoint = os.environ.get("AWS_ENDPOINT_URL_DYNAMODB") or ENDPOINT
    made.add_argument("--endpoint", default=endpoint, metavar="URL", help=f"of DynamoDB (default: {endpoint})")
    made.add_argument("--table", default="decant", metavar="NAME", help="(default: decant)")
    made.add_argument("--to", required=True, type=Path, metavar="DIR", help="AWSDynamoDB/<ExportId> is made in it")
    made.add_argument("--incremental", action="store_true", help="only what has changed since the last one into DIR")
    made.add_argument("--files", type=positive, default=4, metavar="N", help="data files (default: 4)")
    made.add_argument("--segments", type=_segments, default=4, metavar="N", help="readers side by side (default: 4)")
    return made


def _segments(text: str) -> int:
    if positive(text) > SEGMENTS_MAX:
        raise argparse.ArgumentTypeError(f"{text} readers are more than {SEGMENTS_MAX}")
    return int(text)


if __name__ == "__main__":
    os.umask(0o077)  # an export has the bodies of messages: only this user may read it until its mode is widened
    sys.exit(main())
