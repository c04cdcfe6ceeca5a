"""Bugs planted into what becomes of expired messages."""

from __future__ import annotations

from itertools import takewhile
from typing import Any
from unittest.mock import patch

from chalicelib.core.base.message import Stored
from chalicelib.core.catalogue.topic import Topic
from chalicelib.core.consuming import delivery
from chalicelib.core.log import reader
from chalicelib.core.log.segment import Segment
from chalicelib.core.upkeep import expiry
from tests.simulation.mutants import planted


@planted
def trims_of_the_last_segment() -> Any:
    """A segment goes though it is not full, and though there is none after it."""

    def expired(items: Any, gone_ms: int) -> Any:
        return [
            *takewhile(lambda item: all(entry.stored_at_ms <= gone_ms for entry in Segment.of(item).entries), items)
        ]

    return patch.object(expiry, "expired_segments", expired)


@planted
def trims_of_what_can_be_read() -> Any:
    """A segment goes when its messages are half as old as they may get."""
    return patch.object(Topic, "gone_ms", lambda self, now: now - self.retention_ms // 2)


@planted
def ttls_that_nobody_looks_at() -> Any:
    """A message is delivered for as long as it is retained."""
    return patch.object(Stored, "has_expired", lambda *_: False)


@planted
def spent_messages_that_stay() -> Any:
    """A message that is not delivered any more is not settled either."""
    return patch.object(delivery.Deliverer, "ack_expired", lambda *_: None)


@planted
def a_missing_head_taken_for_the_end() -> Any:
    """Where the beginning of a log is gone, its readers see nothing."""
    return patch.object(reader.LogReader, "may_begin_later", lambda *_: False)
