"""Histories in which messages expire and are removed while others come in: actors are slower than elsewhere, and a day
of the product takes seconds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING
from unittest.mock import patch

from chalicelib.core.base import limits
from chalicelib.core.base.errors import StoreUnavailable
from chalicelib.core.log import reader, writer
from chalicelib.core.upkeep import sweeps
from chalicelib.service import Service
from tests.history.facts import NEVER_MS, Look
from tests.history.final_state import read_log
from tests.history.history import History
from tests.simulation.faulty_store import NONE

if TYPE_CHECKING:
    from tests.simulation.world import World

RETENTION_MS = 60_000

KEPT_MS = 8_000
"""Expired messages stay longer than any call, late write or stale read of the simulation lasts."""

_SURVEYED_EVERY_MS = 1_000
_BELIEVED_MS = 2_000
"""How long an instance caches the end of a log: much shorter than stored messages stay."""

_LOOKS_EVERY_MS = 5_000

PRODUCERS_LULL = 200
CONSUMERS_LULL = 50
"""Actors sleep this many times longer, so that the history outlasts its messages."""


@contextmanager
def short_lives() -> Iterator[None]:
    with ExitStack() as stack:
        stack.enter_context(patch.object(limits, "EXPIRED_KEPT_MS", KEPT_MS))
        stack.enter_context(patch.multiple(reader, EXPIRED_KEPT_MS=KEPT_MS, HOUR_MS=_BELIEVED_MS))
        stack.enter_context(patch.object(writer, "TAIL_AGE_MS_MAX", _BELIEVED_MS))
        stack.enter_context(patch.object(sweeps, "SURVEYED_EVERY_MS", _SURVEYED_EVERY_MS))
        yield


class Trimmer:
    """The sweep that removes expired messages, as long as other actors run."""

    def __init__(self, world: World, random: Random) -> None:
        self._world, self._random = world, random

    def work(self, service: Service) -> None:
        while self._world.is_busy:
            self._world.sleep(self._random.randrange(16_000))
            with suppress(StoreUnavailable):
                service.sweeps.forward()
                service.sweeps.expire()


class Archivist:
    """Reads the whole log repeatedly, and so records its messages and times. Meets no faults. A delayed message can
    have expired when it comes into the log: the caller that moved it died after the decision, and no other came in
    time."""

    def __init__(self, world: World) -> None:
        self._world = world

    def work(self) -> None:
        while self._world.is_busy:
            self._world.sleep(_LOOKS_EVERY_MS)
            self.look()

    def look(self) -> None:
        seen, history = History(), self._world.history
        service, topic = self._world.instance(NONE), self._world.topic
        read_log(service, topic, seen)
        history.looks.append(Look(self._world.now, set(seen.log)))
        # Expired messages too; but an instance that has cached messages removed since may not read on behind them.
        read_log(service, replace(topic, retention_ms=NEVER_MS), seen)
        for place, body in seen.log.items():
            if (
                history.log.setdefault(place, body) != body
                or history.ids.setdefault(place, seen.ids[place]) != seen.ids[place]
            ):
                history.defects.append(f"at {place} lay {history.log[place]}, and now {body}")
