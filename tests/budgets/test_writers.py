"""Many writers of few queues pay little more for a message than one writer does."""

from __future__ import annotations

import pytest

from benchmarks.writers import Crowd, paid


@pytest.mark.parametrize(
    ("crowd", "writes", "reads"),
    [
        (Crowd(1, 16, 320), 2.3, 0.5),
        (Crowd(1, 150, 450), 3, 0.6),
        (Crowd(4, 150, 1_800), 3, 1),
        (Crowd(4, 600, 1_800), 3, 1),
        (Crowd(128, 150, 6_000), 1.2, 0.5),
    ],
    ids=str,
)
def test_writers_that_take_turns_pay_few_units_a_message(crowd: Crowd, writes: float, reads: float) -> None:
    cost = paid(crowd)
    assert cost.write_units <= writes
    assert cost.read_units <= reads


@pytest.mark.parametrize(
    ("crowd", "writes", "reads", "p99_ms"),
    [
        (Crowd(1, 16, 480, 300), 2.3, 0.7, 60),
        (Crowd(1, 150, 900, 500), 2.5, 1, 150),
        (Crowd(4, 150, 900, 1_000), 2.5, 1.5, 150),
        (Crowd(4, 150, 900, 500, "hot"), 2.5, 1, 150),
    ],
    ids=str,
)
def test_writers_that_meet_pay_few_units_a_message(crowd: Crowd, writes: float, reads: float, p99_ms: int) -> None:
    """The units of writes are those of payload, refusals and append."""
    cost = paid(crowd)
    assert cost.write_units <= writes
    assert cost.read_units <= reads
    assert cost.took_ms[len(cost.took_ms) * 99 // 100] <= p99_ms
