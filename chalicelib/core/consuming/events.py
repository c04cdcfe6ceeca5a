"""Events of messages on their way: a topic with `trace` keeps them beside the messages.

A note is written after what it tells of, under a key of its own, and only `reading.trace` reads it. So it cannot fail,
undo or repeat what it tells of: a store in trouble, or a call that dies, leaves a gap in the trace and nothing else.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from chalicelib.core.access import callers
from chalicelib.core.base import deadline
from chalicelib.core.base.errors import StoreUnavailable
from chalicelib.core.base.limits import HOP_MS_MIN
from chalicelib.core.base.records import record
from chalicelib.core.catalogue.catalogue import Env
from chalicelib.core.catalogue.topic import Topic
from chalicelib.core.consuming.receipt_batch import ReceiptBatch
from chalicelib.core.cursors.lease import Receipt, mark
from chalicelib.core.table import keys
from chalicelib.core.table.writes import Item

PAGE_OFFSETS = 128
"""Messages whose notes are read together. A call about more of them writes more notes."""

_ID_CHARS = 8

_log = logging.getLogger("decant")


@record
class Subject:
    """A delivery of a message: the group by name and id, in a broadcast group the hash of its consumer, else empty."""

    group: str
    group_id: str
    consumer: str
    queue: int
    offset: int
    attempt: int


@record
class Event:
    """`by`: the `consumer_id` of a pop. `until_ms`: of a lease. `reason`: of a nack or a bury. `caller`: who made the
    call; empty where nobody was asked."""

    name: str
    at_ms: int
    group_id: str
    consumer: str
    attempt: int
    mask: int
    by: str
    until_ms: int | None
    reason: str
    caller: str

    @classmethod
    def of(cls, item: Item) -> Event:
        about = (item["gid"], item["consumer"], item["attempt"], int.from_bytes(item["offsets"], "little"))
        more = (item.get("by", ""), item.get("until"), item.get("reason", ""), item.get("caller", ""))
        return cls(item["event"], keys.noted_at(item["sk"]), *about, *more)

    @property
    def order(self) -> tuple[int, int, bool, bool]:
        """By time; within a millisecond as it can only have been."""
        return self.at_ms, self.attempt, self.name != "popped", self.name != "extended"

    def is_about(self, offset: int) -> bool:
        return bool(self.mask >> offset % PAGE_OFFSETS & 1)


class Events:
    def __init__(self, env: Env) -> None:
        self._store, self._runtime = env.store, env.runtime

    def popped(self, topic: Topic, subjects: Sequence[Subject], consumer_id: str | None, until_ms: int) -> None:
        """A pop has leased messages of a topic with `trace`."""
        self._note(topic, "popped", subjects, until=until_ms, by=consumer_id)

    def settled(
        self,
        name: str,
        topic: Topic,
        group: str,
        receipts: Iterable[tuple[ReceiptBatch, Receipt]],
        **about: Any,
    ) -> None:
        """A call has carried out something by these receipts. `about`: what the note says further."""
        subjects = [
            Subject(group, receipt.group_id, receipt.consumer, receipt.queue, receipt.offset, batch.attempt(receipt))
            for batch, receipt in receipts
        ]
        self._note(topic, name, subjects, **about)

    def _note(self, topic: Topic, event: str, subjects: Sequence[Subject], **about: Any) -> None:
        if not (topic.trace and subjects):
            return
        try:
            with deadline.within(self._runtime.uptime() + HOP_MS_MIN):
                self._store.put_all(self._items(topic, event, subjects, about))
        except StoreUnavailable:
            pass
        except Exception:  # noqa: BLE001 - a note must not fail what it tells of
            _log.exception("what happened to messages of topic %s was not noted", topic.name)

    def _items(self, topic: Topic, event: str, subjects: Sequence[Subject], about: Mapping[str, Any]) -> list[Item]:
        """One for the messages that lie near each other and have the same attempt."""
        now, together = self._runtime.now(), dict[tuple[int, int, int], list[Subject]]()
        for subject in subjects:
            together.setdefault((subject.queue, subject.offset // PAGE_OFFSETS, subject.attempt), []).append(subject)
        told = {name: value for name, value in {**about, "caller": callers.current().name}.items() if value}
        common = {"event": event, "ttl": topic.ttl(now), **told}
        return [
            {
                **keys.event(topic.id, queue, page, now, self._runtime.name(_ID_CHARS))._asdict(),
                **common,
                "group": own[0].group,
                "gid": own[0].group_id,
                "consumer": own[0].consumer,
                "attempt": attempt,
                "offsets": mark(b"", {subject.offset % PAGE_OFFSETS for subject in own}),
            }
            for (queue, page, attempt), own in together.items()
        ]
