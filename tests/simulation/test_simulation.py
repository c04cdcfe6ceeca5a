"""Histories with all faults run clean; planted bugs are found."""

from __future__ import annotations

import pytest

from tests.simulation.mutants import MUTANTS, Mutant
from tests.simulation.world import Plan, play

SEEDS_A_TEST = 25

FOUND = {
    37: "an ack by a receipt from before a reset was confirmed, from what the instance remembered",
    95: "the same, and the message came again",
}
"""Seeds that once found a defect of ours, with two groups and two resets."""

MUTANT_SEEDS = 120
"""A planted bug is found within so many histories."""


@pytest.mark.parametrize("first", range(0, 100, SEEDS_A_TEST))
def test_histories_with_all_faults_run_clean(first: int) -> None:
    for seed in range(first, first + SEEDS_A_TEST):
        assert play(seed, Plan()) == [], f"python -m tests.simulation --seed {seed}"


def test_histories_with_resets_and_two_groups_run_clean() -> None:
    for seed in range(1_000, 1_000 + SEEDS_A_TEST):
        assert play(seed, Plan(groups=2, resets=2)) == [], f"--seed {seed} --groups 2 --resets 2"


@pytest.mark.parametrize("seed", FOUND)
def test_what_was_found_once_stays_mended(seed: int) -> None:
    assert play(seed, Plan(groups=2, resets=2)) == []


def test_a_seed_plays_the_same_history_again() -> None:
    from tests.simulation.world import World

    first, second = World(7, Plan()), World(7, Plan())
    first.run()
    second.run()
    assert first.history == second.history


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=MUTANTS.keys())
def test_a_planted_bug_is_found(mutant: Mutant) -> None:
    for seed in range(MUTANT_SEEDS):
        with mutant():
            try:
                found = play(seed, Plan(groups=2, resets=2 if seed % 2 else 0))
            except Exception:  # noqa: BLE001 - a bug may also show itself by a crash
                return
        if found:
            return
    pytest.fail(f"not found in {MUTANT_SEEDS} histories")
