"""One session for all tests of the pipeline: to open one takes seconds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from spark.session import open_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = open_session("tests", cores=2, settings={"spark.sql.shuffle.partitions": "2"})
    yield session
    session.stop()
