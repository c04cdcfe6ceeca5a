"""Bugs planted into what callers do while the table refuses, and after that."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

from chalicelib.core.base.errors import StoreUnavailable
from chalicelib.core.base.limits import MINUTE_MS
from chalicelib.core.consuming.pop import Popper
from chalicelib.core.producing.produce import Producer
from tests.simulation.mutants import planted


@planted
def pops_that_outlast_their_call() -> Any:
    """A pop that the store has failed begins anew."""
    true = Popper.pop

    def pop(*args: Any, **more: Any) -> Any:
        while True:
            try:
                return true(*args, **more)
            except StoreUnavailable:
                continue

    return patch.object(Popper, "pop", pop)


@planted
def instances_that_remember_a_failure() -> Any:
    """An instance whose produce the store has refused takes none for a minute."""
    true = Producer.send

    def send(self: Any, *args: Any, **more: Any) -> Any:
        now = self._runtime.uptime()
        if now < vars(self).get("_refused_until_ms", 0):
            raise StoreUnavailable("the store was away a moment ago")
        try:
            return true(self, *args, **more)
        except StoreUnavailable:
            vars(self)["_refused_until_ms"] = now + MINUTE_MS
            raise

    return patch.object(Producer, "send", send)
