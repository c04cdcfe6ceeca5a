"""Spark reads all that the store writes: all kinds of item, all codecs, every message."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from spark import item_schemas
from spark.frame.job import main
from spark.jobs.messages import JOB
from tests.spark.exports import ID, read, write_items
from tests.spark.items import entry, pointer, segment, topic
from tests.spark.service import World, busy_world
from tests.spark.written import rows_of
from tests.support.data_dictionary import ITEMS


@pytest.fixture(scope="module")
def world() -> World:
    return busy_world()


def test_every_kind_of_item_in_the_data_dictionary_is_known() -> None:
    assert {kind.replace(" ", "_") for kind in ITEMS} == set(item_schemas.KINDS)


def test_what_the_service_has_written_is_read_whole(
    spark: SparkSession, world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_items(tmp_path / "export", world.items, files=3)
    for name, body in world.blobs.items():
        path = tmp_path / "blobs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body)
    rows, troubles = read(folder)
    assert {row["kind"] for row in rows} == set(item_schemas.KINDS)
    assert (len(rows), troubles) == (len(world.items), [])
    assert {row["group"]["max_attempts"] for row in rows if row["kind"] == "group"} >= {None, 2, 16}
    tables = str(tmp_path / "tables")
    code = main(JOB, ["--export", str(folder), "--tables", tables, "--blobs", str(tmp_path / "blobs")])
    said = capsys.readouterr()
    assert (code, said.err) == (0, "")
    assert rows_of(tables, "quarantine", f"export={ID}") == []
    expected = {message["message_id"]: message for message in world.messages()}
    assert f"messages: {len(expected)} messages, 0 already there, 2 of deleted topics left out" in said.out
    rows = pq.read_table(f"{tables}/messages").to_pylist()
    archived = {row["message_id"]: as_json(row) for row in rows}
    assert archived.keys() == expected.keys()
    for message_id, message in archived.items():
        assert message == {name: expected[message_id].get(name) for name in message}
    assert {row["stored_at_ms"] - row["due_ms"] for row in rows if row["topic"] == "delayed"} == {1000}
    assert all(row["sent_at_ms"] < row["due_ms"] for row in rows if row["topic"] == "delayed")
    dates = {str(row["date"]) for row in rows if row["topic"] == "orders"}
    assert dates >= {"2026-01-01", "2026-01-02"}


def as_json(row: dict[str, Any]) -> dict[str, Any]:
    body = {"body": row["body"].decode()} if row["is_text"] else {"body_base64": base64.b64encode(row["body"]).decode()}
    same = ["topic", "queue", "offset", "message_id", "stored_at_ms", "sent_at_ms", "key", "tag"]
    same += ["correlation_id", "reply_by_ms"]
    return {**body, **{name: row[name] for name in same}, "properties": dict(row["properties"])}


def test_a_body_missing_from_s3_goes_to_the_quarantine_alone(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "blobs").mkdir()
    folder = write_items(tmp_path / "export", [topic(), segment(entry(), pointer(b"in s3 1.", pieces=0))], files=1)
    given = ["--export", str(folder), "--tables", str(tmp_path / "tables"), "--blobs", str(tmp_path / "blobs")]
    assert main(JOB, given) == 1
    assert "the messages are in S3, and were not found there. Nothing else was written" in capsys.readouterr().err
    assert {path.name for path in (tmp_path / "tables").iterdir()} & {"messages"} == set()
    (row,) = pq.read_table(tmp_path / "tables" / "quarantine" / f"export={ID}").to_pylist()
    assert (row["line"] > 0, row["file"]) == (True, f"{ID[-4:]}-0.json.gz")
