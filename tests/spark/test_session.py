from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from spark.frame.session import s3_settings


def test_a_session_listens_on_loopback_only_and_counts_time_in_utc(spark: SparkSession) -> None:
    assert spark.version.startswith("4.3")
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.sparkContext.getConf().get("spark.driver.bindAddress") == "127.0.0.1"
    assert spark.sparkContext.uiWebUrl is None
    assert spark.range(3).count() == 3


def test_spark_uses_the_s3_that_the_environment_names(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    assert s3_settings() == {}
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://minio:9000")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    assert s3_settings() == {
        "spark.hadoop.fs.s3a.endpoint": "http://minio:9000",
        "spark.hadoop.fs.s3a.endpoint.region": "eu-central-1",
        "spark.hadoop.fs.s3a.path.style.access": "true",
    }
