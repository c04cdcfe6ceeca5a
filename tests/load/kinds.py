"""The kinds of groups that a run may have, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from chalicelib.core.base.limits import IN_FLIGHT_DEFAULT
from chalicelib.core.catalogue.group import BY_DELIVERY, BY_KEY, BY_MESSAGE
from chalicelib.core.catalogue.group_forms import Filter
from tests.history.history import Rules
from tests.load.admin_calls import PURGED, TURNED

_UNWANTED_KEY = "c"

KINDS: Mapping[str, Mapping[str, Any]] = {
    "patient": {},
    "mortal": {"max_attempts": 3},
    "ordered": {"ordered": True},
    "keyed": {"ordered": BY_KEY},
    "named": {"settle_by": BY_MESSAGE},
    "held": {"settle_by": BY_DELIVERY},
    "choosy": {"unwanted_key": _UNWANTED_KEY},
    "slow": {"delay_ms": 700},
    "capped": {"max_in_flight": 5},
    TURNED: {},
    PURGED: {},
}
"""The rules of each kind that differ from those of a patient group."""

_PATIENCE = 1_000


def rules(kind: str) -> Rules:
    return Rules(**{"max_attempts": _PATIENCE, "max_in_flight": IN_FLIGHT_DEFAULT, **KINDS[kind]})


def settings(kind: str) -> dict[str, Any]:
    given = {"max_attempts": _PATIENCE, "invisible_ms": 1_000, **KINDS[kind]}
    if unwanted := given.pop("unwanted_key", None):
        given["filter"] = Filter({"expression": f"key != '{unwanted}'"})
    return given
