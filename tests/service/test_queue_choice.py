"""Which queue an instance puts messages without a key into."""

from __future__ import annotations

from random import Random

import pytest

from chalicelib.core.base.limits import SECOND_MS
from chalicelib.core.base.runtime import Runtime
from chalicelib.core.catalogue.topic import Topic
from chalicelib.core.producing.produce import ISOLATED_MS_MAX, ISOLATED_MS_MIN, QueueChoice, isolated_ms
from tests.support.clock import Clock

TOPIC = Topic("orders", "tid", 0, queues=4)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def crowded() -> set[str]:
    return set()


@pytest.fixture
def choice(clock: Clock, crowded: set[str]) -> QueueChoice:
    runtime = Runtime(clock.now, clock.sleep, Random(1).randbytes, clock.uptime)
    return QueueChoice(runtime, crowded.__contains__, queues=4)


def away_ms(choice: QueueChoice, clock: Clock, queue: int) -> int:
    """How long the instance keeps away from the queue."""
    began = clock.ms
    while queue not in choice.others():
        clock.ms += 1
    return clock.ms - began


def test_an_instance_stays_with_one_queue_until_that_fails(choice: QueueChoice) -> None:
    queue = choice.unkeyed(TOPIC.logs)
    assert {choice.unkeyed(TOPIC.logs) for _ in range(50)} == {queue}
    choice.note(queue, has_failed=True)
    assert choice.unkeyed(TOPIC.logs) != queue


def test_an_instance_leaves_a_queue_where_others_write(choice: QueueChoice, crowded: set[str]) -> None:
    queue = choice.unkeyed(TOPIC.logs)
    crowded.add(TOPIC.logs[queue])
    assert [choice.unkeyed(TOPIC.logs) for _ in range(50)][-1] != queue


def test_an_instance_leaves_a_queue_only_for_one_that_is_not_crowded(choice: QueueChoice, crowded: set[str]) -> None:
    queue = choice.unkeyed(TOPIC.logs)
    crowded |= {*TOPIC.logs}
    assert {choice.unkeyed(TOPIC.logs) for _ in range(50)} == {queue}
    quiet = (queue + 2) % 4
    crowded.discard(TOPIC.logs[quiet])
    assert {choice.unkeyed(TOPIC.logs) for _ in range(50)} == {quiet}
    choice.note(quiet, has_failed=True)
    assert choice.unkeyed(TOPIC.logs) != quiet


def test_an_instance_stays_near_where_all_that_is_near_is_crowded(choice: QueueChoice, crowded: set[str]) -> None:
    near = (1, 2)
    first = choice.unkeyed(TOPIC.logs, near=near)
    crowded |= {TOPIC.logs[queue] for queue in near}
    assert {choice.unkeyed(TOPIC.logs, near=near) for _ in range(50)} == {first}


def test_a_queue_that_fails_again_is_avoided_twice_as_long_up_to_a_minute(choice: QueueChoice, clock: Clock) -> None:
    times = []
    for _ in range(9):
        choice.note(2, has_failed=True)
        times.append(away_ms(choice, clock, 2))
    assert times == [min(ISOLATED_MS_MIN * 2**number, ISOLATED_MS_MAX) for number in range(9)]


def test_a_queue_that_works_again_starts_over(choice: QueueChoice, clock: Clock) -> None:
    for _ in range(5):
        choice.note(2, has_failed=True)
    away_ms(choice, clock, 2)
    choice.note(2, has_failed=False)
    choice.note(2, has_failed=True)
    assert away_ms(choice, clock, 2) == ISOLATED_MS_MIN


@pytest.mark.parametrize(
    ("took_ms", "seconds"),
    [
        *((0, 0), (549, 0), (550, 2), (1_799, 2), (1_800, 5), (2_999, 5), (3_000, 6)),
        *((4_999, 6), (5_000, 10), (14_999, 10), (15_000, 30)),
    ],
)
def test_a_slow_queue_is_avoided_the_longer_the_slower_it_was(
    choice: QueueChoice, clock: Clock, took_ms: int, seconds: int
) -> None:
    assert isolated_ms(took_ms) == seconds * SECOND_MS
    choice.note(2, has_failed=False, took_ms=took_ms)
    assert away_ms(choice, clock, 2) == seconds * SECOND_MS


def test_a_failed_queue_is_avoided_at_least_as_long_as_one_that_slow(choice: QueueChoice, clock: Clock) -> None:
    choice.note(2, has_failed=True, took_ms=1_800)
    assert away_ms(choice, clock, 2) == 5 * SECOND_MS


def test_where_all_queues_fail_the_one_that_is_due_first_is_taken(choice: QueueChoice, clock: Clock) -> None:
    for queue in (2, 0, 3, 1):
        choice.note(queue, has_failed=True)
        clock.ms += 10
    assert choice.unkeyed(TOPIC.logs) == 2
    assert choice.unkeyed(TOPIC.logs, full={0, 2}) == 3
    assert choice.unkeyed(TOPIC.logs, full={0, 1, 2, 3}) == 2


def test_where_all_queues_are_full_instances_spread_over_them(clock: Clock) -> None:
    runtime = Runtime(clock.now, clock.sleep, Random(1).randbytes, clock.uptime)
    choices = [QueueChoice(runtime, lambda _: False, queues=4) for _ in range(50)]
    assert {choice.unkeyed(TOPIC.logs, full={0, 1, 2, 3}) for choice in choices} == {0, 1, 2, 3}


def test_a_queue_that_is_near_is_taken_while_one_is_open(choice: QueueChoice) -> None:
    near = (1, 2)
    first = choice.unkeyed(TOPIC.logs, near=near)
    assert {choice.unkeyed(TOPIC.logs, near=near) for _ in range(50)} == {first} < {*near}
    [other] = {*near} - {first}
    assert {choice.unkeyed(TOPIC.logs, full={first}, near=near) for _ in range(50)} == {other}
    choice.note(other, has_failed=True)
    assert choice.unkeyed(TOPIC.logs, near=near) == first
    choice.note(first, has_failed=True)
    assert choice.unkeyed(TOPIC.logs, near=near) in (0, 3)
    assert choice.others({0}) == [3]


def test_messages_for_other_zones_do_not_move_those_of_one(choice: QueueChoice) -> None:
    anywhere, near = choice.unkeyed(TOPIC.logs), choice.unkeyed(TOPIC.logs, near=(3,))
    assert (near, choice.hop([0, 1, 3], (3,))) == (3, 3)
    assert choice.unkeyed(TOPIC.logs) == anywhere
    assert choice.hop([1], (3,)) == 1
