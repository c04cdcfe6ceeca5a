"""One session for all tests of the pipeline: to open one takes seconds."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from spark.frame.session import open_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    if not shutil.which("java") and not os.environ.get("CI"):
        pytest.skip("Java 17 is not here")
    session = open_session("tests", cores=1, is_small=True)
    yield session
    session.stop()
