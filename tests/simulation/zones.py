"""Histories in which queues, producers and consumers are in zones, and consumers stay away for a while."""

from __future__ import annotations

ZONES = {"a": [0], "b": [1]}
"""Other queues are in none."""

AWAY = 0.2
"""The probability that a consumer stays away before a pop."""
AWAY_MS_MAX = 20_000


def zone_of(number: int, groups: int) -> str | None:
    """The zone of a consumer. All consumers of the first group have one; each third of the other groups has none."""
    zones = [*ZONES, None] if number % groups else [*ZONES]
    return zones[number // groups % len(zones)]
