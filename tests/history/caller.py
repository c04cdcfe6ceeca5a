"""A caller of the service that records its requests and answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from chalicelib.core.admin.groups import OneQueue
from chalicelib.core.base.deadline import one_call
from chalicelib.core.base.errors import AlreadyDelivered, InvalidField, MessageNotFound, QueueFull, StoreUnavailable
from chalicelib.core.base.message import Message
from chalicelib.core.catalogue.topic import Topic
from chalicelib.core.consuming.request import Pop
from chalicelib.core.consuming.taker import Popped
from chalicelib.core.producing.new_message import Sending
from chalicelib.service import Service
from tests.history.facts import NEVER_MS, Asked, Cancelled, Delivered, Fact, Reset, Sent, Settled

PADDED = "|"
"""The rest of a body only pads its size."""


def named(group: str) -> str:
    """The group by its own name. A consumer of a broadcast group is judged as a group: `g@ann`."""
    return group.partition("@")[0]


class Record(Protocol):
    def begin(self, facts: Sequence[Fact]) -> None:
        """New facts: requests without an answer yet. Their outcome is unknown until `end`."""

    def end(self, facts: Sequence[Fact]) -> None:
        """The same facts, answered."""


class Caller:
    """`now`: the one clock, in ms, by which all callers' facts are compared. `asks_for_topic`: its instance reads the
    topic itself, as one behind HTTP does. `notes_first`: its pops ask when messages were delivered for the first time.
    `attempts`: when a pop with an attempt id was first called, by callers that share it; its repeats show the same
    leases."""

    def __init__(
        self,
        service: Service,
        topic: Topic,
        record: Record,
        now: Callable[[], int],
        asks_for_topic: bool = False,
        notes_first: bool = False,
        attempts: dict[str, int] | None = None,
    ) -> None:
        self._service = service
        self._known = topic
        self._asks_for_topic = asks_for_topic
        self._notes_first = notes_first
        self._record = record
        self._now = now
        self._attempts = {} if attempts is None else attempts
        self._troubles_before = 0

    @property
    def _topic(self) -> Topic:
        return self._service.env.catalogue.topic(self._known.name) if self._asks_for_topic else self._known

    def send(
        self,
        bodies: Sequence[str],
        keys: Sequence[str | None],
        padding: str,
        dedup_ids: Sequence[str | None] = (),
        due_ms: Sequence[int] = (),
        ttls_ms: Sequence[int | None] = (),
        zone: str | None = None,
    ) -> None:
        """`due_ms`: when each is due; 0: at once."""
        now = self._now()
        facts = [Sent(body, key, now, is_unknown=True, zone=zone) for body, key in zip(bodies, keys, strict=True)]
        for fact, dedup_id in zip(facts, dedup_ids, strict=False):
            fact.dedup_id = dedup_id
        for fact, due in zip(facts, due_ms, strict=False):
            fact.due_ms = due
        for fact, ttl_ms in zip(facts, ttls_ms, strict=False):
            fact.ttl_ms = ttl_ms
        self._record.begin(facts)
        try:
            sendings = [Sending(_message(sent, padding), zone=zone) for sent in facts]
            results = self._service.producing.send(self._topic, sendings)
        except (StoreUnavailable, QueueFull) as trouble:
            for fact in facts:
                fact.is_unknown, fact.is_refused = trouble.outcome_unknown, isinstance(trouble, QueueFull)
        else:
            for fact, result in zip(facts, results, strict=True):
                fact.is_unknown = result.error is not None and result.error.outcome_unknown
                fact.is_refused = isinstance(result.error, QueueFull)
                fact.message_id, fact.told_due_ms = result.message_id, result.deliver_at_ms or 0
                if result.offset is not None:
                    fact.place = (result.queue, result.offset)
        for fact in facts:
            fact.at_ms = self._now()
        self._record.end(facts)

    def cancel(self, message_id: str) -> None:
        fact = Cancelled(message_id, self._now())
        self._record.begin([fact])
        try:
            self._service.delays.messages.cancel(self._topic, message_id)
            fact.outcome = "ok"
        except (AlreadyDelivered, MessageNotFound) as error:
            fact.outcome = error.code
        except StoreUnavailable:
            return
        fact.at_ms = self._now()
        self._record.end([fact])

    def pop(self, group: str, ask: Pop, riding: Sequence[Delivered] = ()) -> list[Delivered] | None:
        """None: the store did not answer, and messages may be leased all the same. `riding` are those whose receipts
        `ask` acks."""
        began = self._now()
        if ask.attempt_id:
            self._attempts.setdefault(ask.attempt_id, began)
        acks = self._asked("ack", group, riding)
        consumer_id = group.partition("@")[2] or ask.consumer_id
        popped = self._popped(group, replace(ask, notes_first=self._notes_first, consumer_id=consumer_id))
        if popped is None:
            self._given_up(acks)
            return None
        self._answered(acks, {failure.receipt: failure.code for failure in popped.failed})
        first = self._attempts[ask.attempt_id] if ask.attempt_id else began
        got = self._delivered(group, popped, began, first, ask)
        for delivered, delivery in zip(got, popped.deliveries, strict=True):
            delivered.zone = ask.zone
            delivered.told_first_ms = delivery.first_at_ms if self._notes_first else 0
        self._record.begin(got)
        return got

    def _popped(self, group: str, ask: Pop) -> Popped | None:
        fact = Asked(group, self._now(), ask.invisible_ms or 0, wait_ms=ask.wait_ms, zone=ask.zone)
        fact.attempt_id = ask.attempt_id
        self._record.begin([fact])
        troubles = self._troubles
        try:
            with one_call(self._service.env.runtime.uptime()):
                popped = self._service.consuming.pop(self._topic, named(group), ask)
        except StoreUnavailable:
            return None
        finally:
            fact.at_ms = self._now()
        is_free = not (popped.is_paused or popped.is_limited) and popped.retry_after_ms is None
        fact.is_empty = is_free and not popped.deliveries
        count = len(popped.deliveries)
        fact.is_short = is_free and ask.fill and ask.attempt_id is None and count < ask.max_messages
        fact.surplus = 0 if ask.attempt_id else max(0, count - ask.max_messages)  # two calls at once may hold more
        fact.is_troubled = self._troubles > troubles
        if ask.attempt_id:
            fact.receipts = [delivery.receipt for delivery in popped.deliveries]
        self._record.end([fact])
        return popped

    @property
    def _troubles(self) -> int:
        """How many of its requests have failed, if the store counts them."""
        return int(getattr(self._service.env.store, "troubles", 0))

    def ack(self, messages: Sequence[Delivered], group: str | None = None) -> None:
        """`group`: another than that of the receipts, which has to refuse them."""
        group = group or messages[0].group
        facts = self._asked("ack", group, messages)
        try:
            failed = self._service.consuming.ack(self._topic, named(group), [message.receipt for message in messages])
        except StoreUnavailable:
            self._given_up(facts)
            return
        self._answered(facts, {failure.receipt: failure.code for failure in failed})

    def nack(self, messages: Sequence[Delivered], delay_ms: int) -> None:
        group = messages[0].group
        facts = self._asked("nack", group, messages, self._now() + delay_ms)
        receipts = [message.receipt for message in messages]
        try:
            failed = self._service.consuming.nack(self._topic, named(group), receipts, delay_ms, "because")
        except StoreUnavailable:
            self._given_up(facts)
            return
        self._answered(facts, {failure.receipt: failure.code for failure in failed})

    def bury(self, messages: Sequence[Delivered]) -> None:
        group = messages[0].group
        facts = self._asked("bury", group, messages, NEVER_MS)
        try:
            failed = self._service.consuming.bury(
                self._topic, named(group), [message.receipt for message in messages], "no use"
            )
        except StoreUnavailable:
            self._given_up(facts)
            return
        self._answered(facts, {failure.receipt: failure.code for failure in failed})

    def extend(self, messages: Sequence[Delivered], invisible_ms: int) -> list[Delivered]:
        """Returns the extended deliveries, with their new receipts."""
        group = messages[0].group
        facts = self._asked("extend", group, messages)
        for fact in facts:
            fact.asked_ms = fact.began_ms + invisible_ms
        receipts = [message.receipt for message in messages]
        try:
            extended, failed = self._service.consuming.extend(self._topic, named(group), receipts, invisible_ms)
        except StoreUnavailable:
            self._given_up(facts)
            return []
        renewed = {lease.receipt: lease for lease in extended}
        for fact in facts:
            if new := renewed.get(fact.receipt):
                fact.new_receipt, fact.until_ms = new.new_receipt, new.invisible_until_ms
        self._answered(facts, {failure.receipt: failure.code for failure in failed})
        return [
            replace(message, receipt=renewed[message.receipt].new_receipt)
            for message in messages
            if message.receipt in renewed
        ]

    def reset(self, group: str, to: str | int | OneQueue) -> None:
        fact = Reset(group, self._now(), NEVER_MS, to)
        self._record.begin([fact])
        try:
            self._service.admin.groups.reset(self._topic, group, to)
        except (StoreUnavailable, InvalidField):
            return  # where the end of a queue was read from the past, its newest offsets are refused
        fact.at_ms = self._now()
        self._record.end([fact])

    def _asked(self, verb: str, group: str, messages: Sequence[Delivered], until_ms: int = 0) -> list[Settled]:
        now = self._now()
        facts = [
            Settled(verb, group, message.place, message.receipt, now, NEVER_MS, "unknown", until_ms)
            for message in messages
        ]
        self._troubles_before = self._troubles
        self._record.begin(facts)
        return facts

    def _given_up(self, facts: Sequence[Settled]) -> None:
        """Nobody knows the outcome of these, but nobody goes on with them."""
        for fact in facts:
            fact.at_ms = self._now()

    def _answered(self, facts: Sequence[Settled], codes: dict[str, str]) -> None:
        is_troubled = self._troubles > self._troubles_before or not hasattr(self._service.env.store, "troubles")
        for fact in facts:
            fact.outcome, fact.at_ms, fact.is_troubled = codes.get(fact.receipt, "ok"), self._now(), is_troubled
        self._record.end(facts)

    def _delivered(self, group: str, popped: Popped, began: int, first: int, ask: Pop) -> list[Delivered]:
        """An answer may be so late that its leases have expired, and the next ones may be known already. A lease of no
        length begins as it ends."""
        now, queues = self._now(), [delivered.stored.queue for delivered in popped.deliveries]
        least_ms, asked_ms = int(ask.invisible_ms != 0), first + ask.invisible_ms if ask.invisible_ms else 0
        return [
            Delivered(
                group,
                (delivered.stored.queue, delivered.stored.offset),
                delivered.stored.message.body.decode().split(PADDED)[0],
                delivered.stored.message_id,
                delivered.attempt,
                began,
                max(began, min(now, delivered.invisible_until_ms - least_ms)),
                delivered.invisible_until_ms,
                delivered.receipt,
                now,
                queues[:number].count(queues[number]),
                asked_ms,
                first,
                delivered.stored.message.correlation_id or "",
                delivered.stored.message.reply_by_ms or 0,
            )
            for number, delivered in enumerate(popped.deliveries)
        ]


def _message(fact: Sent, padding: str) -> Message:
    body, due_ms = f"{fact.body}{PADDED}{padding}", fact.due_ms or None
    return Message(body, None, fact.key, None, {}, due_ms, dedup_id=fact.dedup_id, ttl_ms=fact.ttl_ms)
