"""A topic under more load than its partitions carry, scaled down, stores what it can, refuses the rest and recovers."""

from __future__ import annotations

import pytest

from benchmarks.ramps import Effort, Kind, at, hot_key, overload, ramp, shut_log

SCALED = Effort(scale=100, levels=(6_000,), level_s=60, overload_s=20, after_s=10)
CARRIED = 3_000
"""Single messages a second that four queues store whole."""


def test_under_five_times_its_capacity_a_topic_stores_what_it_can() -> None:
    found = overload(SCALED, 5, CARRIED, Kind("", keyed=True))
    assert found.during.stored_per_second > 0.8 * CARRIED
    assert found.during.calls.in_doubt == 0
    assert at(found.during.calls.refused_ms, 0.99) < 1_000
    assert found.recovery_s < 5
    assert found.after.calls.pops_failed == 0


def test_a_topic_that_chooses_its_queues_grows_with_its_load() -> None:
    [grown] = ramp(Kind("", "auto"), SCALED)
    assert grown.queues > 4
    assert (grown.refused, grown.calls.in_doubt) == (0, 0)
    assert at(grown.calls.stored_ms, 0.99) < 1_000


def test_a_hot_key_leaves_most_others_alone() -> None:
    calls = hot_key(SCALED, CARRIED, hot=0.5).calls
    assert calls.hot_refused > 0
    others = calls.count / 2
    assert len(calls.refused_ms) - calls.hot_refused < 0.15 * others
    assert at(calls.refused_ms, 0.99) < 1_000


def test_messages_without_a_key_avoid_a_log_that_throttles() -> None:
    row = shut_log(SCALED, CARRIED / 2)
    assert (len(row.calls.refused_ms), row.calls.in_doubt) == (0, 0)


def test_messages_whose_keys_are_in_a_log_that_throttles_are_refused_soon() -> None:
    calls = shut_log(SCALED, CARRIED / 2, keyed=True).calls
    assert len(calls.refused_ms) == pytest.approx(calls.count / 4, rel=0.3)
    assert calls.in_doubt == 0
    assert max(calls.refused_ms) < 1_000
