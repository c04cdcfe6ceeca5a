"""How often a run reads the data files of its export."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark.frame.job import DONE, main
from spark.jobs import audit, backlog, messages
from tests.spark.exports import write_items
from tests.spark.items import entry, payload, pointer, segment, topic
from tests.spark.opened import opened

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's")


def test_each_file_is_read_once_by_messages_and_not_by_later_jobs(spark: SparkSession, tmp_path: Path) -> None:
    large = pointer(b"a large!")
    held = [topic(), segment(entry()), segment(large, base=1), payload(b'{"b":"large"}', b"a large!")]
    folder, tables = write_items(tmp_path / "export", held, files=2), ["--tables", str(tmp_path / "tables")]
    for job, passes in ((messages.JOB, 1), (backlog.JOB, 0), (audit.JOB, 0), (messages.JOB, 1)):
        with opened(folder / "data") as counts:
            assert main(job, ["--export", str(folder), *tables]) == DONE
        assert {*counts.values()} == ({passes} if passes else set()), job.name


def test_a_job_alone_reads_each_file_once(spark: SparkSession, tmp_path: Path) -> None:
    folder = write_items(tmp_path / "export", [topic(), segment(entry())], files=2)
    with opened(folder / "data") as counts:
        assert main(audit.JOB, ["--export", str(folder), "--tables", str(tmp_path / "tables")]) == DONE
    assert [*counts.values()] == [1, 1]
