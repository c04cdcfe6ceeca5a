"""Sends requests: messages that carry a correlation id and end at its deadline.

Waits for replies: reads with growing pauses, and gets a reply stored through the same instance at once. At the
deadline the request ends for good.

The calls of this instance that wait for replies. One call looks for the replies of all that would look soon, and a
reply stored through this instance wakes its caller at once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

from chalicelib.core.base import deadline
from chalicelib.core.base.errors import (
    AlreadyReplied,
    GroupNotFound,
    ReplyTimeout,
    RequestExpired,
    RequestNotFound,
    StoreUnavailable,
    TopicNotFound,
)
from chalicelib.core.base.limits import REPLY_KEPT_MS
from chalicelib.core.base.message import ENTRY_ID_BYTES, Message
from chalicelib.core.base.records import mutable, record
from chalicelib.core.base.runtime import Bell, Runtime
from chalicelib.core.catalogue.catalogue import Env
from chalicelib.core.catalogue.topic import Topic
from chalicelib.core.consuming import Consuming
from chalicelib.core.consuming.receipt_batch import RECEIPT_INVALID, Failure
from chalicelib.core.cursors.lease import Receipts
from chalicelib.core.log.payloads import Payloads
from chalicelib.core.log.segment import PIECE_BYTES_MAX, Entry
from chalicelib.core.producing import Producing
from chalicelib.core.producing.new_message import Sending, traced
from chalicelib.core.requests.correlation import (
    NONCE_BYTES,
    Correlation,
    Correlations,
    Replier,
    fingerprint,
    is_reply,
    store,
    time_out,
)
from chalicelib.core.store import Keys
from chalicelib.core.table.writes import Item, Key, Refused, key_of
from chalicelib.core.telemetry.record import NO_TRACE, Trace

PAUSE_MS_MIN = 5
PAUSE_MS_MAX = 200
PAUSE_PART = 10
"""A call looks again after a tenth of the time since the request was sent, within these bounds. A reply thus arrives at
most a tenth later, and a slow one costs few reads."""
CROWD_PART = 2
"""With many waiting calls, the pauses last at least half a millisecond for each, so that the reads leave time for the
replies."""
TOGETHER_MAX = 100
"""The most replies in one read: DynamoDB reads this many items in one request."""


@mutable
class AwaitedReply:
    """The reply that one call waits for. `asked_ms`, `look_at_ms`: when the request was asked, and when to look next,
    by `Runtime.uptime`. `item`: the reply, once it is known."""

    key: Key
    bell: Bell
    asked_ms: int
    look_at_ms: int
    item: Item | None = None

    def pause_ms(self, now: int) -> int:
        """The pause between a look now and the next."""
        return min(max((now - self.asked_ms) // PAUSE_PART, PAUSE_MS_MIN), PAUSE_MS_MAX)


class Arrivals:
    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._lock = threading.Lock()
        self._expected: dict[Key, list[AwaitedReply]] = {}

    @contextmanager
    def expected(self, key: Key, asked_ms: int) -> Iterator[AwaitedReply]:
        """Within this context, the arrival gets the item with this key. Its first look is a pause ahead."""
        now = self._runtime.uptime()
        arrival = AwaitedReply(key, self._runtime.bell(), asked_ms, now)
        arrival.look_at_ms = now + arrival.pause_ms(now)
        with self._lock:
            self._expected.setdefault(key, []).append(arrival)
        try:
            yield arrival
        finally:
            with self._lock:
                self._expected[key].remove(arrival)
                if not self._expected[key]:
                    del self._expected[key]

    def due(self) -> list[Key]:
        """The keys to look for now: those of arrivals that are due, or have less than half of their pause left. Moves
        their next look a pause ahead, so that no other call looks for them meanwhile."""
        now = self._runtime.uptime()
        with self._lock:
            arrivals = [arrival for arrivals in self._expected.values() for arrival in arrivals]
            soon = [arrival for arrival in arrivals if arrival.look_at_ms <= now + arrival.pause_ms(now) // 2]
            looked = sorted(soon, key=lambda arrival: arrival.look_at_ms)[:TOGETHER_MAX]
            for arrival in looked:
                arrival.look_at_ms = now + max(arrival.pause_ms(now), len(arrivals) // CROWD_PART)
        return list(dict.fromkeys(arrival.key for arrival in looked))

    def tell(self, key: Key, item: Item) -> None:
        """Passes a stored item to the call that waits for it."""
        with self._lock:
            arrivals = [*self._expected.get(key, ())]
        for arrival in arrivals:
            arrival.item = item
            arrival.bell.ring()


@record
class ReceivedReply:
    message: Message
    replied_at_ms: int


class ReplyWaiter:
    def __init__(self, env: Env, payloads: Payloads, correlations: Correlations, arrivals: Arrivals) -> None:
        self._store, self._runtime = env.store, env.runtime
        self._payloads, self._correlations, self._arrivals = payloads, correlations, arrivals

    def fetch(self, correlation_id: str, wait_ms: int) -> ReceivedReply | None:
        """The reply to a request, also of another instance. None: no reply came within `wait_ms`, but one may come
        later.

        Raises RequestNotFound, ReplyTimeout, StoreUnavailable."""
        correlation = self._correlations.read(correlation_id)
        if self._runtime.now() >= correlation.reply_by_ms + REPLY_KEPT_MS:
            raise RequestNotFound(f"request '{correlation_id}' ended more than {REPLY_KEPT_MS} ms ago")
        until_ms = self._runtime.uptime() + wait_ms
        if item := self._look(correlation):
            return self._reply(correlation, item)
        return self.wait(correlation, until_ms)

    def wait(self, correlation: Correlation, until_ms: int | None) -> ReceivedReply | None:
        """The reply, as soon as there is one. None: no reply came until this instant of `Runtime.uptime` (None: the
        deadline), but one may come later.

        Raises ReplyTimeout, StoreUnavailable."""
        ends_at_ms = self._runtime.uptime() + correlation.reply_by_ms - self._runtime.now()
        wanted_ms = ends_at_ms if until_ms is None else min(until_ms, ends_at_ms)
        item = self._wait(correlation, deadline.wait_until_ms(wanted_ms))
        if item is None and self._runtime.uptime() >= ends_at_ms:
            item = self._time_out(correlation)
        return None if item is None else self._reply(correlation, item)

    def _wait(self, correlation: Correlation, until_ms: int) -> Item | None:
        began_at_ms = self._runtime.uptime()
        elapsed_ms = max(0, self._runtime.now() - correlation.asked_at_ms)
        with self._arrivals.expected(correlation.key, began_at_ms - elapsed_ms) as arrival:
            while (now := self._runtime.uptime()) < until_ms and not deadline.is_abandoned():
                arrival.look_at_ms = min(arrival.look_at_ms, until_ms)
                arrival.bell.wait(max(1, arrival.look_at_ms - now))
                deadline.has_waited(self._runtime.uptime() - now)
                if arrival.item is None and arrival.look_at_ms <= self._runtime.uptime():
                    self._look_together()
                if arrival.item:
                    return arrival.item
        return None

    def _look_together(self) -> None:
        """Looks for the replies of this call and of others that would look soon."""
        if due := self._arrivals.due():
            for item in self._store.read([Keys(due)])[0]:
                self._arrivals.tell(key_of(item), item)

    def _look(self, correlation: Correlation) -> Item | None:
        items = self._store.read([Keys([correlation.key])])[0]
        return items[0] if items else None

    def _time_out(self, correlation: Correlation) -> Item:
        """Ends the request. Returns its outcome: a time-out, or a reply that came first."""
        try:
            return self._store.write(time_out(correlation, self._runtime.now()))
        except Refused as refused:
            return refused.before

    def _reply(self, correlation: Correlation, item: Item) -> ReceivedReply:
        """Raises ReplyTimeout if the request ended without one."""
        if not is_reply(item):
            detail = f"no reply came within {correlation.timeout_ms} ms"
            raise ReplyTimeout(detail, correlation_id=self._correlations.sign(correlation))
        entry = Entry.of(item["entry"])
        [message] = self._payloads.messages(correlation.topic_id, [entry])[entry.id]
        if message.is_lost:
            raise StoreUnavailable("the reply was stored, but its payload is missing from the store or damaged")
        return ReceivedReply(message, item["at"])


class Asker:
    def __init__(self, env: Env, producing: Producing, correlations: Correlations, waiter: ReplyWaiter) -> None:
        self._runtime = env.runtime
        self._send, self._correlations, self._waiter = producing.send_parsed, correlations, waiter

    def ask(
        self, topic: Topic, parse: Callable[[Topic], Sending], timeout_ms: int, wait_ms: int
    ) -> tuple[str, ReceivedReply | None]:
        """Sends the message that `parse` makes for a topic as a request, and waits for the reply until `wait_ms` have
        passed. Returns the correlation id, and the reply (None: there is none yet).

        Raises the errors of a produce, and ReplyTimeout. A StoreUnavailable has the id if the message may be stored."""
        began_at_ms, asked_at_ms = self._runtime.uptime(), self._runtime.now()
        correlation = Correlation("", "", asked_at_ms, timeout_ms, self._runtime.entropy(NONCE_BYTES))
        correlation_id, is_sent = "", False

        def request(current: Topic) -> list[Sending]:
            nonlocal correlation, correlation_id
            correlation = replace(correlation, topic_id=current.id, topic_name=current.name)
            sending = parse(current)
            correlation_id, reply_by_ms = self._correlations.sign(correlation), correlation.reply_by_ms
            sending.message = replace(sending.message, correlation_id=correlation_id, reply_by_ms=reply_by_ms)
            return [sending]

        until_ms = None if wait_ms >= timeout_ms else began_at_ms + wait_ms
        try:
            with deadline.within(began_at_ms + timeout_ms):
                self._send(topic, request)
            is_sent = True
            return correlation_id, self._waiter.wait(correlation, until_ms)
        except StoreUnavailable as trouble:
            if not correlation_id or not (is_sent or trouble.outcome_unknown):
                raise
            raise StoreUnavailable(trouble.detail, outcome="unknown", correlation_id=correlation_id) from trouble


# -- replies ----------------------------------------------------------------------------------------------------------

INLINE_BYTES_MAX = PIECE_BYTES_MAX
"""A reply up to this size is in its item, and costs one write and one read. A larger reply goes into payload items,
never into S3, where nothing would remove it, since no segment points to it."""


class Answerer:
    def __init__(
        self, env: Env, payloads: Payloads, receipts: Receipts, consuming: Consuming, arrivals: Arrivals
    ) -> None:
        self._store, self._runtime, self._catalogue = env.store, env.runtime, env.catalogue
        self._payloads, self._receipts, self._arrivals = payloads, receipts, arrivals
        self._ack_receipts = consuming.ack

    def reply(
        self, correlation: Correlation, reply: Message, receipt: str | None, trace: Trace = NO_TRACE
    ) -> list[Failure]:
        """Stores the reply, unless it is stored already; then acks the receipt. Returns the receipt if it failed. The
        trace does not count in comparing replies, since each try may have its own.

        Raises AlreadyReplied, RequestExpired, StoreUnavailable."""
        replier = None if receipt is None else self._replier(correlation, receipt)
        self._answer(correlation, reply, traced(reply, trace), replier)
        return [] if receipt is None else self._ack(correlation, receipt, replier)

    def _replier(self, correlation: Correlation, text: str) -> Replier | None:
        receipt = self._receipts.read(text, correlation.topic_id)
        if receipt is None:
            return None
        group = self._catalogue.group_name(correlation.topic_id, receipt.group_id)
        return Replier(group, receipt.queue, receipt.offset, receipt.attempt, receipt.taken_at_ms) if group else None

    def _answer(self, correlation: Correlation, reply: Message, kept: Message, replier: Replier | None) -> None:
        now = self._runtime.now()
        content = fingerprint(reply)
        entry = Entry.packed(self._runtime.entropy(ENTRY_ID_BYTES), [kept], now)
        is_late = now >= correlation.reply_by_ms
        if is_late or entry.size > INLINE_BYTES_MAX:
            items = self._store.read([Keys([correlation.key], strong=True)])[0]
            if is_late or items:
                _demand_same(correlation, items[0] if items else {}, content, is_late)
                return
            spilling = [(entry, INLINE_BYTES_MAX)]
            [entry] = self._payloads.spill(correlation.topic_id, spilling, correlation.ttl, in_items=True)
        try:
            item = self._store.write(store(correlation, entry, content, replier))
        except Refused as refused:
            item = refused.before
            _demand_same(correlation, item, content, is_late)
        self._arrivals.tell(correlation.key, item)

    def _ack(self, correlation: Correlation, text: str, replier: Replier | None) -> list[Failure]:
        """The receipt must belong to the request's current topic."""
        if replier:
            with suppress(TopicNotFound, GroupNotFound):
                return self._ack_receipts(self._catalogue.topic(correlation.topic_name), replier.group, [text])
        return [Failure(text, RECEIPT_INVALID)]


def _demand_same(correlation: Correlation, item: Item, content: bytes, is_late: bool) -> None:
    """Raises RequestExpired or AlreadyReplied, unless a reply with this content is stored."""
    if is_reply(item) and item["content"] == content:
        return
    if is_late or not is_reply(item):
        raise RequestExpired(f"the deadline of the request was {correlation.reply_by_ms}")
    raise AlreadyReplied(f"the request already has a different reply, stored at {item['at']}")
