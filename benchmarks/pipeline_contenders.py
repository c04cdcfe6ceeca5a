"""The contenders of the job `messages`. The arguments are `plain` or `DuckDB`, and an export."""

from __future__ import annotations

import base64
import gzip
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import zstandard

Row = tuple[Any, ...]


def plain(folder: str) -> int:
    """A plain Python loop that does the same. It keeps payloads, then reads segments: two passes, with the least in
    memory."""
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
            if "B" in listed:
                pointer = base64.b64decode(listed["B"])
                entry_id, at, is_small = pointer[:8].hex(), int.from_bytes(pointer[10:16]), pointer[21] & 1
                packed = payloads[entry_id]
            else:
                entry = listed["M"]
                entry_id, at = base64.b64decode(entry["i"]["B"]).hex(), int(entry["at"]["N"])
                packed, is_small = base64.b64decode(entry["d"]["B"]), entry["c"]["S"] == "zstd"
            date = datetime.fromtimestamp(at / 1000, UTC).date()
            lines = inflate(packed) if is_small else packed
            for line in lines.split(b"\n"):
                message = orjson.loads(line)
                body = message["b"].encode() if "b" in message else base64.b64decode(message["B"])
                message_id = message.get("i") or f"{entry_id}{queue:02x}{offset:x}"
                about = (message.get("k"), message.get("t"), message.get("p", {}), body, "b" in message, date)
                yield ("orders", topic_id, queue, offset, message_id, entry_id, at, None, *about)
                offset += 1


def duck(folder: str) -> int:
    """DuckDB on one core, to typed JSON only: it decodes and unpacks nothing. The rows are items."""
    import duckdb

    connection = duckdb.connect(config={"threads": 1})
    entry = 'STRUCT(M STRUCT(i STRUCT(B VARCHAR), n STRUCT(N VARCHAR), "at" STRUCT(N VARCHAR), d STRUCT(B VARCHAR)))'
    item = f"STRUCT(pk STRUCT(S VARCHAR), data STRUCT(B VARCHAR), entries STRUCT(L {entry}[]))"
    source = f"read_json('{folder}/data/*.gz', format='newline_delimited', columns={{Item: '{item}'}})"
    query = f"select count(*), sum(len(Item.entries.L)), sum(strlen(Item.data.B)) from {source}"  # noqa: S608
    return int(connection.execute(query).fetchall()[0][0])


def main(who: str, folder: str) -> None:
    run = {"plain": plain, "DuckDB": duck}[who]
    print(f"{run(folder)} rows")


if __name__ == "__main__":
    main(*sys.argv[1:])
