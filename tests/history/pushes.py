"""Judges the calls of consumers of a pushed group."""

from __future__ import annotations

from collections.abc import Iterator

from tests.history.case import Case
from tests.history.facts import Called

GUARD_MS = 500
"""By how much clocks may differ without two calls at once."""


def calls_keep_to_their_number(case: Case) -> Iterator[str]:
    """No message is in two calls at once, and no more calls are under way than the group allows."""
    history = case.history
    spare_ms = max(0, case.skew_ms - GUARD_MS)
    calls = sorted(history.called, key=lambda call: call.began_ms)
    for number, call in enumerate(calls):
        at_once = [other for other in calls[:number] if other.at_ms > call.began_ms + spare_ms]
        for other in at_once:
            if twice := sorted(other.bodies.keys() & call.bodies.keys()):
                yield f"{twice} was in the calls of {_shown(other)} and {_shown(call)}"
        if len(at_once) >= history.concurrency:
            yield f"{len(at_once) + 1} calls were under way at {call.began_ms}, and {history.concurrency} are allowed"


def calls_bring_what_is_stored(case: Case) -> Iterator[str]:
    history = case.history
    for call in history.called:
        if wrong := {place: body for place, body in call.bodies.items() if history.log.get(place) != body}:
            yield f"the call of {_shown(call)} brought {wrong}, which is not in the log"


def a_success_is_acked(case: Case) -> Iterator[str]:
    """Where every request is answered: what a consumer has taken does not come again."""
    history = case.history
    for call in history.called if history.are_all_answered else ():
        for later in history.called:
            if later is not call and later.began_ms >= call.at_ms and (again := call.succeeded & later.bodies.keys()):
                yield f"{sorted(again)} was taken in the call of {_shown(call)}, and came at {later.began_ms}"


def _shown(call: Called) -> str:
    return f"{call.began_ms} to {call.at_ms}"
