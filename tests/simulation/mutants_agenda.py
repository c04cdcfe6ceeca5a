"""Bugs planted into the agenda of the sweeps."""

from __future__ import annotations

import dataclasses
from typing import Any
from unittest.mock import patch

from chalicelib.catalogue import agenda
from chalicelib.catalogue.agenda import FORWARD, REVIVE, Agenda, Appointment
from chalicelib.table.writes import Equals
from tests.simulation.mutants import planted, without


def _appointing(change: Any) -> Any:
    """`change`: the sweep and the due time -> the due time of the appointment that is made; None: none is."""
    true = Agenda.appoint

    def appoint(self: Agenda, sweep: str, subject: str, due_ms: int, held_ms: int = 0) -> None:
        appointed_ms = change(sweep, due_ms)
        if appointed_ms is not None:
            true(self, sweep, subject, appointed_ms, held_ms)

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
    true = Agenda.kept

    def kept(self: Agenda, sweep: str, appointments: Any, next_ms: int | None, now: int) -> None:
        ended = [dataclasses.replace(each, until_ms=min(each.until_ms, now)) for each in appointments]
        with patch.object(Appointment, "end", lambda each: without(true_end(each), Equals)):
            true(self, sweep, ended, next_ms, now)

    true_end = Appointment.end
    return patch.object(Agenda, "kept", kept)


@planted
def appointments_that_do_not_move() -> Any:
    """They end, whatever is due next."""
    true = Agenda.kept
    return patch.object(
        Agenda,
        "kept",
        lambda self, sweep, appointments, next_ms, now: true(
            self, sweep, appointments, None if next_ms and next_ms > now else next_ms, now
        ),
    )


@planted
def appointments_that_are_relied_on_for_ever() -> Any:
    """An instance believes that one that it made is there still."""
    return patch.object(Appointment, "covers", lambda self, due_ms, _: self.due_ms <= due_ms)
