"""Bugs planted into what instances make of each other's clocks."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

from chalicelib.core.catalogue.rate import Window
from tests.simulation.mutants import planted


@planted
def windows_of_each_clock() -> Any:
    """A window that begins in an instance's future is over."""
    true = Window.is_over
    return patch.object(Window, "is_over", lambda self, rate, now: self.is_ahead(rate, now) or true(self, rate, now))
