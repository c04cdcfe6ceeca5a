"""Plans of rounds in which server processes are stopped for 5 to 90 s, killed and started anew, with clocks that are
off."""

from __future__ import annotations

from random import Random

from chalicelib.base.limits import STORE_DEADLINE_MS
from tests.load.kinds import KINDS
from tests.load.run import Plan

ROUND_SECONDS = 120.0
"""Longer than the longest stop."""

SKEW_MS = 250
"""The promises are about clocks that differ by no more than twice this."""
PACE_MS = 400
"""The checker compares everything with everything: a round is to have some thousands of deliveries."""
KINDS_A_ROUND = 3


def plan(seed: int, seconds: float) -> Plan:
    """Each seed takes some kinds of groups of all there are."""
    random = Random(seed)
    return Plan(
        seconds=seconds,
        processes=3,
        torments=True,
        skew_ms=SKEW_MS,
        pace_ms=PACE_MS,
        kinds=tuple(random.sample(sorted(KINDS), KINDS_A_ROUND)),
        queues=random.randint(1, 3),
        patience_ms=random.choice((300, STORE_DEADLINE_MS)),
        seed=seed,
    )
