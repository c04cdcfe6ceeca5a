"""How often a run reads the data files of its export."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark.frame.job import DONE, main
from spark.jobs import backlog, messages
from tests.spark.exports import change, write_export, write_items
from tests.spark.items import entry, payload, segment, topic
from tests.spark.opened import opened

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's")


def test_messages_reads_each_file_twice_and_a_job_after_it_once(spark: SparkSession, tmp_path: Path) -> None:
    large = entry(None, b"a large!", p=1)
    held = [topic(), segment(entry()), segment(large, base=1), payload(b'{"b":"large"}', large["i"])]
    folder, tables = write_items(tmp_path / "export", held, files=2), ["--tables", str(tmp_path / "tables")]
    for job, passes in ((messages.JOB, 2), (backlog.JOB, 1)):
        with opened(folder / "data") as counts:
            assert main(job, ["--export", str(folder), *tables]) == DONE
        assert list(counts.values()) == [passes, passes], job.name
    changes = [change(segment(entry(), entry(b'{"b":"two"}', b"two byte")), 1)]
    later = write_export(tmp_path / "later", [changes], "01767225600001-0a1b2c3e", is_incremental=True)
    with opened(later.parent / "data") as counts:
        assert main(messages.JOB, ["--export", str(later), *tables]) == DONE
    assert list(counts.values()) == [2]
