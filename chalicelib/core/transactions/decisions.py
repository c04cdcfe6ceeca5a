"""Begins transactions, commits them and rolls them back; lists undecided ones, and gives each that is due for a check
to one caller."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from chalicelib.core.base import deadline
from chalicelib.core.base.errors import MessageTooLarge, StoreUnavailable, TransactionEnded, TransactionNotFound
from chalicelib.core.base.fields import shown
from chalicelib.core.base.limits import MESSAGE_JSON_BYTES_MAX, MESSAGE_OVERHEAD_BYTES, SECOND_MS
from chalicelib.core.base.message import ENTRY_ID_BYTES, LOST, Message, Produced, Space, delayed_id
from chalicelib.core.base.records import record
from chalicelib.core.catalogue.catalogue import Env
from chalicelib.core.catalogue.topic import Topic
from chalicelib.core.delays import Delays
from chalicelib.core.delays.decision import Slot, wait
from chalicelib.core.log import Log
from chalicelib.core.log.segment import Entry
from chalicelib.core.producing import Producing
from chalicelib.core.producing.new_message import HALVES, Sending, parse_batch
from chalicelib.core.store import Keys, Range, raise_trouble
from chalicelib.core.store.paging import page, token_of
from chalicelib.core.table import keys
from chalicelib.core.table.writes import Item, Refused, Write
from chalicelib.core.telemetry.record import NO_TRACE, Trace, count
from chalicelib.core.transactions.half import (
    COMMITTED,
    INLINE_BYTES_MAX,
    ROLLED_BACK,
    Begin,
    Decided,
    TransactionId,
    Undecided,
)

NO_QUEUE = -1
"""The queue that hooks see for a half message without a `queue`, since the commit chooses it."""


class Decisions:
    def __init__(self, env: Env, log: Log, delays: Delays, producing: Producing) -> None:
        self._store, self._runtime = env.store, env.runtime
        self._payloads, self._delays, self._producing = log.payloads, delays, producing

    def begin(self, topic: Topic, ask: Begin, trace: Trace = NO_TRACE) -> Undecided:
        """Stores the messages of a request as one transaction, with the hooks around it. Raises the errors of the check
        of messages and of hooks, TopicNotFound, StoreUnavailable."""
        now = self._runtime.now()
        sendings = parse_batch(ask.messages, topic, now, trace, HALVES)
        messages = [sending.message for sending in sendings]
        entry = Entry.packed(self._runtime.entropy(ENTRY_ID_BYTES), messages, now)
        _demand_answerable(entry)
        if zoned := [sending for sending in sendings if sending.zone is not None]:
            self._producing.choose_queues(topic, zoned)
        asked = tuple(_asked(sending) for sending in sendings)
        until_ms = now + ask.rollback_after_ms
        begun = Undecided(entry, asked, ask.check_after_ms, until_ms, now + ask.check_after_ms)

        def send() -> list[Produced]:
            self._store_half(topic, begun)
            return [Produced(NO_QUEUE if queue is None else queue) for queue in asked]

        self._producing.hooks.around(topic.name, messages, send)
        return begun

    def commit(self, topic: Topic, text: str) -> list[Produced]:
        """Makes the messages visible, unless they are, and returns their places. Raises TransactionNotFound,
        TransactionEnded, TopicNotFound, StoreUnavailable."""
        decided = self._decided(topic, text, COMMITTED)
        offsets: dict[Slot, int] = {}
        for queue in dict.fromkeys(queue for queue, _ in decided.slots()):
            offsets |= self._delivered(topic, queue, [slot for other, slot in decided.slots() if other == queue])
        return [
            Produced(queue, delayed_id(slot.entry_id, queue, slot.due_ms), offsets.get(slot))
            for queue, slot in decided.slots()
        ]

    def roll_back(self, topic: Topic, text: str) -> None:
        """Drops the messages, unless they are dropped. Raises TransactionNotFound, TransactionEnded,
        StoreUnavailable."""
        self._decided(topic, text, ROLLED_BACK)

    def drop(self, topic: Topic, undecided: Undecided) -> Decided | None:
        """Decides to drop the messages. None: the transaction was decided before. Raises StoreUnavailable."""
        return self._decide(topic, undecided, Decided(ROLLED_BACK, self._runtime.now()))

    def _store_half(self, topic: Topic, begun: Undecided) -> None:
        """Stores it in a transaction of the store, which recognizes a late repeat. A plain one would restore a
        transaction decided meanwhile."""
        if not topic.delays:
            self._delays.writer.demand(topic)
        spilling = [(begun.entry, INLINE_BYTES_MAX)]
        [entry] = self._payloads.spill(topic.id, spilling, topic.ttl(begun.rollback_at_ms))
        self._store.write_together([begun.stored(entry).begin(topic)])

    def _decided(self, topic: Topic, text: str, wanted: str) -> Decided:
        """The decision about a transaction, made by this call unless there was one. Raises TransactionEnded if it is
        not the wanted one, TransactionNotFound."""
        transaction_id = TransactionId.parse(text)
        if transaction_id is None:
            raise _unknown(topic, text)
        items = self._store.read([Keys([transaction_id.key(topic.id)], strong=True)])[0]
        decided = self._decide_as(topic, Undecided.of(items[0]), wanted) if items else None
        if decided is None:
            records = self._store.read([Keys([transaction_id.decided_key(topic.id)], strong=True)])[0]
            if not records:
                raise _unknown(topic, text)
            decided = Decided.of(records[0])
        if decided.state != wanted:
            name = f"transaction {shown(text)} of topic '{topic.name}'"
            raise TransactionEnded(f"{name} was {decided.state.replace('_', ' ')} at {decided.at_ms}")
        return decided

    def _decide_as(self, topic: Topic, undecided: Undecided, wanted: str) -> Decided | None:
        """Makes the wanted decision, or a rollback if a commit comes after the time to roll back."""
        if wanted == COMMITTED and undecided.is_open(self._runtime.now()):
            return self._commit(topic, undecided)
        return self.drop(topic, undecided)

    def _commit(self, topic: Topic, undecided: Undecided) -> Decided | None:
        """Decides to deliver the messages. None: the transaction was decided before."""
        messages = self._payloads.messages(topic.id, [undecided.entry])[undecided.entry.id]
        if LOST in messages:
            self._demand_decided(topic, undecided)
            return None
        now = self._runtime.now()
        messages = [replace(message, sent_at_ms=undecided.entry.stored_at_ms) for message in messages]
        waiting = self._delays.writer.waiting(self._placed(topic, messages, undecided.asked, now))
        entries = self._delays.writer.packed(topic, waiting)
        decided = Decided(COMMITTED, now, tuple((message.queue, message.entry_id) for message in waiting))
        stored = [
            wait(topic.id, message.queue, message.due_ms, entry)
            for message, entry in zip(waiting, entries, strict=True)
        ]
        made = self._decide(topic, undecided, decided, stored)
        count("produced", len(waiting) if made else 0, topic.name)
        return made

    def _decide(
        self, topic: Topic, undecided: Undecided, decided: Decided, more: Sequence[Write] = ()
    ) -> Decided | None:
        """Decides, with more writes in the same transaction. None: the transaction was decided before."""
        try:
            self._store.write_together([undecided.remove(topic.id), decided.record(topic, undecided.id), *more])
        except Refused:
            return None
        self._payloads.remove(topic.id, [undecided.entry])
        return decided

    def _placed(
        self, topic: Topic, messages: Sequence[Message], asked: Sequence[int | None], now: int
    ) -> list[tuple[int, Message]]:
        """The messages with their queues, all due now, so that they are delivered in their order."""
        sendings = [Sending(message, queue) for message, queue in zip(messages, asked, strict=True)]
        self._producing.choose_queues(topic, sendings)
        return [(sending.queue, replace(sending.message, deliver_at_ms=now)) for sending in sendings]

    def _delivered(self, topic: Topic, queue: int, slots: Sequence[Slot]) -> dict[Slot, int]:
        """Delivers these messages, unless they are delivered, and returns their offsets. Expired messages, and those
        cancelled while they waited, have none."""
        while True:
            count = self._delays.promoter.promote(topic, queue, slots[-1].due_ms)
            offsets = self._delays.messages.offsets_with(topic, queue, slots[-1])
            if offsets or not count:  # they are delivered in order, so the last is in the log after the others
                break
        for slot in reversed(slots):
            if slot not in offsets:
                offsets |= self._delays.messages.offsets_with(topic, queue, slot)
        return offsets

    def _demand_decided(self, topic: Topic, undecided: Undecided) -> None:
        """Payloads are removed only after the decision. Raises StoreUnavailable if one is missing earlier."""
        keys = [undecided.id.key(topic.id), undecided.id.decided_key(topic.id)]
        waiting, records = self._store.read([Keys([key], strong=True) for key in keys])
        if waiting and not records:
            raise StoreUnavailable(f"the messages of transaction '{undecided.id}' cannot be read")


def _demand_answerable(entry: Entry) -> None:
    """Refuses messages that do not fit one response together."""
    size, most = entry.wire_bytes + entry.count * MESSAGE_OVERHEAD_BYTES, MESSAGE_JSON_BYTES_MAX
    if size > most:
        raise MessageTooLarge(
            f"field 'messages' is {size} bytes as JSON, its quotes escaped; a response carries at most {most}"
        )


def _unknown(topic: Topic, text: str) -> TransactionNotFound:
    return TransactionNotFound(f"topic '{topic.name}' has no transaction {shown(text)}")


def _asked(sending: Sending) -> int | None:
    """The queue that a message keeps until the commit. If it names a zone, a queue of the zone is chosen now."""
    return sending.queue if sending.zone is not None and sending.may_hop else sending.asked


# -- checks -----------------------------------------------------------------------------------------------------------

POLL_MS_MIN = 10
POLL_MS_MAX = SECOND_MS
"""How long a waiting check pauses between looks, growing from the first to the second; shorter if a transaction is due
earlier."""

_PAGE = 100


@record
class ShownTransaction:
    """An undecided transaction, for clients."""

    transaction: Undecided
    messages: Sequence[Message]

    def as_json(self, topic_name: str) -> dict[str, Any]:
        return {
            "topic": topic_name,
            "transaction_id": str(self.transaction.id),
            "messages": [*map(_as_sent, self.messages, self.transaction.asked)],
            "checks": self.transaction.checks,
            "created_at_ms": self.transaction.id.begun_at_ms,
            "rollback_at_ms": self.transaction.rollback_at_ms,
        }


class Checks:
    def __init__(self, env: Env, log: Log) -> None:
        self._store, self._runtime, self._payloads = env.store, env.runtime, log.payloads

    def page(self, topic: Topic, limit: int, token: str | None) -> tuple[list[ShownTransaction], str | None]:
        """Up to `limit` undecided transactions, oldest first, fewer if a response would not hold them, and the token of
        the next page (None: no more)."""
        items, rest = page(self._store, keys.transactions(topic.id), limit, token, keys.TRANSACTION_PATTERN)
        fitting = _fitting([Undecided.of(item) for item in items])
        if len(fitting) < len(items):
            rest = token_of(items[len(fitting) - 1]["sk"])
        now = self._runtime.now()
        return self._shown(topic, [transaction for transaction in fitting if transaction.is_open(now)]), rest

    def check(self, topic: Topic, most: int, wait_ms: int) -> list[ShownTransaction]:
        """Takes up to `most` transactions that are due for a check, oldest first, as many as a response holds. No other
        caller gets them until they are due again. Returns none only if none was due for `wait_ms`."""
        give_up_at = deadline.wait_until_ms(self._runtime.uptime() + wait_ms)
        pause_ms = POLL_MS_MIN
        while True:
            taken, next_at_ms = self._take(topic, most)
            left_ms = give_up_at - self._runtime.uptime()
            if taken or left_ms <= 0:
                return self._shown(topic, taken)
            self._wait(min(pause_ms, left_ms), next_at_ms)
            if deadline.is_abandoned():
                return []
            pause_ms = min(2 * pause_ms, POLL_MS_MAX)

    def ask_for(self, topic: Topic, queue: int) -> bool:
        """Whether messages of undecided transactions ask for this queue. Reads all undecided transactions."""
        return any(queue in Undecided.of(item).asked for items in self._pages(topic) for item in items)

    def overdue(self, topic: Topic) -> Iterator[Undecided]:
        """The transactions that no caller decided in time."""
        for items in self._pages(topic):
            for transaction in map(Undecided.of, items):
                if not transaction.is_open(self._runtime.now()):
                    yield transaction

    def _take(self, topic: Topic, most: int) -> tuple[list[Undecided], int | None]:
        """The transactions taken or, if none is due, when the first will be. If other callers were faster it looks
        again, since those they took are no longer due."""
        while True:
            now, nexts = self._runtime.now(), []
            due: list[Undecided] = []
            for transaction in self._open(topic, now):
                if transaction.check_at_ms > now:
                    nexts.append(transaction.check_at_ms)
                else:
                    due.append(transaction)
                if len(due) == most:
                    break
            taken = self._claimed(topic, _fitting(due), now)
            if taken or not due:
                return taken, min(nexts, default=None)

    def _claimed(self, topic: Topic, due: Sequence[Undecided], now: int) -> list[Undecided]:
        if not due:
            return []
        by = self._runtime.entropy(ENTRY_ID_BYTES)
        outcomes = self._store.write_each([transaction.check(topic.id, now, by) for transaction in due])
        taken = [Undecided.of(outcome) for outcome in outcomes if not isinstance(outcome, Refused | StoreUnavailable)]
        if not taken:
            raise_trouble(outcomes)
        return taken

    def _open(self, topic: Topic, now: int) -> Iterator[Undecided]:
        for items in self._pages(topic):
            yield from (transaction for transaction in map(Undecided.of, items) if transaction.is_open(now))

    def _pages(self, topic: Topic) -> Iterator[list[Item]]:
        after = keys.FIRST
        while True:
            items = self._store.read([Range(keys.transactions(topic.id), after, keys.LAST, _PAGE, strong=True)])[0]
            yield items
            if len(items) < _PAGE:
                return
            after = f"{items[-1]['sk']}{keys.AFTER}"

    def _shown(self, topic: Topic, transactions: Sequence[Undecided]) -> list[ShownTransaction]:
        """A transaction without its payload is decided, since payloads are removed only after the decision."""
        messages = self._payloads.messages(topic.id, [transaction.entry for transaction in transactions])
        shown = [ShownTransaction(transaction, messages[transaction.entry.id]) for transaction in transactions]
        return [transaction for transaction in shown if LOST not in transaction.messages]

    def _wait(self, pause_ms: int, next_at_ms: int | None) -> None:
        """Sleeps this long, but not past the next known check."""
        if next_at_ms is not None:
            pause_ms = min(pause_ms, next_at_ms - self._runtime.now())
        pause_ms = max(1, pause_ms)
        self._runtime.sleep(pause_ms)
        deadline.has_waited(pause_ms)


def _fitting(transactions: Sequence[Undecided]) -> list[Undecided]:
    """The first of these that certainly fit one response together: at least one."""
    wire_bytes = count = 0
    for number, transaction in enumerate(transactions):
        wire_bytes, count = wire_bytes + transaction.entry.wire_bytes, count + transaction.entry.count
        if number and not Space().holds(wire_bytes, count):
            return [*transactions[:number]]
    return [*transactions]


def _as_sent(message: Message, queue: int | None) -> dict[str, Any]:
    own = {"queue": queue, "ttl_ms": message.ttl_ms}
    return {**message.content(), **{name: value for name, value in own.items() if value is not None}}
