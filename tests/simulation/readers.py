"""Readers of a simulated world, which lease nothing, and their findings when all is quiet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING

from chalicelib.core.base.errors import AlreadyDelivered, MessageNotFound, StoreUnavailable
from chalicelib.core.base.message import Stored
from chalicelib.core.catalogue.topic import Topic
from chalicelib.core.reading.trace import DEAD, SETTLED
from chalicelib.service import Service
from tests.history.caller import PADDED
from tests.history.facts import Place, Shown
from tests.history.final_state import messages_of

if TYPE_CHECKING:
    from tests.simulation.world import World

SETTINGS = {"index_keys": True, "trace": True}
"""The settings of a topic that has readers."""

_LOOKED_UP = 3
"""How many messages the readers look up at the end, and how many delayed ones."""


class Reader:
    """Reads messages by place, key or id, and a group's dead ones."""

    def __init__(self, world: World, random: Random) -> None:
        self._world, self._random = world, random
        self._left = world.plan.looks

    def work(self, service: Service) -> None:
        while self._left:
            self._left -= 1
            self._world.sleep(self._random.randrange(900))
            read = self._random.choice((self._by_place, self._by_key, self._by_id, self._dead))
            with suppress(StoreUnavailable):
                topic = service.env.catalogue.topic(self._world.name)
                shown = [_shown(stored) for stored in read(service, topic)]
                self._world.history.shown += shown

    def _by_place(self, service: Service, topic: Topic) -> Iterable[Stored]:
        positions = {queue: self._random.randrange(10) for queue in range(topic.queues)}
        return service.reading.lookup.read(topic, positions, 10)[0]

    def _by_key(self, service: Service, topic: Topic) -> Iterable[Stored]:
        return service.reading.by_key.page(topic, self._random.choice(("a", "b")), 5, None)[0]

    def _by_id(self, service: Service, topic: Topic) -> Iterable[Stored]:
        """A message is found as soon as it is stored."""
        history = self._world.history
        if stored := [sent for sent in history.sent if sent.message_id and sent.place]:
            sent = self._random.choice(stored)
            try:
                yield service.reading.lookup.by_id(topic, sent.message_id or "")
            except MessageNotFound:
                if not history.retention_ms:
                    history.look_ups.append(f"{sent.message_id} was stored, and is not found by its id")

    def _dead(self, service: Service, topic: Topic) -> Iterable[Stored]:
        group = self._random.choice(self._world.groups)
        return [dead.stored for dead in service.dead_letters.queue.page(topic, group, 5, None)[0]]


def _shown(stored: Stored) -> Shown:
    body = stored.message.body.decode().split(PADDED)[0]
    return Shown((stored.queue, stored.offset), body, stored.message_id)


def wrong_look_ups(service: Service, world: World, random: Random) -> Iterator[str]:
    """When all is quiet: messages that readers do not find as they lie in the log, and those still delayed although all
    are due."""
    topic = world.now_topic
    log = list(messages_of(service, topic))
    for stored in random.sample(log, min(_LOOKED_UP, len(log))):
        found: Stored | None = None
        with suppress(MessageNotFound):
            found = service.reading.lookup.by_id(topic, stored.message_id)
        if found != stored:
            yield f"{stored.message_id} is {stored} in the log, and is found by its id as {found}"
        elif world.plan.looks:
            yield from _wrong_traces(service, topic, stored, world.history.dead)
    for key in ("a", "b") if world.plan.looks else ():
        of_key = {stored.message_id for stored in log if stored.message.key == key}
        found_by_key = {stored.message_id for stored in service.reading.by_key.page(topic, key, 100, None)[0]}
        if of_key != found_by_key:
            yield f"of key {key} {sorted(of_key)} are in the log, and {sorted(found_by_key)} are found"
    for waiting in service.delays.messages.page(topic, 100, None)[0]:
        yield f"{waiting.message_id} still waits"


def _wrong_traces(
    service: Service, topic: Topic, stored: Stored, dead: Mapping[str, Mapping[Place, int]]
) -> Iterator[str]:
    """`dead`: by group, of those that are drained. There a message is dead or settled."""
    for standing in service.reading.traces.of(topic, stored.message_id).states:
        if standing.group.name in dead:
            state = DEAD if (stored.queue, stored.offset) in dead[standing.group.name] else SETTLED
            if standing.state != state:
                yield f"{stored.message_id} is {state} in {standing.group.name}, and its trace says {standing.state}"


def wrong_cancels(service: Service, world: World, random: Random) -> Iterator[str]:
    """It is too late to cancel any delayed message: it is in the log, or there is none."""
    there = set(world.history.ids.values())
    delayed = sorted({sent.message_id for sent in world.history.sent if sent.told_due_ms and sent.message_id})
    for message_id in random.sample(delayed, min(_LOOKED_UP, len(delayed))):
        try:
            service.delays.messages.cancel(world.now_topic, message_id)
            answer = "ok"
        except (AlreadyDelivered, MessageNotFound) as error:
            answer = error.code
        if answer != ("AlreadyDelivered" if message_id in there else "MessageNotFound"):
            is_there = "is" if message_id in there else "is not"
            yield f"{message_id} {is_there} in the log, and cancelling it is answered {answer}"
