"""The answers a pop may give, and the state it leaves."""

from __future__ import annotations

from dataclasses import dataclass

from chalicelib.core.catalogue.group import BY_KEY, BY_RECEIPT
from tests.model.cursor import Cursor, Hold, Ticket, line_of
from tests.model.model import Group, Json, Model, Topic


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


def asked(fields: Json, group: Group, now: int) -> Asked:
    """A pop by the fields of its request."""
    consumer_id, attempt_id = fields.get("consumer_id"), fields.get("attempt_id")
    invisible_ms = fields.get("invisible_ms")
    return Asked(
        fields["max_messages"],
        group.settings["invisible_ms"] if invisible_ms is None else invisible_ms,
        consumer_id,
        (consumer_id, attempt_id) if attempt_id else None,
        fields.get("wait_ms", 0),
        fields.get("fill", False),
        now,
    )


class Pop:
    """Judges the answer to one pop and applies it. `doubtful`: of the queues that gave nothing, the messages that went
    to the dead letters if the pop looked there, which only the group's progress tells."""

    def __init__(self, model: Model, topic: Topic, group: Group, asked: Asked) -> None:
        self.model = model
        self.topic = topic
        self.group = group
        self.asked = asked
        self.doubtful: dict[int, list[int]] = {}

    def held(self) -> list[tuple[int, int]]:
        """The queues and offsets that the same attempt still holds."""
        name = self.asked.name
        if name is None:
            return []
        held = {queue: cursor.held_by(name, self.asked.now) for queue, cursor in enumerate(self.group.cursors)}
        return [(queue, offset) for queue, own in held.items() for offset in self._in_order(queue, own)]

    def judge_repeat(self, held: dict[tuple[int, int], Hold], messages: list[Json]) -> None:
        """A repeat gets what it holds, with the same receipts."""
        assert [(stored["queue"], stored["offset"]) for stored in messages] == list(held)
        for message in messages:
            hold = held[message["queue"], message["offset"]]
            assert message["receipt"] == hold.receipt or self.group.settings["settle_by"] != BY_RECEIPT
            self._note(message, hold)
            self._judge_message(message, hold)

    def judge(self, answer: Json, now: int) -> None:
        """`now`: when it was answered."""
        messages = answer["messages"]
        if self.group.settings["paused"]:
            assert (messages, answer.get("paused"), now) == ([], True, self.asked.now)
            return
        assert "paused" not in answer
        want = self.asked.max_messages
        waiting = [self._ready(cursor, queue, now, want) for queue, cursor in enumerate(self.group.cursors)]
        if messages:
            self._judge_taken(messages, waiting, "limited" in answer, now)
        else:
            self._judge_empty(waiting, "limited" in answer, now)

    def _judge_taken(self, messages: list[Json], waiting: list[list[int]], is_limited: bool, now: int) -> None:
        by_queue: dict[int, list[Json]] = {}
        for message in messages:
            by_queue.setdefault(message["queue"], []).append(message)
        left, others = self.asked.max_messages, [queue for queue in range(len(waiting)) if queue not in by_queue]
        assert self.asked.fill or len(by_queue) == 1
        is_capped = False
        may_be = self._is_full_before_what_is_unwanted(now)
        for queue, own in by_queue.items():
            cursor = self.group.cursors[queue]
            ready, room = self._ready(cursor, queue, now, left), self._room(cursor, now)
            assert [stored["offset"] for stored in own] == self._in_order(queue, ready[: min(left, room)])
            is_capped = is_capped or len(own) < min(left, len(ready))
            may_be = may_be or (len(own) == room and bool(self._unwanted(queue)))
            left -= len(own)
        if self.asked.fill and left:
            self._demand_nothing({queue: waiting[queue] for queue in others}, now)
            is_capped = is_capped or any(waiting[queue] for queue in others)
        may_be = may_be or (self.asked.fill and any(waiting[queue] for queue in others))  # one met before it was full
        assert is_limited == is_capped or (is_limited and may_be)
        self.doubtful = {other: self._doomed(other, now) for other in others}
        for queue, own in by_queue.items():
            self._bury(queue, now)
            cursor = self.group.cursors[queue]
            for message in own:
                self._take(cursor, message, now)
            cursor.last_pop_at_ms, cursor.last_consumer_id = now, self.asked.consumer_id

    def _is_full_before_what_is_unwanted(self, now: int) -> bool:
        """Whether a cap keeps the pop from looking at messages of which none would come."""
        cursors = enumerate(self.group.cursors)
        return any(self._unwanted(queue) and not self._room(cursor, now) for queue, cursor in cursors)

    def _demand_nothing(self, waiting: dict[int, list[int]], now: int) -> None:
        for queue, ready in waiting.items():
            assert ready[: self._room(self.group.cursors[queue], now)] == [], "something was ready"

    def _in_order(self, queue: int, offsets: list[int]) -> list[int]:
        """These, which are in turn, as in an answer: by offset; in a group ordered by key they stay in turn or, with an
        attempt, come key by key in the order of their first."""
        if self.group.settings["ordered"] != BY_KEY:
            return sorted(offsets)
        if self.asked.name is None:
            return offsets
        lines = {offset: line_of(self.topic.logs[queue], offset) for offset in sorted(offsets)}
        firsts: dict[str | int, int] = {}
        for offset, line in lines.items():
            firsts.setdefault(line, offset)
        return sorted(offsets, key=lambda offset: (firsts[lines[offset]], offset))

    def _judge_empty(self, waiting: list[list[int]], is_limited: bool, now: int) -> None:
        assert now == self.asked.now + self.asked.wait_ms
        assert is_limited or not self.topic.due(now)
        self._demand_nothing(dict(enumerate(waiting)), now)
        assert is_limited == any(waiting) or (is_limited and self._is_full_before_what_is_unwanted(now))
        if self.group.settings["ordered"]:  # a queue whose dead wait for others is left alone
            self.doubtful = {queue: self._doomed(queue, now) for queue in range(len(waiting))}
            return
        for queue in range(len(waiting)):
            self._bury(queue, now)

    def _take(self, cursor: Cursor, message: Json, now: int) -> None:
        offset, receipt, until_ms = message["offset"], message["receipt"], now + self.asked.invisible_ms
        assert receipt not in self.model.tickets
        hold = Hold(until_ms, cursor.attempts_of(offset) + 1, receipt, self.asked.name, receipt)
        self._judge_message(message, hold)
        cursor.take(offset, hold, self._unwanted(message["queue"]))
        self._note(message, hold)

    def _note(self, message: Json, hold: Hold) -> None:
        queue = message["queue"]
        place = (self.group.id, queue, self.group.cursors[queue].epoch, message["offset"])
        self.model.tickets.setdefault(message["receipt"], Ticket(*place, hold.until_ms, hold.delivery))

    def _judge_message(self, message: Json, hold: Hold) -> None:
        stored = self.topic.logs[message["queue"]][message["offset"]]
        lease = {"attempt": hold.attempt, "invisible_until_ms": hold.until_ms, "receipt": message["receipt"]}
        assert message == {**stored, **lease}

    def _ready(self, cursor: Cursor, queue: int, now: int, want: int) -> list[int]:
        besides = {*self._doomed(queue, now), *self._unwanted(queue)}
        return cursor.in_turn(now, self.topic.logs[queue], besides, want)

    def _unwanted(self, queue: int) -> set[int]:
        """What lies ahead and will be passed."""
        ahead = self.group.cursors[queue].next
        return {offset for offset in self.group.unwanted(queue, self.topic.logs[queue]) if offset >= ahead}

    def _room(self, cursor: Cursor, now: int) -> int:
        """How many messages the pop may take of this queue."""
        room: int = self.group.settings["max_in_flight"] - cursor.in_flight(now)
        return max(0, min(self.asked.max_messages, room))

    def _doomed(self, queue: int, now: int) -> list[int]:
        return self.group.cursors[queue].doomed(now, self.group.settings["max_attempts"])

    def _bury(self, queue: int, now: int) -> None:
        for offset in self._doomed(queue, now):
            self.group.cursors[queue].bury(offset, self.asked.now, now)
