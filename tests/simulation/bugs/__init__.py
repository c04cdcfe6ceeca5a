"""Bugs that are planted, one at a time, to see that the checker finds each of them."""

from __future__ import annotations

from tests.simulation.bugs import answers, calls, cursors, dead_letters, log, sqs_queues, topics  # noqa: F401 - they note themselves
from tests.simulation.bugs.registry import BUGS

__all__ = ["BUGS"]
