"""The steps of delayed messages: sent, listed, counted, cancelled. When they come, the log tells."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import rule

from tests.model.dying import DyingMachine
from tests.model.machine import instances, new_messages
from tests.model.model import Json, judge_waiting

delays = st.sampled_from([1, 500, 500, 2_000, 10_000, 70_000])


class DelayingMachine(DyingMachine):
    @rule(instance=instances, batch=new_messages, delay_ms=delays, data=st.data())
    def produce_for_later(self, instance: int, batch: list[Json], delay_ms: int, data: st.DataObject) -> None:
        topic, _ = data.draw(self._places())
        if self._is_believer(instance, topic):  # who may know the topic before this one, which is gone
            return
        later = [message | {"delay_ms": data.draw(st.sampled_from([delay_ms, delay_ms, 0]))} for message in batch]
        self._produce(instance, topic, later)

    @rule(instance=instances, limit=st.sampled_from([1, 3, 100]), data=st.data())
    def list_what_waits(self, instance: int, limit: int, data: st.DataObject) -> None:
        name, _ = data.draw(self._places())
        if self._is_believer(instance, name):
            return
        client, path = self.clients[instance], f"/topics/{name}/delayed"
        answer = client.get(path, limit=limit)
        if self._is_refused(answer, name):
            return
        listed = self.rest_of(instance, path, answer, "messages", limit)
        topic = self.model.topics[name]
        judge_waiting(topic, len(topic.logs), listed, client.get(f"/topics/{name}/waiting").json)

    @rule(instance=instances, data=st.data())
    def cancel(self, instance: int, data: st.DataObject) -> None:
        name, _ = data.draw(self._places())
        if self._is_believer(instance, name):
            return
        topic = self.model.topics.get(name)
        ids = [*topic.waiting, *topic.delivered, *topic.cancelled] if topic else []
        message_id = data.draw(st.sampled_from([*ids, "x"]))
        answer = self.clients[instance].delete(f"/topics/{name}/delayed/{message_id}")
        if self._is_refused(answer, name) or topic is None:
            return
        if message_id in topic.waiting:
            assert (answer.status, answer.json) == (200, {"cancelled": True})
            del topic.waiting[message_id]
            topic.cancelled.append(message_id)
        elif message_id in topic.delivered:
            assert answer.problem == (409, "AlreadyDelivered")
        else:
            assert answer.problem == (404, "MessageNotFound")
