"""Judges the messages that alarms of groups sent."""

from __future__ import annotations

from collections.abc import Iterator

from tests.history.case import Case
from tests.history.facts import AlarmChange


def every_change_of_an_alarm_is_sent_once(case: Case) -> Iterator[str]:
    """In the order of the changes, and no others."""
    history = case.history
    for group, changes in history.alarms_changed.items():
        told = history.alarms_told.get(group, [])
        if told != changes:
            yield f"{group}: its alarm changed {_shown(changes)}, and told was {_shown(told)}"


def alarms_are_raised_and_cleared_in_turn(case: Case) -> Iterator[str]:
    for group, told in case.history.alarms_told.items():
        states = [change.state for change in told]
        if states != [("raised", "cleared")[place % 2] for place in range(len(states))]:
            yield f"{group} was told of {_shown(told)}"


def an_alarm_fits_the_backlog(case: Case) -> Iterator[str]:
    """At least the messages that the drain delivered were ready before it; after it none is."""
    history = case.history
    for group, state in history.alarms_quiet.items():
        rules, drained = history.rules.get(group), len(history.drained.get(group, ()))
        if rules and rules.alarm_ready and drained >= rules.alarm_ready and state != "raised":
            yield f"{group} had {drained} messages ready before the drain, and its alarm was {state}"
    for group, told in history.alarms_told.items():
        if group in history.drained and told and told[-1].state != "cleared":
            yield f"{group} is drained, and the last that was told of it is {_shown(told[-1:])}"


def _shown(changes: list[AlarmChange]) -> str:
    return ", ".join(f"{change.state} at {change.at_ms}" for change in changes) or "nothing"
