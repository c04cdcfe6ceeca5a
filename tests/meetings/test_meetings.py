"""Whatever happens between the look of a call and its write, all promises hold."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.meetings.calls import CALLS
from tests.meetings.operations import OPERATIONS
from tests.meetings.scene import Scene


@pytest.mark.parametrize("scene", CALLS.values(), ids=CALLS)
def test_a_call_meets_any_operation(scene: Callable[[], Scene]) -> None:
    set_up = scene()
    for write in range(1, set_up.writes() + 1):
        for name, operation in OPERATIONS.items():
            wrong = set_up.meets(operation, write)
            assert wrong == [], f"{name}, before write {write}"
