"""One contender of the benchmark of the pipeline, in a process of its own: its arguments are WHO CORES EXPORT WARM.

Prints one line of JSON: rows, seconds of the second run (the first, on the small export WARM, warms up), and the most
memory that the processes ever had, in MB."""

from __future__ import annotations

import base64
import gzip
import os
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import zstandard

Row = tuple[Any, ...]


def plain(folder: str) -> int:
    """A plain Python loop that does the same. Payloads are kept, then segments are read: two passes, in memory what
    must be."""
    payloads: dict[str, bytes] = {}
    for item in _plain_items(folder, b'"pk":{"S":"payload#'):
        payloads[item["pk"]["S"].split("#")[2]] = base64.b64decode(item["data"]["B"])
    return sum(1 for _ in _plain_rows(folder, payloads))


def _plain_items(folder: str, wanted: bytes) -> Iterator[dict[str, Any]]:
    for path in sorted(Path(folder).glob("data/*.gz")):
        with gzip.open(path) as file:
            for line in file:
                if wanted in line:
                    yield orjson.loads(line)["Item"]


def _plain_rows(folder: str, payloads: dict[str, bytes]) -> Iterator[Row]:
    inflate = zstandard.ZstdDecompressor().decompress
    for item in _plain_items(folder, b'"pk":{"S":"log#'):
        _, topic_id, number = item["pk"]["S"].split("#")
        queue, offset = int(number), int(item["sk"]["S"])
        for listed in item["entries"]["L"]:
            entry = listed["M"]
            entry_id = base64.b64decode(entry["i"]["B"]).hex()
            at = int(entry["at"]["N"])
            date = datetime.fromtimestamp(at / 1000, UTC).date()
            packed = base64.b64decode(entry["d"]["B"]) if "d" in entry else payloads[entry_id]
            lines = inflate(packed) if entry["c"]["S"] == "zstd" else packed
            for line in lines.split(b"\n"):
                message = orjson.loads(line)
                body = message["b"].encode() if "b" in message else base64.b64decode(message["B"])
                message_id = message.get("i") or f"{entry_id}{queue:02x}{offset:x}"
                about = (message.get("k"), message.get("t"), message.get("p", {}), body, "b" in message, date)
                yield ("orders", topic_id, queue, offset, message_id, entry_id, at, None, *about)
                offset += 1


def ours(cores: int) -> Callable[[str], int]:
    from spark.session import open_session
    from spark.sources import dynamodb_export
    from spark.transforms import messages as unpacking

    spark = open_session("benchmark", cores)

    def run(folder: str) -> int:
        inline = dynamodb_export.inline(spark, folder).transform(unpacking.unpacked)
        elsewhere = dynamodb_export.elsewhere(spark, folder).transform(unpacking.elsewhere)
        unpacked = inline.unionByName(elsewhere.transform(unpacking.unpacked))
        names = dynamodb_export.items(spark, folder, "topic").transform(unpacking.topic_names)
        return _all_columns(unpacking.messages(unpacked, names))

    return run


def _all_columns(found: Any) -> int:
    """Makes every column of every row, and counts the rows."""
    from pyspark.sql import Observation
    from pyspark.sql.functions import count, lit

    seen = Observation()
    found.observe(seen, count(lit(1)).alias("rows")).write.format("noop").mode("overwrite").save()
    return int(seen.get["rows"])


def read_json(cores: int) -> Callable[[str], int]:
    """Spark's own reader, to typed JSON only: nothing is decoded or unpacked. `rows` are items."""
    from spark.session import open_session

    spark = open_session("benchmark", cores)
    entry = "M struct<i:struct<B:string>,n:struct<N:string>,at:struct<N:string>,c:struct<S:string>,d:struct<B:string>>"
    item = f"pk struct<S:string>, sk struct<S:string>, data struct<B:string>, entries struct<L:array<struct<{entry}>>>"
    return lambda folder: _all_columns(spark.read.schema(f"Item struct<{item}>").json(f"{folder}/data/*.gz"))


def duck(cores: int) -> Callable[[str], int]:
    """DuckDB, to typed JSON only: nothing is decoded or unpacked. `rows` are items."""
    import duckdb

    connection = duckdb.connect(config={"threads": cores})
    entry = "STRUCT(M STRUCT(i STRUCT(B VARCHAR), n STRUCT(N VARCHAR), at STRUCT(N VARCHAR), d STRUCT(B VARCHAR)))"
    item = f"STRUCT(pk STRUCT(S VARCHAR), data STRUCT(B VARCHAR), entries STRUCT(L {entry}[]))"

    def run(folder: str) -> int:
        source = f"read_json('{folder}/data/*.gz', format='newline_delimited', columns={{Item: '{item}'}})"
        query = f"select count(*), sum(len(Item.entries.L)), sum(strlen(Item.data.B)) from {source}"  # noqa: S608
        return int(connection.execute(query).fetchall()[0][0])

    return run


def peak_mb() -> dict[str, int]:
    """The most that this process and those it has started ever had, by name."""
    peaks: dict[str, int] = {}
    for pid in _descendants(os.getpid()):
        status = dict(
            line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line
        )
        name = "driver" if pid == os.getpid() else "JVM" if "java" in status["Name"] else "worker"
        if "VmHWM" in status:
            peaks[name] = max(peaks.get(name, 0), int(status["VmHWM"].split()[0]) // 1024)
    return peaks


def _descendants(pid: int) -> list[int]:
    children = [int(each) for path in Path(f"/proc/{pid}/task").glob("*/children") for each in path.read_text().split()]
    return [pid, *(each for child in children for each in _descendants(child))]


def main(who: str, cores: str, folder: str, warm: str) -> None:
    makers = {"plain": lambda _: plain, "ours": ours, "read.json": read_json, "DuckDB": duck}
    run = makers[who](int(cores))
    run(warm)
    began = time.monotonic()
    rows = run(folder)
    print(orjson.dumps({"rows": rows, "seconds": time.monotonic() - began, "peak_mb": peak_mb()}).decode())


if __name__ == "__main__":
    main(*sys.argv[1:])
