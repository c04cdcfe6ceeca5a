"""Sends messages of the table messages back into a topic, through the service, each once per run."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

if not __package__:  # spark-submit runs this file by its path
    sys.path[0] = str(Path(__file__).resolve().parents[2])

import base64
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

import orjson
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from spark import schemas
from spark.errors import BadInput
from spark.frame import message_options
from spark.frame.job import Job, JobResult, main
from spark.frame.run import Run
from spark.replaying.journal import Journal
from spark.replaying.sending import SEND, SKIP, Clock, Sender
from spark.replaying.service import TopicClient
from spark.transforms.selection import in_order, only_selected

RATE = 100.0
_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    message_options.add_arguments(parser)
    parser.add_argument("--run-id", required=True, type=_run_id, help="repeat it to continue a run where it stopped")
    parser.add_argument("--url", required=True, type=_url, help="of the service, such as http://127.0.0.1:8000")
    parser.add_argument("--to-topic", required=True, metavar="NAME", help="must exist")
    parser.add_argument("--rate", type=_rate, default=RATE, metavar="N", help=f"messages a second (default: {RATE:g})")
    parser.add_argument("--keep-queues", action="store_true", help="into the queue each was in, whatever its key")
    parser.add_argument(
        "--doubtful",
        choices=(SEND, SKIP),
        help="send or skip messages that may have been stored, if the topic cannot tell",
    )
    parser.add_argument("--journal", type=Path, metavar="FILE", help="default: under --tables, if that is here")


def run(run: Run) -> JobResult:
    given = run.given
    target = TopicClient(given.url, given.to_topic)
    settings = target.settings()
    asked = {"topic": given.to_topic, "url": given.url, "keep_queues": given.keep_queues}
    about = {"run": given.run_id, **asked, "selection": asdict(message_options.selection(given))}
    clock = Clock(lambda: time.time_ns() // 1_000_000, lambda ms: time.sleep(ms / 1000))
    with Journal(_journal(run), orjson.loads(orjson.dumps(about))) as journal:
        plan = _plan(run, is_begun=journal.stored > 0 or journal.doubt is not None)
        if given.keep_queues:
            _demand_queues(plan, settings["queues"])
        total = plan.count()
        sender = Sender(given.run_id, target, journal, clock, given.rate, _progress(total), given.doubtful)
        sent = sender.run(_messages(plan, given.keep_queues))
    return JobResult(
        f"{sent} messages sent, {total} in all of run {given.run_id}", f"{given.url}/topics/{given.to_topic}"
    )


def _plan(run: Run, is_begun: bool) -> DataFrame:
    """The messages that this run sends, selected at its beginning. Spark writes the plan, and a mark when it is
    complete."""
    plan = run.tables.root / f"replay/run={run.given.run_id}/plan"
    if (plan / "_SUCCESS").size() is None:
        if is_begun:
            raise BadInput(f"run {run.given.run_id} has begun, but its plan {plan} is gone; take another --run-id")
        archive = run.read("messages", schemas.MESSAGES)
        selected = archive.transform(only_selected, message_options.selection(run.given)).transform(in_order)
        numbered = selected.withColumn("position", F.monotonically_increasing_id())
        numbered.write.mode("overwrite").parquet(plan.spark_path)
    return run.spark.read.parquet(plan.spark_path)


def _demand_queues(plan: DataFrame, queues: int) -> None:
    (last,) = plan.agg(F.max("queue")).collect()[0]
    if last is not None and last >= queues:
        raise BadInput(f"--keep-queues: there are messages of queue {last}, and the topic has {queues} queues")


def _messages(plan: DataFrame, keeps_queues: bool) -> Iterator[dict[str, Any]]:
    for row in plan.orderBy("position").toLocalIterator(prefetchPartitions=True):
        yield _message(row, keeps_queues)


def _message(row: Row, keeps_queue: bool) -> dict[str, Any]:
    body = {"body": row["body"].decode()} if row["is_text"] else {"body_base64": base64.b64encode(row["body"]).decode()}
    given = {name: row[name] for name in ("key", "tag") if row[name] is not None}
    queue = {"queue": row["queue"]} if keeps_queue else {}
    return {"id": row["message_id"], **body, **given, **queue, "properties": row["properties"] or {}}


def _journal(run: Run) -> Path:
    if run.given.journal:
        return Path(run.given.journal)
    if "://" in run.given.tables:
        raise BadInput(f"the journal of a replay must lie on this machine, not in {run.given.tables}: give --journal")
    return Path(run.given.tables) / "replay" / f"run={run.given.run_id}" / "journal.ndjson"


def _progress(total: int) -> Callable[[int], None]:
    def say(stored: int) -> None:
        if sys.stderr.isatty():
            print(f"\rreplay: {stored} of {total}", end="\n" if stored == total else "", file=sys.stderr)

    return say


def _run_id(text: str) -> str:
    if not _RUN_ID.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not 1 to 64 letters, digits, dots, underscores and hyphens")
    return text


def _url(text: str) -> str:
    if not text.startswith(("http://", "https://")):
        raise argparse.ArgumentTypeError(f"{text!r} does not begin with http:// or https://")
    return text.rstrip("/")


def _rate(text: str) -> float:
    try:
        rate = float(text)
    except ValueError:
        rate = 0.0
    if not 0 < rate < 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of messages a second, above 0")
    return rate


JOB = Job("replay", __doc__ or "", run, add_arguments, reads_export=False, writes=False)

if __name__ == "__main__":
    sys.exit(main(JOB))
