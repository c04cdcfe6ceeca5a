"""Two instances of the service over one store, and a third that looks on, so that the caches of the two stay as stale
as they are."""

from __future__ import annotations

from hypothesis.stateful import RuleBasedStateMachine

from chalicelib import wiring
from chalicelib.push.outside import NOWHERE, Outside
from tests.model.model import Json, Model
from tests.support.client import Answer, Client


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

    def rest_of(self, instance: int, path: str, page: Answer, items: str, limit: int, least: int = 1) -> list[Json]:
        """All items of a list, of which this is the first page. No page has more than the limit, or fewer than
        `least`, but the first."""
        listed = list[Json](page.json[items])
        assert len(listed) <= limit
        while token := page.json["next"]:
            page = self.clients[instance].get(path, limit=limit, next=token)
            assert least <= len(page.json[items]) <= limit
            listed += page.json[items]
        return listed

    def teardown(self) -> None:
        wiring.use(None)
