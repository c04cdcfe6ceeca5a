"""Group commit: calls of one process that append to the same queue at the same time go together, as one entry.

While an append to a queue is under way, others that come for it wait, and the next append takes all of them. There is
no timer, so a lone caller waits for nobody and pays nothing. Messages that go together share one payload and one
pointer, and calls of one process never refuse each other."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple

from chalicelib.core.base import deadline
from chalicelib.core.base.errors import StoreUnavailable, TopicNotFound
from chalicelib.core.base.limits import BATCH_MESSAGES_MAX, BODY_BYTES_MAX, SECOND_MS
from chalicelib.core.base.message import Message
from chalicelib.core.base.records import mutable
from chalicelib.core.base.runtime import Bell, Runtime
from chalicelib.core.catalogue.topic import Topic

DEADLINES_APART_MS_MAX = SECOND_MS
"""Calls go together if their deadlines differ by no more, and by no more than half of the time that the one which leads
has left: it appends within its own."""


class Written(NamedTuple):
    """`first`: the entry's first offset, or why it was not stored."""

    entry_id: bytes
    first: int | StoreUnavailable


class Share(NamedTuple):
    """The outcome for the messages of one call. `begins_at`: the index of the first in the entry."""

    written: Written
    begins_at: int = 0


CommitKey = tuple[str, int, bool]
"""A log, the version of the topic, and whether the messages may go to another queue: how long an append tries depends
on that."""


@mutable
class _Call:
    messages: Sequence[Message]
    until_ms: int
    bell: Bell | None = None
    leads: bool = False
    share: Share | TopicNotFound | None = None

    @property
    def body_bytes(self) -> int:
        return sum(message.body_bytes for message in self.messages)


class GroupCommit:
    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._lock = threading.Lock()
        self._lines: dict[CommitKey, list[_Call]] = {}
        """The calls that wait for each append under way, in the order in which they came."""

    def append(
        self,
        topic: Topic,
        queue: int,
        messages: Sequence[Message],
        write: Callable[[Sequence[Message]], Written],
        may_leave: bool,
    ) -> Share:
        """Stores the messages by this `write`, or by that of another call which takes them along. Each call waits
        within its own deadline. Raises TopicNotFound."""
        if not self._runtime.make_bell:  # nothing could end a wait
            return Share(write(messages))
        place = (topic.logs[queue], topic.version, may_leave)
        call = _Call(messages, deadline.give_up_at_ms(self._runtime.uptime()))
        self._come(place, call)
        while not call.leads and call.share is None:
            self._wait(place, call)
        if call.leads:
            self._lead(place, call, write)
        if isinstance(call.share, TopicNotFound):
            raise TopicNotFound(call.share.detail)
        share = call.share or Share(_in_doubt())
        first = share.written.first
        if not isinstance(first, StoreUnavailable) or first.outcome_unknown:
            deadline.has_written()
        return share

    def _come(self, place: CommitKey, call: _Call) -> None:
        with self._lock:
            call.leads = place not in self._lines
            if call.leads:
                self._lines[place] = []
            else:
                call.bell = self._runtime.bell()
                self._lines[place].append(call)

    def _wait(self, place: CommitKey, call: _Call) -> None:
        """Returns once something has changed for this call, or its time is over."""
        now = self._runtime.uptime()
        with self._lock:
            if call.leads or call.share:
                return
            is_in_line = call in self._lines.get(place, ())
            until_ms = deadline.give_up_at_ms(now, in_doubt=not is_in_line)
            if now > until_ms:
                call.share = Share(self._given_up(place, call) if is_in_line else _in_doubt())
                return
        if call.bell:
            call.bell.wait(until_ms + 1 - now)

    def _given_up(self, place: CommitKey, call: _Call) -> Written:
        self._lines[place].remove(call)
        return Written(b"", StoreUnavailable("other appends to this queue take too long"))

    def _lead(self, place: CommitKey, call: _Call, write: Callable[[Sequence[Message]], Written]) -> None:
        """Appends for all that wait by now, and hands the lead on."""
        with self._lock:
            together = [call, *self._taken_along(place, call)] if self._lines[place] else [call]
        outcome: Written | TopicNotFound | None = None
        try:
            outcome = write([message for each in together for message in each.messages])
        except TopicNotFound as gone:
            outcome = gone
        finally:  # whatever else ended this call, the messages of the others may be stored
            with self._lock:
                _tell(together, outcome or _in_doubt())
                heir = self._heir(place)
            for told in (*together[1:], *heir):
                if told.bell:
                    told.bell.ring()

    def _taken_along(self, place: CommitKey, leader: _Call) -> list[_Call]:
        """Those that wait for this append to begin, as many as one entry takes."""
        taken: list[_Call] = []
        now = self._runtime.uptime()
        count, size = len(leader.messages), leader.body_bytes
        for call in self._lines[place]:
            if call.until_ms < now or not self._fit(leader, call, now):
                continue
            count, size = count + len(call.messages), size + call.body_bytes
            if count > BATCH_MESSAGES_MAX or size > BODY_BYTES_MAX:
                break
            taken.append(call)
        self._lines[place] = [call for call in self._lines[place] if call not in taken]
        return taken

    def _fit(self, leader: _Call, call: _Call, now: int) -> bool:
        """Whether the leader has time enough for a call with this deadline: its own may be a little earlier."""
        later_ms = call.until_ms - leader.until_ms
        return abs(later_ms) <= DEADLINES_APART_MS_MAX and later_ms <= (leader.until_ms - now) // 2

    def _heir(self, place: CommitKey) -> list[_Call]:
        """The call that leads next, if any waits."""
        if line := self._lines[place]:
            heir = line.pop(0)
            heir.leads = True
            return [heir]
        del self._lines[place]
        return []


def _tell(together: Sequence[_Call], outcome: Written | TopicNotFound) -> None:
    begins_at = 0
    for call in together:
        call.share = outcome if isinstance(outcome, TopicNotFound) else Share(outcome, begins_at)
        begins_at += len(call.messages)


def _in_doubt() -> Written:
    return Written(b"", StoreUnavailable("the append of these messages has not ended", outcome="unknown"))
