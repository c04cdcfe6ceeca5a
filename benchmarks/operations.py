"""Runs every operation on one instance of the service, without HTTP, and keeps the cost of each call.

One client keeps up: it produces a batch in one call, pops it, and acks all of it; then the same with each ack in the
next pop; then pops from an empty group.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from benchmarks.decant import InProcess
from benchmarks.measuring import Took, measured
from benchmarks.workload import Workload
from local.memory.meter import Meter

T = TypeVar("T")

PRODUCE = "produce"
POP = "pop"
ACK = "ack"
RIDING = "pop + ack riding"
NOTHING = "pop of nothing"
OPERATIONS = (PRODUCE, POP, ACK, RIDING, NOTHING)

_WARM_UP_CYCLES = 3


@dataclass(frozen=True, slots=True)
class Case:
    size: int
    batch: int

    @property
    def topic(self) -> str:
        return f"orders-{self.size}-{self.batch}"


class Operations:
    def __init__(self, decant: InProcess, case: Case, meter: Meter) -> None:
        self._decant = decant
        self._batch = case.batch
        self._workload = Workload(case.size)
        self._meter = meter
        self._taken: dict[str, list[Took]] = defaultdict(list)

    def run(self, cycles: int) -> dict[str, list[Took]]:
        """Returns the costs of each operation's calls on a warm instance."""
        self._run(_WARM_UP_CYCLES)
        self._taken.clear()
        self._run(cycles)
        return self._taken

    def _run(self, cycles: int) -> None:
        for _ in range(cycles):
            self._produce()
            receipts = self._pop(POP, [])
            self._timed(ACK, partial(self._decant.settle, receipts))
        held: list[str] = []
        for _ in range(cycles):
            self._produce()
            held = self._pop(RIDING if held else POP, held)
        self._decant.settle(held)
        for _ in range(cycles):
            self._timed(NOTHING, lambda: self._decant.take(self._batch))

    def _produce(self) -> None:
        bodies = self._workload.take(self._batch)
        self._timed(PRODUCE, lambda: self._decant.send(bodies))

    def _pop(self, operation: str, ack: list[str]) -> list[str]:
        receipts = self._timed(operation, lambda: self._decant.take(self._batch, ack))
        assert len(receipts) == self._batch
        return receipts

    def _timed(self, operation: str, call: Callable[[], T]) -> T:
        result, took = measured(call, self._meter)
        self._taken[operation].append(took)
        return result
