"""Many writers of few queues pay little more for a message than one writer does."""

from __future__ import annotations

import pytest

from benchmarks.writers import Crowd, paid

LARGE = 1_100
"""Bytes of a body whose message fills two write units as a payload, and whose entry is a pointer."""


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


@pytest.mark.parametrize(
    ("crowd", "writes", "reads"),
    [
        (Crowd(1, 1, 100, body_bytes=LARGE), 3, 0),
        (Crowd(1, 16, 960, 300, body_bytes=LARGE), 3.1, 0.5),
        (Crowd(1, 150, 900, 500, body_bytes=LARGE), 3.25, 0.55),
        (Crowd(4, 150, 900, 500, "hot", body_bytes=LARGE), 3.25, 0.55),
    ],
    ids=str,
)
def test_writers_of_payloads_pay_little_more_than_payload_and_append(crowd: Crowd, writes: float, reads: float) -> None:
    """These are three units. A segment takes 37 pointers, so that few appends meet a full one."""
    cost = paid(crowd)
    assert cost.write_units <= writes
    assert cost.read_units <= reads


def test_callers_of_one_process_share_their_writes() -> None:
    cost = paid(Crowd(1, 16, 960, 4_000, processes=1))
    assert cost.write_units <= 0.3
    assert cost.read_units == 0
