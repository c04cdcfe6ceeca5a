"""Two instances of the service over one store, and a third that looks on, so that the caches of the two stay as stale
as they are."""

from __future__ import annotations

from hypothesis.stateful import RuleBasedStateMachine

from chalicelib import wiring
from chalicelib.push.outside import NOWHERE, Outside
from tests.model.model import Model
from tests.support.client import Client


class Pair(RuleBasedStateMachine):
    """The steps of a history, one after another. Only `clock` makes time pass; the store is empty at first."""

    def __init__(self, outside: Outside = NOWHERE) -> None:
        super().__init__()
        first = Client(outside=outside)
        second = first.another()
        self.clients = [first, second]
        self.observer = second.another()
        self.clock = first.clock
        self.model = Model()

    @property
    def now(self) -> int:
        return self.clock.ms

    def teardown(self) -> None:
        wiring.use(None)
