"""All jobs on a synthetic export say what its generator knows, and the audit finds nothing wrong."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark.frame import at_hand
from spark.frame.job import main
from spark.jobs import audit, backlog, compact, cost, dead_letters, delays, messages, traffic
from tests.spark.written import rows_of
from tests.synthetic import Shape, generate

JOBS = (messages.JOB, backlog.JOB, traffic.JOB, delays.JOB, dead_letters.JOB, cost.JOB, audit.JOB, compact.JOB)


def test_jobs_say_what_the_generator_knows(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(at_hand, "BYTES_MAX", 0)  # so that Spark reads files, as it does where they are larger
    folder, known = generate(tmp_path, Shape(2_000, files=1, topics=1, queues=2))
    tables = str(tmp_path / "tables")
    reading = ["--export", str(folder), "--allow-quarantine"]
    given = ["--tables", tables]
    assert [main(job, [*given, *(reading if job.reads_export else [])]) for job in JOBS] == [0] * len(JOBS)
    assert capsys.readouterr().err == ""

    def rows(table: str) -> list[dict[str, Any]]:
        return rows_of(tables, table)

    place = ("topic", "topic_id", "queue", "group", "consumer")
    counts = ("next", "end", "committed", "ready", "in_flight", "retrying", "dead")
    counted = {tuple(row[name] for name in place): tuple(row[name] for name in counts) for row in rows("backlog")}
    assert counted == {
        tuple(cursor[name] for name in place): tuple(cursor[name] for name in counts) for cursor in known["cursors"]
    }
    stored, tags, sizes = Counter[int](), Counter[str](), Counter[int]()
    for row in rows("traffic"):
        stored[row["queue"]] += row["messages"]
        sizes[row["queue"]] += row["body_bytes"]
        tags[row["tag"]] += row["messages"]
    queues = known["queues"]
    assert stored == {queue["queue"]: queue["messages"] for queue in queues}
    assert sizes == {queue["queue"]: queue["body_bytes"] for queue in queues}
    told = sum((Counter(queue["tags"]) for queue in queues), Counter[str]())
    assert tags == told | Counter({None: known["messages"] - told.total()})
    late, waits = rows("delays"), rows("delay_waiting")
    assert sum(row["messages"] for row in late) == sum(queue["promoted"] for queue in queues)
    assert max(row["max_ms"] for row in late) == max(queue["lateness_ms_max"] for queue in queues)
    assert [sum(row[name] for row in waits) for name in ("messages", "overdue")] == [
        sum(queue["waiting"] for queue in queues) + known["kinds"]["dedup"],  # what has a dedup id waits, too
        sum(due <= known["now_ms"] for queue in queues for due in queue["due_ms"]),
    ]
    assert not any(row["early"] for row in late)
    reasons = sum((Counter(cursor["reasons"]) for cursor in known["cursors"]), Counter[str]())
    assert Counter(row["reason"] for row in rows("dead_messages")) == +reasons
    assert {row["reason"]: row["letters"] for row in rows("dead_letters")}.keys() == (+reasons).keys()
    kinds = Counter[str]()
    for row in rows("cost"):
        kinds[row["kind"]] += row["items"]
    assert kinds == known["kinds"]
    keyed = {(row["topic_id"], row["key"]) for row in rows("messages") if row["key"] is not None}
    assert {(row["topic_id"], row["key"]) for row in rows("compact")} == keyed
    assert len(rows("compact")) == len(keyed)
