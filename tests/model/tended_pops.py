"""The answers to a pop of a group that may have a rate, and whose dead messages may move to another topic."""

from __future__ import annotations

from tests.model.keeping import Keeping
from tests.model.model import Json
from tests.model.popping import Asked, Pop
from tests.model.tended import TendedGroup, TendedTopic


class Taking(Pop):
    """Judges a pop of a group that may have a rate, and whose dead may move."""

    def __init__(self, machine: Keeping, topic: TendedTopic, name: str, asked: Asked, instance: int) -> None:
        super().__init__(machine.model, topic, machine.group(topic.name, name), asked)
        self.machine, self.name, self.instance = machine, name, instance
        self.tended: TendedGroup = machine.group(topic.name, name)
        self.tended_topic = topic

    def judge(self, answer: Json, now: int) -> None:
        """It takes from one queue, as much as is ready, as the cap leaves room for, and as the rate allows."""
        self.machine.calls += 1
        if self.tended.settings["paused"]:
            assert answer == {"messages": [], "paused": True}
            return
        messages = answer.pop("messages")
        ready = [self._ready(cursor, queue, now, 0) for queue, cursor in enumerate(self.tended.cursors)]
        wanted = [min(self._room(self.tended.cursors[queue], now), len(own)) for queue, own in enumerate(ready)]
        rate = self.tended.settings["rate_limit"]
        left = self.tended.window.left(rate, now) if rate else self.asked.max_messages
        if messages:
            queue = messages[0]["queue"]
            count = min(wanted[queue], left)
            assert {each["queue"] for each in messages} == {queue}
            self._judge_order([each["offset"] for each in messages], ready[queue], count, queue)
            if rate:
                self.tended.window.take(count, rate, now)
            is_capped = wanted[queue] < min(self.asked.max_messages, len(ready[queue]))
            assert answer == self._limited(count < wanted[queue], is_capped, now)
            self._take_all(queue, messages, now)
            return
        assert not (any(wanted) and left), "something was ready"
        if self.tended_topic.is_known_to_delay(self.instance, now):
            assert any(wanted) or not [*self.topic.due(now), *self.tended_topic.late(now)]
        assert answer == self._limited(any(wanted), any(ready), now)
        for queue in range(len(ready)):
            if any(wanted):
                self.machine.doubt(self.tended_topic, self.name, queue, self.instance)
            else:
                self._bury(queue, now)

    def _judge_order(self, offsets: list[int], ready: list[int], count: int, queue: int) -> None:
        """The first ones. While that is enough, what is due again in a retry page may wait."""
        holds, last = self.tended.cursors[queue].holds, max(offsets)
        skipped = [offset for offset in ready if offset < last and offset not in offsets]
        if self.machine.is_small and last in holds:
            assert not [offset for offset in skipped if holds[offset].receipt]
            ready = [offset for offset in ready if offset not in skipped]
        assert offsets == ready[:count]

    def _limited(self, is_by_rate: bool, is_capped: bool, now: int) -> Json:
        if is_by_rate:
            ends_ms = self.tended.window.end_ms(self.tended.settings["rate_limit"])
            return {"limited": "rate", "retry_after_ms": ends_ms - now}
        return {"limited": "in_flight"} if is_capped else {}

    def _take_all(self, queue: int, messages: list[Json], now: int) -> None:
        for other in range(len(self.tended.cursors)):
            if other != queue:
                self.machine.doubt(self.tended_topic, self.name, other, self.instance)
        self._bury(queue, now)
        cursor, counts = self.tended.cursors[queue], self.machine.counts[self.instance].messages
        for message in messages:
            self._take(cursor, message, now)
            self._tell(message)
            counts["popped", self.topic.name, self.name] += 1
            counts["redelivered", self.topic.name, self.name] += message["attempt"] > 1
        cursor.last_pop_at_ms, cursor.last_consumer_id = now, self.asked.consumer_id

    def _tell(self, message: Json) -> None:
        self.machine.attempts[message["receipt"]] = message["attempt"]
        whose = {"consumer_id": self.asked.consumer_id} if self.asked.consumer_id else {}
        event = {"event": "popped", "invisible_until_ms": message["invisible_until_ms"], **whose}
        place = message["queue"], message["offset"]
        self.machine.note(self.tended_topic, self.name, place, message["attempt"], event)

    def _doomed(self, queue: int, now: int) -> list[int]:
        return self.machine.doomed(self.tended, queue)

    def _bury(self, queue: int, now: int) -> None:
        self.machine.bury_doomed(self.tended_topic, self.name, queue, self.instance)
