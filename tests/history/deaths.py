"""Judges dead letters: why messages died, and how many are dead."""

from __future__ import annotations

from collections.abc import Iterator

from chalicelib.core.base.limits import DEAD_MS
from tests.history import moves
from tests.history.case import Case
from tests.history.facts import NEVER_MS, Place
from tests.history.history import History

_EXPIRED = "lease expired"
_GONE = "payload is gone"
"""Parts of the reasons of dead letters: whose lease was over, and whose message was lost."""


def undelivered_messages_do_not_die(case: Case) -> Iterator[str]:
    """A message that no pop delivered and no caller buried is not dead, however often it could not be read, unless it
    has lost its payload. Where responses are lost, nobody knows whether a pop delivered it."""
    history = case.history
    got = {(delivered.group, delivered.place) for delivered in history.delivered}
    got |= {(settled.group, settled.place) for settled in history.settled if settled.verb == "bury"}
    for group, dead in history.dead.items() if history.are_all_answered else ():
        for place in dead:
            if (group, place) not in got and not is_of_a_lost_message(history, group, place):
                yield f"{group} {place} died, and nobody was ever given it: {history.reasons[group][place]}"


def only_lost_messages_die_as_lost(case: Case) -> Iterator[str]:
    history = case.history
    for group, reasons in history.reasons.items():
        for place, reason in reasons.items():
            if _GONE in reason and place not in history.lost:
                yield f"{group} {place} is dead, since its payload is gone, which nobody has removed"


def extended_messages_do_not_expire(case: Case) -> Iterator[str]:
    """A message whose last lease was extended does not die of its end before the extension is over, unless a caller
    moved it otherwise."""
    for group, dead_ms in case.history.dead_ms.items():
        for place, at_ms in dead_ms.items() if not case.comes_back(group) else ():
            changes = [fact for fact in case.settled.get((group, place), ()) if fact.verb != "ack"]
            is_extended = len(changes) == 1 and changes[0].verb == "extend" and changes[0].outcome == "ok"
            if (
                is_extended
                and _EXPIRED in case.history.reasons[group][place]
                and at_ms + case.off_ms < changes[0].until_ms
            ):
                yield f"{group} {place} died at {at_ms}, extended until {changes[0].until_ms}"


def is_of_a_lost_message(history: History, group: str, place: Place) -> bool:
    """Whether the dead letter gives the loss as its reason, and the message was lost."""
    return place in history.lost and _GONE in history.reasons.get(group, {}).get(place, "")


def dead_letters_were_tried_and_stay_dead(case: Case) -> Iterator[str]:
    for group, dead in case.history.dead.items():
        rules = case.history.rules.get(group)
        for place, attempts in dead.items():
            burials = [settled for settled in case.settled.get((group, place), ()) if settled.verb == "bury"]
            buried = any(burial.outcome in ("ok", "unknown") for burial in burials)
            is_lost = is_of_a_lost_message(case.history, group, place)
            is_old = rules is not None and rules.may_outlive and attempts > rules.max_attempts
            is_tried = rules is None or (rules.least_attempts or rules.max_attempts) <= attempts <= rules.max_attempts
            if not is_tried and not is_old and not buried and not is_lost:
                yield f"{group} {place} died after {attempts} attempts, not {rules and rules.max_attempts}"
            if place in case.history.drained.get(group, ()) and not case.comes_back(group):
                yield f"{group} {place} is dead, and came again"


def dead_letters_are_counted(case: Case) -> Iterator[str]:
    for group, counted in case.history.counted.items():
        if counted != len(case.history.dead[group]):
            yield f"{group} counts {counted} dead letters, and has {len(case.history.dead[group])}"


def purged_dead_letters_are_gone(case: Case) -> Iterator[str]:
    for purge in case.history.purges:
        if case.comes_back(purge.group) or purge.at_ms - purge.began_ms > DEAD_MS:
            continue  # it removes letters while there is time, and says how many
        for place in case.history.dead.get(purge.group, ()):
            burials = [settled for settled in case.settled.get((purge.group, place), ()) if settled.verb == "bury"]
            was_dead = any(burial.outcome == "ok" and burial.at_ms < purge.began_ms for burial in burials)
            is_letter = not moves.had_moved(case.history, purge.group, place, NEVER_MS)
            if purge.at_ms < NEVER_MS and was_dead and is_letter:
                yield f"{purge.group} {place} was dead when all was purged at {purge.began_ms}, and is dead still"
