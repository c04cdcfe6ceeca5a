"""Simulated histories by name: `seeds/17`, `broadcast/17`, or `PLAN/17` of the plan that shows a planted bug."""

from __future__ import annotations

ROUNDS = 12
SEEDS_A_ROUND = 40
"""Histories of the seeds' own plans, beside one of each other plan."""
BROADCASTS_A_ROUND = 5


def names() -> list[str]:
    from tests.simulation.planted import PLANS

    plans = {plan: name for name, plan in reversed(PLANS.items())}.values()
    known: list[str] = []
    for seed in range(ROUNDS):
        known += [f"{plan}/{seed}" for plan in plans]
        for kind, count in (("seeds", SEEDS_A_ROUND), ("broadcast", BROADCASTS_A_ROUND)):
            known += [f"{kind}/{each}" for each in range(seed * count, (seed + 1) * count)]
    return known


def is_clean(name: str) -> bool:
    from tests.simulation import broadcast
    from tests.simulation.planted import PLANS
    from tests.simulation.world import play

    plan, _, seed = name.partition("/")
    return not (broadcast.play(int(seed)) if plan == "broadcast" else play(int(seed), PLANS.get(plan)))
