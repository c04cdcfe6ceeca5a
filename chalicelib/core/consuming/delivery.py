"""Reads the messages that a pop has claimed, and delivers them with their receipts.

Messages that cannot be delivered any more are settled, so that they are not leased again: expired ones are acked, and
those without a payload become dead letters. Messages that cannot be read now are given back; their delivery does not
count.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any

from chalicelib.core.base import deadline
from chalicelib.core.base.errors import StoreUnavailable, TopicNotFound
from chalicelib.core.base.fields import Answer, integer, required
from chalicelib.core.base.limits import HOP_MS_MIN, READ_TIMEOUT_MS
from chalicelib.core.base.message import Stored
from chalicelib.core.base.records import record
from chalicelib.core.catalogue.catalogue import Env
from chalicelib.core.catalogue.group import BY_RECEIPT
from chalicelib.core.consuming.claim import Claimed, Claimer
from chalicelib.core.consuming.receipt_batch import ReceiptBatch
from chalicelib.core.consuming.request import LEASE_END, RECEIPT
from chalicelib.core.consuming.settle import Settler
from chalicelib.core.consuming.view import QueueView
from chalicelib.core.cursors.lease import Lease, Receipt, Receipts, runs
from chalicelib.core.log.reader import LogReader, Want, entries, stored_at
from chalicelib.core.log.segment import Segment
from chalicelib.core.telemetry.record import count

_LOST = "the message was lost: its payload is gone from the store, or damaged"
"""The reason of a message that cannot be delivered to any consumer."""


@record
class Delivery(Answer):
    """A message delivered to a consumer.

    attempt: 1 when the message is delivered to the group for the first time."""

    stored: Stored
    attempt: int = required(integer(1))
    invisible_until_ms: int = required(LEASE_END)
    receipt: str = required(RECEIPT)
    first_at_ms: int = 0
    """When the message was delivered for the first time, if that is noted, or else now. Not in JSON."""

    def in_topic(self, name: str) -> dict[str, Any]:
        """The message and its lease as clients see them."""
        lease = {"attempt": self.attempt, "invisible_until_ms": self.invisible_until_ms, "receipt": self.receipt}
        return self.stored.as_json(name) | lease


class Deliverer:
    def __init__(self, env: Env, reader: LogReader, receipts: Receipts, claimer: Claimer, settler: Settler) -> None:
        self._runtime, self._catalogue = env.runtime, env.catalogue
        self._reader, self._receipts, self._claimer, self._settler = reader, receipts, claimer, settler

    def demand_key(self, view: QueueView) -> None:
        """Raises StoreUnavailable if no receipt can be signed: what nobody could settle must not be leased."""
        self._receipts.demand_key(view.topic.id)

    def deliver(self, view: QueueView, claimed: Claimed) -> tuple[list[Delivery], bool]:
        """The claimed messages in order, and whether some were missing and are settled now.

        Raises StoreUnavailable if none can be read, and TopicNotFound."""
        leases = {offset: lease for lease in claimed.leases for offset in lease.owed_offsets}
        began_at_ms = self._runtime.now()
        taken_at_ms = 0 if view.ask.attempt_id else began_at_ms
        receipts: dict[int, str] = {}
        for lease in claimed.leases:
            receipts |= self._receipts_of(view, lease, taken_at_ms)
        unread: set[int] = set()
        try:
            with deadline.part_until(self._half_time(claimed, began_at_ms)):
                stored = self._stored(view, claimed.segments, leases)
        except StoreUnavailable:
            stored = self._one_by_one(view, claimed, leases)
            unread = leases.keys() - _offsets(stored)
            if view.group.ordered:
                stored = self._in_order(view, stored, unread)
                unread = leases.keys() - _offsets(stored)
            self._claimer.give_back(view, claimed, unread)
            if not stored:
                raise
        now = self._runtime.now()
        spent = [message.offset for message in stored if self._is_spent(view, claimed, message, now)]
        present = [message for message in stored if not message.message.is_lost and message.offset not in spent]
        missing = leases.keys() - unread - _offsets(present)
        has_missing = bool(missing) and self._settle_missing(view, receipts, spent, sorted(missing - {*spent}))
        if view.group.ordered and not has_missing:
            present = self._in_order(view, present, missing)
        own = ((message, leases[message.offset], receipts[message.offset]) for message in present)
        return [_delivery(*each, now) for each in own], has_missing

    def _is_spent(self, view: QueueView, claimed: Claimed, message: Stored, now: int) -> bool:
        """Whether the message is not delivered any more. The retention counts for messages that were never delivered,
        also for those that were set aside before it ended."""
        is_new = message.offset in claimed.was_aside
        return message.has_expired(now) or (is_new and message.stored_at_ms <= view.topic.expired_ms(now))

    def _in_order(self, view: QueueView, stored: Sequence[Stored], held_up: Collection[int]) -> list[Stored]:
        """The messages that an ordered group can deliver: none past an unsettled one of its queue, or of its key."""
        if not view.group.is_by_key:
            return [message for message in stored if message.offset < min(held_up, default=message.offset + 1)]
        keys = self._claimer.keys_of(view, held_up)
        first: dict[str | None, int] = {}
        for offset in sorted(held_up, reverse=True):
            first[keys.get(offset)] = offset
        return [
            message
            for message in stored
            if message.message.key is None or message.offset < first.get(message.message.key, message.offset + 1)
        ]

    def _half_time(self, claimed: Claimed, now: int) -> int:
        """The deadline for reading the messages: an expired lease cannot be given back."""
        left_ms = min((lease.deadline for lease in claimed.leases), default=0) - now
        return self._runtime.uptime() + max(left_ms // 2, HOP_MS_MIN)

    def _stored(self, view: QueueView, segments: Sequence[Segment], offsets: Collection[int]) -> list[Stored]:
        stored = self._reader.stored(view.topic, view.queue, segments, offsets)
        if missing := set(offsets) - _offsets(stored):
            wants = [Want(view.topic.logs[view.queue], run.start, len(run), None) for run in runs(missing)]
            for run, chain in zip(runs(missing), self._reader.chains(wants, strong=True), strict=True):
                stored += self._reader.stored(view.topic, view.queue, chain, run)
        return sorted(stored, key=lambda message: message.offset)

    def _one_by_one(self, view: QueueView, claimed: Claimed, offsets: Collection[int]) -> list[Stored]:
        """The readable ones of these, entry by entry, so that an unreadable entry does not block the others."""
        until_ms = self._runtime.uptime() + READ_TIMEOUT_MS
        stored: list[Stored] = []
        for first, entry in entries(claimed.segments):
            own = [offset for offset in offsets if first <= offset < first + entry.count]
            if own and self._runtime.uptime() <= until_ms:
                with suppress(StoreUnavailable):
                    stored += self._reader.stored(view.topic, view.queue, claimed.segments, own)
        return stored

    def _settle_missing(
        self, view: QueueView, receipts: Mapping[int, str], spent: Sequence[int], missing: Sequence[int]
    ) -> bool:
        """Whether some of these were settled. If the store fails, their lease expires. `spent`: their own time to live
        is over, or they expired before they were ever delivered."""
        with suppress(StoreUnavailable):
            expired, lost = self._expired_and_lost(view, missing)
            expired = sorted([*spent, *expired])
            count("expired", len(expired), view.topic.name, view.group.name)
            for offsets in filter(None, (expired, lost)):
                texts = [receipts[offset] for offset in offsets]
                batches, _ = self._settler.open(view.topic, view.group.name, texts)
                batches[0].settle_by = BY_RECEIPT  # though its lease may be over at once
                if offsets is expired:
                    self._settler.acknowledge(view.topic, view.group.name, batches)
                else:
                    self._bury_lost(view, batches)
                view.learn(batches[0].cursor)  # an ordered queue continues
            return bool(expired or lost)
        return False

    def _expired_and_lost(self, view: QueueView, missing: Sequence[int]) -> tuple[list[int], list[int]]:
        """The expired ones of these messages, after a long wait for a retry, and those without a payload."""
        wants = [Want(view.topic.logs[view.queue], offset, 1, None) for offset in missing]
        chains = zip(missing, self._reader.chains(wants, strong=True), strict=True)
        standing = [(offset, chain) for offset, chain in chains if chain]
        expired_ms = view.topic.maybe_expired_ms(self._runtime.now())
        expired = [
            offset for offset, chain in standing if chain[0].base > offset or stored_at(chain, offset) <= expired_ms
        ]
        return expired, [offset for offset, _ in standing if offset not in expired]

    def _bury_lost(self, view: QueueView, batches: Sequence[ReceiptBatch]) -> None:
        """Raises TopicNotFound if the topic was deleted, which also removes payloads."""
        if self._catalogue.current_topic(view.topic.name).id != view.topic.id:
            raise TopicNotFound(f"topic '{view.topic.name}' was made again")
        self._settler.give_up(view.topic, view.group, batches, _LOST)

    def _receipts_of(self, view: QueueView, lease: Lease, taken_at_ms: int) -> dict[int, str]:
        """By offset."""
        cursor, about = view.cursor, (lease.count, lease.attempt, taken_at_ms, lease.first_at_ms)
        place = (cursor.consumer, view.queue, cursor.epoch, lease.token, 0, lease.start)
        first = Receipt(view.topic.id, view.group.id, *place, *about)
        offsets = lease.owed_offsets
        return dict(zip(offsets, self._receipts.sign_each(first, offsets), strict=True))


def _delivery(stored: Stored, lease: Lease, receipt: str, now: int) -> Delivery:
    first_at_ms = now if lease.first_at_ms is None else lease.first_at_ms
    return Delivery(stored, lease.attempt, lease.deadline, receipt, first_at_ms)


def _offsets(stored: Sequence[Stored]) -> set[int]:
    return {message.offset for message in stored}
