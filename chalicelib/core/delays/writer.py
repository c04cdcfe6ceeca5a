"""Stores delayed messages until they are due."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from chalicelib.core.base.errors import StoreUnavailable
from chalicelib.core.base.limits import INLINE_BYTES_MAX, LATE_WRITE_MS_MAX, STORED_LATE_MS_MAX, TRANSACTION_ITEMS_MAX
from chalicelib.core.base.message import ENTRY_ID_BYTES, Message, Produced, delayed_id
from chalicelib.core.catalogue.agenda import FORWARD, PUSH
from chalicelib.core.catalogue.catalogue import Env
from chalicelib.core.catalogue.topic import DELAYS, Topic
from chalicelib.core.delays.decision import wait, waiting_ttl
from chalicelib.core.log.payloads import Payloads
from chalicelib.core.log.segment import Entry
from chalicelib.core.table import keys
from chalicelib.core.table.writes import Item, Write


@dataclass(frozen=True, eq=False, slots=True)
class Waiting:
    """A message that waits until it is due."""

    message: Message
    queue: int
    due_ms: int
    entry_id: bytes

    @property
    def message_id(self) -> str:
        return delayed_id(self.entry_id, self.queue, self.due_ms)

    def as_json(self, topic_name: str) -> dict[str, Any]:
        place = {"message_id": self.message_id, "topic": topic_name, "queue": self.queue}
        return {**place, "deliver_at_ms": self.due_ms, **self.message.content(), **self.message.when_sent()}

    def packed(self, now: int) -> Entry:
        sent_at_ms = self.message.sent_at_ms or now
        return Entry.packed(
            self.entry_id, [replace(self.message, delayed_id=self.message_id, sent_at_ms=sent_at_ms)], now
        )


class DelayWriter:
    def __init__(self, env: Env, payloads: Payloads) -> None:
        self._store, self._runtime = env.store, env.runtime
        self._catalogue, self._agenda, self._payloads = env.catalogue, env.agenda, payloads

    def waiting(self, messages: Sequence[tuple[int, Message]]) -> list[Waiting]:
        """Messages with their queues, under new ascending ids. Messages due at the same time are delivered in the order
        of their ids, so these keep the given order."""
        ids, now = sorted(self._runtime.entropy(ENTRY_ID_BYTES) for _ in messages), self._runtime.now()
        return [
            Waiting(message, queue, message.deliver_at_ms or now, entry_id)
            for (queue, message), entry_id in zip(messages, ids, strict=True)
        ]

    def store(self, topic: Topic, waiting: Sequence[Waiting]) -> list[Produced]:
        """Stores messages until they are due. Raises TopicNotFound."""
        try:
            entries = self.entries(topic, waiting)
        except StoreUnavailable as trouble:  # before any message was sent
            return [Produced(message.queue, error=StoreUnavailable(trouble.detail)) for message in waiting]
        writes = {
            message: wait(topic.id, message.queue, message.due_ms, entry)
            for message, entry in zip(waiting, entries, strict=True)
        }
        errors = self.send(writes)
        return [
            Produced(message.queue, error=errors[message])
            if message in errors
            else Produced.delayed(message.queue, message.entry_id, message.due_ms)
            for message in waiting
        ]

    def item(self, topic: Topic, waiting: Waiting) -> Item:
        """The item of a delayed message, for the caller's own transaction. Stores only its payload."""
        [entry] = self.entries(topic, [waiting], waiting.due_ms + STORED_LATE_MS_MAX)
        key = keys.delayed(topic.id, waiting.queue, waiting.due_ms, entry.id)
        return {**key._asdict(), "entry": entry.as_value()}

    def entries(self, topic: Topic, waiting: Sequence[Waiting], sent_by_ms: int = 0) -> list[Entry]:
        """The entries of these messages, which the caller stores at once or until `sent_by_ms`. Stores their payloads,
        if any. Raises TopicNotFound, StoreUnavailable."""
        self.demand(topic)
        return self.packed(topic, waiting, sent_by_ms)

    def packed(self, topic: Topic, waiting: Sequence[Waiting], sent_by_ms: int = 0) -> list[Entry]:
        """The same for a topic that has passed `demand`. Raises StoreUnavailable."""
        now = self._runtime.now()
        due_ms = min(message.due_ms for message in waiting)
        for sweep in (FORWARD, PUSH) if topic.pushes else (FORWARD,):
            self._agenda.appoint(sweep, topic.name, due_ms, sent_by_ms)
        ttl = waiting_ttl(max(message.due_ms for message in waiting))
        return self._payloads.spill(topic.id, [(message.packed(now), INLINE_BYTES_MAX) for message in waiting], ttl)

    def send(self, writes: Mapping[Waiting, Write]) -> dict[Waiting, StoreUnavailable]:
        """Sends these writes, and returns the errors of those that failed. Uses transactions for messages due soon. A
        late repeat of a plain write could arrive after the message was delivered and its item removed, and deliver it
        again; a transaction is recognized by its token."""
        soon_ms = self._runtime.now() + LATE_WRITE_MS_MAX
        soon = [message for message in writes if message.due_ms <= soon_ms]
        later = [message for message in writes if message.due_ms > soon_ms]
        errors: dict[Waiting, StoreUnavailable] = {}
        for first in range(0, len(soon), TRANSACTION_ITEMS_MAX):
            together = soon[first : first + TRANSACTION_ITEMS_MAX]
            try:
                self._store.write_together([writes[message] for message in together])
            except StoreUnavailable as trouble:
                errors |= dict.fromkeys(together, trouble)
        outcomes = self._store.write_each([writes[message] for message in later]) if later else []
        for message, outcome in zip(later, outcomes, strict=True):
            if isinstance(outcome, StoreUnavailable):
                errors[message] = outcome
        return errors

    def demand(self, topic: Topic) -> None:
        """Makes pops of this topic look for due messages. Delayed messages are in no log whose end would show that the
        topic was deleted, so this reads the topic again. Raises TopicNotFound."""
        current = self._catalogue.current_topic(topic.name)
        if current.id == topic.id and current.delays:
            return
        self._catalogue.begin(topic, DELAYS)
