"""Traffic, delays and dead letters, on small tables."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.testing import assertDataFrameEqual

from spark import schemas
from spark.transforms.dead_letters import dead_letters, dead_messages
from spark.transforms.delays import histogram, lateness, only_waiting, waiting, with_lateness
from spark.transforms.selection import in_order, newest_of_keys
from spark.transforms.traffic import APPENDS_PER_SECOND, hot_keys, only_between, skew, traffic
from tests.spark.rows import DAY, HOUR, NOW, OLD, Row, decision, delayed, entry, group, items, letter, topic

MINUTE = 60_000
TODAY = datetime.fromtimestamp(NOW / 1000, UTC).date()


def message(offset: int, at: int = OLD, queue: int = 0, body: bytes = b"body", **fields: Any) -> Row:
    day: date = datetime.fromtimestamp(at / 1000, UTC).date()
    place = {"topic": "t", "topic_id": "Tt", "queue": queue, "offset": offset, "entry_id": f"{queue}-{offset}"}
    return {
        **place,
        "message_id": f"m{offset}",
        "stored_at_ms": at,
        "body": body,
        "is_text": True,
        "date": day,
        **fields,
    }


def messages(spark: SparkSession, *rows: Row) -> DataFrame:
    names = schemas.MESSAGES.fieldNames()
    return spark.createDataFrame([{name: row.get(name) for name in names} for row in rows], schemas.MESSAGES)


def same(rows: DataFrame, expected: list[tuple[Any, ...]]) -> None:
    """Whether rows are these, in any order, with the same names and types in the same order, nulls and all."""
    spark = rows.sparkSession
    wanted = spark.createDataFrame(expected, rows.schema)
    assertDataFrameEqual(
        rows, wanted, checkRowOrder=False, ignoreNullable=True, ignoreColumnOrder=False, ignoreColumnType=False
    )


def test_traffic_is_counted_by_minute_and_tag_and_keys_by_their_share(spark: SparkSession) -> None:
    rows = messages(
        spark,
        message(0, NOW, key="a", tag="x"),
        message(1, NOW + 59_999, key="a", tag="x", body=b"1"),
        message(2, NOW + MINUTE, key="b"),
        message(0, NOW, queue=1, key="c", tag="x"),
        message(1, NOW + 3 * HOUR, queue=1),
        message(2, NOW + DAY, queue=1, key="z"),
    ).cache()
    start = NOW - NOW % MINUTE
    assert start == NOW
    before = only_between(rows, NOW, NOW + 3 * HOUR)
    same(
        traffic(before),
        [
            ("t", "Tt", 0, NOW, "x", 2, 5, TODAY),
            ("t", "Tt", 0, NOW + MINUTE, None, 1, 4, TODAY),
            ("t", "Tt", 1, NOW, "x", 1, 4, TODAY),
        ],
    )
    hottest = [("t", "Tt", 1, "a", 2, 5, 0.4, TODAY), ("t", "Tt", 2, "b", 1, 4, 0.2, TODAY)]
    same(hot_keys(rows, 2), [*hottest, ("t", "Tt", 1, "z", 1, 4, 1.0, TODAY + timedelta(1))])


def test_the_last_of_a_key_is_the_last_of_its_queue_whatever_clocks_say(spark: SparkSession) -> None:
    rows = messages(
        spark,
        message(5, NOW + 200, key="a"),
        message(6, NOW, key="a"),
        message(0, NOW - 1, queue=1, key="a"),
        message(7, NOW, key="b"),
        message(1, NOW + 1, queue=1, key="b"),
        message(8, NOW),
    )
    newest = {(row["key"], row["queue"], row["offset"]) for row in newest_of_keys(rows).collect()}
    assert newest == {("a", 0, 6), ("b", 1, 1)}
    sorted_ = [(row["queue"], row["offset"]) for row in in_order(rows).collect()]
    assert sorted_ == [(1, 0), (1, 1), (0, 5), (0, 6), (0, 7), (0, 8)]


def test_skew_covers_all_queues_and_the_busiest_second_sizes_them(spark: SparkSession) -> None:
    topics = spark.createDataFrame([("Tt", 4)], "topic_id string, queues int")
    burst = [message(n, NOW + n % 1000, entry_id=f"e{n}") for n in range(APPENDS_PER_SECOND + 1)]
    (row,) = skew(messages(spark, *burst, message(0, NOW, queue=1)), topics).collect()
    assert row.asDict() == {
        "topic": "t",
        "topic_id": "Tt",
        "queues": 4,
        "messages": APPENDS_PER_SECOND + 2,
        "fullest_queue": 0,
        "max_over_mean": pytest.approx(251 / 63),
        "variation": pytest.approx(1.7229, abs=1e-4),
        "peak_appends": APPENDS_PER_SECOND + 1,
        "suggested_queues": 5,
        "date": TODAY,
    }


def test_lateness_counts_from_the_due_time_and_decided_ones_do_not_wait(spark: SparkSession) -> None:
    late = messages(
        spark,
        message(0, NOW, due_ms=NOW - 5),
        message(1, NOW, due_ms=NOW - 5000),
        message(2, NOW, due_ms=NOW + 1),
        message(3, NOW),
    ).transform(with_lateness)
    waits = only_waiting(
        items(
            spark,
            topic("t"),
            topic("u"),
            delayed("t", 1, NOW),
            delayed("t", 2, NOW + 1),
            delayed("t", 3, NOW, cancelled=True),
            delayed("t", 4, NOW),
            decision("t", 1, ((NOW, 4),), entry(4)),
            delayed("u", 4, NOW + HOUR),
        ),
        NOW,
    )
    same(lateness(late), [("t", "Tt", 3, 5, 5000, 5000, 5000, 1, TODAY)])
    bars = [("t", "Tt", *bar, TODAY) for bar in ((None, 0, 1), (0, 10, 1), (1000, 10_000, 1))]
    same(histogram(late), bars)
    same(waiting(waits), [("t", "Tt", NOW, 2, 1, NOW), ("u", "Tu", NOW + HOUR, 1, 0, NOW + HOUR)])


def test_a_dead_letter_has_what_its_message_says_or_nulls(spark: SparkSession) -> None:
    rows = items(spark, topic("t"), group("t"), letter("t", 1), letter("t", 9, dead_at_ms=OLD + 1))
    dead = dead_messages(rows, messages(spark, message(1, NOW, key="k", tag="x"), message(2, NOW)))
    same(
        dead,
        [
            ("t", "Tt", "g", "", 0, 1, "no", 16, OLD, "m1", "k", "x", NOW, 4),
            ("t", "Tt", "g", "", 0, 9, "no", 16, OLD + 1, None, None, None, None, None),
        ],
    )
    same(dead_letters(dead), [("t", "Tt", "g", "no", OLD, 2, 16)])
