"""Bugs planted into the agenda of the sweeps."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

from chalicelib.core.catalogue import agenda
from chalicelib.core.catalogue.agenda import FORWARD, REVIVE, Agenda, Appointment, Look
from tests.simulation.mutants import planted


def _appointing(change: Any) -> Any:
    """`change`: the sweep and the due time -> the due time of the appointment that is made; None: none is."""
    true = Agenda.appoint

    def appoint(self: Agenda, sweep: str, subject: str, due_ms: int, sent_by_ms: int = 0) -> None:
        appointed_ms = change(sweep, due_ms)
        if appointed_ms is not None:
            true(self, sweep, subject, appointed_ms, sent_by_ms)

    return patch.object(Agenda, "appoint", appoint)


@planted
def delays_without_appointments() -> Any:
    """No sweep hears of delayed messages."""
    return _appointing(lambda sweep, due_ms: None if sweep == FORWARD else due_ms)


@planted
def last_attempts_without_appointments() -> Any:
    """No sweep hears of messages that are delivered for the last time."""
    return _appointing(lambda sweep, due_ms: None if sweep == REVIVE else due_ms)


@planted
def appointments_that_are_too_late() -> Any:
    """They are rounded up."""
    return _appointing(lambda _, due_ms: due_ms + agenda.SHARED_MS)


@planted
def appointments_that_end_at_their_time() -> Any:
    """The write that one was made for may be on its way still."""
    return patch.object(Look, "ended", property(lambda look: look.appointments if look.next_ms is None else []))


@planted
def appointments_that_do_not_move() -> Any:
    """They end, whatever is due next."""
    return patch.object(Look, "needs_another", False)


@planted
def appointments_that_are_relied_on_for_ever() -> Any:
    """An instance believes that one that it made is there still."""
    return patch.object(Appointment, "covers", lambda self, due_ms, _: self.due_ms <= due_ms)
