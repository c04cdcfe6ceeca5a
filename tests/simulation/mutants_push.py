"""Bugs planted into the push."""

from __future__ import annotations

import dataclasses
from typing import Any
from unittest.mock import patch

from chalicelib.core.catalogue.push import Push
from chalicelib.core.consuming.request import Pop
from chalicelib.core.table.writes import Absent, Equals
from chalicelib.push import dispatcher, outcome, slots
from tests.simulation.mutants import planted, together, without


@planted
def calls_longer_than_their_leases() -> Any:
    """A message is leased for less time than its call may take."""

    return together(
        patch.object(dispatcher, "Pop", lambda **ask: Pop(**{**ask, "invisible_ms": 50})),
        patch.object(dispatcher, "GUARD_MS", -1_000_000),
    )


@planted
def slots_that_anybody_takes() -> Any:
    """A slot is taken though another holds it since it was read."""
    true = slots.take
    return patch.object(slots, "take", lambda *args: without(true(*args), Equals, Absent))


@planted
def slots_without_end() -> Any:
    """There are as many calls as there are callers."""
    true_take, true_kept = slots.Slots.take, slots.Slots.kept

    def take(self: Any, group: Any, push: Any) -> Any:
        return true_take(self, group, Push({**push.given, "concurrency": 100}))

    def kept(self: Any, slot: Any, push: Any) -> Any:
        return true_kept(self, slot, Push({**push.given, "concurrency": 100}))

    return together(patch.object(slots.Slots, "take", take), patch.object(slots.Slots, "kept", kept))


@planted
def successes_that_come_again() -> Any:
    """What a consumer has taken is nacked."""

    def judge(answer: Any, message_ids: Any, now: int) -> Any:
        return dataclasses.replace(
            outcome.judge(answer, message_ids, now), failed=dict.fromkeys(message_ids, outcome.Failed("no", 0))
        )

    return patch.object(dispatcher, "judge", judge)


@planted
def failures_that_are_acked() -> Any:
    """What a consumer reports as failed does not come again."""

    def judge(answer: Any, message_ids: Any, now: int) -> Any:
        return dataclasses.replace(outcome.judge(answer, message_ids, now), failed={})

    return patch.object(dispatcher, "judge", judge)
