"""Simulated histories by name: `seeds/17`, `broadcast/17`, or `PLAN/17` of the plan that shows a planted bug."""

from __future__ import annotations

ROUNDS = 12
SEEDS_A_ROUND = 40
"""Histories of the seeds' own plans, beside one of each other plan."""
BROADCASTS_A_ROUND = 5


def names() -> list[str]:
    from tests.simulation.bugs import BUGS

    plans = {bug.plan: name for name, bug in reversed(BUGS.items()) if bug.plan}.values()
    known: list[str] = []
    for seed in range(ROUNDS):
        known += [f"{plan}/{seed}" for plan in plans]
        for kind, count in (("seeds", SEEDS_A_ROUND), ("broadcast", BROADCASTS_A_ROUND)):
            known += [f"{kind}/{each}" for each in range(seed * count, (seed + 1) * count)]
    return known


def is_clean(name: str) -> bool:
    from tests.simulation import broadcast
    from tests.simulation.bugs import BUGS
    from tests.simulation.world import play

    kind, _, seed = name.partition("/")
    plan = BUGS[kind].plan if kind in BUGS else None
    return not (broadcast.play(int(seed)) if kind == "broadcast" else play(int(seed), plan))
