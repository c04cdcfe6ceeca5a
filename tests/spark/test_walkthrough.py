"""What docs/pipeline.md says under "From a laptop", command by command: from a first message to the report."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from spark.exporting import main as export
from spark.frame.job import main
from spark.jobs import backlog, messages, report
from tests.local.serving import running
from tests.support.emulators import ROOT


def test_from_the_first_message_to_the_report(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of the pipeline no more than three jobs: all of them run in test_jobs_on_the_service."""
    tables, out = tmp_path / "tables", tmp_path / "report.html"
    with running(PORT="0") as server:
        example = [sys.executable, "examples/orders.py", str(server.port)]
        subprocess.run(example, cwd=ROOT, check=True, capture_output=True, timeout=60)
        [endpoint] = re.findall(r"DynamoDB endpoint.*: (http\S+)", server.banner)
        assert export(["--endpoint", endpoint, "--to", str(tmp_path / "exports")]) == 0
    folder = capsys.readouterr().out.split(" -> ")[1].strip()
    given = ["--export", folder, "--tables", str(tables)]
    codes = [main(messages.JOB, given), main(backlog.JOB, given), main(report.JOB, [*given, "--out", str(out)])]
    said = capsys.readouterr()
    assert (codes, said.err) == ([0, 0, 0], "")
    assert "messages: 21 messages, 0 already there" in said.out
    rows = pq.read_table(tables / "backlog" / f"export={Path(folder).name}").to_pylist()
    counts = {name: sum(each[name] for each in rows) for name in ("ready", "in_flight", "retrying", "dead")}
    assert counts == {"ready": 15, "in_flight": 0, "retrying": 1, "dead": 1}
    assert "15 ready" in out.read_text().replace("\u202f", " ")
