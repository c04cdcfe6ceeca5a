"""All promises hold whatever other operation happens between a call's look and its write."""

from __future__ import annotations

from itertools import islice

import pytest

from tests.meetings.calls import CALLS, WAITING_CALLS
from tests.meetings.operations import OF_CURSORS, OF_WAITING, OTHERS
from tests.meetings.scene import Act, Scene

EVERY = 8
"""A call meets one in so many of the operations that seldom concern it; other calls meet others."""
EVERY_BETWEEN = 3
"""Between two looks of a call, one in so many operations happens."""


@pytest.mark.parametrize("name", CALLS)
def test_a_claim_or_a_settlement_meets_any_operation(name: str) -> None:
    _meet(CALLS[name](), OF_CURSORS | _some(OTHERS, [*CALLS].index(name), EVERY))


@pytest.mark.parametrize("name", WAITING_CALLS)
def test_a_call_about_what_waits_meets_any_operation(name: str) -> None:
    _meet(WAITING_CALLS[name](), OF_WAITING | _some(OTHERS | OF_CURSORS, [*WAITING_CALLS].index(name), EVERY))


def _some(operations: dict[str, Act], first: int, every: int) -> dict[str, Act]:
    return dict(islice(operations.items(), first % every, None, every))


def _meet(scene: Scene, operations: dict[str, Act]) -> None:
    points = scene.points()
    assert points
    for request, is_decisive in points.items():
        happening = operations if is_decisive else _some(operations, request, EVERY_BETWEEN)
        for name, operation in happening.items():
            assert scene.meets(operation, request) == [], f"{name}, before request {request}"
