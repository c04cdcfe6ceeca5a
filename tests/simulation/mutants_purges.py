"""Bugs planted into purges."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from chalicelib.core.admin.groups import Groups
from chalicelib.core.catalogue import group
from chalicelib.core.consuming.view import QueueView
from chalicelib.core.cursors import broadcast, cursor_writes
from chalicelib.core.delays.writer import Waiting
from chalicelib.core.log import segment
from chalicelib.core.log.segment import Entry
from tests.simulation.mutants import planted


@planted
def purges_that_forget_what_waits() -> Any:
    """A purge moves the group to the ends, and nothing else."""
    true = cursor_writes.reset
    return patch.object(broadcast, "reset", lambda cursor, offset, _purged_at_ms=None: true(cursor, offset))


@planted
def pointers_that_forget_what_waited() -> Any:
    """The form of a pointer loses when the first of its messages was sent."""
    true = segment._pointer
    return patch.object(segment, "_pointer", lambda packed: replace(true(packed), first_sent_at_ms=None))


@planted
def times_of_delivery_for_times_of_sending() -> Any:
    """A message that waits is taken to be sent when it is due."""

    def packed(self: Waiting, now: int) -> Entry:
        message = replace(self.message, delayed_id=self.message_id, sent_at_ms=self.due_ms)
        return Entry.packed(self.entry_id, [message], now)

    return patch.object(Waiting, "packed", packed)


@planted
def purges_that_reach_ahead() -> Any:
    """A purge holds back what is sent a second after it was answered."""
    true = group.purge
    return patch.object(group, "purge", lambda current, purged_at_ms: true(current, purged_at_ms + 3_000))


@planted
def purges_that_answer_too_soon() -> Any:
    """A purge is answered while some clocks are not past what it counts for."""
    true = Groups._purge

    def purge(self: Any, *args: Any) -> Any:
        hurried = copy(self)
        hurried._runtime = replace(self._runtime, sleep=lambda _: None)
        return true(hurried, *args)

    return patch.object(Groups, "_purge", purge)


@planted
def claims_that_pass_over_a_purge() -> Any:
    """A claim that another has overtaken takes what it has not looked at."""
    return patch.object(QueueView, "has_purged", property(lambda _: False))
