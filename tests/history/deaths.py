"""Judges why messages became dead letters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tests.history.facts import History, Place

if TYPE_CHECKING:
    from tests.history.checker import Case

_EXPIRED = "lease expired"
_GONE = "payload is gone"
"""Parts of the reasons of dead letters: whose lease was over, and whose message was lost."""


def undelivered_messages_do_not_die(history: History) -> Iterator[str]:
    """A message that no pop delivered and no caller buried is not dead, however often it could not be read, unless it
    has lost its payload. Where responses are lost, nobody knows whether a pop delivered it."""
    got = {(delivered.group, delivered.place) for delivered in history.delivered}
    got |= {(settled.group, settled.place) for settled in history.settled if settled.verb == "bury"}
    for group, dead in history.dead.items() if history.are_all_answered else ():
        for place in dead:
            if (group, place) not in got and not is_of_a_lost_message(history, group, place):
                yield f"{group} {place} died, and nobody was ever given it: {history.reasons[group][place]}"


def only_lost_messages_die_as_lost(history: History) -> Iterator[str]:
    for group, reasons in history.reasons.items():
        for place, reason in reasons.items():
            if _GONE in reason and place not in history.lost:
                yield f"{group} {place} is dead, since its payload is gone, which nobody has removed"


def extended_messages_do_not_expire(case: Case, skew_ms: int) -> Iterator[str]:
    """A message whose last lease was extended does not die of its end before the extension is over, unless somebody
    moved it otherwise."""
    for group, dead_ms in case.history.dead_ms.items():
        for place, at_ms in dead_ms.items() if not case.comes_back(group) else ():
            moves = [fact for fact in case.settled.get((group, place), ()) if fact.verb != "ack"]
            is_extended = len(moves) == 1 and moves[0].verb == "extend" and moves[0].outcome == "ok"
            if is_extended and _EXPIRED in case.history.reasons[group][place] and at_ms + skew_ms < moves[0].until_ms:
                yield f"{group} {place} died at {at_ms}, extended until {moves[0].until_ms}"


def is_of_a_lost_message(history: History, group: str, place: Place) -> bool:
    """Whether the dead letter gives the loss as its reason, and the message was lost."""
    return place in history.lost and _GONE in history.reasons.get(group, {}).get(place, "")
