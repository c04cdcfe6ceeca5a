"""Others who act while a request of somebody is on its way: between a look and a write, or between two looks."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING, Any, cast

from chalicelib.base.errors import StoreUnavailable
from tests.simulation.actors import Consumer, Resetter, Sweeper, Working
from tests.simulation.afterlife import Purger, Redriver
from tests.simulation.faulty_store import NONE
from tests.simulation.meddling import Meddler
from tests.simulation.producing import Canceller, Producer
from tests.simulation.purging import Emptier
from tests.simulation.transacting import Arbiter

if TYPE_CHECKING:
    from tests.simulation.world import World

_MOST = 12
"""In a history."""


class Intruders:
    def __init__(self, world: World, random: Random) -> None:
        self._world, self._random, self._left = world, random, _MOST

    def act(self) -> None:
        """Call it before each request. Now and then, one of them does at once something that belongs to the history."""
        share = self._world.plan.intrude
        if share and self._random.random() < share and self._left and self._world.is_busy:
            self._left -= 1
            intruder = self._random.choice(self._kinds())()
            with suppress(StoreUnavailable):
                intruder.work(self._world.instance(NONE))

    def _kinds(self) -> list[Callable[[], Working]]:
        plan, random, left = self._world.plan, self._random, self._left
        world = cast("World", _Rushed(self._world))
        kinds: list[tuple[int, Callable[[], Working]]] = [
            (4, lambda: Consumer(world, f"i{left}.", random.choice(world.groups), random)),
            (4, lambda: Meddler(world, 1, random)),
            (1, lambda: Producer(world, f"i{left}", 2, random)),
            (2 * bool(plan.redrives), lambda: Redriver(world, 1, random)),
            (bool(plan.purges), lambda: Purger(world, 1, random)),
            (bool(plan.resets), lambda: Resetter(world, random)),
            (bool(plan.wipes), lambda: Emptier(world, 1, random)),
            (bool(plan.sweepers), lambda: Sweeper(world, random)),
            (bool(plan.delayed), lambda: Canceller(world, 1, random)),
            (bool(plan.transactions), lambda: Arbiter(world, 1, random)),
        ]
        return [kind for weight, kind in kinds for _ in range(weight)]


class _Rushed:
    """The world of who acts once and never sleeps."""

    pops = 1

    def __init__(self, world: World) -> None:
        self._world = world

    def __getattr__(self, name: str) -> Any:
        return getattr(self._world, name)

    def sleep(self, ms: int) -> None:
        """Not at all."""
