"""The progress of a group in one queue, and of all its consumers together."""

from __future__ import annotations

from dataclasses import replace

import pytest

from chalicelib.core.base.limits import IDLE_CONSUMER_MS
from chalicelib.core.catalogue.group import Group
from chalicelib.core.cursors.cursor import Cursor, RetryPage
from chalicelib.core.cursors.lease import ACKED, SET_ASIDE_UNTIL_MS, Lease, mark
from chalicelib.core.cursors.progress import QueueProgress, of_group, progress, total
from chalicelib.core.table import keys

NOW = 1_000_000
GROUP = Group("t", "g", "gid", [0, 0], 0, mode="broadcast")
LEASES = [
    Lease("held", 0, 4, NOW + 1, 1, (mark(ACKED, [0, 2]),)),
    Lease("~waits", 10, 3, NOW + 1, 1),
    Lease("due", 24, 5, NOW, 1, (mark(ACKED, [0]),)),
    Lease("~aside", 32, 2, SET_ASIDE_UNTIL_MS, 0),
    Lease("done", 36, 2, NOW, 1, (mark(ACKED, [0, 1]),)),
]
PAGES = {"p": RetryPage("p", NOW, 7, 20)}
BEGUN = QueueProgress(
    queue=1,
    committed_offset=1,
    next_offset=40,
    end_offset=50,
    ready=16,
    in_flight=2,
    oldest_ready_at_ms=None,
    last_pop_at_ms=900,
    last_consumer_id="ann",
    retrying=10,
    delayed=0,
    dead=6,
    first_ready=25,
)


def cursor(queue: int = 1, consumer: str = "", leases: list[Lease] = LEASES, at_ms: int | None = 900) -> Cursor:
    key, by = keys.cursor("t", "g", "gid", queue, consumer), consumer or "ann"
    return Cursor(key, 1, 40, {lease.token: lease for lease in leases}, None, at_ms, by, 6, pages=PAGES)


def test_progress_counts_every_message_once() -> None:
    assert progress(1, cursor(), GROUP, 0, 50, NOW) == BEGUN


def test_in_an_ordered_group_also_a_retry_is_not_committed() -> None:
    ordered = replace(GROUP, ordered=True)
    of_retry = [progress(1, cursor(leases=LEASES[1:2]), group, 0, 50, NOW) for group in (GROUP, ordered)]
    assert [own.committed_offset for own in of_retry] == [40, 10]


@pytest.mark.parametrize(
    ("first", "end", "ripe", "ready", "delayed"),
    [
        (0, 50, None, 10, 0),
        (45, 50, None, 5, 0),
        (60, 50, None, 0, 0),
        (0, 39, None, 0, 0),
        (0, 50, 47, 7, 3),
        (0, 50, 50, 10, 0),
        (0, 50, 55, 10, 0),
        (0, 50, 40, 0, 10),
        (0, 50, 30, 0, 10),
        (45, 50, 43, 0, 5),
        (0, 39, 39, 0, 0),
    ],
)
def test_what_was_never_taken_is_ready_or_expired_or_held_back(
    first: int, end: int, ripe: int | None, ready: int, delayed: int
) -> None:
    told = progress(1, cursor(leases=[]), GROUP, first, end, NOW, ripe)
    first_ready = max(first, 40) if ready else None
    assert (told.ready, told.delayed, told.first_ready, told.end_offset) == (ready, delayed, first_ready, max(end, 40))


def test_consumers_add_up_from_the_lowest_offsets_and_the_newest_pop() -> None:
    other = replace(
        BEGUN,
        committed_offset=2,
        next_offset=30,
        end_offset=60,
        ready=1,
        in_flight=3,
        last_pop_at_ms=901,
        last_consumer_id="bob",
        retrying=4,
        delayed=5,
        first_ready=20,
    )
    one = replace(BEGUN, end_offset=70, delayed=3, first_ready=15)
    none = replace(BEGUN, last_pop_at_ms=None, last_consumer_id=None, ready=0, first_ready=None)
    both = replace(
        BEGUN,
        committed_offset=1,
        next_offset=30,
        end_offset=70,
        ready=17,
        in_flight=7,
        last_pop_at_ms=901,
        last_consumer_id="bob",
        retrying=24,
        delayed=8,
        dead=9,
        first_ready=15,
    )
    for parts in ([one, other, none], [none, other, one]):
        assert total(parts, 9) == both
    assert total([none], 9) == replace(none, dead=9)


def test_only_consumers_that_are_not_idle_count_and_all_dead_letters_do() -> None:
    idle = cursor(0, "idle", at_ms=NOW - IDLE_CONSUMER_MS - 1)
    ann, bob = (cursor(queue, consumer, at_ms=NOW) for queue, consumer in ((0, "ann"), (1, "bob")))
    both = of_group(GROUP, [idle, ann, bob], [0, 0], [50, 60], NOW)
    assert [(own.queue, own.end_offset, own.next_offset, own.in_flight, own.dead) for own in both] == [
        (0, 50, 0, 2, 12),
        (1, 60, 0, 2, 6),
    ]
    assert [(own.ready, own.last_consumer_id) for own in of_group(GROUP, [idle], [0, 0], [50, 60], NOW)] == [
        (50, None),
        (60, None),
    ]
    clustering = replace(GROUP, mode="clustering")
    own = cursor(0, at_ms=NOW - IDLE_CONSUMER_MS - 1)
    assert of_group(clustering, [own], [0, 0], [50, 60], NOW)[0].next_offset == 40


def test_what_a_group_delays_is_held_back_in_each_queue() -> None:
    both = of_group(GROUP, [], [0, 0], [50, 60], NOW, [20, None])
    assert [(own.ready, own.delayed) for own in both] == [(20, 30), (60, 0)]
