"""Other callers that act while a request is on its way: between a read and a write, or between two reads."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING, Any, cast

from chalicelib.core.base.errors import StoreUnavailable
from tests.simulation.actors import Consumer, Housekeeper, Resetter, Sweeper, Working
from tests.simulation.dead_letters import Purger, Redriver
from tests.simulation.faulty_store import NONE
from tests.simulation.move_tasks import Returner
from tests.simulation.old_receipts import Meddler
from tests.simulation.producers import Canceller, Producer
from tests.simulation.purges import Emptier
from tests.simulation.queue_counts import Resizer
from tests.simulation.transactions import Arbiter, Decider

if TYPE_CHECKING:
    from tests.simulation.world import World

_MOST = 12
"""How many act in a history, and as many again for callers with few requests, since most requests are of the others."""
_OFTEN = 4
"""How much more often one acts before a request of these."""


class Intruders:
    def __init__(self, world: World, random: Random) -> None:
        self._world, self._random, self._left, self._left_for_few = world, random, _MOST, _MOST
        self._count = 0

    def act(self) -> None:
        """Call it before each request. Now and then, another caller does something at once that belongs to the
        history."""
        if self._is_time(1) and self._left:
            self._left -= 1
            self._intrude()

    def act_on_few(self) -> None:
        """The same before requests of callers that make few."""
        if self._is_time(_OFTEN) and self._left_for_few:
            self._left_for_few -= 1
            self._intrude()

    def _is_time(self, often: int) -> bool:
        share = self._world.plan.intrude
        return bool(share) and self._random.random() < often * share and self._world.is_busy

    def _intrude(self) -> None:
        self._count += 1
        intruder = self._random.choice(self._kinds())()
        with suppress(StoreUnavailable):
            intruder.work(self._world.instance(NONE))

    def _kinds(self) -> list[Callable[[], Working]]:
        plan, random, name = self._world.plan, self._random, f"i{self._count}"
        world = cast("World", _Rushed(self._world))
        kinds: list[tuple[int, Callable[[], Working]]] = [
            (4, lambda: Consumer(world, f"{name}.", random.choice(world.groups), random)),
            (4, lambda: Meddler(world, 1, random)),
            (1, lambda: Producer(world, name, 2, random)),
            (2 * bool(plan.redrives), lambda: Redriver(world, 1, random)),
            (bool(plan.purges), lambda: Purger(world, 1, random)),
            (bool(plan.resets), lambda: Resetter(world, random)),
            (bool(plan.wipes), lambda: Emptier(world, 1, random)),
            (bool(plan.sweepers), lambda: Sweeper(world, random)),
            (bool(plan.delayed), lambda: Canceller(world, 1, random)),
            (bool(plan.transactions), lambda: Arbiter(world, 1, random)),
            (2 * bool(plan.transactions), lambda: Decider(world, random)),
            (2 * bool(plan.tasks), lambda: Returner(world, 1, random)),
            (bool(plan.resizes), lambda: Resizer(world, 1, random)),
            (bool(plan.chores), lambda: Housekeeper(world, 1, random)),
        ]
        return [kind for weight, kind in kinds for _ in range(weight)]


class _Rushed:
    """The world of a caller that acts once and never sleeps."""

    pops = 1

    def __init__(self, world: World) -> None:
        self._world = world

    def __getattr__(self, name: str) -> Any:
        return getattr(self._world, name)

    def sleep(self, ms: int) -> None:
        """Does not sleep."""
