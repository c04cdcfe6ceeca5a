from __future__ import annotations

from pyspark.sql import SparkSession


def test_a_session_listens_on_loopback_only_and_counts_time_in_utc(spark: SparkSession) -> None:
    assert spark.version.startswith("4.3")
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.sparkContext.getConf().get("spark.driver.bindAddress") == "127.0.0.1"
    assert spark.sparkContext.uiWebUrl is None
    assert spark.range(3).count() == 3
