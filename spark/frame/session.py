"""Opens the Spark session of a job: on this machine by default, on any cluster with the same code."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from spark.files import endpoint

ROOT = Path(__file__).resolve().parents[2]
"""The folder where Python workers find the package `spark`."""

_LOOPBACK = "127.0.0.1"
_ARROW_BATCH_ROWS = 4096
_ARROW_BATCH_BYTES = 16 * 1024 * 1024
"""The most bytes in one batch between the JVM and Python: rows with payloads of 300 KB must not add up to gigabytes."""

_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.python.sql.dataFrameDebugging.enabled": "false",  # three calls into the JVM for each column of a plan
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(_ARROW_BATCH_ROWS),
    "spark.sql.execution.arrow.maxBytesPerBatch": str(_ARROW_BATCH_BYTES),
    "spark.sql.execution.pyspark.udf.faulthandler.enabled": "true",
    "spark.executorEnv.PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")])),
}

SMALL_ITEMS = 50_000
"""A job on fewer items ends before compilation has paid off. With 21 messages, the compiler took half the CPU time of
all jobs; the settings below save 60 % of the CPU time."""

_SMALL = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",  # there is nothing to adapt to, and it plans again after each stage
    "spark.driver.defaultJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.python.unix.domain.socket.enabled": "true",  # over TCP each task begins with a delayed acknowledgement
}


def open_session(
    app: str, cores: int | None = None, master: str | None = None, *, is_small: bool = False
) -> SparkSession:
    """The running session, or a new one. `is_small`: for fewer than `SMALL_ITEMS` items.

    Without `master` it runs on `cores` cores of this machine (default: all) and listens on loopback only; under
    `spark-submit --master`, on that cluster."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    chosen = _SETTINGS | s3_settings()
    if master or not is_submitted():
        chosen["spark.master"] = master or f"local[{cores or cores_here()}]"
    if chosen.get("spark.master", "").startswith("local"):
        chosen |= _on_this_machine(cores or cores_here())
    builder = SparkSession.builder.appName(app)
    for name, value in {**chosen, **(_SMALL if is_small else {})}.items():
        builder = builder.config(name, value)
    with _interrupted_later():
        spark: SparkSession = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def cores_here() -> int:
    """How many cores of this machine the process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def s3_settings() -> dict[str, str]:
    """The S3 settings of the environment, as in `spark.files`. Spark itself reads the keys from the environment."""
    chosen = dict[str, str]()
    if url := endpoint():
        chosen |= {"endpoint": url, "path.style.access": "true"}
    if region := os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION"):
        chosen["endpoint.region"] = region
    return {f"spark.hadoop.fs.s3a.{name}": value for name, value in chosen.items()}


@contextmanager
def _interrupted_later() -> Iterator[None]:
    """Delays Ctrl-C until the JVM has started. An interrupt during the start would leave the JVM running for good."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals are for the main thread alone
        return
    came: list[int] = []

    def note(number: int, _: object) -> None:
        came.append(number)

    before = signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGINT) is note:  # PySpark has its own from when there are jobs to cancel
            signal.signal(signal.SIGINT, before)
    if came:
        raise KeyboardInterrupt


def is_submitted() -> bool:
    """Whether `spark-submit` started this process and has set the master."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _on_this_machine(cores: int) -> dict[str, str]:
    os.environ.setdefault("SPARK_LOCAL_IP", _LOOPBACK)
    return {
        "spark.driver.host": _LOOPBACK,
        "spark.driver.bindAddress": _LOOPBACK,
        "spark.sql.shuffle.partitions": str(2 * cores),
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={ROOT / 'spark' / 'log4j2.properties'}",
        "spark.ui.showConsoleProgress": "true" if sys.stderr.isatty() else "false",
    }
