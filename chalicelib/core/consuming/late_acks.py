"""Decides late receipts: of messages that were acked, that are dead, or that wait in a retry page.

The cursor alone does not show which: the lease is gone, and no lease owes the message. So the dead letters and pages
are read, and then the cursor again: messages redriven or brought back in between are owed by then. They may even be
dead once more, so if anything came back meanwhile, all of this is read again.
"""

from __future__ import annotations

from collections.abc import Sequence, Set

from chalicelib.core.catalogue.group import BY_MESSAGE
from chalicelib.core.consuming.receipt_batch import CursorFull, ReceiptBatch
from chalicelib.core.cursors.cursor import Cursor, read_again
from chalicelib.core.cursors.receipt import Receipt
from chalicelib.core.cursors.retries import Retries
from chalicelib.core.store import Keys, Store
from chalicelib.core.table import keys
from chalicelib.core.table.writes import Key, key_of


def resolve(store: Store, retries: Retries, batches: Sequence[ReceiptBatch]) -> None:
    """Records in each batch which of its messages are dead or wait in a page."""
    while batches:
        before = {batch.cursor.key: batch.cursor for batch in batches}
        judged = _note_dead(store, batches)
        seen = _note_paged(retries, batches)
        left = [batch for batch in batches if batch.perhaps_lost()]
        for batch, cursor in zip(left, read_again(store, [batch.cursor.key for batch in left]), strict=True):
            batch.learn(cursor)
        # A page written since may hold the missing messages, and others are missing only now.
        batches = [batch for batch in left if _is_open(batch, before[batch.cursor.key], judged, seen)]


def bring_back(store: Store, retries: Retries, batches: Sequence[ReceiptBatch]) -> bool:
    """Brings back retry pages that hold messages of these receipts, where receipts name messages. Returns whether there
    is more to settle, or to look for. Raises CursorFull: no room for a page."""
    asked = []
    for batch in batches:
        if batch.settle_by != BY_MESSAGE or not batch.cursor.pages:
            continue
        last = max((receipt.offset for receipt in batch.perhaps_lost()), default=-1)
        near = [page for page in batch.cursor.pages.values() if page.low <= last and page.id not in batch.searched]
        if near:
            asked.append((batch, near))
    if not asked:
        return False
    answers = retries.read([(batch.cursor, near) for batch, near in asked])
    for (batch, near), pages in zip(asked, answers, strict=True):
        batch.searched |= {page.id for page in near}
        wanted = {receipt.offset for receipt in batch.perhaps_lost()}
        for page in near:
            if page.id not in pages:  # somebody has just brought it back
                batch.learn(read_again(store, [batch.cursor.key])[0])
            elif any(not wanted.isdisjoint(lease.offsets) for lease in pages[page.id]):
                after = retries.bring_back(batch.cursor, page)
                if after and page.id in after.pages:
                    raise CursorFull(after.queue)
                batch.learn(after)
    return True


def _is_open(batch: ReceiptBatch, before: Cursor, judged: Set[Key], seen: Set[str]) -> bool:
    """`before`: the cursor as it was when letters and pages were read."""
    missing = {_letter_key(receipt) for receipt in batch.perhaps_lost()}
    pages = before.pages.keys() | batch.cursor.pages.keys()
    return bool(missing) and not (missing <= judged and pages <= seen and batch.cursor.returns == before.returns)


def _note_dead(store: Store, batches: Sequence[ReceiptBatch]) -> Set[Key]:
    """Returns the keys of the letters that there may have been."""
    late = {_letter_key(receipt): (batch, receipt) for batch in batches for receipt in batch.perhaps_lost()}
    for letter in store.read([Keys(list(late), strong=True)])[0]:
        batch, receipt = late[key_of(letter)]
        if letter["epoch"] == receipt.epoch:
            batch.lost.add(receipt.offset)
    return late.keys()


def _note_paged(retries: Retries, batches: Sequence[ReceiptBatch]) -> set[str]:
    """Returns the ids of the pages that were read, or need not be. The others were just brought back."""
    asked = []
    seen: set[str] = set()
    for batch in batches:
        last = max((receipt.offset for receipt in batch.perhaps_lost()), default=-1)
        near = {page.id: page for page in batch.cursor.pages.values() if page.low <= last}
        seen |= batch.cursor.pages.keys() - near.keys()
        asked.append((batch.cursor, list(near.values())))
    for batch, pages in zip(batches, retries.read(asked), strict=True):
        waiting = {offset for leases in pages.values() for lease in leases for offset in lease.offsets}
        batch.lost |= waiting & {receipt.offset for receipt in batch.perhaps_lost()}
        seen |= pages.keys()
    return seen


def _letter_key(receipt: Receipt) -> Key:
    return keys.dead(receipt.topic_id, receipt.group_id, receipt.queue, receipt.offset, receipt.consumer)
