"""Lists undecided transactions, and gives each that is due for a check to one caller."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from chalicelib.core.base import deadline
from chalicelib.core.base.errors import StoreUnavailable
from chalicelib.core.base.limits import SECOND_MS
from chalicelib.core.base.message import ENTRY_ID_BYTES, LOST, Message, Space
from chalicelib.core.base.records import record
from chalicelib.core.catalogue.catalogue import Env
from chalicelib.core.catalogue.topic import Topic
from chalicelib.core.log import Log
from chalicelib.core.store import Range, raise_trouble
from chalicelib.core.store.paging import page, token_of
from chalicelib.core.table import keys
from chalicelib.core.table.writes import Item, Refused
from chalicelib.core.transactions.half import Undecided

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
