"""One look at a group: its settings, its cursors, and the log of every queue from there on.

Where this instance guessed right where the cursors stand, all of it comes in one round trip."""

from __future__ import annotations

from dataclasses import dataclass

from chalicelib import keys
from chalicelib.cursor import Cursor
from chalicelib.group import Group
from chalicelib.log import Segment
from chalicelib.rate import Window
from chalicelib.service.beliefs import Beliefs
from chalicelib.service.catalogue import Catalogue
from chalicelib.service.log_reader import LogReader, Seen, Want, stored_at
from chalicelib.service.promoter import Promoter
from chalicelib.store import Range, Store
from chalicelib.topic import Topic
from chalicelib.writes import Item


@dataclass(slots=True)
class View:
    topic: Topic
    group: Group
    cursors: list[Cursor]
    """One for each queue."""
    chains: list[list[Segment]]
    """For each queue the segments from the cursor's `next` on, as far as was asked."""
    window: Window
    glanced: list[list[Item]]
    """For each queue the first message that is due and waits; empty where none ever waited."""

    @property
    def has_due(self) -> bool:
        return any(self.glanced)

    def end(self, queue: int) -> int:
        """How far the queue's log was read."""
        chain = self.chains[queue]
        return max(self.cursors[queue].next, chain[-1].end if chain else 0)

    def waiting_since(self, queue: int, now: int) -> int | None:
        """Since when the queue's first ready message has been ready; None when none is."""
        cursor = self.cursors[queue]
        since = [lease.deadline for lease in cursor.due(now)]
        since += [page.due for page in cursor.pages.values() if page.due <= now]
        if self.end(queue) > cursor.next:
            since.append(stored_at(self.chains[queue], cursor.next))
        return min(since, default=None)


class Looker:
    def __init__(
        self, store: Store, catalogue: Catalogue, reader: LogReader, beliefs: Beliefs, promoter: Promoter
    ) -> None:
        self._store = store
        self._catalogue = catalogue
        self._reader = reader
        self._beliefs = beliefs
        self._promoter = promoter

    def look(self, topic: Topic, group: str, count: int, strong: bool = False) -> View:
        """The group now, and up to `count` messages ahead in each queue. Raises GroupNotFound."""
        guessed = self._reader.guess(self._guess(topic, group, count))
        partition = Range(keys.group_partition(topic.id, group), keys.FIRST, keys.LAST, strong=strong)
        items, *answers = self._store.read([partition, *guessed, *self._promoter.glances(topic)])
        seen = Seen()
        self._reader.learn(seen, guessed, answers[: len(guessed)])
        settings = self._settings(topic, group, items)
        cursors = cursors_of(settings, topic, items)
        for cursor in cursors:
            self._beliefs.learn(cursor)
        wants = [want(topic, queue, cursor, count) for queue, cursor in enumerate(cursors)]
        key = settings.window_key
        window = Window.of(key, next((item for item in items if item["sk"] == key.sk), None))
        glanced = answers[len(guessed) :]
        return View(topic, settings, cursors, self._reader.chains(wants, seen), window, glanced)

    def _guess(self, topic: Topic, group: str, count: int) -> list[Want]:
        settings = self._beliefs.group(topic.id, group)
        if settings is None:
            return []
        believed = [self._beliefs.cursor(settings.cursor_key(queue)) for queue in range(topic.queues)]
        return [want(topic, queue, cursor, count) for queue, cursor in enumerate(believed) if cursor]

    def _settings(self, topic: Topic, group: str, items: list[Item]) -> Group:
        """The group's settings; asked for once more before saying that there are none."""
        key = keys.group(topic.id, group)
        found = next((Group.of(topic.id, group, item) for item in items if item["sk"] == key.sk), None)
        settings = found or self._catalogue.group(topic, group)
        self._beliefs.learn_group(settings)
        return settings


def cursors_of(group: Group, topic: Topic, items: list[Item]) -> list[Cursor]:
    """The cursors of all queues; one that nobody has used yet stands at the group's start."""
    standing = {item["sk"]: item for item in items}
    found: list[Cursor] = []
    for queue in range(topic.queues):
        key = group.cursor_key(queue)
        item = standing.get(key.sk)
        found.append(Cursor.of(item) if item else Cursor.fresh(key, group.start_of(queue)))
    return found


def want(topic: Topic, queue: int, cursor: Cursor, count: int) -> Want:
    return Want(topic.log(queue), cursor.next, count, 0 if cursor.next == 0 else cursor.segment)
