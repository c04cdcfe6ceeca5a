"""Bugs planted into transactions."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

from chalicelib.core.producing.new_message import Sending
from chalicelib.core.table.writes import Absent, Equals, Exists
from chalicelib.core.transactions import checks, decisions, half
from tests.simulation.mutants import planted, together, without, writing_one_by_one


@planted
def decisions_that_are_made_twice() -> Any:
    """What is rolled back can be committed, and the other way round."""
    remove, record = half.Undecided.remove, half.Decided.record
    return together(
        patch.object(half.Undecided, "remove", lambda *args: without(remove(*args), Exists)),
        patch.object(half.Decided, "record", lambda *args: without(record(*args), Absent)),
    )


@planted
def commits_after_their_time() -> Any:
    """What nobody decided in time is not rolled back."""
    return patch.object(half.Undecided, "is_open", lambda *_: True)


@planted
def half_messages_that_are_produced() -> Any:
    """The messages of a transaction are visible at once."""
    true = decisions.Decisions.begin

    def begin(self: Any, topic: Any, ask: Any, *more: Any) -> Any:
        begun = true(self, topic, ask, *more)
        messages = self._payloads.messages(topic.id, [begun.entry])[begun.entry.id]
        self._producing.send(topic, [Sending(message) for message in messages])
        return begun

    return patch.object(decisions.Decisions, "begin", begin)


@planted
def commits_in_many_writes() -> Any:
    """A transaction is decided, and its messages come one by one: not all, if the caller dies."""
    return writing_one_by_one(decisions.Decisions, "commit", lambda store, each: store.write_together([each]))


@planted
def checks_that_are_given_twice() -> Any:
    """Two callers that ask at once both get a transaction."""
    true = half.Undecided.check
    return patch.object(half.Undecided, "check", lambda *args: without(true(*args), Equals))


@planted
def checks_that_come_at_once() -> Any:
    """A transaction is checked again and again."""
    true = half.Undecided.check
    return patch.object(half.Undecided, "check", lambda self, topic_id, now, by: true(self, topic_id, now - 10_000, by))


@planted
def transactions_that_nobody_checks() -> Any:
    """A sender that died is not missed."""
    return patch.object(checks.Checks, "check", lambda *_: [])
