"""Histories of a message or two, as literals, for tests of the checker."""

from __future__ import annotations

from tests.history.checker import violations
from tests.history.facts import Delivered, Sent, Settled
from tests.history.history import History

PLACE = (0, 0)


def history(*deliveries: Delivered, **more: object) -> History:
    """A history of one message that was sent, stored, and delivered in these leases."""
    made = History(sent=[Sent("a", None, 0, PLACE)], delivered=list(deliveries), log={PLACE: "a"}, ends={0: 1})
    made.drained = {"g": {PLACE}}
    for name, value in more.items():
        setattr(made, name, value)
    return made


def delivered(receipt: str, at_ms: int, until_ms: int, attempt: int = 1, began_ms: int | None = None) -> Delivered:
    began = at_ms - 10 if began_ms is None else began_ms
    return Delivered("g", PLACE, "a", "id", attempt, began, at_ms, until_ms, receipt)


def settled(verb: str, receipt: str, at_ms: int, outcome: str = "ok", until_ms: int = 0) -> Settled:
    return Settled(verb, "g", PLACE, receipt, at_ms - 10, at_ms, outcome, until_ms)


def broken(judged: History) -> set[str]:
    """The names of the checks that the history breaks."""
    return {violation.split(":")[0] for violation in violations(judged)}
