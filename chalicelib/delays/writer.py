"""Stores delayed messages until they are due."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from chalicelib.base.errors import StoreUnavailable, TopicNotFound
from chalicelib.base.limits import INLINE_BYTES_MAX, MINUTE_MS, TRANSACTION_ITEMS_MAX
from chalicelib.base.message import ENTRY_ID_BYTES, Message, Produced, delayed_id
from chalicelib.catalogue.env import Env
from chalicelib.catalogue.topic import Topic, begin_delays
from chalicelib.delays.decision import wait, waiting_ttl
from chalicelib.log.payloads import Payloads
from chalicelib.log.segment import Entry
from chalicelib.table import keys
from chalicelib.table.writes import Item, Refused, Write

LATE_WRITE_MS_MAX = MINUTE_MS
"""An abandoned or repeated write lands no later than this: a request may wait in a client for `READ_TIMEOUT_MS` and in
the network for seconds."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A message that waits until it is due."""

    message: Message
    queue: int
    due_ms: int
    entry_id: bytes

    @property
    def message_id(self) -> str:
        return delayed_id(self.entry_id, self.queue, self.due_ms)


class DelayWriter:
    def __init__(self, env: Env, payloads: Payloads) -> None:
        self._store, self._runtime = env.store, env.runtime
        self._catalogue, self._payloads = env.catalogue, payloads

    def ids(self, count: int) -> list[bytes]:
        """Ids for this many delayed messages, ascending. Messages due at the same time are delivered in the order of
        their ids, and so those of one call in its order."""
        return sorted(self._runtime.entropy(ENTRY_ID_BYTES) for _ in range(count))

    def store(self, topic: Topic, messages: Sequence[tuple[int, Message, bytes]]) -> list[Produced]:
        """Stores messages, each with its queue and its id, until they are due. Raises TopicNotFound."""
        waiting, entries = [], []
        for queue, message, entry_id in messages:
            each, entry = self._named(queue, message, entry_id)
            waiting.append(each)
            entries.append(entry)
        try:
            self._demand(topic)
            ttl = waiting_ttl(max(each.due_ms for each in waiting))
            entries = self._payloads.spill(topic.id, [(entry, INLINE_BYTES_MAX) for entry in entries], ttl)
        except StoreUnavailable as trouble:  # before any message was sent
            return [Produced(each.queue, error=StoreUnavailable(trouble.detail)) for each in waiting]
        return self._stored(topic, waiting, entries)

    def item(self, topic: Topic, queue: int, message: Message, entry_id: bytes) -> Item:
        """The item of a delayed message, for the caller's own transaction; only its payload is stored here."""
        self._demand(topic)
        waiting, entry = self._named(queue, message, entry_id)
        [entry] = self._payloads.spill(topic.id, [(entry, INLINE_BYTES_MAX)], waiting_ttl(waiting.due_ms))
        key = keys.delayed(topic.id, queue, waiting.due_ms, entry.id)
        return {**key._asdict(), **entry.as_item()}

    def _demand(self, topic: Topic) -> None:
        """Makes pops of this topic look for due messages. Delayed messages are in no log whose end would show that the
        topic was deleted, so this reads the topic again. Raises TopicNotFound."""
        current = self._catalogue.current_topic(topic.name)
        if current.id == topic.id and current.delays:
            return
        try:
            self._store.write(begin_delays(topic))
        except Refused:
            raise TopicNotFound(f"topic '{topic.name}' does not exist any more") from None
        self._catalogue.forget(topic.name)

    def _named(self, queue: int, message: Message, entry_id: bytes) -> tuple[Waiting, Entry]:
        due_ms = message.deliver_at_ms or 0
        named = replace(message, delayed_id=delayed_id(entry_id, queue, due_ms))
        return Waiting(named, queue, due_ms, entry_id), Entry.packed(entry_id, [named], self._runtime.now())

    def _stored(self, topic: Topic, waiting: Sequence[Waiting], entries: Sequence[Entry]) -> list[Produced]:
        """Uses transactions for messages due soon. A late repeat of a plain write could arrive after the message was
        delivered and its item removed, and deliver it again; a transaction is recognized by its token."""
        soon_ms = self._runtime.now() + LATE_WRITE_MS_MAX
        writes = [wait(topic.id, each.queue, each.due_ms, entry) for each, entry in zip(waiting, entries, strict=True)]
        soon = [place for place, each in enumerate(waiting) if each.due_ms <= soon_ms]
        later = [place for place, each in enumerate(waiting) if each.due_ms > soon_ms]
        errors: dict[int, StoreUnavailable] = {}
        for first in range(0, len(soon), TRANSACTION_ITEMS_MAX):
            together = soon[first : first + TRANSACTION_ITEMS_MAX]
            if trouble := self._trouble([writes[place] for place in together]):
                errors |= dict.fromkeys(together, trouble)
        if later:
            outcomes = self._store.write_each([writes[place] for place in later])
            for place, outcome in zip(later, outcomes, strict=True):
                if isinstance(outcome, StoreUnavailable):
                    errors[place] = outcome
        return [
            Produced(each.queue, error=errors[place])
            if place in errors
            else Produced.delayed(each.queue, each.entry_id, each.due_ms)
            for place, each in enumerate(waiting)
        ]

    def _trouble(self, writes: Sequence[Write]) -> StoreUnavailable | None:
        try:
            self._store.write_together(writes)
        except StoreUnavailable as trouble:
            return trouble
        return None
