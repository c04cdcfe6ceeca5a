"""Sweeps run every second as long as they take little of it, and at most 5 % of the time in any case."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from chalicelib.core.base.limits import HOUR_MS, SECOND_MS
from local import background
from local.background import pause_seconds, sweep_for_ever
from local.memory import opening
from local.memory.disk import Disk
from tests.support import clock as clocks


@pytest.mark.parametrize(("took", "pause"), [(0.0, 1.0), (0.001, 1.0), (1 / 19, 1.0), (0.1, 1.9), (3.0, 57.0)])
def test_a_pause_is_a_second_or_nineteen_times_what_the_round_took(took: float, pause: float) -> None:
    assert pause_seconds(took) == pytest.approx(pause)


class Clock:
    """Time passes while it is waited for, and while the given rounds take place. Ends when there are no more."""

    def __init__(self, *rounds: float) -> None:
        self.now = 0.0
        self.waited: list[float] = []
        self._rounds = list(rounds)

    def sweep(self) -> bool:
        self.now += self._rounds.pop(0)
        return True

    def wait(self, seconds: float) -> bool:
        self.now += seconds
        self.waited.append(seconds)
        return not self._rounds


def run(clock: Clock, sweep: Callable[[], bool] | None = None) -> list[float]:
    """The pauses."""
    sweep_for_ever(sweep or clock.sweep, clock.wait, lambda: clock.now)
    return clock.waited


def test_rounds_that_take_nothing_come_every_second() -> None:
    assert run(Clock(0, 0, 0)) == [1.0] * 4


def test_the_pause_follows_the_round_before_it() -> None:
    assert run(Clock(0.5, 0, 2)) == pytest.approx([1.0, 9.5, 1.0, 38.0])


def test_sweeps_take_at_most_a_twentieth_of_the_time() -> None:
    rounds = [0.01, 0.7, 0.06, 1.5, 0.0, 12.0]
    clock = Clock(*rounds)
    pauses = run(clock)[1:]
    assert all(took <= 0.05 * (took + pause) + 1e-9 for took, pause in zip(rounds, pauses, strict=True))


def test_a_round_that_waited_for_its_store_in_vain_is_repeated_soon() -> None:
    clock = Clock(40)

    def unanswered() -> bool:
        clock.sweep()
        return False

    assert run(clock, unanswered) == [1.0, 1.0]


def test_what_has_expired_leaves_the_memory_store_within_an_hour(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATA", str(tmp_path))
    clock, store = clocks.Clock(), opening.open_memory(keeps_blobs=False)
    ends = {"soon": clock.ms + HOUR_MS, "later": clock.ms + 5 * HOUR_MS}
    store.put_all([{"pk": "p", "sk": name, "ttl": ms // SECOND_MS} for name, ms in ends.items()])
    store.put_all([{"pk": "p", "sk": "never"}])
    for _ in range(3):
        background.drop_expired(clock.runtime())
        clock.sleep(HOUR_MS)
    opening.close()
    assert [item["sk"] for item in Disk(tmp_path).items()] == ["later", "never"]
