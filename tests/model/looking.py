"""The steps of looking messages up: by place, time, key and id; and what waits."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st

from tests.model.lasting_topic import LastingTopic
from tests.model.model import Json, judge_waiting
from tests.model.pair import Pair

TOPIC = "orders"
PATH = f"/topics/{TOPIC}"
KEYS = ("k1", "k1", "k2")

instances = st.sampled_from([0, 1])
edges = st.sampled_from([-1, 0, 0, 1])
"""How far from a limit."""
limits = st.sampled_from([1, 1, 2, 3, 100])


@dataclass
class Reading:
    """A read that goes on with its next page. `positions`: by queue, where."""

    query: Json
    positions: dict[int, int]
    token: str


class Looking(Pair):
    def __init__(self) -> None:
        super().__init__()
        self.reading: Reading | None = None

    @property
    def topic(self) -> LastingTopic:
        topic = self.model.topics[TOPIC]
        assert isinstance(topic, LastingTopic)
        return topic

    # -- by place and time --------------------------------------------------------------------------------------------

    def read_a_queue(self, instance: int, data: st.DataObject) -> None:
        """From an offset or an instant, near an end of what can be read, or from the start."""
        topic, now = self.topic, self.now
        queue, limit, edge = data.draw(st.sampled_from([*range(topic.most), 4])), data.draw(limits), data.draw(edges)
        where = {}
        if queue < topic.most:
            near = [0, topic.first(queue, now), len(topic.logs[queue])]
            offset = max(0, data.draw(st.sampled_from(near)) + edge)
            where = data.draw(st.sampled_from([{"offset": offset}, {"at_ms": self._instant(edge, data)}, {}]))
        answer = self.clients[instance].get(f"{PATH}/messages", queue=queue, limit=limit, **where)
        if queue >= topic.most:
            assert answer.problem == (400, "InvalidField")
            return
        begin = where.get("offset", topic.offset_at(queue, where.get("at_ms", 0)))
        self._judge_page({"queue": queue, "limit": limit}, answer.json, {queue: begin})
        self._perhaps_to_the_end(instance, data)

    def read_all_queues(self, instance: int, data: st.DataObject) -> None:
        at_ms, limit = self._instant(data.draw(edges), data), data.draw(limits)
        answer = self.clients[instance].get(f"{PATH}/messages", at_ms=at_ms, limit=limit)
        begins = {queue: self.topic.offset_at(queue, at_ms) for queue in range(self.topic.most)}
        self._judge_page({"limit": limit}, answer.json, begins)
        self._perhaps_to_the_end(instance, data)

    def _perhaps_to_the_end(self, instance: int, data: st.DataObject) -> None:
        if data.draw(st.booleans()):
            while self.reading:
                self.read_on(instance, data)

    def read_on(self, instance: int, _: st.DataObject) -> None:
        """The next page of the last read, though messages have come and gone since, and queues."""
        if self.reading is None:
            return
        reading, self.reading = self.reading, None
        answer = self.clients[instance].get(f"{PATH}/messages", **reading.query, next=reading.token)
        self._judge_page(reading.query, answer.json, reading.positions)

    def _instant(self, edge: int, data: st.DataObject) -> int:
        """Near that of a message."""
        stored = [message["stored_at_ms"] for log in self.topic.logs for message in log]
        return int(data.draw(st.sampled_from([0, self.now, *stored]))) + max(edge, 0)

    def _judge_page(self, query: Json, page: Json, begins: dict[int, int]) -> None:
        """By time, each queue in order. Which of several queues comes first at one instant is free."""
        topic, now, limit = self.topic, self.now, query["limit"]
        begins = {queue: max(offset, topic.first(queue, now)) for queue, offset in begins.items()}
        ahead = {queue: topic.logs[queue][begin:] for queue, begin in begins.items()}
        times = sorted(message["stored_at_ms"] for left in ahead.values() for message in left)
        assert [message["stored_at_ms"] for message in page["messages"]] == times[:limit]
        for message in page["messages"]:
            assert message == ahead[message["queue"]].pop(0)
        assert (page["next"] is None) == (len(times) <= limit)
        if page["next"]:
            positions = {queue: len(topic.logs[queue]) - len(left) for queue, left in ahead.items()}
            self.reading = Reading(query, positions, page["next"])

    # -- by key and id ------------------------------------------------------------------------------------------------

    def read_by_key(self, instance: int, data: st.DataObject) -> None:
        """All pages. One may have fewer than its limit: of an entry that was made twice, one is in no log. In one
        millisecond, what two instances have stored comes in any order."""
        key, limit = data.draw(st.sampled_from(KEYS)), data.draw(limits)
        client, query = self.clients[instance], {"key": key, "limit": limit}
        answer = client.get(f"{PATH}/messages", **query)
        if not self.topic.index_keys:
            assert answer.problem == (400, "InvalidField")
            return
        found: list[Json] = answer.json["messages"]
        while token := answer.json["next"]:
            answer = client.get(f"{PATH}/messages", **query, next=token)
            assert len(answer.json["messages"]) <= limit
            found += answer.json["messages"]
        kept = [
            message
            for queue in range(self.topic.most)
            for message in self.topic.readable(queue, self.now)
            if message["key"] == key
        ]
        times = [message["stored_at_ms"] for message in found]
        assert times == sorted(times)
        assert sorted(found, key=_by_place) == kept

    def find(self, instance: int, data: st.DataObject) -> None:
        """One message by its id: until it has expired, once it is delivered."""
        topic = self.topic
        stored = [message for log in topic.logs for message in log]
        known = {message["message_id"]: message for message in stored}
        edge_ids = [log[offset]["message_id"] for log, offset in self._edges_of_logs()]
        others = [*topic.waiting, *topic.cancelled, "x", f"{16 * '0'}000"]
        message_id = data.draw(st.sampled_from([*4 * edge_ids, *known, *topic.delivered, *others]))
        answer = self.clients[instance].get(f"{PATH}/messages/{message_id}")
        message = known.get(message_id)
        if message is None or topic.has_expired(message["queue"], message["offset"], self.now):
            assert answer.problem == (404, "MessageNotFound")
        else:
            assert (answer.status, answer.json) == (200, message)

    def _edges_of_logs(self) -> list[tuple[list[Json], int]]:
        """The last message of each queue that has expired, and the first that has not."""
        firsts = [(log, self.topic.first(queue, self.now)) for queue, log in enumerate(self.topic.logs)]
        return [(log, offset) for log, first in firsts for offset in (first - 1, first) if 0 <= offset < len(log)]

    # -- what waits ---------------------------------------------------------------------------------------------------

    def list_what_waits(self, instance: int, data: st.DataObject) -> None:
        client, path, topic, limit = self.clients[instance], f"{PATH}/delayed", self.topic, data.draw(limits)
        answer = client.get(path, limit=limit)
        listed = self.rest_of(instance, path, answer, "messages", limit)
        judge_waiting(topic, topic.readers, listed, client.get(f"{PATH}/waiting").json)

    def cancel(self, instance: int, data: st.DataObject) -> None:
        """Once it is delivered, that is known until a sweep may have removed it."""
        topic = self.topic
        places = {message["message_id"]: (message["queue"], message["offset"]) for log in topic.logs for message in log}
        ids = [*2 * [*topic.waiting], *topic.delivered, *topic.cancelled, *list(places)[:1]]
        message_id = data.draw(st.sampled_from([*ids, "x"]))
        answer = self.clients[instance].delete(f"{PATH}/delayed/{message_id}")
        if message_id in topic.waiting:
            assert (answer.status, answer.json) == (200, {"cancelled": True})
            del topic.waiting[message_id]
            topic.cancelled.append(message_id)
            return
        was_delivered = message_id in topic.delivered
        is_forgotten = was_delivered and topic.may_be_gone(*places[message_id], self.now)
        allowed = {(409, "AlreadyDelivered")} if was_delivered and not is_forgotten else {(404, "MessageNotFound")}
        assert answer.problem in allowed | ({(409, "AlreadyDelivered")} if is_forgotten else set())


def _by_place(message: Json) -> tuple[int, int]:
    return message["queue"], message["offset"]
