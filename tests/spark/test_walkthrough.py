"""From the first message to the report: what is produced, retried, delayed and given up is seen on one page."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from spark.jobs import pipeline
from tests.http.client import Client
from tests.http.test_dead_letters import bury
from tests.spark.exports import ID, write_items

AT = "2026-01-01T00:00:02Z"


def test_every_job_runs_on_an_export_and_the_report_shows_what_they_found(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    client = Client()
    topic = client.topic("orders")
    group = topic.group("billing")
    topic.produce(*(f"order {number}" for number in range(12)), tag="paid")
    topic.produce("soon", delay_ms=1000)
    topic.produce("later", delay_ms=3_600_000)
    taken = group.take(6)
    group.ack(*taken[:3])
    group.nack(taken[3], delay_ms=600_000)
    bury(group, taken[4], reason="no such <customer>")
    client.clock.sleep(1250)
    client.api.forward()
    items = [item for part in client.store._items.values() for item in part.values()]
    folder = write_items(tmp_path / "exports", items)
    tables, out = tmp_path / "tables", tmp_path / "report.html"

    code = pipeline.run(["--export", str(folder), "--tables", str(tables), "--out", str(out), "--now", AT])
    said = capsys.readouterr()
    assert (code, said.err) == (0, "")
    assert [line.partition(":")[0] for line in said.out.splitlines()] == [*pipeline.NAMES, "report"]
    assert "messages: 13 messages, 0 already there" in said.out
    assert "audit: 0 violations" in said.out
    page = out.read_text()
    for text in ("Everything holds", "7 ready", "13 messages", "99 % within 250", "no such &lt;customer&gt;"):
        assert text.replace(" ", "") in page.replace("\u202f", "").replace(" ", "")
    [backlog] = pq.read_table(tables / "backlog" / f"export={ID}").to_pylist()
    assert {name: backlog[name] for name in ("ready", "in_flight", "retrying", "dead")} == {
        "ready": 7,
        "in_flight": 1,
        "retrying": 1,
        "dead": 1,
    }
