"""Decides late acks: of messages that were acked, that are dead, or that wait in a retry page.

The cursor alone does not show which: the lease is gone, and no lease owes the message. So the dead letters and pages
are read, and then the cursor again: messages redriven or brought back in between are owed by then.
"""

from __future__ import annotations

from collections.abc import Sequence

from chalicelib.catalogue.topic import Topic
from chalicelib.consuming.receipt_batch import ReceiptBatch
from chalicelib.cursors.cursor import read_again
from chalicelib.cursors.retries import Retries
from chalicelib.store import Keys, Store
from chalicelib.table import keys
from chalicelib.table.writes import key_of


class LateAcks:
    def __init__(self, store: Store, retries: Retries) -> None:
        self._store = store
        self._retries = retries

    def resolve(self, topic: Topic, batches: Sequence[ReceiptBatch]) -> None:
        """Records in each batch which of its messages are dead or wait in a page."""
        left = [each for each in batches if each.perhaps_lost()]
        while left:
            self._note_dead(topic, left)
            seen = self._note_paged(left)
            left = [each for each in left if each.perhaps_lost()]
            for batch, cursor in zip(left, read_again(self._store, [batch.cursor.key for batch in left]), strict=True):
                batch.know(cursor)
            # A page written since may hold the missing messages.
            left = [each for each in left if each.perhaps_lost() and each.cursor.pages.keys() - seen]

    def _note_dead(self, topic: Topic, batches: Sequence[ReceiptBatch]) -> None:
        places = [
            {
                keys.dead(topic.id, each.group_id, each.queue, receipt.offset, each.consumer): receipt
                for receipt in each.perhaps_lost()
            }
            for each in batches
        ]
        found = self._store.read([Keys(list(asked), strong=True) for asked in places])
        for each, asked, letters in zip(batches, places, found, strict=True):
            died = [(asked[key_of(letter)], letter["epoch"]) for letter in letters]
            each.lost |= {receipt.offset for receipt, epoch in died if epoch == receipt.epoch}

    def _note_paged(self, batches: Sequence[ReceiptBatch]) -> set[str]:
        """Returns the ids of the pages that were read or need not be."""
        asked = []
        seen: set[str] = set()
        for each in batches:
            last = max((receipt.offset for receipt in each.perhaps_lost()), default=-1)
            near = [page for page in each.cursor.pages.values() if page.low <= last]
            seen |= each.cursor.pages.keys() - {page.id for page in near}
            asked.append((each.cursor, near))
        for each, held in zip(batches, self._retries.read(asked), strict=True):
            waiting = {offset for retries in held.values() for retry in retries for offset in retry.offsets}
            each.lost |= waiting & {receipt.offset for receipt in each.perhaps_lost()}
            seen |= held.keys()
        return seen
