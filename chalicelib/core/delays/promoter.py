"""Promotes due messages: writes a decision and appends them to the log."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import takewhile

from chalicelib.core.base import deadline
from chalicelib.core.base.errors import StoreUnavailable
from chalicelib.core.base.message import ENTRY_ID_BYTES, LOST
from chalicelib.core.catalogue.catalogue import Env
from chalicelib.core.catalogue.topic import Topic
from chalicelib.core.delays.chain import DecisionChain
from chalicelib.core.delays.decision import (
    Decision,
    inline_bytes_max,
    is_cancelled,
    slot_of,
    together,
    waiting_entry,
    waiting_ttl,
)
from chalicelib.core.log import Log
from chalicelib.core.log.segment import Entry
from chalicelib.core.store import Range, Read
from chalicelib.core.table import keys
from chalicelib.core.table.writes import Item, Refused


def first_due(glanced: Sequence[Sequence[Item]]) -> list[int | None]:
    """For each queue, when its first delayed message is due, or None without one."""
    return [slot_of(items[0]).due_ms if items else None for items in glanced]


class Promoter:
    def __init__(self, env: Env, log: Log, decisions: DecisionChain) -> None:
        self._store, self._runtime, self._catalogue = env.store, env.runtime, env.catalogue
        self._writer, self._payloads = log.writer, log.payloads
        self._decisions = decisions

    def glances(self, topic: Topic, queues: Iterable[int]) -> list[Read]:
        """The reads for `first_due`, of the first delayed message of these queues; none if the topic never had one."""
        if not topic.delays:
            return []
        partitions = [keys.delays(topic.id, queue) for queue in queues]
        return [Range(partition, keys.FIRST, keys.LAST, limit=1) for partition in partitions]

    def promote(self, topic: Topic, queue: int, due_ms: int | None = None) -> int:
        """Promotes the first due messages of a queue, as many as one entry holds. Returns how many; 0: none is due now,
        or at `due_ms` if given. Raises TopicNotFound, StoreUnavailable."""
        topic = self._catalogue.refreshed(topic)  # a long poll may have read it before its retention was raised
        until_ms = deadline.give_up_at_ms(self._runtime.uptime())
        while self._runtime.uptime() <= until_ms:
            now = self._runtime.now()
            newest, due = self._decisions.complete(topic, queue, now if due_ms is None else due_ms)
            if cancelled := [item for item in due if is_cancelled(item)]:
                self._decisions.remove(topic, cancelled)
                continue
            if not due:
                return 0
            if count := self._decide(topic, queue, newest, together(due), now):
                return count
        raise StoreUnavailable("too many callers promote messages of one queue")

    def drop_cancelled(self, topic: Topic, queue: int, due_ms: int) -> bool:
        """Removes cancelled messages that are due in a queue that has left. Returns whether other messages are due
        there."""
        _, due = self._decisions.complete(topic, queue, due_ms)
        cancelled = [item for item in due if is_cancelled(item)]
        self._decisions.remove(topic, cancelled)
        return len(cancelled) < len(due)

    def _decide(self, topic: Topic, queue: int, newest: Decision, waiting: Sequence[Item], now: int) -> int:
        """Returns the number of messages; 0: another caller has decided meanwhile."""
        waiting, entry = self._entry(topic, waiting, now)
        if topic.index_keys:
            self._writer.index(topic, [(queue, entry, self._payloads.messages(topic.id, [entry])[entry.id])])
        tail = self._writer.tails.tail(topic, topic.logs[queue])
        decision = newest.delivering(now, [slot_of(item) for item in waiting], entry, tail.base)
        try:
            made = Decision.of(self._store.write(decision.write(topic.id, queue)))
        except Refused:
            return 0
        self._decisions.carry_out(topic, queue, made, waiting, tail if made == decision else None)
        return len(made.slots)

    def _entry(self, topic: Topic, waiting: Sequence[Item], now: int) -> tuple[Sequence[Item], Entry]:
        """The first of these messages, and the entry that delivers them. A message with a payload is delivered
        unchanged, so that the payload is not written again, unless it would expire too early. So is a message whose
        payload another caller may have removed at delivery."""
        entries = [waiting_entry(item) for item in waiting]
        as_it_is = waiting[:1], replace(entries[0], stored_at_ms=now)
        is_kept = waiting_ttl(slot_of(waiting[0]).due_ms) >= topic.ttl(now)
        if len(entries) == 1 and entries[0].data is None and is_kept:
            return as_it_is
        by_id = self._payloads.messages(topic.id, entries)
        readable = [*takewhile(lambda entry: LOST not in by_id[entry.id], entries)]
        if not readable:
            return as_it_is
        messages = [message for entry in readable for message in by_id[entry.id]]
        made = Entry.packed(self._runtime.entropy(ENTRY_ID_BYTES), messages, now)
        [made] = self._payloads.spill(topic.id, [(made, inline_bytes_max(len(readable)))], topic.ttl(now))
        return waiting[: len(readable)], made
