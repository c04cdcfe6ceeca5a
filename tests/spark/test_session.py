from __future__ import annotations

import gc
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import SparkSession


def test_a_session_listens_on_loopback_only_and_counts_time_in_utc(spark: SparkSession) -> None:
    assert spark.version.startswith("4.3")
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.sparkContext.getConf().get("spark.driver.bindAddress") == "127.0.0.1"
    assert spark.sparkContext.uiWebUrl is None
    assert spark.range(3).count() == 3


def test_workers_do_not_look_for_garbage_among_what_they_have_imported(spark: SparkSession) -> None:
    def frozen(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"count": [gc.get_freeze_count()]})

    tasks = spark.range(8, numPartitions=8).mapInArrow(frozen, "count bigint")
    tasks.collect()
    assert min(row["count"] for row in tasks.collect()) > 0
