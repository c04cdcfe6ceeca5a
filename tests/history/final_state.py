"""The content of the store when all is quiet, read past the callers, for the history."""

from __future__ import annotations

from collections.abc import Iterator

from chalicelib.core.base.message import Stored
from chalicelib.core.catalogue.topic import Topic
from chalicelib.core.consuming.request import Pop
from chalicelib.core.store import Range
from chalicelib.core.store.paging import positions_of
from chalicelib.core.table import keys
from chalicelib.core.table.writes import key_of
from chalicelib.service import Service
from tests.history.caller import PADDED, Caller
from tests.history.facts import Place
from tests.history.history import History

_PAGE = 1_000
_LEASE_MS = 60_000


def messages_of(service: Service, topic: Topic) -> Iterator[Stored]:
    """All unexpired messages of the log, including those of queues that have left."""
    positions = dict.fromkeys(range(topic.most), 0)
    while positions:
        messages, token = service.reading.lookup.read(topic, positions, _PAGE)
        yield from messages
        positions = positions_of(token, topic.most) if token else {}


def read_log(service: Service, topic: Topic, history: History) -> None:
    """Records the messages of the log, and their ids."""
    for stored in messages_of(service, topic):
        history.log[stored.queue, stored.offset] = stored.message.body.decode().split(PADDED)[0]
        history.ids[stored.queue, stored.offset] = stored.message_id
        history.stored_ms[stored.queue, stored.offset] = stored.stored_at_ms


def take_all(caller: Caller, group: str) -> set[Place]:
    """Pops and acks until nothing comes."""
    came: set[Place] = set()
    while got := caller.pop(group, Pop(256, _LEASE_MS)):
        came |= {delivered.place for delivered in got}
        caller.ack(got)
    return came


def read_dead(service: Service, topic: Topic, group: str, history: History) -> None:
    """The dead letters of a group, and how many its cursors count."""
    name, _, consumer_id = group.partition("@")
    partition = keys.dead_partition(topic.id, service.env.catalogue.group(topic, name).id)
    letters = service.env.store.read([Range(partition, keys.FIRST, keys.LAST, strong=True)])[0]
    consumer = keys.consumer(consumer_id) if consumer_id else ""
    letters = [letter for letter in letters if not consumer or keys.place_of_dead(key_of(letter))[2] == consumer]
    history.dead[group] = {place_of(letter["sk"]): letter["attempts"] for letter in letters}
    history.reasons[group] = {place_of(letter["sk"]): letter["reason"] for letter in letters}
    history.dead_ms[group] = {place_of(letter["sk"]): letter["dead_at_ms"] for letter in letters}
    if not consumer:  # counts are of whole groups
        history.counted[group] = service.dead_letters.redrive.remaining(topic, group)


def place_of(sort_key: str) -> Place:
    queue, offset, *_ = sort_key.split("#")
    return int(queue), int(offset)
