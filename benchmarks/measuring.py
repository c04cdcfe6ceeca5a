"""Measures one call: wall time, CPU time of the whole process, and requests to the store."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from local.memory.meter import Meter

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Took:
    seconds: float
    cpu_seconds: float
    cost: Meter


def measured(call: Callable[[], T], meter: Meter) -> tuple[T, Took]:
    """Calls, and returns the result with its cost. The CPU time is that of all threads."""
    before = meter.copy()
    began, cpu_began = time.perf_counter(), time.process_time()
    result = call()
    cpu_seconds, seconds = time.process_time() - cpu_began, time.perf_counter() - began
    return result, Took(seconds, cpu_seconds, meter.since(before))
