"""How far groups are, on small tables."""

from __future__ import annotations

from pyspark.sql import SparkSession

from spark.transforms.backlog import IDLE_CONSUMER_MS, backlog
from tests.spark.rows import DAY, HOUR, NOW, OLD, cursor, entry, group, items, lease, page, segment, topic

LATER = NOW + 1
COLUMNS = ("end", "next", "committed", "ready", "in_flight", "retrying", "dead", "oldest_offset", "oldest_age_ms")
FIRST, SECOND = "a" * 24, "b" * 24


def _noted(page_id: str, due_ms: int, count: int, low: int) -> dict[str, object]:
    return {"page_id": page_id, "due_ms": due_ms, "count": count, "low": low}


def test_a_backlog_counts_what_the_service_counts(spark: SparkSession) -> None:
    rows = items(
        spark,
        topic("fresh", queues=3),
        segment("fresh", 0, entry(1, 4, OLD), entry(2, 6, NOW - 5)),
        segment("fresh", 0, entry(3, 5), queue=1),
        group("fresh", (3, 5)),
        topic("leases"),
        segment("leases", 100, entry(1, 8, OLD), entry(2, 8, NOW - 9)),
        group("leases"),
        cursor(
            "leases",
            112,
            lease("A", 100, 4, b"a\x03", deadline=LATER),  # 102, 103 in flight
            lease("B", 104, 2, b"a\x01", b"m\x01", deadline=NOW),  # 105 expired
            lease("~C", 106, 1, deadline=LATER),
            lease("~D", 107, 1, deadline=NOW),
            lease("E", 108, 2, b"m\x03", deadline=LATER),  # a witness
            lease("F", 110, 1, b"a\x01", deadline=LATER),
            dead=7,
        ),
        topic("pages"),
        segment("pages", 0, entry(1, 9)),
        group("pages"),
        cursor("pages", 9, pages=[_noted("due", NOW, 3, 2), _noted("later", LATER, 2, 6), _noted("gone", OLD, 1, 8)]),
        page("pages", "due", (2, 2, NOW), (5, 1, LATER)),
        page("pages", "later", (6, 2, LATER)),
        topic("waits"),
        segment("waits", 0, entry(1, 4, OLD), entry(2, 5, NOW - 9)),
        group("waits"),
        cursor("waits", 8, lease("A", 5, 1, deadline=LATER), pages=[_noted("later", LATER, 2, 1)]),
        page("waits", "later", (1, 1, LATER), (6, 1, LATER)),
        topic("expired", retention_ms=HOUR),
        segment("expired", 0, entry(1, 5, NOW - HOUR), entry(2, 5, NOW - HOUR + 1)),
        group("expired"),
        topic("behind"),
        group("behind"),
        cursor("behind", 3),
    )
    counted = {
        (row["topic"], row["queue"]): tuple(row[name] for name in COLUMNS) for row in backlog(rows, NOW).collect()
    }
    assert counted == {
        ("fresh", 0): (10, 3, 3, 7, 0, 0, 0, 3, HOUR),
        ("fresh", 1): (5, 5, 5, 0, 0, 0, 0, None, None),
        ("fresh", 2): (0, 0, 0, 0, 0, 0, 0, None, None),
        ("leases", 0): (116, 112, 102, 6, 2, 1, 7, 102, HOUR),
        ("pages", 0): (9, 9, 9, 2, 0, 4, 0, 2, HOUR),
        ("waits", 0): (9, 8, 5, 1, 1, 2, 0, 1, HOUR),
        ("expired", 0): (10, 0, 0, 5, 0, 0, 0, 5, HOUR - 1),
        ("behind", 0): (3, 3, 3, 0, 0, 0, 0, None, None),
    }


def test_broadcast_consumers_have_own_rows_and_forgotten_ones_dead_letters(
    spark: SparkSession,
) -> None:
    rows = items(
        spark,
        topic("told"),
        segment("told", 0, entry(1, 4)),
        group("told", (1,), mode="broadcast"),
        cursor("told", 2, consumer=FIRST, at_ms=NOW),
        cursor("told", 3, lease("A", 0, 3), consumer=SECOND, at_ms=NOW - IDLE_CONSUMER_MS - DAY, dead=2),
        topic("alone"),
        segment("alone", 0, entry(1, 4)),
        group("alone", (1,), mode="broadcast"),
        cursor("alone", 1, consumer=FIRST, at_ms=None, dead=1),
    )
    counted = {
        (row["topic"], row["consumer"]): (row["lag"], row["dead"], row["is_forgotten"], row["oldest_offset"])
        for row in backlog(rows, NOW).collect()
    }
    assert counted == {
        ("told", FIRST): (2, 0, False, 2),
        ("told", SECOND): (0, 2, True, None),
        ("alone", ""): (3, 0, False, 1),
        ("alone", FIRST): (0, 1, True, None),
    }
