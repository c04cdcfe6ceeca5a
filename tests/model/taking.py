"""The answers of a pop where messages end or expire, by every rule of order, and the state it leaves."""

from __future__ import annotations

from collections.abc import Collection

from tests.model.cursor import Cursor, Hold, Ticket, line_of
from tests.model.lasting_topic import LastingTopic, moved_cursor, progress
from tests.model.model import Group, Json, Model
from tests.model.popping import Asked


class Taking:
    """Judges the answer to one pop, which does not wait, and applies it. It takes from one queue. On its way it may
    have passed what nobody gets in queues that have nothing else, which only the group's progress tells."""

    def __init__(self, model: Model, topic: LastingTopic, group: Group, asked: Asked) -> None:
        self.model = model
        self.topic = topic
        self.group = group
        self.asked = asked
        self.now = asked.now

    def judge(self, messages: list[Json], seen: Json) -> None:
        """`seen`: the group's progress after it."""
        taken_from = {message["queue"] for message in messages}
        assert len(taken_from) <= 1
        for queue in range(self.topic.readers):
            if queue in taken_from:
                self._take(queue, self._cursor(queue), messages, seen["queues"][queue]["next_offset"])
                self._pass_as_seen(self._cursor(queue), queue, seen)
            elif self._has_something(queue):
                assert messages, "something was ready"
            else:
                self._visit(queue, seen["queues"][queue], is_sure=not messages and not self.group.settings["ordered"])

    # -- queues -------------------------------------------------------------------------------------------------------

    def _has_something(self, queue: int) -> bool:
        """Whether a pop that looks there gets something for sure."""
        cursor = moved_cursor(self._cursor(queue))
        self._bury(cursor)
        return any(self._lives(cursor, queue, offset) for offset in self._in_reach(cursor, queue))

    def _in_reach(self, cursor: Cursor, queue: int) -> list[int]:
        reach = len(self.topic.logs[queue]) + 1
        return self._batch(cursor, queue, reach, ())

    def _visit(self, queue: int, seen: Json, is_sure: bool) -> None:
        """Lets the pop pass all of a queue, if it did."""
        visited = moved_cursor(self._cursor(queue))
        self._take(queue, visited, [])
        self._pass_as_seen(visited, queue, {"queues": {queue: seen}})
        if is_sure or _is_as_seen(progress(self.topic, visited, queue, self.now), seen):
            self.group.cursors[queue] = visited

    def _pass_as_seen(self, cursor: Cursor, queue: int, seen: Json) -> None:
        """In a group ordered by key, a pop passes what nobody gets as far as it looks."""
        passed = range(cursor.next, seen["queues"][queue]["next_offset"])
        if cursor.by_key and passed:
            assert self._unwanted(cursor, queue).issuperset(passed)
            cursor.next = passed.stop
            self._note_pop(cursor)

    def _take(self, queue: int, cursor: Cursor, messages: list[Json], end: int | None = None) -> None:
        """`end`: where the pop that took them has got to."""
        given = {message["offset"]: message for message in messages}
        self._bury(cursor)
        taken: list[int] = []
        is_over = False
        while not is_over and len(taken) < self.asked.max_messages:
            batch = self._batch(cursor, queue, self.asked.max_messages - len(taken), taken)
            unwanted = self._unwanted(cursor, queue)
            if end is not None and self._may_stop(cursor, queue, end):
                batch = [offset for offset in batch if offset < end]
            is_over = all(offset in given or offset in unwanted for offset in batch)
            for offset in batch:
                self._take_one(cursor, queue, offset, given, unwanted)
            taken += [offset for offset in batch if offset in given]
        assert [message["offset"] for message in messages] == self._in_order(queue, taken)

    def _take_one(
        self, cursor: Cursor, queue: int, offset: int, given: dict[int, Json], unwanted: Collection[int]
    ) -> None:
        if self._lives(cursor, queue, offset):
            assert offset in given, (offset, sorted(given), cursor)
        if offset in given:
            assert not self._ends(cursor, queue, offset)
            self._lease(cursor, given[offset], unwanted)
        else:
            _pass(cursor, offset)
        self._note_pop(cursor)

    def _may_stop(self, cursor: Cursor, queue: int, end: int) -> bool:
        """Whether an instance may take this for the end of the log: behind what it has cached, all may be removed. Its
        next pop goes on."""
        is_inside = cursor.next < end < len(self.topic.logs[queue])
        return is_inside and self.topic.may_be_gone(queue, end, self.now)

    # -- messages -----------------------------------------------------------------------------------------------------

    def _batch(self, cursor: Cursor, queue: int, want: int, besides: Collection[int]) -> list[int]:
        """What one claim takes or passes, in its order."""
        log, unwanted = self.topic.logs[queue], self._unwanted(cursor, queue)
        if cursor.by_key:
            others = moved_cursor(cursor)  # what the same answer brings holds up no other
            others.holds = {offset: hold for offset, hold in cursor.holds.items() if offset not in besides}
            return self._first(cursor, queue, others.in_turn(self.now, log, {*unwanted, *besides}, want), want)
        if cursor.ordered and any(hold.until_ms > self.now for hold in cursor.holds.values()):
            return []
        batch = [offset for offset in cursor.due(self.now) if offset not in besides][:want]
        left = want - len(batch)
        for offset in range(cursor.next, len(log)):
            if left <= 0:
                break
            batch.append(offset)
            left -= offset not in unwanted
        return batch

    def _first(self, cursor: Cursor, queue: int, in_turn: list[int], want: int) -> list[int]:
        """So many, and before the last of these what was set aside and has expired."""
        first: list[int] = []
        for offset in in_turn:
            if want <= 0:
                break
            first.append(offset)
            want -= not (offset in cursor.aside and self.topic.has_expired(queue, offset, self.now))
        return first

    def _unwanted(self, cursor: Cursor, queue: int) -> set[int]:
        """What lies ahead and is passed."""
        log, now = self.topic.logs[queue], self.now
        filtered = self.group.unwanted(queue, log)
        return {
            offset
            for offset in range(cursor.next, len(log))
            if offset in filtered
            or self.topic.has_expired(queue, offset, now)
            or self.topic.has_ended(queue, offset, now)
        }

    def _ends(self, cursor: Cursor, queue: int, offset: int) -> bool:
        """Whether nobody gets the message any more. Once it was taken, or was dead, only its own time counts."""
        is_new = offset >= cursor.next or offset in cursor.aside
        if offset >= cursor.next and offset in self._unwanted(cursor, queue):
            return True
        has_expired = is_new and self.topic.has_expired(queue, offset, self.now)
        return has_expired or self.topic.has_ended(queue, offset, self.now)

    def _lives(self, cursor: Cursor, queue: int, offset: int) -> bool:
        """Whether it is delivered for sure: a retry whose message may be removed is not."""
        return not self._ends(cursor, queue, offset) and not self.topic.may_be_gone(queue, offset, self.now)

    def _lease(self, cursor: Cursor, message: Json, unwanted: Collection[int]) -> None:
        queue, offset, receipt = message["queue"], message["offset"], message["receipt"]
        assert receipt not in self.model.tickets
        until_ms, attempt = self.now + self.asked.invisible_ms, cursor.attempts_of(offset) + 1
        lease = {"attempt": attempt, "invisible_until_ms": until_ms, "receipt": receipt}
        assert message == {**self.topic.logs[queue][offset], **lease}
        cursor.take(offset, Hold(until_ms, attempt, receipt, delivery=receipt), unwanted)
        self.model.tickets[receipt] = Ticket(self.group.id, queue, cursor.epoch, offset, until_ms, receipt)

    def _in_order(self, queue: int, taken: list[int]) -> list[int]:
        """As in an answer: by offset; in a group ordered by key, key by key in the order of their turns."""
        if not self._cursor(queue).by_key:
            return sorted(taken)
        by_line: dict[str | int, list[int]] = {}
        for offset in taken:
            by_line.setdefault(line_of(self.topic.logs[queue], offset), []).append(offset)
        return [offset for own in by_line.values() for offset in sorted(own)]

    def _bury(self, cursor: Cursor) -> None:
        for offset in cursor.doomed(self.now, self.group.settings["max_attempts"]):
            cursor.bury(offset, self.now, self.now)

    def _note_pop(self, cursor: Cursor) -> None:
        cursor.last_pop_at_ms, cursor.last_consumer_id = self.now, self.asked.consumer_id

    def _cursor(self, queue: int) -> Cursor:
        return self.group.cursors[queue]


def _is_as_seen(known: Json, seen: Json) -> bool:
    """But for the time of the oldest, which may be removed."""
    return {**known, "oldest_ready_at_ms": None} == {**seen, "oldest_ready_at_ms": None}


def _pass(cursor: Cursor, offset: int) -> None:
    cursor.moves += cursor.holds.pop(offset, None) is not None
    cursor.aside.discard(offset)
    cursor.next = max(cursor.next, offset + 1)
