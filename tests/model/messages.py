"""The steps of messages: they are sent, wait, are cancelled, and looked up by place, time, key and id."""

from __future__ import annotations

import base64
import re
from collections import Counter
from dataclasses import dataclass
from random import Random
from typing import ClassVar

from hypothesis import strategies as st

from chalicelib.core.base.limits import DEDUP_MS
from tests.model.administration import Administration
from tests.model.pair import edges
from tests.model.topic import Look, Topic, Waiting
from tests.model.values import Json
from tests.support.client import Answer

page_limits = st.sampled_from([1, 1, 2, 3, 100])


@dataclass
class Reading:
    """A read that goes on with its next page. `positions`: by queue, where."""

    topic: int
    query: Json
    positions: dict[int, int]
    token: str


class Messages(Administration):
    MESSAGES: ClassVar[st.SearchStrategy[list[Json]]]
    """New ones, of one call. For the queues that a topic may have, and one that it does not."""
    DELAYS: ClassVar[st.SearchStrategy[int]]
    KEYS: ClassVar[tuple[str, ...]] = ("k1", "k2")

    def __init__(self) -> None:
        super().__init__()
        self.sent = 0
        self.began_ms = 0
        """When the last call that produces was made."""
        self.reading: Reading | None = None

    # -- sent ---------------------------------------------------------------------------------------------------------

    def produce(self, instance: int, data: st.DataObject) -> None:
        topic, _ = self.place(data)
        if self.knows(instance, topic):
            self._produce(instance, topic, data.draw(self.MESSAGES))

    def produce_for_later(self, instance: int, data: st.DataObject) -> None:
        topic, _ = self.place(data)
        if self.knows(instance, topic):
            batch = [message | {"delay_ms": data.draw(self.DELAYS)} for message in data.draw(self.MESSAGES)]
            self._produce(instance, topic, batch)

    def repeat(self, instance: int, data: st.DataObject) -> None:
        """Sends a dedup id again."""
        topic, _ = self.place(data)
        if topic in self.model.topics and self.knows(instance, topic):
            ids = [*self.model.topics[topic].dedup, "d1"]
            self._produce(instance, topic, [{"dedup_id": data.draw(st.sampled_from(ids))}])

    def _produce(self, instance: int, name: str, batch: list[Json]) -> None:
        """An instance that may cache a topic that was deleted stores in its successor, or nowhere; it may find the
        dedup ids of the one before."""
        is_stale = self.is_stale(instance, name)
        kept = [{**message, "dedup_id": None} for message in batch] if is_stale else batch
        sent = [
            {field: value for field, value in {**message, **self.body()}.items() if value is not None}
            for message in kept
        ]
        self.model.begin(instance)
        self.began_ms = self.now
        answer = self.clients[instance].post(f"/topics/{name}/messages", messages=sent)
        if (is_stale and not self._is_stored(name, answer)) or self.is_refused(answer, name):
            return
        topic = self.model.topics[name]
        if any(message.get("queue", 0) >= topic.queues for message in sent):
            assert answer.problem == (400, "InvalidField")
            return
        firsts: dict[str, Json] = {}
        sent = [
            firsts.setdefault(message["dedup_id"], message) if "dedup_id" in message else message for message in sent
        ]
        full = topic.full(instance, self.now)
        if answer.status == 429:
            self._judge_refused(topic, answer, sent, full)
            return
        places = answer.json["messages"]
        for message, place in zip(sent, places, strict=True):
            if "error" in place:
                self._judge_full(topic, message, place["error"], topic.full(instance, self.now))
            else:
                self._keep(topic, message, place, full)
        stored = sum("error" not in place for place in places)
        assert (answer.status, stored > 0) == (200 if stored == len(sent) else 207, True)

    def body(self) -> Json:
        """Returns another body each time: every third in bytes, every fourth so large that it is stored apart."""
        self.sent += 1
        text = f"body {self.sent}" + (self.sent % 4 == 0) * Random(self.sent).randbytes(1_000).hex()
        return {"body": text} if self.sent % 3 else {"body_base64": base64.b64encode(text.encode()).decode()}

    def _is_stored(self, name: str, answer: Answer) -> bool:
        """Whether the successor of a topic has got this, whole."""
        if answer.status != 200 or name not in self.model.topics:
            return False
        ids = {message["message_id"] for message in answer.json["messages"]}
        ends = [queue["end_offset"] for queue in self.observer.get(f"/topics/{name}").json["queue_offsets"]]
        grown: int = sum(ends) - sum(len(log) for log in self.model.topics[name].logs)
        assert grown in (0, len(ids))
        return grown > 0

    def _keep(self, topic: Topic, message: Json, place: Json, full: dict[int, Look]) -> None:
        """Unless its dedup id was used within five minutes."""
        dedup_id, delay_ms, ttl_ms = message.get("dedup_id"), message.get("delay_ms", 0), message.get("ttl_ms")
        if delay_ms:
            if not topic.has_delayed:
                self.changed(topic.name, self.model.caller)
            topic.delays(self.model.caller, self.now)
        if first := self._first(topic, message):
            assert place == first
            return
        if dedup_id:
            topic.dedup[dedup_id] = self.began_ms, place
        queue, given = place["queue"], {"message_id": place["message_id"], "queue": place["queue"], "topic": topic.name}
        topic.place(message, queue, self.now)
        own = {field: value for field, value in message.items() if field not in ("dedup_id", "delay_ms", "ttl_ms")}
        shown = {"key": None, "tag": None, "properties": {}, **own, **given}
        if delay_ms:
            due_ms = self.began_ms + delay_ms
            assert place == {**place, "offset": None, "deliver_at_ms": due_ms}
            topic.waiting[place["message_id"]] = Waiting(shown, due_ms, self.began_ms, ttl_ms)
        else:
            assert queue not in full
            topic.store({**shown, **place, "stored_at_ms": self._stored_at_ms(topic, place)}, ttl_ms)
            topic.note_end(self.model.caller, queue)

    def _stored_at_ms(self, topic: Topic, place: Json) -> int:
        """A call that meets others pauses, and stores later than it began."""
        if self.now == self.began_ms:
            return self.now
        stored_at_ms: int = self.observer.get(f"/topics/{topic.name}/messages/{place['message_id']}").json[
            "stored_at_ms"
        ]
        assert self.began_ms <= stored_at_ms <= self.now
        return stored_at_ms

    def _first(self, topic: Topic, message: Json) -> Json | None:
        """The answer of its dedup id."""
        at_ms, first = topic.dedup.get(message.get("dedup_id", ""), (self.now - DEDUP_MS, {}))
        return first if at_ms > self.now - DEDUP_MS else None

    # -- refused by full queues ---------------------------------------------------------------------------------------

    def _judge_refused(self, topic: Topic, answer: Answer, sent: list[Json], full: dict[int, Look]) -> None:
        assert answer.problem == (429, "QueueFull")
        assert int(answer.headers["Retry-After"]) >= 1
        for message in sent:
            assert "delay_ms" not in message
            assert self._first(topic, message) is None
            assert self._possible(topic, message) <= full.keys()
        self._judge_detail(topic, answer.json["detail"], full, set(full))

    def _judge_full(self, topic: Topic, message: Json, error: Json, full: dict[int, Look]) -> None:
        assert error["code"] == "QueueFull"
        assert self._first(topic, message) is None
        self._judge_detail(topic, error["detail"], full, self._possible(topic, message) or set(full))
        assert {"queue", "key"} & message.keys() or len(full) == topic.queues

    def _possible(self, topic: Topic, message: Json) -> set[int]:
        """The queues that it may go to, as far as they are known: of a key, none before its first message."""
        if "queue" in message:
            return {message["queue"]}
        if "key" in message:
            return {home for home in (topic.home(message["key"], self.now),) if home is not None}
        return set(range(topic.queues))

    def _judge_detail(self, topic: Topic, detail: str, full: dict[int, Look], possible: set[int]) -> None:
        """It says which queue is full, for whom, and how full."""
        numbers, depth_max = [int(number) for number in re.findall(r"\d+", detail)], topic.options["max_depth"]
        told = [queue for queue in possible & full.keys() if numbers == [queue, full[queue].waiting(queue), depth_max]]
        assert told, (detail, possible, full)
        assert any(f"'{name}'" in detail for name in full[told[0]].slow[told[0]][1])

    # -- what waits ---------------------------------------------------------------------------------------------------

    def list_waiting(self, instance: int, data: st.DataObject) -> None:
        """Delayed messages are listed, by due time, and counted in each queue."""
        (name, _), limit, client = self.place(data), data.draw(page_limits), self.clients[instance]
        if not self.knows(instance, name):
            return
        answer = client.get(f"/topics/{name}/delayed", limit=limit)
        if self.is_refused(answer, name):
            return
        listed = self.rest_of(instance, f"/topics/{name}/delayed", answer, "messages", limit)
        topic = self.model.topics[name]
        assert {message["message_id"]: message for message in listed} == {
            message_id: {**waiting.shown, "deliver_at_ms": waiting.due_ms, "sent_at_ms": waiting.sent_at_ms}
            for message_id, waiting in topic.waiting.items()
        }
        dues = [message["deliver_at_ms"] for message in listed]
        assert dues == sorted(dues)
        counts = Counter(waiting.queue for waiting in topic.waiting.values())
        waits = [{"queue": queue, "waiting": counts[queue]} for queue in range(topic.readers)]
        assert client.get(f"/topics/{name}/waiting").json == {"waiting": len(listed), "queues": waits}

    def cancel(self, instance: int, data: st.DataObject) -> None:
        """Once it is delivered, that is known until a sweep may have removed it."""
        name, _ = self.place(data)
        if not self.knows(instance, name):
            return
        topic = self.model.topics.get(name) or Topic(-1, name, [])
        places = {message["message_id"]: (message["queue"], message["offset"]) for log in topic.logs for message in log}
        ids = [*2 * [*topic.waiting], *topic.delivered, *topic.cancelled, *list(places)[:1], "x"]
        message_id = data.draw(st.sampled_from(ids))
        answer = self.clients[instance].delete(f"/topics/{name}/delayed/{message_id}")
        if self.is_refused(answer, name):
            return
        if topic.waiting.pop(message_id, None):
            assert (answer.status, answer.json) == (200, {"cancelled": True})
            topic.cancelled.append(message_id)
            return
        known, unknown = (409, "AlreadyDelivered"), (404, "MessageNotFound")
        if message_id not in topic.delivered:
            assert answer.problem == unknown
        elif topic.may_be_gone(*places[message_id], self.now):
            assert answer.problem in (known, unknown)
        else:
            assert answer.problem == known

    # -- looked up ----------------------------------------------------------------------------------------------------

    def read_a_queue(self, instance: int, data: st.DataObject) -> None:
        """Reads from an offset or an instant, near an end of the readable messages, or from the start."""
        name, _ = self.place(data)
        queue, limit = data.draw(st.integers(0, 4)), data.draw(page_limits)
        if not self.knows(instance, name):
            return
        where, topic = {}, self.model.topics.get(name)
        if topic and queue < topic.most:
            near = data.draw(st.sampled_from([0, topic.first(queue, self.now), len(topic.logs[queue])]))
            offset = max(0, near + data.draw(edges))
            where = data.draw(st.sampled_from([{"offset": offset}, {"at_ms": self.instant(name, data)}, {}]))
        answer = self.clients[instance].get(f"/topics/{name}/messages", queue=queue, limit=limit, **where)
        if self.is_refused(answer, name) or topic is None:
            return
        if queue >= topic.most:
            assert answer.problem == (400, "InvalidField")
            return
        begin = where.get("offset", topic.offset_at(queue, where.get("at_ms", 0)))
        self._judge_page(topic, {"queue": queue, "limit": limit}, answer.json, {queue: begin})
        self._perhaps_to_the_end(instance, data)

    def read_all_queues(self, instance: int, data: st.DataObject) -> None:
        (name, _), limit = self.place(data), data.draw(page_limits)
        at_ms = self.instant(name, data)
        if not self.knows(instance, name):
            return
        answer = self.clients[instance].get(f"/topics/{name}/messages", at_ms=at_ms, limit=limit)
        if not self.is_refused(answer, name):
            topic = self.model.topics[name]
            begins = {queue: topic.offset_at(queue, at_ms) for queue in range(topic.most)}
            self._judge_page(topic, {"limit": limit}, answer.json, begins)
            self._perhaps_to_the_end(instance, data)

    def _perhaps_to_the_end(self, instance: int, data: st.DataObject) -> None:
        if data.draw(st.booleans()):
            while self.reading:
                self.read_on(instance, data)

    def read_on(self, instance: int, _: st.DataObject) -> None:
        """Reads the next page of the last read, though messages and queues have come and gone since."""
        reading, self.reading = self.reading, None
        for topic in self.model.topics.values():
            if reading and topic.id == reading.topic and self.knows(instance, topic.name):
                query = {**reading.query, "next": reading.token}
                answer = self.clients[instance].get(f"/topics/{topic.name}/messages", **query)
                self._judge_page(topic, reading.query, answer.json, reading.positions)

    def _judge_page(self, topic: Topic, query: Json, page: Json, begins: dict[int, int]) -> None:
        """By time, each queue in order. Which of several queues comes first at one instant is free."""
        limit = query["limit"]
        begins = {queue: max(offset, topic.first(queue, self.now)) for queue, offset in begins.items()}
        ahead = {queue: topic.logs[queue][begin:] for queue, begin in begins.items()}
        times = sorted(message["stored_at_ms"] for left in ahead.values() for message in left)
        assert [message["stored_at_ms"] for message in page["messages"]] == times[:limit]
        for message in page["messages"]:
            assert message == ahead[message["queue"]].pop(0)
        assert (page["next"] is None) == (len(times) <= limit)
        if page["next"]:
            positions = {queue: len(topic.logs[queue]) - len(left) for queue, left in ahead.items()}
            self.reading = Reading(topic.id, query, positions, page["next"])

    def read_by_key(self, instance: int, data: st.DataObject) -> None:
        """All pages. One may have fewer than its limit: of an entry that was made twice, one is in no log. In one
        millisecond, what two instances have stored comes in any order."""
        (name, _), key, limit = self.place(data), data.draw(st.sampled_from(self.KEYS)), data.draw(page_limits)
        if not self.knows(instance, name):
            return
        path, query = f"/topics/{name}/messages", {"key": key, "limit": limit}
        answer = self.clients[instance].get(path, **query)
        if self.is_refused(answer, name):
            return
        topic = self.model.topics[name]
        if not topic.options["index_keys"]:
            assert answer.problem == (400, "InvalidField")
            return
        found: list[Json] = answer.json["messages"]
        while token := answer.json["next"]:
            answer = self.clients[instance].get(path, **query, next=token)
            assert len(answer.json["messages"]) <= limit
            found += answer.json["messages"]
        kept = [each for queue in range(topic.most) for each in topic.readable(queue, self.now) if each["key"] == key]
        times = [message["stored_at_ms"] for message in found]
        assert times == sorted(times)
        assert sorted(found, key=lambda message: (message["queue"], message["offset"])) == kept

    def find(self, instance: int, data: st.DataObject) -> None:
        """One message by its id: until it has expired, once it is delivered."""
        name, _ = self.place(data)
        if not self.knows(instance, name):
            return
        topic = self.model.topics.get(name) or Topic(-1, name, [])
        known = {message["message_id"]: message for log in topic.logs for message in log}
        others = [*topic.waiting, *topic.cancelled, "x", f"{16 * '0'}000"]
        ids = [*4 * self._ids_at_edges(topic), *known, *topic.delivered, *others]
        message_id = data.draw(st.sampled_from(ids))
        answer = self.clients[instance].get(f"/topics/{name}/messages/{message_id}")
        if self.is_refused(answer, name):
            return
        message = known.get(message_id)
        if message is None or topic.has_expired(message["queue"], message["offset"], self.now):
            assert answer.problem == (404, "MessageNotFound")
        else:
            assert (answer.status, answer.json) == (200, message)

    def _ids_at_edges(self, topic: Topic) -> list[str]:
        """The last message of each queue that has expired, and the first that has not."""
        firsts = [(log, topic.first(queue, self.now)) for queue, log in enumerate(topic.logs)]
        edges = [(log, offset) for log, first in firsts for offset in (first - 1, first) if 0 <= offset < len(log)]
        return [log[offset]["message_id"] for log, offset in edges]
