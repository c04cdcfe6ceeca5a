"""A fault that no deployment should have: payloads are lost though their messages are in the log."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from chalicelib.core.base.message import parse_message_id
from chalicelib.core.table import keys
from chalicelib.service import Service
from tests.history.facts import Place
from tests.history.final_state import read_log
from tests.history.history import History
from tests.simulation.faulty_store import NONE

if TYPE_CHECKING:
    from tests.simulation.world import World


class Loser:
    """Removes, now and then, the payload of an entry that is in the log; it has read what was there."""

    def __init__(self, world: World, count: int, random: Random) -> None:
        self._world, self._left, self._random = world, count, random

    def work(self, service: Service) -> None:
        while self._left:
            self._left -= 1
            self._world.sleep(self._random.randrange(700))
            self._lose_one()

    def _lose_one(self) -> None:
        seen, history = History(), self._world.history
        read_log(self._world.instance(NONE), self._world.topic, seen)
        history.log |= seen.log
        history.ids |= seen.ids
        entries = sorted(_by_entry(seen).items())
        self._random.shuffle(entries)
        for entry_id, places in entries:
            if self._world.lose(keys.payload(self._world.topic.id, entry_id, 0)):
                history.lost |= dict.fromkeys(places, self._world.now)
                return


def _by_entry(seen: History) -> dict[bytes, set[Place]]:
    entries: dict[bytes, set[Place]] = {}
    for place, message_id in seen.ids.items():
        if parsed := parse_message_id(message_id):
            entries.setdefault(parsed[0], set()).add(place)
    return entries
