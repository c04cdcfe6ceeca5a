"""The state of one message in each group, from cursors, retry pages and dead letters, and its events in a topic with
`trace`."""

from __future__ import annotations

from collections.abc import Sequence

from chalicelib.core.base.limits import GROUP_DETAILS_MAX
from chalicelib.core.base.message import Stored
from chalicelib.core.base.records import record
from chalicelib.core.catalogue.catalogue import Env
from chalicelib.core.catalogue.group import Group
from chalicelib.core.catalogue.topic import Topic
from chalicelib.core.consuming.events import PAGE_OFFSETS, Event
from chalicelib.core.cursors import Cursors
from chalicelib.core.cursors.cursor import Cursor, RetryPage, all_cursors_of
from chalicelib.core.cursors.lease import Lease
from chalicelib.core.dead_letters.bury import DeadLetter
from chalicelib.core.reading.lookup import Lookup
from chalicelib.core.store import Keys, Range
from chalicelib.core.table import keys
from chalicelib.core.table.writes import Item

EVENTS_MAX = 2_000
"""The most notes read, each some 200 bytes, including those of nearby messages."""

READY, IN_FLIGHT, RETRYING, SETTLED, DEAD = "ready", "in_flight", "retrying", "settled", "dead"


@record
class MessageState:
    """The message's state in a group, or for one consumer of a broadcast group. `lease`: the one that owes it."""

    group: Group
    cursor: Cursor
    state: str
    lease: Lease | None
    letter: DeadLetter | None
    events: Sequence[Event]


@record
class Trace:
    """`is_complete`: False: there are more groups or notes than were read."""

    stored: Stored
    states: Sequence[MessageState]
    is_complete: bool


class Traces:
    def __init__(self, env: Env, cursors: Cursors, lookup: Lookup) -> None:
        self._store, self._runtime, self._catalogue = env.store, env.runtime, env.catalogue
        self._retries, self._lookup = cursors.retries, lookup

    def of(self, topic: Topic, message_id: str) -> Trace:
        """Raises MessageNotFound."""
        stored = self._lookup.by_id(topic, message_id)
        listed = self._store.read(
            [Range(keys.groups(topic.id), keys.FIRST, keys.LAST, GROUP_DETAILS_MAX + 1, strong=True)]
        )
        names = [item["sk"] for item in listed[0]]
        groups = self._catalogue.groups_named(topic, names[:GROUP_DETAILS_MAX])
        states = None
        while states is None:
            states, events = self._states(topic, groups, stored)
        is_complete = len(names) <= GROUP_DETAILS_MAX and len(events) < EVENTS_MAX
        return Trace(stored, states, is_complete)

    def _states(
        self, topic: Topic, groups: Sequence[Group], stored: Stored
    ) -> tuple[list[MessageState] | None, list[Event]]:
        """The states in each of these groups, and the notes. None: retries have moved back from their page
        meanwhile."""
        cursors = self._cursors(topic, groups, stored.queue)
        letters, events = self._noted(topic, stored, cursors)
        asked = [(cursor, _pages_at(cursor, stored.offset)) for _, cursor in cursors]
        paged = self._retries.read(asked)
        if any(len(pages) > len(held) for (_, pages), held in zip(asked, paged, strict=True)):
            return None, events
        told = sorted((event for event in events if event.is_about(stored.offset)), key=lambda event: event.order)
        states: list[MessageState] = []
        for (group, cursor), pages in zip(cursors, paged, strict=True):
            leases = [*cursor.owing, *(lease for page in pages.values() for lease in page)]
            lease = next((lease for lease in leases if lease.owes(stored.offset)), None)
            own = keys.dead(topic.id, group.id, cursor.queue, stored.offset, cursor.consumer)
            letter = next((letter for letter in letters if letter.key == own), None)
            state = self._state(cursor, stored.offset, lease, letter)
            here = [event for event in told if (event.group_id, event.consumer) == (group.id, cursor.consumer)]
            states.append(MessageState(group, cursor, state, lease, letter if state == DEAD else None, here))
        return states, events

    def _cursors(self, topic: Topic, groups: Sequence[Group], queue: int) -> list[tuple[Group, Cursor]]:
        """The cursors of these groups in this queue; in a broadcast group those of all consumers."""
        pages = [keys.group_partition(topic.id, group.name, keys.page_of(queue)) for group in groups]
        answers = (
            self._store.read([Range(page, keys.FIRST, keys.LAST, strong=True) for page in pages]) if groups else []
        )
        return [
            (group, cursor)
            for group, items in zip(groups, answers, strict=True)
            for cursor in all_cursors_of(group, topic, items)
            if cursor.queue == queue
        ]

    def _noted(
        self, topic: Topic, stored: Stored, cursors: Sequence[tuple[Group, Cursor]]
    ) -> tuple[list[DeadLetter], list[Event]]:
        """The message's dead letters, and the notes of the messages near it, the earliest first."""
        place = stored.queue, stored.offset
        dead = [keys.dead(topic.id, group.id, *place, cursor.consumer) for group, cursor in cursors]
        noted = Range(*keys.events(topic.id, stored.queue, stored.offset // PAGE_OFFSETS), EVENTS_MAX, strong=True)
        letters, items = self._store.read([Keys(dead, strong=True), noted]) if dead else ([], list[Item]())
        return [DeadLetter.of(item) for item in letters], [Event.of(item) for item in items]

    def _state(self, cursor: Cursor, offset: int, lease: Lease | None, letter: DeadLetter | None) -> str:
        """A letter from before a reset or a redrive may still be there when the message is owed again."""
        if lease is None:
            taken = DEAD if letter else SETTLED
            return taken if offset < cursor.next else READY
        if lease.is_aside or lease.deadline <= self._runtime.now():
            return READY
        return RETRYING if lease.parked else IN_FLIGHT


def _pages_at(cursor: Cursor, offset: int) -> list[RetryPage]:
    """The retry pages that may hold the message."""
    return [page for page in cursor.pages.values() if page.low <= offset]
