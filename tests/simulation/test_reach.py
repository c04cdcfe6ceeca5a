"""What histories reach is counted."""

from __future__ import annotations

from tests.simulation.plans import CROWD
from tests.simulation.reach import watching
from tests.simulation.world import play


def test_guards_errors_and_meetings_are_counted() -> None:
    with watching() as seen:
        assert play(0, CROWD) == []
    pop = "consuming.Popper.pop"
    assert seen.met["cursor", pop, pop] > 0
    assert seen.met["cursor", pop, "consuming.Consuming.ack"] > 0
    assert max(seen.alone, key=lambda place: seen.alone[place]).file == "cursors/cursor_writes.py"
