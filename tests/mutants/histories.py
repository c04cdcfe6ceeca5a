"""Simulated histories by name: `seeds/17`, or `BUG/17` of the plan that shows this planted bug."""

from __future__ import annotations

ROUNDS = 12
SEEDS_A_ROUND = 40
"""Histories of the seeds' own plans, beside one of each other plan."""


def names() -> list[str]:
    from tests.simulation.bugs import BUGS

    plans = {bug.plan: name for name, bug in reversed(BUGS.items()) if bug.plan}.values()
    known: list[str] = []
    for seed in range(ROUNDS):
        known += [f"{plan}/{seed}" for plan in plans]
        known += [f"seeds/{each}" for each in range(seed * SEEDS_A_ROUND, (seed + 1) * SEEDS_A_ROUND)]
    return known


def is_clean(name: str) -> bool:
    from tests.simulation.bugs import BUGS
    from tests.simulation.world import play

    kind, _, seed = name.partition("/")
    return not play(int(seed), BUGS[kind].plan if kind in BUGS else None)
