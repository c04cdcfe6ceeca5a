"""The topic that dead messages move to, which an actor deletes and makes again."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import TYPE_CHECKING

from chalicelib.core.base.errors import StoreUnavailable, TopicNotFound
from chalicelib.core.dead_letters.move import COUNT, ORIGIN, REASON, SOURCE
from chalicelib.core.delays.decision import waiting_entry
from chalicelib.core.log.segment import Entry, unpack
from chalicelib.core.table import keys
from chalicelib.service import Service
from tests.history.facts import NEVER_MS, Moved
from tests.history.final_state import messages_of
from tests.history.history import History
from tests.simulation.faulty_store import PastStore

if TYPE_CHECKING:
    from tests.simulation.world import World

TOPIC = "dead"
_QUEUES = 2


def make_topic(service: Service, history: History) -> None:
    topic, _ = service.admin.topics.put(TOPIC, {"queues": _QUEUES})
    history.graves[topic.id] = NEVER_MS


class Remover:
    """Deletes the topic, now and then, and makes it again."""

    def __init__(self, world: World, count: int, random: Random) -> None:
        self._world, self._left, self._random = world, count, random

    def work(self, service: Service) -> None:
        while self._left:
            self._world.sleep(self._random.randrange(1_500))
            try:
                self._remove(service)
                self._world.sleep(self._random.randrange(1_500))
                make_topic(service, self._world.history)
                self._left -= 1
            except StoreUnavailable:
                continue

    def _remove(self, service: Service) -> None:
        try:
            topic = service.env.catalogue.current_topic(TOPIC)
        except TopicNotFound:
            return
        service.admin.topics.delete(topic)
        self._world.history.graves[topic.id] = self._world.now


def exhume(service: Service, store: PastStore, history: History) -> None:
    """Records moved messages, and the topic's messages when nothing waits there any more."""
    topic = service.env.catalogue.current_topic(TOPIC)
    history.grave = topic.id
    history.graves.setdefault(topic.id, NEVER_MS)
    for queue in range(topic.readers):
        while service.delays.promoter.promote(topic, queue):
            pass
    history.exhumed = [stored.message_id for stored in messages_of(service, topic)]
    history.moved = [moved for topic_id in history.graves for moved in _moved_into(store, topic_id)]
    history.letters = {group: {*dead} for group, dead in history.dead.items()}
    for moved in history.moved:
        history.dead[moved.group].setdefault(moved.place, moved.attempts)
        history.reasons[moved.group].setdefault(moved.place, moved.reason)
    history.counted |= {group: len(dead) for group, dead in history.dead.items()}


def _moved_into(store: PastStore, topic_id: str) -> Iterator[Moved]:
    """All messages ever stored there, even if they are gone."""
    for _, since_ms, _, item in store.lives(keys.delays(topic_id, 0)[:-1]):
        entry = waiting_entry(item)
        [message] = unpack(entry.codec, entry.data if entry.data is not None else _payload(store, topic_id, entry))
        told = message.properties
        queue, offset = map(int, told[ORIGIN].split(":"))
        about = (told[SOURCE], (queue, offset), topic_id, message.delayed_id or "", since_ms)
        yield Moved(*about, int(told[COUNT]), told.get(REASON, ""))


def _payload(store: PastStore, topic_id: str, entry: Entry) -> bytes:
    """It never changes, whenever and however often it was written."""
    return next(bytes(item["data"]) for *_, item in store.lives(keys.payload(topic_id, entry.id, 0).pk))
