"""The callers that check the alarms in a simulated world, and the messages that alarms have sent."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING

import orjson

from chalicelib.core.base.errors import StoreUnavailable, TopicNotFound
from chalicelib.core.catalogue.group_forms import ALARMS_TOPIC
from chalicelib.core.catalogue.topic import Topic
from chalicelib.core.store import Keys
from chalicelib.service import Service
from tests.history.facts import AlarmChange
from tests.history.history import History
from tests.simulation.faulty_store import PastStore

if TYPE_CHECKING:
    from tests.simulation.world import World

_PAGE = 1_000
_ALARM = "alarm#"
"""The prefix of the sort keys of alarms."""


class Watcher:
    """The check that runs on a schedule: here more often, and two at once."""

    def __init__(self, world: World, random: Random) -> None:
        self._world, self._random = world, random
        self._left = 4

    def work(self, service: Service) -> None:
        while self._left:
            self._left -= 1
            self._world.sleep(self._random.randrange(700))
            with suppress(StoreUnavailable):
                service.sweeps.check()


def look_before_the_drain(service: Service, history: History, groups: list[str]) -> None:
    """When nothing is leased or waits any more."""
    service.sweeps.forward()
    service.sweeps.check()
    topic = service.env.catalogue.current_topic("t")
    for group in groups:
        history.alarms_quiet[group] = service.admin.groups.details(topic, group).alarm_state


def read_alarms(service: Service, store: PastStore, history: History) -> None:
    """Each change of an alarm that the store has seen, and each message about one."""
    read_told(service, history)
    changed: dict[str, set[AlarmChange]] = defaultdict(set, {group: set() for group in history.alarms_told})
    for key, _, item in store.versions("state"):
        if key.sk.startswith(_ALARM):
            changed[key.pk.split("#")[-1]].add(AlarmChange(item["at"], item["state"]))
    history.alarms_changed = {group: sorted(changes) for group, changes in changed.items()}


def read_told(service: Service, history: History) -> None:
    """Checks once more, and reads the topic of alarms."""
    service.sweeps.check()
    service.sweeps.forward()
    with suppress(TopicNotFound):
        topic = service.env.catalogue.current_topic(ALARMS_TOPIC)
        messages, _ = service.reading.lookup.read(topic, dict.fromkeys(range(topic.queues), 0), _PAGE)
        for stored in messages:
            told = orjson.loads(stored.message.body)
            history.alarms_told.setdefault(told["group"], []).append(AlarmChange(told["at_ms"], told["state"]))


def untold(service: Service, topic: Topic, group: str, history: History) -> Iterator[str]:
    """For a store that does not keep its past: an alarm counts its changes."""
    items = service.env.store.read([Keys([service.env.catalogue.group(topic, group).alarm_key], strong=True)])[0]
    changes, told = items[0]["n"] if items else 0, len(history.alarms_told.get(group, ()))
    if changes != told:
        yield f"the alarm of {group} changed {changes} times, and was told of {told} times"
