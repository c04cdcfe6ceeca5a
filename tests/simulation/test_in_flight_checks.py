"""Messages in flight are counted at every claim, in the states of the cursor that the store has seen."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.core.cursors.cursor import Cursor
from chalicelib.core.table.writes import Key
from tests.history.history import History, Rules
from tests.simulation.cursor_states import Versions, _crowded

NOW = 1_000_000
KEY = Key("group#id#g", "cursor#gid#000")


def versions(*states: tuple[int, dict[str, Any]]) -> Versions:
    """A cursor with these leases, after this number of claims."""
    made = [
        {"pk": KEY.pk, "sk": KEY.sk, "epoch": 0, "next": [9], "leases": leases, "dead": 0, "claims": claims}
        for claims, leases in states
    ]
    return [(KEY, NOW + at, Cursor.of(item)) for at, item in enumerate(made)]


def crowded(seen: Versions, most: int = 3) -> bool:
    return bool(list(_crowded(seen, History(rules={"g": Rules(5, most)}))))


LIVE, OVER = NOW + 9_000, NOW - 9_000


@pytest.mark.parametrize(
    ("leases", "is_wrong"),
    [
        ({"a": [0, 2, LIVE, 1], "b": [2, 2, LIVE, 1]}, True),
        ({"a": [0, 2, LIVE, 1], "b": [2, 1, LIVE, 1]}, False),
        ({"a": [0, 2, OVER, 1], "b": [2, 2, LIVE, 1]}, False),
        ({"a": [0, 2, LIVE, 1, b"a\x01"], "b": [2, 2, LIVE, 1]}, False),
        ({"~a": [0, 2, LIVE, 1], "b": [2, 2, LIVE, 1]}, False),
    ],
)
def test_a_claim_leaves_no_more_in_flight_than_allowed(leases: dict[str, Any], is_wrong: bool) -> None:
    first = {token: listed for token, listed in leases.items() if token != "b"}
    assert crowded(versions((0, {}), (1, first), (2, leases))) == is_wrong


def test_a_lease_that_is_extended_too_late_takes_no_room() -> None:
    """It was due when others claimed; one that is extended in time still counts."""
    claimed = {"b": [2, 3, LIVE, 1]}
    for until_ms, is_wrong in ((OVER, False), (LIVE, True)):
        held, extended = {"a": [0, 2, until_ms, 1]}, {"a2": [0, 2, LIVE, 1]}
        assert crowded(versions((0, {}), (1, held), (1, extended), (2, extended | claimed))) == is_wrong
