"""The answers a pop may give, and the state it leaves."""

from __future__ import annotations

from dataclasses import dataclass

from tests.model.cursor import Cursor, Hold, Ticket
from tests.model.model import Group, Json, Model, Topic


@dataclass(frozen=True)
class Asked:
    """A pop, asked at `now`. `name`: the consumer and its attempt, if it gave one."""

    max_messages: int
    invisible_ms: int
    consumer_id: str | None
    name: tuple[str | None, str] | None
    wait_ms: int
    now: int


def asked(fields: Json, group: Group, now: int) -> Asked:
    """A pop by the fields of its request."""
    consumer_id, attempt_id = fields.get("consumer_id"), fields.get("attempt_id")
    return Asked(
        fields["max_messages"],
        fields.get("invisible_ms") or group.settings["invisible_ms"],
        consumer_id,
        (consumer_id, attempt_id) if attempt_id else None,
        fields.get("wait_ms", 0),
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
        cursors = enumerate(self.group.cursors)
        return [(queue, offset) for queue, cursor in cursors for offset in cursor.held_by(name, self.asked.now)]

    def judge_repeat(self, held: dict[tuple[int, int], Hold], messages: list[Json]) -> None:
        """A repeat gets what it holds, with the same receipts."""
        assert [(stored["queue"], stored["offset"]) for stored in messages] == list(held)
        for message in messages:
            hold = held[message["queue"], message["offset"]]
            assert message["receipt"] == hold.receipt
            self._judge_message(message, hold)

    def judge(self, answer: Json, now: int) -> None:
        """`now`: when it was answered."""
        messages = answer["messages"]
        if self.group.settings["paused"]:
            assert (messages, answer.get("paused"), now) == ([], True, self.asked.now)
            return
        assert "paused" not in answer
        waiting = [self._ready(cursor, queue, now) for queue, cursor in enumerate(self.group.cursors)]
        if messages:
            self._judge_taken(messages, waiting, "limited" in answer, now)
        else:
            self._judge_empty(waiting, "limited" in answer, now)

    def _judge_taken(self, messages: list[Json], waiting: list[list[int]], is_limited: bool, now: int) -> None:
        queue = messages[0]["queue"]
        cursor, ready = self.group.cursors[queue], waiting[queue]
        assert [stored["queue"] for stored in messages] == [queue] * len(messages)
        assert [stored["offset"] for stored in messages] == ready[: self._room(cursor, now)]
        assert is_limited == (len(messages) < min(self.asked.max_messages, len(ready)))
        self._bury(queue, now)
        self.doubtful = {other: self._doomed(other, now) for other in range(len(waiting)) if other != queue}
        for message in messages:
            self._take(cursor, message, now)
        cursor.last_pop_at_ms, cursor.last_consumer_id = now, self.asked.consumer_id

    def _judge_empty(self, waiting: list[list[int]], is_limited: bool, now: int) -> None:
        assert now == self.asked.now + self.asked.wait_ms
        for cursor, ready in zip(self.group.cursors, waiting, strict=True):
            assert ready[: self._room(cursor, now)] == [], "something was ready"
        assert is_limited == any(waiting)
        for queue in range(len(waiting)):
            self._bury(queue, now)

    def _take(self, cursor: Cursor, message: Json, now: int) -> None:
        offset, receipt, until_ms = message["offset"], message["receipt"], now + self.asked.invisible_ms
        assert receipt not in self.model.tickets
        hold = Hold(until_ms, cursor.attempts_of(offset) + 1, receipt, self.asked.name)
        self._judge_message(message, hold)
        cursor.take(offset, hold)
        self.model.tickets[receipt] = Ticket(self.group.id, message["queue"], cursor.epoch, offset, until_ms)

    def _judge_message(self, message: Json, hold: Hold) -> None:
        stored = self.topic.logs[message["queue"]][message["offset"]]
        lease = {"attempt": hold.attempt, "invisible_until_ms": hold.until_ms, "receipt": message["receipt"]}
        assert message == {**stored, **lease}

    def _ready(self, cursor: Cursor, queue: int, now: int) -> list[int]:
        doomed = self._doomed(queue, now)
        return [offset for offset in cursor.ready(now, len(self.topic.logs[queue])) if offset not in doomed]

    def _room(self, cursor: Cursor, now: int) -> int:
        """How many messages the pop may take of this queue."""
        return max(0, min(self.asked.max_messages, self.group.settings["max_in_flight"] - cursor.in_flight(now)))

    def _doomed(self, queue: int, now: int) -> list[int]:
        return self.group.cursors[queue].doomed(now, self.group.settings["max_attempts"])

    def _bury(self, queue: int, now: int) -> None:
        for offset in self._doomed(queue, now):
            self.group.cursors[queue].bury(offset)
