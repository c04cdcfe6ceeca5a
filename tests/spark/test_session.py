from __future__ import annotations

import os
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import SparkSession


def test_a_session_listens_on_loopback_only_and_counts_time_in_utc(spark: SparkSession) -> None:
    assert spark.version.startswith("4.3")
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.sparkContext.getConf().get("spark.driver.bindAddress") == "127.0.0.1"
    assert spark.sparkContext.uiWebUrl is None
    assert spark.range(3).count() == 3


def test_workers_talk_to_the_jvm_over_unix_sockets(spark: SparkSession) -> None:
    def sockets(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"unix": [os.environ.get("PYTHON_UNIX_DOMAIN_ENABLED", "").lower()]})

    rows = spark.range(2).mapInArrow(sockets, "unix string").collect()
    assert {row["unix"] for row in rows} == {"true"}
