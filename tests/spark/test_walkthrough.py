"""Runs the commands of docs/pipeline.md under "From a laptop" one by one, from a first message to the report."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark.exporting.__main__ import main as export
from spark.frame.job import main
from spark.jobs import pipeline
from tests.local.serving import running
from tests.spark.written import rows_of
from tests.support.emulators import ROOT


def test_from_the_first_message_to_the_report(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tables, out = tmp_path / "tables", tmp_path / "report.html"
    with running(PORT="0") as server:
        example = [sys.executable, "examples/orders.py", str(server.port)]
        subprocess.run(example, cwd=ROOT, check=True, capture_output=True, timeout=60)
        [endpoint] = re.findall(r"DynamoDB endpoint.*: (http\S+)", server.banner)
        assert export(["--endpoint", endpoint, "--to", str(tmp_path / "exports")]) == 0
    folder = capsys.readouterr().out.split(" -> ")[1].strip()
    code = main(pipeline.JOB, ["--export", folder, "--tables", str(tables), "--out", str(out)])
    said = capsys.readouterr()
    assert (code, said.err) == (0, "")
    assert [line.partition(":")[0] for line in said.out.splitlines()] == [*pipeline.NAMES, "pipeline"]
    assert "messages: 21 messages, 0 already there" in said.out
    assert "audit: 0 violations" in said.out
    backlog = rows_of(tables, "backlog")
    counts = {name: sum(row[name] for row in backlog) for name in ("ready", "in_flight", "retrying", "dead")}
    assert counts == {"ready": 15, "in_flight": 0, "retrying": 1, "dead": 1}
    page = out.read_text()
    for text in ("Nothing was found", "15 ready", "21 messages", "no such &lt;customer&gt;", "a month"):
        assert text.replace(" ", "") in page.replace("\u202f", "").replace(" ", ""), text
    assert "has not run" not in page
