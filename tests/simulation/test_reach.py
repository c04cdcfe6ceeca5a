"""The lines, guards and meetings that histories reach are counted."""

from __future__ import annotations

from dataclasses import replace

from tests.simulation.faulty_store import NONE
from tests.simulation.plans import CROWD, Plan
from tests.simulation.reach import watching
from tests.simulation.world import play


def test_intruders_meet_whom_they_interrupt() -> None:
    """There is nobody else."""
    quick = replace(NONE, latency_ms_max=20)
    with watching() as seen:
        assert play(3, Plan(producers=1, consumers=1, pops=8, queues=1, intrude=0.5, faults=quick)) == []
    assert seen.met["cursor", "consuming.Settler.ack", "consuming.Popper.pop"] > 0


def test_guards_errors_and_meetings_are_counted() -> None:
    with watching() as seen:
        assert play(0, CROWD) == []
    pop = "consuming.Popper.pop"
    assert seen.met["cursor", pop, pop] > 0
    assert seen.met["cursor", pop, "consuming.Settler.ack"] > 0
    assert max(seen.alone, key=lambda place: seen.alone[place]).file == "cursors/cursor_writes.py"
