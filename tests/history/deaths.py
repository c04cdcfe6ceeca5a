"""Judges why messages became dead letters."""

from __future__ import annotations

from collections.abc import Iterator

from tests.history.facts import History, Place

_GONE = "payload is gone"
"""Part of the reason of a dead letter whose message was lost."""


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


def is_of_a_lost_message(history: History, group: str, place: Place) -> bool:
    """Whether the dead letter gives the loss as its reason, and the message was lost."""
    return place in history.lost and _GONE in history.reasons.get(group, {}).get(place, "")
