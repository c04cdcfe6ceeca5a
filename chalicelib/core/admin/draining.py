"""Removes settled queues from a topic whose `queues` was lowered, highest first.

Writers have left a queue some time before (`catalogue.topic`). Readers leave it when every group has settled it and
nothing is delayed in it: one transaction closes its log, if that still ends where the groups have settled it, and
changes the topic, if that is unchanged. A late append is therefore refused, and so is a late closing. When the queue
returns, the first writer that finds the closed log opens it (`log.writer`).

A message can still enter a queue that has left: a redrive brings dead letters back, and a suspended machine may store a
delayed message late. The topic then reads the queue again until it is settled."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from itertools import chain

from chalicelib.core.admin.groups import StoredGroup
from chalicelib.core.base.errors import QueuesDraining
from chalicelib.core.base.limits import ENTRY_LATE_MS, MINUTE_MS, STORED_LATE_MS_MAX
from chalicelib.core.catalogue import topic as topics
from chalicelib.core.catalogue.agenda import ALWAYS_MS, CHECK
from chalicelib.core.catalogue.catalogue import Env
from chalicelib.core.catalogue.group import Group
from chalicelib.core.catalogue.topic import Topic
from chalicelib.core.cursors.broadcast import by_consumer, is_known
from chalicelib.core.cursors.cursor import Cursor, joined, pages_of, standing_cursors_of
from chalicelib.core.delays.decision import is_cancelled
from chalicelib.core.log import Log, segment
from chalicelib.core.log.segment import Segment
from chalicelib.core.store import Range
from chalicelib.core.table import keys
from chalicelib.core.table.writes import Refused
from chalicelib.core.transactions import Transactions

DELAYED_LATE_MS = STORED_LATE_MS_MAX + MINUTE_MS
"""How long after its queue was chosen a delayed message may be stored: callers send an outbox item within 15
minutes."""
_WAITING_READ = 100
"""Delayed messages read at once in search of one that is not cancelled."""


class Draining:
    def __init__(self, env: Env, log: Log, transactions: Transactions) -> None:
        self._store, self._runtime, self._catalogue, self._agenda = env.store, env.runtime, env.catalogue, env.agenda
        self._log_offsets, self._decisions = log.offsets, transactions.delays.decisions
        self._transactions = transactions.checks

    def finished(self, topic: Topic) -> Topic:
        """The topic without draining queues. Raises QueuesDraining if some are not settled, and TopicNotFound."""
        while topic.draining:
            queue = topic.draining[-1]
            if held := self._release(topic, queue):
                raise QueuesDraining(f"queue {queue} of topic {topic.name!r} is still draining: {held}")
            topic = self._catalogue.current_topic(topic.name)
        return topic

    def step(self, topic: Topic, groups: Sequence[StoredGroup]) -> int:
        """Removes settled queues, and brings back queues that have messages again. `groups`: all of the topic, possibly
        stale. Returns the number of changes. Raises TopicNotFound."""
        if back := self.returning(topic, groups):
            return self._read(topic, max(back) + 1)
        changes = 0
        while topic.draining and self._release(topic, topic.draining[-1]) is None:
            topic, changes = self._catalogue.current_topic(topic.name), changes + 1
        return changes

    def _release(self, topic: Topic, queue: int) -> str | None:
        """Removes a queue. Returns a text with the obstacle, or None: the queue has left, or the topic has changed.

        It reads the end of the log before the groups, since the closing demands that the groups have settled up to that
        end. It reads waiting messages first, since a commit stores delayed messages, and a decision about these adds to
        the log."""
        late_ms = DELAYED_LATE_MS if topic.delays else ENTRY_LATE_MS
        unwritten_ms = self._runtime.now() - topic.unwritten_since(queue)
        if unwritten_ms < late_ms:
            return f"messages may be on their way to it for {late_ms - unwritten_ms} ms more"
        if topic.delays and (waiting := self._waiting(topic, queue)):
            return waiting
        newest = Range(topic.logs[queue], keys.FIRST, keys.LAST, limit=1, descending=True, strong=True)
        last = next(iter(map(Segment.of, self._store.read([newest])[0])), None)
        end = last.end if last else 0
        holder = self._unsettled(topic, queue, end)
        if holder and not self._is_gone(topic, queue, end):
            return f"group {holder!r} has not settled it"
        closing = segment.leave(topic.logs[queue], last, by=topic.version + 1)
        with suppress(Refused):  # another caller was faster, or a message has come
            self._store.write_together([closing, topics.read(topic, queue)])
        return None

    def _waiting(self, topic: Topic, queue: int) -> str | None:
        """A text about the messages that wait for this queue, or None. Carries out the newest decision about its delays
        first."""
        if self._transactions.ask_for(topic, queue):
            return "transactions that are not decided have messages for it"
        self._decisions.complete(topic, queue, until_ms=0)
        since = keys.FIRST
        while all(map(is_cancelled, items := self._store.read([_waiting(topic, queue, since, strong=True)])[0])):
            if len(items) < _WAITING_READ:
                return None
            since = items[-1]["sk"] + keys.AFTER
        return "delayed messages wait in it"

    def _unsettled(self, topic: Topic, queue: int, end: int) -> str | None:
        """A group that has not settled a queue, or None."""
        groups = self._catalogue.groups(topic)
        pages = [pages_of(topic, group.name, strong=True) for group in groups]
        answers = self._store.read([*chain.from_iterable(pages)]) if groups else []
        now = self._runtime.now()
        for group, items in zip(groups, joined(pages, answers), strict=True):
            if not is_settled(group, standing_cursors_of(group, items), queue, end, now):
                return group.name
        return None

    def _is_gone(self, topic: Topic, queue: int, end: int) -> bool:
        """Whether all messages of a queue may have been removed: they expired a day ago."""
        gone_ms = topic.gone_ms(self._runtime.now())
        return topic.created_at_ms <= gone_ms and self._log_offsets.surely_older(topic, queue, gone_ms) >= end

    def returning(self, topic: Topic, groups: Sequence[StoredGroup]) -> list[int]:
        """The queues that have left and have messages again."""
        left, now = range(topic.readers, topic.most), self._runtime.now()
        owed = {
            queue
            for stored in groups
            for queue in left
            if not is_settled(stored.group, stored.stored_cursors, queue, 0, now)
        }
        ends = self._log_offsets.ends(topic, topic.most) if owed else []
        waiting = [queue for queue in owed if not self._is_gone(topic, queue, ends[queue])]
        if topic.delays and left:
            pages = self._store.read([_waiting(topic, queue) for queue in left])
            waiting += [queue for queue, items in zip(left, pages, strict=True) if not all(map(is_cancelled, items))]
        return waiting

    def _read(self, topic: Topic, readers: int) -> int:
        self._agenda.appoint(CHECK, topic.name, ALWAYS_MS)  # another check that found nothing may be ending its own
        try:
            self._store.write(topics.read(topic, readers))
        except Refused:
            return 0  # the topic has changed since it was read
        return 1


def _waiting(topic: Topic, queue: int, since: str = keys.FIRST, strong: bool = False) -> Range:
    return Range(keys.delays(topic.id, queue), since, keys.LAST, limit=_WAITING_READ, strong=strong)


def is_settled(group: Group, cursors: Sequence[Cursor], queue: int, end: int, now: int) -> bool:
    """Whether a group with these cursors has settled a queue that ends there. Dropped and future consumers of a
    broadcast group do not count."""
    owners = [own for own in by_consumer(cursors) if is_known(own, now)] if group.is_broadcast else [cursors]
    for own in owners:
        cursor = next((cursor for cursor in own if cursor.queue == queue), None)
        position = cursor.next if cursor else group.start_of(queue)
        if position < end or (cursor and (cursor.owing or cursor.pages)):
            return False
    return True
