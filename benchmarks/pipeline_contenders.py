"""One contender of the benchmark of the pipeline, in a process of its own: its arguments are WHO CORES EXPORT WARM.

Prints one line of JSON: rows, seconds of the second run (the first, on the small export WARM, warms up), the most
memory that the processes ever had, in MB, and the CPU seconds of the second run, by what for."""

from __future__ import annotations

import base64
import gzip
import os
import sys
import time
from collections import Counter
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


def arrow(folder: str) -> int:
    """Our code without Spark: Arrow batches of messages. Payloads are of one piece here."""
    import pyarrow as pa

    from spark.reading.data_file import FileReader, inline_entries
    from spark.reading.manifest import read_export
    from spark.unpacking import entries
    from spark.unpacking.unpack import unpack

    files = read_export(folder).files
    rows = sum(part.num_rows for file in files for batch in inline_entries(file) for part in unpack(batch))
    kinds = frozenset({"segment", "payload"})
    batches = (batch for file in files for batch in FileReader(file, False, kinds, b'"p"'))
    elsewhere = pa.Table.from_batches([part for batch in batches for part in entries.packed(batch)], entries.SCHEMA)
    held = elsewhere.filter(elsewhere["pieces"].is_valid()).drop_columns(["data", "piece"])
    pieces = elsewhere.filter(elsewhere["piece"].is_valid()).select(["entry_id", "data"])
    together = held.join(pieces, "entry_id", join_type="inner").to_batches(max_chunksize=4096)
    return rows + sum(part.num_rows for batch in together for part in unpack(batch))


def ours(cores: int) -> Callable[[str], int]:
    from spark.frame.session import open_session
    from spark.reading import dynamodb_export
    from spark.transforms import messages

    spark = open_session("benchmark", cores)

    def run(folder: str) -> int:
        items = dynamodb_export.landed(spark, folder, "segment", "payload", only_elsewhere=True)
        elsewhere = messages.unpacked(messages.packed(items, only_elsewhere=True))
        unpacked = dynamodb_export.messages(spark, folder).unionByName(elsewhere)
        names = dynamodb_export.items(spark, folder, "topic").transform(messages.topic_names)
        return _all_columns(messages.messages(messages.with_topic(unpacked, names)))

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
    from spark.frame.session import open_session

    spark = open_session("benchmark", cores)
    entry = "M struct<i:struct<B:string>,n:struct<N:string>,at:struct<N:string>,c:struct<S:string>,d:struct<B:string>>"
    item = f"pk struct<S:string>, sk struct<S:string>, data struct<B:string>, entries struct<L:array<struct<{entry}>>>"
    return lambda folder: _all_columns(spark.read.schema(f"Item struct<{item}>").json(f"{folder}/data/*.gz"))


def duck(cores: int) -> Callable[[str], int]:
    """DuckDB, to typed JSON only: nothing is decoded or unpacked. `rows` are items."""
    import duckdb

    connection = duckdb.connect(config={"threads": cores})
    entry = 'STRUCT(M STRUCT(i STRUCT(B VARCHAR), n STRUCT(N VARCHAR), "at" STRUCT(N VARCHAR), d STRUCT(B VARCHAR)))'
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
    children = [
        int(child) for path in Path(f"/proc/{pid}/task").glob("*/children") for child in path.read_text().split()
    ]
    return [pid, *(pid for child in children for pid in _descendants(child))]


_THREADS = {
    "python": "Python",
    "Executor task": "JVM, tasks",
    "C1": "JVM, compiler",
    "C2": "JVM, compiler",
    "G": "JVM, collector",
}
"""Beginnings of the names of threads -> what they do. Whatever is not named is the JVM's remaining work."""


def cpu_seconds() -> Counter[str]:
    """What this process and those it has started have used so far, by what for."""
    used: Counter[str] = Counter()
    for pid in _descendants(os.getpid()):
        for path in Path(f"/proc/{pid}/task").glob("*/stat"):
            name, _, numbers = path.read_text().partition("(")[2].rpartition(")")
            role = next((role for begin, role in _THREADS.items() if name.startswith(begin)), "JVM, other")
            used[role] += sum(map(int, numbers.split()[11:13])) / os.sysconf("SC_CLK_TCK")
    return used


def main(who: str, cores: str, folder: str, warm: str) -> None:
    makers = {"plain": lambda _: plain, "Arrow": lambda _: arrow, "ours": ours, "read.json": read_json, "DuckDB": duck}
    run = makers[who](int(cores))
    run(warm)
    before, began = cpu_seconds(), time.monotonic()
    rows = run(folder)
    seconds, used = time.monotonic() - began, cpu_seconds() - before
    result = {"rows": rows, "seconds": seconds, "peak_mb": peak_mb(), "cpu_seconds": used}
    print(orjson.dumps(result).decode())


if __name__ == "__main__":
    main(*sys.argv[1:])
