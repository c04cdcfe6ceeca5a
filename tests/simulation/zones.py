"""Histories in which queues, producers and consumers are in zones, and consumers stay away for a while."""

from __future__ import annotations

ZONES = {"a": [0], "b": [1]}
"""Other queues are in none."""

AWAY = 0.2
"""How likely a consumer stays away before a pop."""
AWAY_MS_MAX = 20_000


def zone_of(number: int, groups: int) -> str | None:
    """Of a consumer. All those of the first group are in one; of the other groups' each third is in none."""
    zones = [*ZONES, None] if number % groups else [*ZONES]
    return zones[number // groups % len(zones)]
