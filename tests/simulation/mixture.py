"""The plans of all seeds. Each turns some features on, and those up: if all were on at once, none would have much
effect."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

from chalicelib.core.catalogue.group import BY_KEY, ENDLESS
from tests.simulation.faulty_store import ALL
from tests.simulation.plans import EXPIRING, RESIZED, Plan

BASE = Plan(messages=14, pops=4, queues=1)
"""The parts that all seeds have."""

_LEASES_MS = (0, 200, 1_000, 3_000)
_SQS = {"queue_calls": 7}
_DYING = {"max_attempts": 2, "burials": 0.2}
_WIDE = {"narrow_looks": True, "queues": 6, "pop_sizes": (1, 2, 4)}
_SCARCE = {"zones": True, "queues": 3, "consumers": 6, "groups": 2, "pace": 12, "burials": 0.0}

FEATURES: dict[str, tuple[float, tuple[dict[str, Any], ...]]] = {
    "expiry": (0.1, (EXPIRING,)),
    "resizes": (0.1, (RESIZED, RESIZED | {"grows": 0.5})),
    "zones": (0.05, (_SCARCE,)),
    "twins": (0.05, ({"twins": True, "shared": 0.7},)),
    "clients of SQS": (0.08, (_SQS, _SQS | {"is_fifo": True}, _SQS | {"over_json": True})),
    "pushes": (0.08, ({"pushes": True},)),
    "stalls": (0.05, ({"faults": replace(ALL, stall=0.03)},)),
    "faults": (
        0.3,
        (
            {"faults": replace(ALL, stale=0.6)},
            {"faults": replace(ALL, zombie=0.15)},
            {"faults": replace(ALL, latency_ms_max=150)},
            {"faults": replace(ALL, lose_reply=0.1)},
            {"faults": replace(ALL, kill=0.03)},
            {"faults": replace(ALL, unreadable=0.15), "sizes": (150, 2_000)},
        ),
    ),
    "queues": (0.5, ({"queues": 2}, {"queues": 2}, {"queues": 3})),
    "groups": (0.25, ({"groups": 2},)),
    "callers": (0.5, ({"consumers": 5}, {"consumers": 6, "pop_sizes": (1, 2, 4)}, {"producers": 5, "messages": 20})),
    "order": (0.5, ({"ordered": True}, {"ordered": BY_KEY}, {"ordered": BY_KEY, "aside_max": 2})),
    "filter": (0.25, ({"unwanted_key": "b"},)),
    "attempts": (0.5, tuple({"max_attempts": most} for most in (ENDLESS, 1, 2, 4))),
    "cap": (0.35, ({"max_in_flight": 4}, {"max_in_flight": 7})),
    "naming": (0.4, tuple({"settle_by": rule, "leases_ms": _LEASES_MS} for rule in ("message", "delivery"))),
    "meddlers": (0.35, ({"meddlers": 1}, {"meddlers": 4})),
    "long leases": (0.15, ({"leases_ms": (3_000, 10_000)},)),
    "rate": (0.1, ({"rate": 4}, {"rate": 2})),
    "alarm": (0.15, ({"alarm_ready": 1}, {"alarm_ready": 4})),
    "delay of groups": (0.15, ({"delay_ms": 700},)),
    "delays": (0.3, ({"delayed": 0.3}, {"delayed": 0.7, "cancels": 12, "cancels_pause_ms": 400})),
    "dedup ids": (0.35, ({"dedup_ids": 3}, {"dedup_ids": 6}, {"dedup_ids": 4, "dedup_ms": 2_000})),
    "times to live": (0.2, ({"ttls": 0.3},)),
    "transactions": (0.2, ({"transactions": 3}, {"transactions": 4, "arbiters": 4})),
    "requests": (0.15, ({"requests": 4},)),
    "full queues": (0.1, ({"max_depth": 6},)),
    "fill": (0.3, ({"fills": 0.4},)),
    "impatience": (0.15, ({"hasty": 0.5},)),
    "resets": (0.3, ({"resets": 1}, {"resets": 3})),
    "purges": (0.12, ({"wipes": 3},)),
    "late groups": (0.15, ({"late_groups": 1},)),
    "burials": (0.3, ({"burials": 0.15},)),
    "redrives": (0.3, ({"redrives": 2}, {"redrives": 8, "redrives_pause_ms": 600})),
    "purges of the dead": (0.2, ({"purges": 2},)),
    "topic of the dead": (0.15, ({"moves_dead": True}, {"moves_dead": True, "tasks": 6})),
    "sweeps": (0.4, ({"sweepers": 1}, {"sweepers": 2})),
    "chores": (0.2, ({"chores": 3},)),
    "readers": (0.25, ({"looks": 6},)),
    "retry pages": (0.4, ({"small_pages": True},)),
    "first deliveries": (0.5, ({"notes_first": True},)),
    "losses": (0.06, ({"losses": 3, "sizes": (0, 2_000, 3_000)},)),
    "long histories": (0.2, ({"pops": 10}, {"pops": 10, "messages": 30})),
    "clocks": (0.3, ({"skew_ms": 0}, {"skew_ms": 2_000})),
    "intruders": (0.7, ({"intrude": 0.03}, {"intrude": 0.1})),
    "shared instances": (0.3, ({"shared": 0.5}, {"shared": 1.0, "producers": 6, "messages": 30, "pace": 0})),
    "deaths": (
        0.2,
        (
            _DYING,
            _DYING | {"redrives": 8, "redrives_pause_ms": 600},
            _DYING | {"redrives": 6, "redrives_pause_ms": 900, "purges": 4},
        ),
    ),
    "move tasks": (0.06, (_DYING | {"moves_dead": True, "tasks": 6},)),
    "torn reads": (0.2, ({"faults": replace(ALL, torn=0.5)}, {"faults": replace(ALL, torn=0.5, latency_ms_max=100)})),
    "small segments": (0.3, ({"small_segments": True},)),
    "narrow looks": (0.25, ({"narrow_looks": True}, {"narrow_looks": True, "queues": 3}, _WIDE)),
    "partitions": (0.1, ({"key_units": 3.0}, {"key_units": 1.0})),
}
"""The probability of each feature, and its variants."""

_ALONE = {"expiry", "resizes", "clients of SQS", "pushes", "alarm", "full queues", "topic of the dead", "move tasks"}
APART: dict[str, set[str]] = {
    "resizes": {"expiry", "resets", "late groups"},
    "zones": {"filter", "delays", "transactions", "requests", "full queues", "resizes", "order", "times to live"},
    "twins": {"zones", *_ALONE},
    "pushes": {"expiry", "late groups"},
    "stalls": {"expiry", "resizes"},
    "faults": {"expiry", "resizes", "stalls", "clients of SQS"},
    "delay of groups": {"alarm"},
    "topic of the dead": {"expiry", "clients of SQS"},
    "move tasks": {"expiry", "clients of SQS"},
    "losses": {"expiry", "delays", "readers", "topic of the dead", "move tasks", "twins", "resizes"},
    "long histories": {"expiry", "resizes", "zones"},
    "partitions": {"expiry", "resizes", "stalls", "clients of SQS", "pushes"},
    "torn reads": {"expiry", "resizes", "stalls", "clients of SQS", "faults"},
}
"""Features that exclude each other: no check would know what to expect, or no history would end."""


def mixed(seed: int) -> Plan:
    """If two features cannot meet, the first in the list stays."""
    random, plan, chosen = Random(~seed), BASE, set[str]()
    for name, (share, ways) in FEATURES.items():
        is_on, way = random.random() < share, random.choice(ways)
        if is_on and not any(name in APART.get(other, ()) or other in APART.get(name, ()) for other in chosen):
            plan, chosen = replace(plan, **way), chosen | {name}
    return plan
