"""The answers of a pop where messages end: none is delivered from its end on, and every group settles it when a pop
passes it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.model.cursor import Cursor, Hold, Ticket
from tests.model.model import Group, Json, Model, Topic
from tests.model.popping import Asked

LOOKS_AGAIN_MS = 1_500
"""A waiting pop sees so late at most what another instance has stored meanwhile."""


@dataclass
class MortalTopic(Topic):
    """`id` names one incarnation. `ends`: by queue and offset, from when a message is not delivered any more."""

    id: int = -1
    ends: dict[tuple[int, int], int] = field(default_factory=dict)

    def lives(self, queue: int, offset: int, now: int) -> bool:
        end = self.ends.get((queue, offset))
        return end is None or now < end


class Passing:
    """Judges the answer to one pop and applies it. `known`: where each log ended when it was asked; what comes later
    must not end while it waits. `is_told`: whether it hears at once of what is stored meanwhile. `doubtful`: the queues
    with messages that have ended, which it may have passed or not: only the group's progress tells."""

    def __init__(
        self, model: Model, topic: MortalTopic, group: Group, asked: Asked, known: list[int], is_told: bool
    ) -> None:
        self.model = model
        self.topic = topic
        self.group = group
        self.asked = asked
        self.known = known
        self.is_told = is_told
        self.doubtful: dict[int, int] = {}

    def judge(self, messages: list[Json], now: int) -> None:
        """`now`: when it was answered."""
        self._judge_instant(bool(messages), now)
        for instant in self._looks(now):
            for queue in self._queues():
                self._pass_all(queue, instant, self.known[queue])
        if messages:
            self._take(messages, now)
            return
        for queue in self._queues():
            self._pass_all(queue, now, self._end(queue))

    def settle_doubt(self, seen: Json) -> None:
        """`seen`: the group's progress."""
        for queue, now in self.doubtful.items():
            ready = self._cursor(queue).ready(now, self._end(queue))
            if seen["queues"][queue]["ready"] != len(ready):
                self._pass_all(queue, now, self._end(queue))

    # -- when it is answered ------------------------------------------------------------------------------------------

    def _judge_instant(self, has_messages: bool, now: int) -> None:
        end = self.asked.now + self.asked.wait_ms
        known = min((at_ms for at_ms, is_known in self._chances() if is_known), default=end + 1)
        other = min((at_ms for at_ms, is_known in self._chances() if not is_known), default=end + 1)
        if not has_messages:
            assert now == end, "it waits as long as it was asked"
            assert min(known, other) > end, "something was ready"
        elif other < known:
            assert other <= now <= min(other + LOOKS_AGAIN_MS, known, end)
        else:
            assert now == known

    def _chances(self) -> Iterator[tuple[int, bool]]:
        """When each message could be taken, and whether the pop knows of it then."""
        for queue, cursor in enumerate(self.group.cursors):
            log = self.topic.logs[queue]
            free_ms = self._free_at_ms(cursor)
            since = {offset: (max(hold.until_ms, free_ms), True) for offset, hold in cursor.holds.items()}
            for offset in range(cursor.next, len(log)):
                at_ms = max(log[offset]["stored_at_ms"], free_ms)
                since[offset] = at_ms, self.is_told or offset < self.known[queue] or at_ms == free_ms > self.asked.now
            for offset, (at_ms, is_known) in since.items():
                if self.topic.lives(queue, offset, at_ms):
                    yield at_ms, is_known

    def _free_at_ms(self, cursor: Cursor) -> int:
        """From when on the pop can take something of the queue: in an ordered group, once nothing holds it up."""
        untils = [hold.until_ms for hold in cursor.holds.values()] if self._is_ordered else []
        return max([self.asked.now, *untils])

    def _is_held(self, cursor: Cursor, now: int) -> bool:
        return self._is_ordered and any(hold.until_ms > now for hold in cursor.holds.values())

    @property
    def _is_ordered(self) -> bool:
        return bool(self.group.settings["ordered"])

    def _looks(self, now: int) -> list[int]:
        """The instants before this one at which the pop has looked for what it knows of, and found nothing to take."""
        untils = {hold.until_ms for cursor in self.group.cursors for hold in cursor.holds.values()}
        return sorted(instant for instant in {self.asked.now, *untils} if self.asked.now <= instant < now)

    # -- what it does -------------------------------------------------------------------------------------------------

    def _take(self, messages: list[Json], now: int) -> None:
        [queue] = {message["queue"] for message in messages}
        cursor, given = self._cursor(queue), {message["offset"]: message for message in messages}
        taken: list[int] = []
        while len(taken) < self.asked.max_messages and not self._is_held(cursor, now):
            offsets = self._batch(queue, self.asked.max_messages - len(taken), taken, now)
            for offset in offsets:
                if self.topic.lives(queue, offset, now):
                    assert offset in given
                    self._lease(queue, given[offset], now)
                    taken.append(offset)
                else:
                    _pass(cursor, offset)
            if not offsets:
                break
        assert [message["offset"] for message in messages] == sorted(taken)
        self._note_pop(cursor, now)
        self.doubtful = {other: now for other in self._queues() if other != queue and self._is_over(other, now)}

    def _batch(self, queue: int, want: int, besides: list[int], now: int) -> list[int]:
        """What one claim takes or passes, in order: so many that were taken before, whether they have ended or not;
        and if these are all, so many that were not and have not, and those before them."""
        cursor = self._cursor(queue)
        due = [offset for offset in cursor.due(now) if offset not in besides]
        batch, left = due[:want], want - len(due)
        for offset in range(cursor.next, self._end(queue)):
            if left <= 0:
                break
            batch.append(offset)
            left -= self.topic.lives(queue, offset, now)
        return batch

    def _lease(self, queue: int, message: Json, now: int) -> None:
        offset, receipt, cursor = message["offset"], message["receipt"], self._cursor(queue)
        assert receipt not in self.model.tickets
        until_ms, attempt = now + self.asked.invisible_ms, cursor.attempts_of(offset) + 1
        lease = {"attempt": attempt, "invisible_until_ms": until_ms, "receipt": receipt}
        assert message == {**self.topic.logs[queue][offset], **lease}
        cursor.take(offset, Hold(until_ms, attempt, receipt, delivery=receipt))
        place = (self.group.id, queue, cursor.epoch, offset)
        self.model.tickets[receipt] = Ticket(*place, until_ms, receipt)

    def _pass_all(self, queue: int, now: int, end: int) -> None:
        """Settles what is ready before this offset. All of it has ended."""
        cursor = self._cursor(queue)
        ready = [] if self._is_held(cursor, now) else cursor.ready(now, end)
        for offset in ready:
            _pass(cursor, offset)
        if ready:
            self._note_pop(cursor, now)

    def _is_over(self, queue: int, now: int) -> bool:
        """Whether there is something ready, and all that a pop can take has ended."""
        ready = self._cursor(queue).ready(now, self._end(queue))
        is_held = self._is_held(self._cursor(queue), now)
        return bool(ready) and not is_held and not any(self.topic.lives(queue, offset, now) for offset in ready)

    def _note_pop(self, cursor: Cursor, now: int) -> None:
        cursor.last_pop_at_ms, cursor.last_consumer_id = now, self.asked.consumer_id

    def _queues(self) -> range:
        return range(len(self.group.cursors))

    def _end(self, queue: int) -> int:
        return len(self.topic.logs[queue])

    def _cursor(self, queue: int) -> Cursor:
        return self.group.cursors[queue]


def _pass(cursor: Cursor, offset: int) -> None:
    if cursor.holds.pop(offset, None):
        cursor.moves += 1
    cursor.next = max(cursor.next, offset + 1)
