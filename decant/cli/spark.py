"""`decant spark`: the jobs of the data pipeline, for an installed tool."""

from __future__ import annotations

import importlib
import os
import sys

import click

from decant.cli.extras import needing

JOBS = (
    *("audit", "backlog", "compact", "convert", "cost", "dead_letters", "delays", "incremental", "messages"),
    *("pipeline", "replay", "report", "requests", "search", "tidy", "traffic"),
)


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("job", type=click.Choice(["export", *JOBS]), metavar="JOB")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def spark(job: str, arguments: tuple[str, ...]) -> None:
    """Run a job of the data pipeline, with Java 17: export, pipeline, audit, backlog, compact, convert, cost,
    dead_letters, delays, incremental, messages, replay, report, requests, search, tidy, traffic.

    After JOB come the arguments of the job; `-- --help` lists them.

    \b
    decant spark export --to exports
    decant spark pipeline --export exports/AWSDynamoDB/ID --tables tables --out report.html
    """
    os.umask(0o077)  # exports, tables and reports have the bodies of messages
    with needing("spark"):
        from spark import jobs
        from spark.exporting import __main__ as export
        from spark.frame.job import main
    if job == "export":
        sys.exit(export.main([*arguments]))
    sys.exit(main(importlib.import_module(f"{jobs.__name__}.{job}").JOB, [*arguments]))
