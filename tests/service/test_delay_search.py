"""The search for the decision that delivers a message, in chains as callers at once, late writes and removals leave
them."""

from __future__ import annotations

from itertools import count

import pytest

from chalicelib.core.base.limits import STORED_LATE_MS_MAX as LATE_MS
from chalicelib.core.delays.decision import Decision, Slot
from chalicelib.core.log.segment import Entry
from tests.support.stopping import Stage

DUE_MS = 10**12
FIRST = 5
"""The number of the first decision that is left."""


def slot(after_ms: int) -> Slot:
    return Slot(DUE_MS + after_ms, b"message.")


def found(wanted: Slot, *made: tuple[int, Slot, bool]) -> int | None:
    """The place among these decisions of the one that delivers this message. Each is made so long after `DUE_MS`, about
    one message, which it delivers or cancels."""
    service = Stage().instance()
    topic, _ = service.admin.topics.put("t", {"queues": 1})
    entry = Entry(b"an entry", 1, 0, "json", 1, b"")
    for number, (at_ms, about, delivers) in zip(count(FIRST), made):
        decision = Decision(number, DUE_MS + at_ms, b"caller", (about,), entry if delivers else None)
        service.env.store.write(decision.write(topic.id, 0))
    decided = service.delays.decisions.find(topic, 0, wanted)
    return decided and decided[0].number - FIRST


WANTED = slot(0)
"""A message that is stored as late as one can be, when others are delivered that were due later."""


@pytest.mark.parametrize(
    "before",
    [
        pytest.param((LATE_MS, slot(LATE_MS), True), id="a later one, when it could still come"),
        pytest.param((LATE_MS + 1, slot(10**9), False), id="a cancel"),
        pytest.param((LATE_MS + 1, slot(-500), True), id="an earlier one"),
    ],
)
@pytest.mark.parametrize("copies", [1, 32, 33])
def test_a_message_that_came_late_is_found_behind(before: tuple[int, Slot, bool], copies: int) -> None:
    after = (LATE_MS + 1, slot(LATE_MS + 1), True)
    assert found(WANTED, *[before] * copies, (LATE_MS + 1, WANTED, True), after) == copies


def test_a_message_that_was_cancelled_is_found_nowhere() -> None:
    cancel = (5, slot(0), False)
    assert found(slot(0), cancel) is None
    assert found(slot(0), cancel, (6, slot(6), True)) is None
