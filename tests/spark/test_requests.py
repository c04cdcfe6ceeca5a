"""The outcomes of requests, on small tables: each call has one, and percentiles cover its minute."""

from __future__ import annotations

import base64
from datetime import date
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark import schemas
from spark.transforms.audit.findings import Moment
from spark.transforms.requests import KEPT_MS, calls, requests
from tests.spark.rows import NOW, Row, items, reply, topic

MINUTE = 60_000
THEN = NOW // MINUTE * MINUTE - 30 * MINUTE
"""The beginning of a minute, long before the export."""
TIMEOUT = 3000

Made = dict[tuple[str, int | None], dict[str, Any]]


def request(name: str, number: int, at: int, timeout: int = TIMEOUT) -> Row:
    """A row of the table `messages`."""
    about = at.to_bytes(6, "big") + timeout.to_bytes(3, "big") + number.to_bytes(8, "big")
    content = b"1" + about + f"T{name}:{name}".encode() + b"\xff" * 16
    correlation_id = base64.urlsafe_b64encode(content).decode().rstrip("=")
    place = {"topic": name, "topic_id": f"T{name}", "queue": 0, "offset": number, "stored_at_ms": at}
    return {**place, "date": date(2027, 1, 15), "correlation_id": correlation_id, "reply_by_ms": at + timeout}


def answered(name: str, number: int, at: int, taken: int | None, replied: int) -> list[Row]:
    by: Row = {} if taken is None else {"taken_at_ms": at + taken, "group": "g"}
    return [request(name, number, at), reply(name, number, at, at + replied, **by)]


@pytest.fixture(scope="module")
def made(spark: SparkSession) -> Made:
    """The rows of all topics below, by topic and minute."""
    rows: list[Row] = [
        *(row for at in range(100) for row in answered("busy", at, THEN + at, 10, 20 + at)),
        *answered("busy", 100, THEN + MINUTE, None, 500),
        request("busy", 101, THEN + MINUTE),
        request("busy", 102, THEN + MINUTE),
        reply("busy", 102, THEN + MINUTE, THEN + MINUTE + TIMEOUT, entry=None),
        request("busy", 103, NOW - 1000),
        request("busy", 104, NOW - KEPT_MS - TIMEOUT),
        reply("late", 1, THEN, THEN + TIMEOUT),
        request("late", 1, THEN),
        reply("orphan", 1, THEN, THEN + 10),
        reply("orphan", 2, NOW - 1000, NOW - 900),
        reply("short", 1, THEN, THEN + 10),
        request("gone", 1, THEN),
        reply("gone", 1, THEN, THEN + 10),
    ]
    topics = [topic(name) for name in ("busy", "late", "orphan")] + [topic("short", retention_ms=MINUTE)]
    archive = spark.createDataFrame(
        [{name: row.get(name) for name in schemas.MESSAGES.names} for row in rows if "kind" not in row],
        schemas.MESSAGES,
    )
    exported = items(spark, *topics, *(row for row in rows if "kind" in row))
    counted = requests(calls(archive, exported, Moment(NOW)))
    assert counted.schema.simpleString() == schemas.REQUESTS.simpleString()
    return {(row["topic"], row["minute_ms"]): row.asDict() for row in counted.collect()}


def counts(row: dict[str, Any]) -> tuple[int, ...]:
    return tuple(row[name] for name in ("calls", "replied", "timed_out", "waiting", "late", "orphaned"))


def test_calls_of_a_minute_have_the_percentiles_of_their_steps(made: Made) -> None:
    minute = made["busy", THEN]
    assert counts(minute) == (100, 100, 0, 0, 0, 0)
    assert [minute[f"taken_{rank}_ms"] for rank in ("p50", "p90", "p99", "max")] == [10] * 4
    assert [minute[f"handled_{rank}_ms"] for rank in ("p50", "p90", "p99", "max")] == [59, 99, 108, 109]
    assert [minute[f"replied_{rank}_ms"] for rank in ("p50", "p90", "p99", "max")] == [69, 109, 118, 119]


def test_a_reply_without_a_receipt_does_not_say_when_its_request_was_taken(
    made: Made,
) -> None:
    minute = made["busy", THEN + MINUTE]
    assert (minute["replied_max_ms"], minute["taken_max_ms"], minute["handled_max_ms"]) == (500, None, None)


def test_calls_without_a_reply_have_timed_out_noted_or_not_or_wait(
    made: Made,
) -> None:
    assert counts(made["busy", THEN + MINUTE]) == (3, 1, 2, 0, 0, 0)
    assert counts(made["busy", (NOW - 1000) // MINUTE * MINUTE]) == (1, 0, 0, 1, 0, 0)


def test_a_topic_has_a_row_of_all_calls_whose_replies_are_kept(
    made: Made,
) -> None:
    assert counts(made["busy", None]) == (104, 101, 2, 1, 0, 0)
    assert made["busy", None]["replied_max_ms"] == 500


def test_a_reply_is_late_if_it_came_at_the_deadline_or_after_it(made: Made) -> None:
    assert counts(made["late", None]) == (1, 1, 0, 0, 1, 0)


def test_a_reply_is_orphaned_if_its_request_should_be_in_the_log(
    made: Made,
) -> None:
    assert counts(made["orphan", None]) == (2, 2, 0, 0, 0, 1)
    assert counts(made["short", None]) == (1, 1, 0, 0, 0, 0)


def test_calls_of_deleted_topics_are_left_out(made: Made) -> None:
    assert {name for name, _ in made} == {"busy", "late", "orphan", "short"}
