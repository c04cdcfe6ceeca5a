"""Stores replies, then acks the messages of their requests."""

from __future__ import annotations

from contextlib import suppress

from chalicelib.core.base.errors import AlreadyReplied, GroupNotFound, RequestExpired, TopicNotFound
from chalicelib.core.base.message import ENTRY_ID_BYTES, Message
from chalicelib.core.catalogue.catalogue import Env
from chalicelib.core.consuming import Consuming
from chalicelib.core.consuming.receipt_batch import RECEIPT_INVALID, Failure
from chalicelib.core.cursors.lease import Receipts
from chalicelib.core.log.payloads import Payloads
from chalicelib.core.log.segment import PIECE_BYTES_MAX, Entry
from chalicelib.core.producing.new_message import traced
from chalicelib.core.requests.asking import Arrivals
from chalicelib.core.requests.correlation import Correlation, Replier, fingerprint, is_reply, store
from chalicelib.core.store import Keys
from chalicelib.core.table.writes import Item, Refused
from chalicelib.core.telemetry.trace_context import NO_TRACE, Trace

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
