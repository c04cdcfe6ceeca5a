"""One session for all tests of the pipeline: to open one takes seconds."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from spark.frame.session import open_session

_SETTINGS = {
    "spark.sql.codegen.wholeStage": "false",  # nor is compiling a plan for ten rows: a query takes a third of the time
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.defaultJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",  # nor is a JVM of a few minutes
    "spark.python.unix.domain.socket.enabled": "true",
}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    if not shutil.which("java") and not os.environ.get("CI"):
        pytest.skip("Java 17 is not here")
    session = open_session("tests", cores=1, settings=_SETTINGS)
    yield session
    session.stop()
