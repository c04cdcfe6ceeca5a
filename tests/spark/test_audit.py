"""The audit finds each violation, and nothing else, on small tables: each topic has one thing wrong, or nothing."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from spark import schemas
from spark.transforms.audit import COST, DOUBT, VIOLATION, Moment, violations
from tests.spark.rows import (
    DAY,
    HOUR,
    NOW,
    OLD,
    Row,
    cursor,
    decided,
    decision,
    dedup,
    delayed,
    entry,
    group,
    index,
    items,
    lease,
    letter,
    page,
    payload,
    reply,
    segment,
    topic,
    transaction,
)

Found = set[tuple[str, str]]

LATER = NOW + 10 * 60_000
RECENT = NOW - 1000
AGO = NOW - 4 * DAY
"""Past retention."""


def _log(name: str, end: int, at: int = OLD) -> list[Row]:
    return [topic(name), segment(name, 0, entry(1, end, at))]


def _grouped(name: str, end: int, *rows: Row) -> list[Row]:
    return [*_log(name, end), group(name), *rows]


WRONG: dict[str, tuple[list[Row], Found]] = {
    "segment-end": (
        [topic("segment-end"), segment("segment-end", 0, entry(1, 2), end=3)],
        {("segment_end", VIOLATION)},
    ),
    "overlap": (
        [topic("overlap"), segment("overlap", 0, entry(1, 9), full=True), segment("overlap", 8, entry(2))],
        {("overlap", VIOLATION)},
    ),
    "hole": (
        [topic("hole"), segment("hole", 0, entry(1, 9), full=True), segment("hole", 12, entry(2))],
        {("hole", VIOLATION)},
    ),
    "hole-just-now": (
        [
            topic("hole-just-now"),
            segment("hole-just-now", 0, entry(1, 9)),
            segment("hole-just-now", 12, entry(2, at=RECENT)),
        ],
        {("hole", DOUBT)},
    ),
    "hole-half-expired": (
        [
            topic("hole-half-expired"),
            segment("hole-half-expired", 0, entry(1, 9, AGO), full=True),
            segment("hole-half-expired", 12, entry(2)),
        ],
        {("hole", DOUBT)},
    ),
    "head": ([topic("head"), segment("head", 5, entry(1))], {("head", VIOLATION)}),
    "head-once-kept-shorter": (
        [
            topic("head-once-kept-shorter", past_retentions=[{"until_ms": OLD, "retention_ms": 3 * DAY - 1}]),
            segment("head-once-kept-shorter", 5, entry(1)),
        ],
        {("head", DOUBT)},
    ),
    "queue": ([topic("queue"), segment("queue", 0, entry(1), queue=1)], {("queue", VIOLATION)}),
    "closed": (
        [topic("closed"), segment("closed", 0, entry(1), closed=True), segment("closed", 1, entry(2))],
        {("closed", VIOLATION)},
    ),
    "left-open": (
        [topic("left-open", most=2), segment("left-open", 0, entry(1), queue=1)],
        {("left_open", DOUBT)},
    ),
    "left-unsettled": (
        [
            topic("left-unsettled", most=2),
            segment("left-unsettled", 0, entry(1, 5), queue=1, closed=True),
            group("left-unsettled"),
            cursor("left-unsettled", 3, queue=1),
        ],
        {("left_unsettled", DOUBT)},
    ),
    "twice": (
        [topic("twice"), segment("twice", 0, entry(1), entry(1))],
        {("entry_twice", VIOLATION)},
    ),
    "piece": (
        [topic("piece"), segment("piece", 0, entry(1, pieces=2)), payload("piece", 1, 1)],
        {("payload_missing", VIOLATION)},
    ),
    "piece-just-now": (
        [topic("piece-just-now"), segment("piece-just-now", 0, entry(1, at=RECENT, pieces=1))],
        {("payload_missing", DOUBT)},
    ),
    "piece-of-delayed": (
        [topic("piece-of-delayed"), delayed("piece-of-delayed", 1, LATER, pieces=1)],
        {("delayed_payload_missing", VIOLATION)},
    ),
    "orphan": ([topic("orphan"), payload("orphan", 1)], {("orphan_payload", COST)}),
    "undelivered": (
        [
            *_log("undelivered", 1),
            decision("undelivered", 1, ((OLD, 8),), entry(9)),
            decision("undelivered", 2, ((OLD, 1),), entry(1)),
        ],
        {("undelivered", VIOLATION)},
    ),
    "decision-hole": (
        [*_log("decision-hole", 1), decision("decision-hole", 2, ((OLD, 1),), entry(1))],
        {("decision_hole", VIOLATION)},
    ),
    "decision-time": (
        [
            topic("decision-time"),
            decision("decision-time", 1, ((OLD, 8),)),
            decision("decision-time", 2, ((OLD, 9),), at=OLD - 1),
        ],
        {("decision_time", VIOLATION)},
    ),
    "decided-twice": (
        [topic("decided-twice"), decision("decided-twice", 1, ((OLD, 8),)), decision("decided-twice", 2, ((OLD, 8),))],
        {("decided_twice", VIOLATION)},
    ),
    "still-waiting": (
        [
            *_log("still-waiting", 1),
            delayed("still-waiting", 8, OLD),
            decision("still-waiting", 1, ((OLD, 8),), entry(1)),
            decision("still-waiting", 2, ((OLD, 7),)),
        ],
        {("still_waiting", VIOLATION)},
    ),
    "not-cancelled": (
        [
            topic("not-cancelled"),
            delayed("not-cancelled", 8, LATER),
            decision("not-cancelled", 1, ((LATER, 8),)),
            decision("not-cancelled", 2, ((OLD, 7),), at=RECENT),
        ],
        {("not_cancelled", DOUBT)},
    ),
    "beyond": (_grouped("beyond", 3, cursor("beyond", 4)), {("next_beyond_end", VIOLATION)}),
    "beyond-just-now": (
        _grouped("beyond-just-now", 3, cursor("beyond-just-now", 4, at_ms=RECENT)),
        {("next_beyond_end", DOUBT)},
    ),
    "beyond-after-reset": (
        _grouped("beyond-after-reset", 3, cursor("beyond-after-reset", 4, epoch=1)),
        {("next_beyond_end", DOUBT)},
    ),
    "start": ([*_log("start", 3), group("start", (4,))], {("start_beyond_end", VIOLATION)}),
    "hint": (_grouped("hint", 9, cursor("hint", 3, segment=4)), {("cursor_hint", VIOLATION)}),
    "leased": (_grouped("leased", 9, cursor("leased", 3, lease("a", 2, 2))), {("lease_beyond_next", VIOLATION)}),
    "marks": (
        _grouped("marks", 9, cursor("marks", 9, lease("a", 0, 4, b"a\x10"), lease("b", 4, 4, b"x\x01"))),
        {("lease_marks", VIOLATION)},
    ),
    "mode": (_grouped("mode", 9, cursor("mode", 3, consumer="c" * 24)), {("cursor_mode", VIOLATION)}),
    "owed-twice": (
        _grouped("owed-twice", 9, cursor("owed-twice", 9, lease("a", 0, 9, b"a\x03", b"m\x00\x01"), lease("b", 7, 1))),
        {("owed_twice", VIOLATION)},
    ),
    "page-and-lease": (
        _grouped(
            "page-and-lease",
            9,
            cursor(
                "page-and-lease", 9, lease("a", 4, 2), pages=[{"page_id": "p", "due_ms": LATER, "count": 2, "low": 3}]
            ),
            page("page-and-lease", "p", (3, 2, LATER)),
        ),
        {("owed_twice", VIOLATION)},
    ),
    "page": (
        _grouped(
            "page",
            9,
            cursor("page", 9, pages=[{"page_id": "p", "due_ms": LATER, "count": 3, "low": 3}]),
            page("page", "p", (3, 2, LATER)),
        ),
        {("page", VIOLATION)},
    ),
    "page-missing": (
        _grouped(
            "page-missing",
            9,
            cursor("page-missing", 9, pages=[{"page_id": "p", "due_ms": LATER, "count": 2, "low": 3}]),
        ),
        {("page_missing", VIOLATION)},
    ),
    "dead-and-owed": (
        _grouped("dead-and-owed", 9, cursor("dead-and-owed", 9, lease("a", 0, 9), dead=1), letter("dead-and-owed", 3)),
        {("dead_and_owed", VIOLATION)},
    ),
    "dead-beyond": (
        _grouped("dead-beyond", 9, cursor("dead-beyond", 3, dead=1), letter("dead-beyond", 3)),
        {("letter_beyond_next", VIOLATION)},
    ),
    "dead-uncounted": (
        _grouped("dead-uncounted", 9, cursor("dead-uncounted", 9), letter("dead-uncounted", 3)),
        {("letters", VIOLATION)},
    ),
    "dead-overcounted": (
        _grouped("dead-overcounted", 9, cursor("dead-overcounted", 9, dead=1)),
        {("letters", VIOLATION)},
    ),
    "dead-without-cursor": (
        _grouped("dead-without-cursor", 9, letter("dead-without-cursor", 3, dead_at_ms=RECENT)),
        {("letters", DOUBT)},
    ),
    "reply-late": ([topic("reply-late"), reply("reply-late", 1, OLD, OLD + 3000)], {("reply_late", VIOLATION)}),
    "reply-piece": (
        [topic("reply-piece"), reply("reply-piece", 1, OLD, OLD + 5, pieces=2), payload("reply-piece", 1)],
        {("reply_payload_missing", VIOLATION)},
    ),
    "half-piece": (
        [topic("half-piece"), transaction("half-piece", 1, LATER, pieces=1)],
        {("transaction_payload_missing", DOUBT)},
    ),
    "half-and-decided": (
        [topic("half-and-decided"), transaction("half-and-decided", 1, LATER), decided("half-and-decided", 1)],
        {("half_and_decided", VIOLATION)},
    ),
    "half-decided-just-now": (
        [
            topic("half-decided-just-now"),
            transaction("half-decided-just-now", 1, LATER),
            decided("half-decided-just-now", 1, at=RECENT),
        ],
        {("half_and_decided", DOUBT)},
    ),
    "commit-lost": (
        [topic("commit-lost"), delayed("commit-lost", 2, OLD), decided("commit-lost", 1, 2, 3)],
        {("commit_lost", DOUBT)},
    ),
    "commit-twice": (
        [
            *_log("commit-twice", 1),
            decided("commit-twice", 9, 8),
            decision("commit-twice", 1, ((OLD, 8),), entry(1)),
            decision("commit-twice", 2, ((OLD, 8),), entry(1)),
        ],
        {("decided_twice", VIOLATION)},
    ),
    "pointer": ([*_log("pointer", 3), index("pointer", 1, 4)], {("pointer", VIOLATION)}),
    "pointer-inside": ([*_log("pointer-inside", 3), dedup("pointer-inside", entry(1), 2)], {("pointer", VIOLATION)}),
}

RIGHT: dict[str, list[Row]] = {
    "empty": [topic("empty"), group("empty"), cursor("empty", 0)],
    "chain": [
        topic("chain"),
        segment("chain", 0, entry(1, 4), entry(2, 5, pieces=1), full=True),
        segment("chain", 9, entry(3, 1, pieces=0)),
        payload("chain", 2),
        index("chain", 3, 9),
        index("chain", 4, 10),
        dedup("chain", entry(5, pieces=1), 10),
        payload("chain", 5),
    ],
    "lapsed": [
        topic("lapsed", past_retentions=[{"until_ms": OLD, "retention_ms": HOUR}]),
        segment("lapsed", 40, entry(1, pieces=1)),
    ],
    "head-expired": [
        topic("head-expired", created_at_ms=NOW - 9 * DAY),
        segment("head-expired", 40, entry(1)),
        dedup("head-expired", entry(2), 3),
    ],
    "hole-expired": [
        topic("hole-expired", created_at_ms=NOW - 9 * DAY),
        segment("hole-expired", 40, entry(1, 10, AGO, pieces=1), full=True),
        segment("hole-expired", 60, entry(2, 1, AGO)),
    ],
    "leases": _grouped(
        "leases",
        20,
        cursor(
            "leases",
            20,
            lease("a", 0, 9, b"a\x01", b"m\x08", b"a\x00\x01"),
            lease("~b", 3, 1),
            lease("c", 8, 12, b"a\x01\x00"),
            pages=[
                {"page_id": "p", "due_ms": LATER, "count": 1, "low": 0},
                {"page_id": "q", "due_ms": NOW, "count": 1, "low": 0},
            ],
            dead=1,
        ),
        page("leases", "p", (0, 1, LATER)),
        page("leases", "forgotten-by-a-reset", (2, 1, LATER)),
        letter("leases", 8),
    ),
    "reset": _grouped(
        "reset", 9, cursor("reset", 2, lease("a", 0, 2), epoch=3, dead=2), letter("reset", 7), letter("reset", 1, 2)
    ),
    "broadcast": [
        *_log("broadcast", 9),
        group("broadcast", (2,), mode="broadcast"),
        cursor("broadcast", 3, consumer="a" * 24, epoch=OLD, dead=1),
        cursor("broadcast", 9, consumer="b" * 24, epoch=OLD, dead=1),
        letter("broadcast", 2, OLD, consumer="a" * 24),
        letter("broadcast", 2, OLD, consumer="b" * 24),
    ],
    "group-deleted": [*_log("group-deleted", 1), cursor("group-deleted", 5), letter("group-deleted", 1)],
    "waits": [
        *_log("waits", 1),
        delayed("waits", 7, LATER, cancelled=True),
        delayed("waits", 8, OLD),
        delayed("waits", 9, LATER, pieces=1),
        payload("waits", 9),
        decision("waits", 1, ((OLD, 6), (OLD, 5)), entry(1)),
        decision("waits", 2, ((LATER, 7),)),
        decision("waits", 3, ((OLD, 8),), entry(10)),
    ],
    "replies": [
        topic("replies"),
        reply("replies", 1, OLD, OLD + 2999, pieces=1),
        payload("replies", 1),
        reply("replies", 2, OLD, OLD + 3001, entry=None),
        reply("replies", 3, AGO, AGO + 5, pieces=1),
    ],
    "transactions": [
        *_log("transactions", 1),
        transaction("transactions", 4, LATER, pieces=1),
        payload("transactions", 4),
        transaction("transactions", 5, NOW, pieces=1),
        decided("transactions", 6),
        decided("transactions", 7, 8, 9),
        delayed("transactions", 8, OLD),
        decision("transactions", 1, ((OLD, 9),), entry(1)),
        decided("transactions", 10, 11, at=AGO),
    ],
    "draining": [
        topic("draining", queues=1, readers=2, most=4),
        segment("draining", 0, entry(1, 5), queue=1),
        segment("draining", 0, entry(2, 5), queue=2, closed=True),
        segment("draining", 0, entry(3, 5, AGO), queue=3),
        segment("draining", 5, queue=3, closed=True),
        group("draining", (0, 0, 5, 0)),
        cursor("draining", 3, queue=1),
        cursor("draining", 5, queue=2),
        cursor("draining", 1, queue=3),
    ],
    "deleted": [segment("deleted", 7, entry(1), entry(1)), payload("deleted", 2)],
}


@pytest.fixture(scope="module")
def findings(spark: SparkSession) -> dict[str, Found]:
    rows = [row for rows, _ in WRONG.values() for row in rows] + [row for rows in RIGHT.values() for row in rows]
    audited = violations(items(spark, *rows), Moment(NOW))
    assert audited.schema.simpleString() == schemas.VIOLATIONS.simpleString()
    by_topic: dict[str, Found] = {}
    for row in audited.collect():
        assert row.detail, row
        by_topic.setdefault(row.topic, set()).add((row.invariant, row.severity))
    return by_topic


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_found_and_nothing_else_is(findings: dict[str, Found], name: str) -> None:
    assert findings.get(name) == WRONG[name][1]


@pytest.mark.parametrize("name", RIGHT)
def test_nothing_is_found_where_nothing_is_wrong(findings: dict[str, Found], name: str) -> None:
    assert findings.get(name) is None
