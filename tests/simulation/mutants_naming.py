"""Bugs planted into what receipts name: a lease, a delivery or a message."""

from __future__ import annotations

import dataclasses
from collections.abc import Set
from typing import Any
from unittest.mock import patch

from greenlet import getcurrent, greenlet

from chalicelib.core.catalogue.group import BY_MESSAGE
from chalicelib.core.consuming import claim_plan, receipt_batch, settle
from chalicelib.core.consuming.receipt_batch import ReceiptBatch
from chalicelib.core.cursors import cursor_writes
from chalicelib.core.cursors.cursor import Cursor, read_again
from chalicelib.core.cursors.cursor_writes import Change
from chalicelib.core.table.writes import never_landed
from tests.simulation.mutants import calling, planted, together


@planted
def messages_named_across_resets() -> Any:
    """By message, a receipt from before a reset reaches what was taken after it."""
    true = ReceiptBatch.standing

    def standing(self: Any, shown: Any) -> Any:
        is_lasting = self.settle_by == BY_MESSAGE
        return true(self, dataclasses.replace(shown, epoch=self.cursor.epoch) if is_lasting else shown)

    return patch.object(ReceiptBatch, "standing", standing)


@planted
def extensions_that_overwrite_newer_ones() -> Any:
    """An extension in place does not ask whether the deadline is as it was."""

    def prolong(old: Any, deadline: int) -> Any:
        made: Any = cursor_writes.prolong(old, deadline)
        return dataclasses.replace(made, guards=tuple(each for each in made.guards if each.path != old.deadline_path))

    return calling(receipt_batch, prolong=prolong)


@planted
def takeovers_that_miss_extensions() -> Any:
    """A lease is taken over although it was extended in place since it was seen."""
    return calling(claim_plan, lasts_as_seen=lambda _: Change())


@planted
def nacks_that_miss_extensions() -> Any:
    """A late nack counts although the message was extended in place since."""
    return patch.object(ReceiptBatch, "_lasts_as_seen", lambda *_: Change())


@planted
def deliveries_that_outlast_their_leases() -> Any:
    """By delivery, a receipt is good until somebody takes the message, as by receipt."""
    return together(
        patch.object(ReceiptBatch, "_is_over", lambda *_: False),
        patch.object(ReceiptBatch, "_demands", lambda *_: Change()),
    )


@planted
def deliveries_that_end_with_an_extension() -> Any:
    """By delivery, a receipt is good for the lease that it was given for alone."""
    return patch.object(receipt_batch, "delivery", lambda token, attempt: (token, attempt))


@planted
def deliveries_that_any_receipt_names() -> Any:
    """By delivery, a receipt of an earlier delivery of the message is good for the newest, as by message."""
    return patch.object(ReceiptBatch, "_names", lambda _, receipt, lease: receipt.offset in lease.offsets)


@planted
def settlements_that_do_not_know_themselves() -> Any:
    """A nack or an extension whose reply was lost is refused when it is sent again."""
    return patch.object(
        settle, "write", lambda *args: dataclasses.replace(cursor_writes.write(*args), landed=never_landed)
    )


@planted
def pages_that_no_old_receipt_reaches() -> Any:
    """By message, what waits in a page is taken for settled."""
    return patch.object(settle, "bring_pages_back", lambda *_: False)


@planted
def late_acks_that_are_judged_once() -> Any:
    """What is missing only when the cursor is read again is taken for acked."""
    true = settle._is_open

    def is_open(batch: ReceiptBatch, before: Cursor, _: object, seen: Set[str]) -> bool:
        return true(batch, before, {settle._letter_key(receipt) for receipt in batch.perhaps_lost()}, seen)

    return patch.object(settle, "_is_open", is_open)


@planted
def late_acks_that_read_the_cursor_once() -> Any:
    """What is redriven while its letter is looked for is taken for acked."""
    true, asked = settle.resolve_late, dict[greenlet, Any]()

    def resolve(store: Any, retries: Any, batches: Any) -> None:
        asked[getcurrent()] = batches
        try:
            true(store, retries, batches)
        finally:
            del asked[getcurrent()]

    def as_seen(*args: Any) -> list[Any]:
        if getcurrent() not in asked:
            return read_again(*args)
        return [batch.cursor for batch in asked[getcurrent()] if batch.perhaps_lost()]

    return patch.multiple(settle, resolve_late=resolve, read_again=as_seen)
