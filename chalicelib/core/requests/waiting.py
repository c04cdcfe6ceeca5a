"""Waits for replies: reads with growing pauses, and gets a reply stored through the same instance at once. At the
deadline the request ends for good."""

from __future__ import annotations

from chalicelib.core.base import deadline
from chalicelib.core.base.errors import ReplyTimeout, RequestNotFound, StoreUnavailable
from chalicelib.core.base.limits import REPLY_KEPT_MS
from chalicelib.core.base.message import Message
from chalicelib.core.base.records import record
from chalicelib.core.catalogue.catalogue import Env
from chalicelib.core.log.payloads import Payloads
from chalicelib.core.log.segment import Entry
from chalicelib.core.requests.arrivals import Arrivals
from chalicelib.core.requests.correlation import Correlation, Correlations
from chalicelib.core.requests.reply import is_reply, time_out
from chalicelib.core.store import Keys
from chalicelib.core.table.writes import Item, Refused, key_of


@record
class Reply:
    message: Message
    replied_at_ms: int


class Waiter:
    def __init__(self, env: Env, payloads: Payloads, correlations: Correlations, arrivals: Arrivals) -> None:
        self._store, self._runtime = env.store, env.runtime
        self._payloads, self._correlations, self._arrivals = payloads, correlations, arrivals

    def fetch(self, correlation_id: str, wait_ms: int) -> Reply | None:
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

    def wait(self, correlation: Correlation, until_ms: int | None) -> Reply | None:
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

    def _reply(self, correlation: Correlation, item: Item) -> Reply:
        """Raises ReplyTimeout if the request ended without one."""
        if not is_reply(item):
            detail = f"no reply came within {correlation.timeout_ms} ms"
            raise ReplyTimeout(detail, correlation_id=self._correlations.sign(correlation))
        entry = Entry.of(item["entry"])
        [message] = self._payloads.messages(correlation.topic_id, [entry])[entry.id]
        if message.is_lost:
            raise StoreUnavailable("the reply was stored, but its payload is missing from the store or damaged")
        return Reply(message, item["at"])
