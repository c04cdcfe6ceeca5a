"""Histories of broadcast groups run clean; planted bugs are found."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from chalicelib.core.cursors import broadcast
from chalicelib.core.table import keys
from tests.simulation.broadcast import play

SEEDS = 60


def test_every_consumer_gets_everything_and_restarts_a_queue_or_does_not() -> None:
    assert {seed: wrong for seed in range(SEEDS) if (wrong := play(seed))} == {}


def _cursors_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two consumers have the same cursors."""
    real = keys.consumer
    monkeypatch.setattr(keys, "consumer", lambda name: real("ann" if name == "bob" else name))


def _unguarded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cursor is forgotten though its consumer has come back since it was seen."""
    monkeypatch.setattr(broadcast, "unchanged", lambda _: ())


@pytest.mark.parametrize(("plant", "seed"), [(_cursors_shared, 0), (_unguarded, 71)])
def test_a_planted_bug_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`seed`: one that is known to show it."""
    plant(monkeypatch)
    assert any(play(each) for each in (seed, *range(5 * SEEDS)))
