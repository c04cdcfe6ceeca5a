"""Histories of a topic that is deleted and made again while all kinds of callers use it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from random import Random

from chalicelib.core.base.errors import GroupNotFound, StoreUnavailable, TopicNotFound
from chalicelib.core.catalogue.topic import Topic
from chalicelib.service import Service
from tests.history.caller import Caller
from tests.history.final_state import take_all
from tests.history.recreation import lost, out_of_place
from tests.simulation.actors import Working
from tests.simulation.faulty_store import NONE
from tests.simulation.plans import Plan
from tests.simulation.world import QUIET_MS, World
from tests.support.scheduler import Killed

LIVES = 4
_LASTS_MS, _AWAY_MS = 16_000, 2_000
_TRIES_AGAIN_MS = 300
_LAST = "last"
"""The group that gets all remaining messages in the end."""

RECREATED = Plan(
    groups=2,
    producers=4,
    consumers=4,
    messages=80,
    pops=16,
    pace=12,
    delayed=0.2,
    dedup_ids=6,
    resets=1,
    wipes=1,
    redrives=2,
    purges=1,
    max_attempts=4,
    meddlers=1,
    sweepers=1,
)


class RecreatedWorld(World):
    """Judged by bodies: several topics have the same offsets."""

    def __init__(self, seed: int, plan: Plan = RECREATED) -> None:
        self.deleted: list[tuple[int, int]] = []
        self.since_ms = 0
        super().__init__(seed, plan)

    def caller(self, service: Service) -> Caller:
        return Caller(service, self._topic, self.history, lambda: self.now, asks_for_topic=True)

    def remake(self, service: Service) -> None:
        """Makes the topic and its groups, unless they exist."""
        topic, _ = service.admin.topics.put(self.name, self._topic_settings)
        for group in self.groups:
            service.admin.groups.put(topic, group, self.settings)
        self._stands(topic)

    def _stands(self, topic: Topic) -> None:
        if topic.id != self._topic.id:
            self._topic, self.since_ms = topic, self.now

    def _spawn_all(self) -> None:
        super()._spawn_all()
        self._spawn(lambda random: Remaker(self, random))

    def _live(self, actor: Working) -> None:
        while True:
            try:
                return self._judged(partial(self._go_on, actor, self.instance()))
            except Killed:
                continue

    def _go_on(self, actor: Working, service: Service) -> None:
        """A missing topic or group may exist again in a moment."""
        while True:
            try:
                return actor.work(service)
            except (TopicNotFound, GroupNotFound):
                self.sleep(_TRIES_AGAIN_MS)

    def _judged(self, act: Callable[[], None]) -> None:
        def carried_out() -> None:
            with suppress(TopicNotFound, GroupNotFound):
                act()

        super()._judged(carried_out)

    def _drain(self) -> None:
        self._scheduler.spawn(partial(self._judged, self._take_all), QUIET_MS)

    def _take_all(self) -> None:
        service = self.instance(NONE)
        self.remake(service)
        service.admin.groups.put(self._topic, _LAST, {})
        take_all(self.caller(service), _LAST)

    def _verdict(self) -> list[str]:
        history = self.history
        drained = [got for got in history.delivered if got.group == _LAST]
        came = {got.body for got in drained}
        ids = {sent.dedup_id for sent in history.sent if sent.dedup_id and sent.body in came}
        sent = [each for each in history.sent if each.dedup_id not in ids]
        wrong: Iterator[str] = out_of_place(history.sent, history.delivered, self.deleted)
        return [*history.defects, *wrong, *lost(sent, drained, self.since_ms)]


class Remaker:
    """Deletes the topic, or one of its groups, now and then, and makes it again."""

    def __init__(self, world: RecreatedWorld, random: Random) -> None:
        self._world, self._random, self._left = world, random, LIVES
        self._began_ms: int | None = None

    def work(self, service: Service) -> None:
        while self._left:
            if self._began_ms is None:
                self._world.sleep(self._random.randrange(_LASTS_MS))
            try:
                self._delete(service)
                self._world.sleep(self._random.randrange(_AWAY_MS))
                self._world.remake(service)
                self._left -= 1
            except StoreUnavailable:
                continue

    def _delete(self, service: Service) -> None:
        """A deletion that fails goes on."""
        is_of_a_group = self._began_ms is None and self._random.random() < 0.3
        self._began_ms = self._began_ms or self._world.now
        with suppress(TopicNotFound, GroupNotFound):
            topic = service.env.catalogue.current_topic(self._world.name)
            if is_of_a_group:
                service.admin.groups.delete(topic, self._random.choice(self._world.groups))
            else:
                service.admin.topics.delete(topic)
        if not is_of_a_group:
            self._world.deleted.append((self._began_ms, self._world.now))
        self._began_ms = None
