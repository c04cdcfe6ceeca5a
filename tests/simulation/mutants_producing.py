"""Bugs planted into what is stored once, and what waits."""

from __future__ import annotations

import dataclasses
from typing import Any
from unittest.mock import patch

from chalicelib.base.errors import StoreUnavailable
from chalicelib.delays import chain, decision, writer
from chalicelib.delays.decision import mark_cancelled
from chalicelib.log.segment import Segment
from chalicelib.log.writer import LogWriter
from chalicelib.producing import dedup, group_commit
from chalicelib.producing.dedup import Deduplication, Record, claim
from chalicelib.store import Keys, Range
from chalicelib.table import keys
from chalicelib.table.writes import RemoveItem, Write
from tests.simulation import world
from tests.simulation.mutants import planted, together
from tests.simulation.producers import short_times

# -- dedup ids --------------------------------------------------------------------------------------------------------


@planted
def dedup_ids_that_nobody_looks_up() -> Any:
    """Whoever comes takes the id."""
    return patch.object(
        dedup, "claim", lambda *args: dataclasses.replace(claim(*args), guards=(), landed=lambda _: False)
    )


@planted
def dedup_ids_noted_after_the_append() -> Any:
    """An id is looked up before the append, and taken after it."""
    claim_ids, append_entry = Deduplication.claim_ids, Deduplication.append_entry
    late: list[Any] = []

    def looked_up(self: Any, topic: Any, record: Record, sendings: Any) -> list[Any]:
        taken = []
        for sending in sendings:
            dedup_id = sending.message.dedup_id
            items = self._store.read([Keys([keys.dedup(topic.id, dedup_id or "")], strong=True)])[0]
            if dedup_id is not None and items and Record.of(items[0]).stands(self._runtime.now()):
                taken.append((sending, Record.of(items[0])))
        if not taken:
            late.append(lambda: claim_ids(self, topic, record, sendings))
        return taken

    def then_taken(self: Any, *args: Any, **more: Any) -> Any:
        done = append_entry(self, *args, **more)
        while late:
            late.pop()()
        return done

    return together(
        patch.object(Deduplication, "claim_ids", looked_up), patch.object(Deduplication, "append_entry", then_taken)
    )


@planted
def helpers_that_append_without_looking() -> Any:
    """Who meets a record appends its entry at the end of the log, wherever it lies already."""

    def complete(self: Any, topic: Any, record: Record) -> Any:
        tail = self._writer.tails.tail(topic, topic.logs[record.queue])
        at_the_end = dataclasses.replace(record, base=tail.base, may_create=tail.may_create)
        return self.append_entry(topic, at_the_end, others_may_help=True)

    return patch.object(Deduplication, "complete", complete)


@planted
def searches_past_an_open_segment() -> Any:
    """An entry is looked for in all that one read shows, also behind a segment that was open when it was read."""

    def search(self: Any, log: str, entry: Any, base: int) -> Any:
        segment = None
        for segment in self._segments(log, base):
            if (first := segment.offset_of(entry.id)) is not None:
                return first, segment
        return None, segment

    return patch.object(LogWriter, "search", search)


@planted
def jumps_over_what_another_appended() -> Any:
    """A refused writer looks for its entry in the next segment, and goes on at the end of the log."""

    def search(self: Any, log: str, entry: Any, base: int) -> Any:
        low = keys.segment(log, base).sk
        near, far = Range(log, low, keys.LAST, 2, strong=True), Range(log, low, keys.LAST, 1, True, True)
        *segments, last = [Segment.of(item) for items in self._store.read([near, far]) for item in items]
        found = [(first, each) for each in segments if (first := each.offset_of(entry.id)) is not None]
        return found[0] if found else (None, last)

    return patch.object(LogWriter, "search", search)


@planted
def jumps_over_an_open_question() -> Any:
    """A writer that does not know whether its entry is stored goes on at the end of the log."""
    true = LogWriter._first

    def first(self: Any, topic: Any, appending: Any, outcome: Any, may_leave: bool) -> Any:
        if isinstance(outcome, StoreUnavailable) and outcome.outcome_unknown:
            self.tails.doubt(appending.log)
            appending.setback = outcome
            return None
        return true(self, topic, appending, outcome, may_leave)

    return patch.object(LogWriter, "_first", first)


@planted
def helpers_that_do_not_help() -> Any:
    """Who meets a record says where its entry would go, and leaves it to the caller who may be dead."""

    def complete(self: Any, topic: Any, record: Record) -> int:
        first = self._writer.search(topic.logs[record.queue], record.entry, record.base)[0]
        return record.base if first is None else int(first)

    return patch.object(Deduplication, "complete", complete)


@planted
def dedup_ids_that_stand_for_a_second() -> Any:
    """An id is free again too soon."""
    true = dedup.claim

    def claim(topic_id: str, dedup_id: str, record: Record) -> Write:
        with patch.object(dedup, "DEDUP_MS", 1_000):
            return true(topic_id, dedup_id, record)

    return patch.object(dedup, "claim", claim)


# -- messages that wait -----------------------------------------------------------------------------------------------


@planted
def delays_in_plain_writes() -> Any:
    """What is due soon is stored by a write whose late repeat finds the item gone, and makes it anew."""

    def send(self: Any, writes: Any) -> Any:
        outcomes = zip(writes, self._store.write_each([*writes.values()]), strict=True)
        return {waiting: outcome for waiting, outcome in outcomes if isinstance(outcome, StoreUnavailable)}

    return patch.object(writer.DelayWriter, "send", send)


@planted
def cancels_that_leave_no_mark() -> Any:
    """A cancelled message is removed, and not remembered until it is due."""

    def removed(topic_id: str, queue: int, slot: decision.Slot) -> Write:
        marking = mark_cancelled(topic_id, queue, slot)
        return Write(marking.key, marking.guards, (RemoveItem(),))

    return patch.object(chain, "mark_cancelled", removed)


@planted
def decisions_that_nobody_carries_out() -> Any:
    """What a dead caller decided is left to it."""
    return patch.object(chain, "remaining", lambda *_: [])


@planted
def promotions_before_they_are_due() -> Any:
    """What is due in a while is delivered now."""
    true = chain.DecisionChain.standing
    return patch.object(
        chain.DecisionChain,
        "standing",
        lambda self, topic, queue, until_ms: true(self, topic, queue, until_ms + 600),
    )


@planted
def promotions_that_leave_no_way_to_late_ones() -> Any:
    """Who looks for a delivered message later goes by the order of the decisions alone."""
    return patch.object(chain.DecisionChain, "_find_late", lambda *_: None)


@planted
def promotions_that_begin_at_the_end() -> Any:
    """Who helps looks for the entry only where it believes the log to end."""

    def append_from(self: Any, topic: Any, queue: int, entry: Any, base: int) -> int:
        return int(self.append_at(topic, queue, entry, self.tails.tail(topic, topic.logs[queue])))

    return patch.object(LogWriter, "append_from", append_from)


@planted
def dedup_ids_for_a_minute() -> Any:
    """A message is stored again when that with its dedup id is older than a minute."""
    return patch.object(world, "short_times", lambda dedup_ms, late_ms: short_times(min(dedup_ms, 60_000), late_ms))


@planted
def groups_whose_first_message_is_everybodys() -> Any:
    """Calls that go together all take the index of the first message of the entry for their own."""
    true = group_commit.Share
    return patch.object(group_commit, "Share", lambda written, _begins_at=0: true(written))
