"""The answers that a pop may give, and the state it leaves: the one judge of pops."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from chalicelib.core.catalogue.group import BY_RECEIPT
from tests.model.cursor import Cursor, Hold, Ticket, line_of
from tests.model.group import Group
from tests.model.model import Model, progress
from tests.model.topic import Topic
from tests.model.values import Json

UNCERTAIN = dict.fromkeys(("oldest_ready_at_ms", "last_pop_at_ms", "last_consumer_id"))


@dataclass(frozen=True)
class Asked:
    """A pop, asked at `now`. `name`: the consumer and its attempt, if it gave one."""

    max_messages: int
    invisible_ms: int
    consumer_id: str | None
    name: tuple[str | None, str] | None
    wait_ms: int
    fill: bool
    now: int

    @classmethod
    def by(cls, fields: Json, group: Group, now: int) -> Asked:
        """By the fields of its request."""
        consumer_id, attempt_id = fields.get("consumer_id"), fields.get("attempt_id")
        invisible_ms = fields.get("invisible_ms")
        return cls(
            fields["max_messages"],
            group.settings["invisible_ms"] if invisible_ms is None else invisible_ms,
            consumer_id,
            (consumer_id, attempt_id) if attempt_id else None,
            fields.get("wait_ms", 0),
            fields.get("fill", False),
            now,
        )


class Pop:
    """Judges the answer to one pop and applies it. In queues that gave nothing it may have buried what was delivered
    often enough, and passed what nobody gets, which only the group's progress tells: `seen`, after the pop."""

    def __init__(self, model: Model, topic: Topic, group: Group, asked: Asked) -> None:
        self.model, self.topic, self.group, self.asked = model, topic, group, asked
        self.now = asked.now

    # -- repeats ------------------------------------------------------------------------------------------------------

    def held(self) -> dict[tuple[int, int], Hold]:
        """The messages that the same attempt still holds, by queue and offset."""
        if self.asked.name is None:
            return {}
        held = {queue: cursor.held_by(self.asked.name, self.now) for queue, cursor in enumerate(self.group.cursors)}
        places = [(queue, offset) for queue, own in held.items() for offset in self._in_order(queue, own)]
        return {place: self._cursor(place[0]).holds[place[1]] for place in places}

    def judge_repeat(self, held: dict[tuple[int, int], Hold], messages: list[Json]) -> None:
        """A repeat gets what it holds, with the same receipts."""
        assert [(stored["queue"], stored["offset"]) for stored in messages] == list(held)
        for message in messages:
            hold = held[message["queue"], message["offset"]]
            assert message["receipt"] == hold.receipt or self.group.settings["settle_by"] != BY_RECEIPT
            self._judge_message(message, hold)

    # -- how much it brings -------------------------------------------------------------------------------------------

    def judge(self, answer: Json, now: int, seen: Json) -> None:
        """`now`: when it was answered."""
        self.now, messages = now, answer["messages"]
        limits = {name: value for name, value in answer.items() if name not in ("messages", "acked", "failed")}
        if self.group.settings["paused"]:
            assert (messages, limits, now) == ([], {"paused": True}, self.asked.now)
            return
        if messages:
            self._judge_taken(messages, limits, seen)
        else:
            self._judge_empty(limits, seen)

    def _judge_taken(self, messages: list[Json], limits: Json, seen: Json) -> None:
        """Messages come from one queue, or to fill up from several: as many as are ready, the cap leaves room for, and
        the rate allows."""
        by_queue: dict[int, list[Json]] = {}
        for message in messages:
            by_queue.setdefault(message["queue"], []).append(message)
        assert self.asked.fill or len(by_queue) == 1
        left, permits, is_slowed, is_capped = self.asked.max_messages, self._permits(), False, False
        others = [queue for queue in range(self.topic.readers) if queue not in by_queue]
        waiting = {queue: self._sure(queue, left) for queue in others}
        may_be = self._is_full_before_the_unwanted() or (self.asked.fill and any(waiting.values()))
        for queue, own in by_queue.items():
            room, ready = self._room(queue), len(self._sure(queue, left))
            wanted = min(room, left, ready)
            is_slowed = is_slowed or permits < wanted
            is_capped = is_capped or room < min(left, ready)
            may_be = may_be or (len(own) == room and bool(self._unwanted(self._cursor(queue), queue)))
            self._take(queue, own, left, min(left, room, permits), seen["queues"][queue]["next_offset"])
            left, permits = left - len(own), permits - len(own)
        if self.group.rate:
            self.group.window.take(len(messages), self.group.rate, self.now)
        if self.asked.fill and left:
            self._demand_nothing(waiting)
            is_capped = is_capped or any(waiting.values())
        self._judge_limits(limits, is_slowed, is_capped, may_be)
        for queue in others:
            self._perhaps_looked(queue, seen["queues"][queue], is_sure=False)

    def _judge_empty(self, limits: Json, seen: Json) -> None:
        assert self.now == self.asked.now + self.asked.wait_ms
        waiting = {queue: self._sure(queue, self.asked.max_messages) for queue in range(self.topic.readers)}
        is_slowed = not self._permits() and any(ready[: self._room(queue)] for queue, ready in waiting.items())
        if not is_slowed:
            self._demand_nothing(waiting)
        if self.topic.is_known_to_delay(self.model.caller, self.now):
            assert limits or not self.topic.due(self.now), "something was due"
        self._judge_limits(limits, is_slowed, any(waiting.values()), self._is_full_before_the_unwanted())
        for queue in waiting:  # in an ordered group, a queue whose dead wait for others is left alone
            is_sure = not self.group.ordered and not is_slowed
            self._perhaps_looked(queue, seen["queues"][queue], is_sure)

    def _permits(self) -> int:
        rate = self.group.rate
        return self.group.window.left(rate, self.now) if rate else self.asked.max_messages

    def _room(self, queue: int) -> int:
        """How many messages the pop may take of this queue."""
        room: int = self.group.settings["max_in_flight"] - self._cursor(queue).in_flight(self.now)
        return max(0, min(self.asked.max_messages, room))

    def _demand_nothing(self, waiting: dict[int, list[int]]) -> None:
        for queue, ready in waiting.items():
            assert not ready[: self._room(queue)], f"something was ready in queue {queue}: {ready}"

    def _judge_limits(self, limits: Json, is_slowed: bool, is_capped: bool, may_be_capped: bool) -> None:
        if is_slowed and self.group.rate:
            wait_ms = self.group.window.end_ms(self.group.rate) - self.now
            assert limits == {"limited": "rate", "retry_after_ms": wait_ms}
        elif limits or not may_be_capped:
            assert limits == ({"limited": "in_flight"} if is_capped or may_be_capped else {})
        else:
            assert not is_capped

    def _is_full_before_the_unwanted(self) -> bool:
        """Whether a cap keeps the pop from looking at messages of which none would come."""
        queues = range(self.topic.readers)
        return any(self._unwanted(self._cursor(queue), queue) and not self._room(queue) for queue in queues)

    # -- the messages that come ---------------------------------------------------------------------------------------

    def _take(self, queue: int, messages: list[Json], look: int, want: int, end: int) -> None:
        """`look`: how far it looks. `end`: where the pop has got to."""
        cursor, given = self._cursor(queue), {message["offset"]: message for message in messages}
        for offset in self.model.doomed(self.group, queue, self.now):
            self.model.bury(self.topic, self.group, (queue, offset), self.now, from_ms=self.asked.now)
        taken: list[int] = []
        left_out, is_over = self._left_in_pages(cursor, [*given]), False
        while not is_over and len(taken) < want:
            unwanted = self._unwanted(cursor, queue)
            batch = self._batch(cursor, queue, look - len(taken), want - len(taken), [*taken, *left_out])
            if cursor.next < end < len(self.topic.logs[queue]) and self.topic.may_be_gone(queue, end, self.now):
                batch = [offset for offset in batch if offset < end]  # it is the end, by what the instance has cached
            is_over = all(offset in given or offset in unwanted for offset in batch)
            for offset in batch:
                self._take_one(cursor, queue, offset, given, unwanted)
            taken += [offset for offset in batch if offset in given]
        assert [message["offset"] for message in messages] == self._in_order(queue, taken)
        self._pass_as_seen(cursor, queue, end)
        cursor.last_pop_at_ms, cursor.last_consumer_id = self.now, self.asked.consumer_id

    def _left_in_pages(self, cursor: Cursor, given: list[int]) -> list[int]:
        """While others that are due again are enough, retries that are due in a page may wait."""
        if not self.model.is_small or cursor.by_key or max(given) not in cursor.holds:
            return []
        due = [offset for offset in cursor.due(self.now) if offset < max(given) and offset not in given]
        return [offset for offset in due if not cursor.holds[offset].receipt]

    def _take_one(
        self, cursor: Cursor, queue: int, offset: int, given: dict[int, Json], unwanted: Collection[int]
    ) -> None:
        if self._lives(cursor, queue, offset):
            assert offset in given, (offset, sorted(given), cursor)
        if offset in given:
            assert not self._ends(cursor, queue, offset)
            self._lease(cursor, given[offset], unwanted)
        else:
            cursor.skip(offset)

    def _lease(self, cursor: Cursor, message: Json, unwanted: Collection[int]) -> None:
        offset, receipt, until_ms = message["offset"], message["receipt"], self.now + self.asked.invisible_ms
        assert receipt not in self.model.tickets
        hold = Hold(until_ms, cursor.attempts_of(offset) + 1, receipt, self.asked.name, receipt)
        cursor.take(offset, hold, unwanted)
        self._judge_message(message, hold)
        whose = {"consumer_id": self.asked.consumer_id} if self.asked.consumer_id else {}
        event = {"event": "popped", "at_ms": self.now, "attempt": hold.attempt, "invisible_until_ms": until_ms, **whose}
        self.model.note(self.topic, self.group, (message["queue"], offset), event)

    def _judge_message(self, message: Json, hold: Hold) -> None:
        queue, offset, receipt = message["queue"], message["offset"], message["receipt"]
        lease = {"attempt": hold.attempt, "invisible_until_ms": hold.until_ms, "receipt": receipt}
        assert message == {**self.topic.logs[queue][offset], **lease}
        place = self.group.id, queue, self._cursor(queue).epoch, offset
        self.model.tickets.setdefault(receipt, Ticket(*place, hold.until_ms, hold.delivery, hold.attempt))

    def _batch(self, cursor: Cursor, queue: int, look: int, want: int, besides: Collection[int]) -> list[int]:
        """The messages that one claim takes or passes, in its order."""
        log, unwanted = self.topic.logs[queue], self._unwanted(cursor, queue)
        if cursor.by_key:
            others = cursor.copied()  # a message of the same answer holds up no other
            others.holds = {offset: hold for offset, hold in cursor.holds.items() if offset not in besides}
            return self._first(cursor, queue, others.in_turn(self.now, log, {*unwanted, *besides}, look), want)
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

    def _in_order(self, queue: int, taken: list[int]) -> list[int]:
        """As in an answer: by offset; in a group ordered by key, key by key in the order of their turns or, with an
        attempt, of their first messages."""
        if not self._cursor(queue).by_key:
            return sorted(taken)
        by_line: dict[str | int, list[int]] = {}
        for offset in sorted(taken) if self.asked.name else taken:
            by_line.setdefault(line_of(self.topic.logs[queue], offset), []).append(offset)
        return [offset for own in by_line.values() for offset in sorted(own)]

    # -- the messages that do not come --------------------------------------------------------------------------------

    def _sure(self, queue: int, look: int) -> list[int]:
        """The messages that a look into the queue finds for sure."""
        cursor = self._cursor(queue)
        besides = {*self.model.doomed(self.group, queue, self.now), *self._unwanted(cursor, queue)}
        ready = cursor.in_turn(self.now, self.topic.logs[queue], besides, look)
        return [offset for offset in ready if self._lives(cursor, queue, offset)]

    def _unwanted(self, cursor: Cursor, queue: int) -> set[int]:
        """The messages ahead that are passed."""
        filtered, first = self.group.unwanted(queue, self.topic.logs[queue]), self.topic.first(queue, self.now)
        return {
            offset
            for offset in range(cursor.next, len(self.topic.logs[queue]))
            if offset < first or offset in filtered or self.topic.has_ended(queue, offset, self.now)
        }

    def _ends(self, cursor: Cursor, queue: int, offset: int) -> bool:
        """Whether nobody gets the message any more. Once it was taken, or was dead, only its own time counts."""
        if offset >= cursor.next and offset in self._unwanted(cursor, queue):
            return True
        is_new = offset >= cursor.next or offset in cursor.aside
        has_expired = is_new and self.topic.has_expired(queue, offset, self.now)
        return has_expired or self.topic.has_ended(queue, offset, self.now)

    def _lives(self, cursor: Cursor, queue: int, offset: int) -> bool:
        """Whether it is delivered for sure: a retry whose message may be removed is not."""
        return not self._ends(cursor, queue, offset) and not self.topic.may_be_gone(queue, offset, self.now)

    def _perhaps_looked(self, queue: int, seen: Json, is_sure: bool) -> None:
        """The pop has got nothing here. It has buried the doomed, and passed all if there is nothing else; or it has
        not looked, unless `is_sure`. While a pop waits, messages become doomed one after another."""
        cursor, doomed = self._cursor(queue), self.model.doomed(self.group, queue, self.now)
        counts = range(len(doomed) + 1) if self.asked.wait_ms else (0, len(doomed))
        ways = (False,) if self._sure(queue, self.asked.max_messages) else (True,) if is_sure else (False, True)
        for count in counts if not is_sure else (len(doomed),):
            for is_through in ways:
                looked = cursor.copied()
                for offset in doomed[:count]:
                    looked.leave(offset)
                left, end = doomed[count:], seen["end_offset"]
                passed = self._batch(looked, queue, end, end, left) if is_through else []
                for offset in passed:
                    looked.skip(offset)
                self._pass_as_seen(looked, queue, seen["next_offset"])
                known = progress(self.topic, looked, queue, self.now)
                if {**known, **UNCERTAIN} == {**seen, **UNCERTAIN}:
                    self._has_looked(queue, doomed[:count], looked, bool(passed), seen)
                    return

    def _has_looked(self, queue: int, buried: list[int], looked: Cursor, has_passed: bool, seen: Json) -> None:
        cursor = self._cursor(queue)
        for offset in buried:
            self.model.bury(self.topic, self.group, (queue, offset), self.now, from_ms=self.asked.now)
        if has_passed or looked.next > cursor.next:
            assert self.asked.now <= seen["last_pop_at_ms"] <= self.now
            cursor.last_pop_at_ms, cursor.last_consumer_id = seen["last_pop_at_ms"], self.asked.consumer_id
        cursor.next, cursor.aside, cursor.moves = looked.next, looked.aside, looked.moves
        cursor.holds = {offset: hold for offset, hold in cursor.holds.items() if offset in looked.holds}

    def _pass_as_seen(self, cursor: Cursor, queue: int, end: int) -> None:
        """A pop passes the messages that nobody gets as far as it looks."""
        passed = range(cursor.next, end)
        if passed and self._unwanted(cursor, queue).issuperset(passed):
            cursor.next = passed.stop

    def _cursor(self, queue: int) -> Cursor:
        return self.group.cursors[queue]
