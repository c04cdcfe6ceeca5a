"""Plans of rounds that stop server processes for 5 to 90 s, kill them and start them again, with clocks that are
off."""

from __future__ import annotations

from random import Random

from chalicelib.core.base.limits import STORE_DEADLINE_MS
from tests.load.kinds import KINDS
from tests.load.run import EXPIRING, ZONED, Plan
from tests.load.worker import FEATURES

ROUND_SECONDS = 120.0
"""Longer than the longest stop."""

SKEW_MS = 250
"""The promises hold for clocks that differ by no more than twice this."""
PACE_MS = 400
"""The checker compares everything with everything, so a round should have only some thousands of deliveries."""
KINDS_A_ROUND = 3
SHARES = {**dict.fromkeys((*FEATURES, ZONED), 2 / 3), EXPIRING: 1 / 4}
"""The probability of each feature in a round. Messages that expired may be lost."""


def plan(seed: int, seconds: float) -> Plan:
    """Each seed takes some of all features."""
    random = Random(seed)
    features = tuple(feature for feature in SHARES if random.random() < SHARES[feature])
    return Plan(
        seconds=seconds,
        processes=3,
        torments=True,
        skew_ms=SKEW_MS,
        pace_ms=PACE_MS,
        kinds=_kinds(seed),
        features=features,
        queues=random.randint(2 if ZONED in features else 1, 3),
        patience_ms=random.choice((300, STORE_DEADLINE_MS)),
        seed=seed,
    )


def _kinds(seed: int) -> tuple[str, ...]:
    """Some of the kinds of groups; a few seeds in a row cover all."""
    kinds = sorted(KINDS)
    first = seed * KINDS_A_ROUND
    return tuple(kinds[number % len(kinds)] for number in range(first, first + KINDS_A_ROUND))
