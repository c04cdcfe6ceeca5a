"""The steps: each asks one of two instances of the service, at random, and the model, and compares the answers. After
each step a third instance tells how far every group is, so that the caches of the two stay as stale as they are."""

from __future__ import annotations

import base64
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from chalicelib.core.base.limits import DEDUP_MS
from tests.model.cursor import COUNTS, EITHER, INVALID, LOST, Cursor
from tests.model.model import DEFAULTS, Group, Json, Topic, Waiting, altered, details
from tests.model.pair import Pair
from tests.model.popping import Pop, asked
from tests.support.client import Answer
from tests.support.clock import START_MS
from tests.support.small import small_pages, small_segments

BELIEVED_MS = 5_000
"""How long an instance may cache what it read about a topic."""

TOPICS = ("orders", "audit")
GROUPS = ("billing", "shipping")
CHORES = 5 * ["put_group"] + ["put_topic", "delete_group", "delete_topic"]

instances = st.sampled_from([0, 1])
consumers = st.sampled_from([None, None, "c1"])
durations = st.sampled_from([0, 1, 500, 2_000, 10_000])
reasons = st.sampled_from(["", "broken", "gone"])
KEPT = ("ordered", "settle_by")
"""Settings that a group of the model keeps: an instance may go by another `settle_by` for five seconds."""
settings_given = st.fixed_dictionaries(
    {
        "invisible_ms": st.sampled_from([0, 0, 1_000, 3_000, 20_000, 20_000]),
        "ordered": st.sampled_from([False, False, True, "key", "key"]),
        "settle_by": st.sampled_from(["receipt", "delivery", "message"]),
        "max_attempts": st.sampled_from([1, 1, 2, 3, None]),
    },
    optional={
        "max_in_flight": st.sampled_from([1, 2, 3]),
        "paused": st.sampled_from([False, False, False, True]),
        "filter": st.sampled_from([{"tags": ["x"]}, {"tags": ["x", "y"]}]),
    },
)
pop_fields = st.fixed_dictionaries(
    {"max_messages": st.integers(1, 6), "consumer_id": consumers},
    optional={
        "invisible_ms": durations,
        "attempt_id": st.sampled_from(["a1", "a1", "a2"]),
        "wait_ms": st.sampled_from([0, 1_500]),
        "fill": st.booleans(),
    },
)
new_messages = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "key": st.sampled_from(["k1", "k1", "k1", "k2", "k3"]),
            "queue": st.sampled_from([0, 0, 1, 2]),
            "tag": st.sampled_from(["x", "x", "y"]),
            "properties": st.just({"p": "1"}),
            "dedup_id": st.sampled_from(["d1", "d2", "d3"]),
        },
    ),
    min_size=1,
    max_size=5,
)

STARTS: list[str | int] = ["earliest", "earliest", "earliest", "latest", START_MS + 1_000]


class Machine(Pair):
    def __init__(self) -> None:
        super().__init__()
        self.limits = ExitStack()
        self.produced = 0
        self.pop_in_doubt: Pop | None = None
        self.believed_until_ms: dict[tuple[int, str], int] = {}
        """Until when an instance may still cache a topic that was deleted through the other one."""

    def teardown(self) -> None:
        self.limits.close()
        super().teardown()

    # -- administering ------------------------------------------------------------------------------------------------

    @initialize(queues=st.sampled_from([1, 2, 3]), settings=settings_given, is_small=st.booleans())
    def begin(self, queues: int, settings: Json, is_small: bool) -> None:
        """A group that is not paused, and something for it to read. `is_small`: segments and retry pages are."""
        if is_small:
            self.limits.enter_context(small_segments())
            self.limits.enter_context(small_pages())
        self.put_topic(0, "orders", queues)
        self.put_group(0, "orders", "billing", {**settings, "paused": False}, "earliest")
        self._produce(0, "orders", [{"key": "k1"}, {"key": "k1"}, {"key": "k2"}, {"queue": 0}])

    @rule(instance=instances, kind=st.sampled_from(CHORES), data=st.data())
    def administer(self, instance: int, kind: str, data: st.DataObject) -> None:
        """One chore. Each is rare, or nothing would ever get far."""
        topic, name = data.draw(self._places())
        if kind == "put_topic":
            self.put_topic(instance, data.draw(st.sampled_from(TOPICS)), data.draw(st.sampled_from([1, 2, 3])))
        elif kind == "delete_topic":
            self._replace_topic(instance, topic, name, data)
        elif kind == "delete_group":
            self.delete_group(instance, topic, name)
            self._make_again(topic, name, data)
        else:
            start = data.draw(st.sampled_from(STARTS))
            self.put_group(instance, topic, data.draw(st.sampled_from(GROUPS)), data.draw(settings_given), start)

    def _replace_topic(self, instance: int, topic: str, name: str, data: st.DataObject) -> None:
        """Under the eyes of the other instance, which has just used it and goes on at once. Or it stays away."""
        other = 1 - instance
        self._pop(other, (topic, name), {"max_messages": 1})
        self.delete_topic(instance, topic)
        if not data.draw(st.sampled_from([True, True, True, False])):
            return
        self.put_topic(instance, topic, data.draw(st.sampled_from([1, 2, 3])))
        self.put_group(instance, topic, name, data.draw(settings_given), "earliest")
        self._produce(data.draw(instances), topic, [{}, {"key": "k1"}])
        self._pop(other, (topic, name), {"max_messages": 1, "ack": data.draw(self._receipts(topic, name, least=0))})

    def _make_again(self, topic: str, name: str, data: st.DataObject) -> None:
        """Mostly at once, or the rest of the steps would be about what is not there."""
        instance = data.draw(st.sampled_from([0, 0, 1, 1, None]))
        if instance is not None:
            self.put_group(instance, topic, name, data.draw(settings_given), "earliest")

    def put_topic(self, instance: int, name: str, queues: int) -> None:
        """A topic that exists keeps its number of queues: when keys move is a matter of `tests/http`."""
        known = self.model.topics.get(name)
        answer = self.clients[instance].put(f"/topics/{name}", queues=len(known.logs) if known else queues)
        assert answer.status == (200 if known else 201)
        if known is None:
            self.model.topics[name] = Topic(name, [[] for _ in range(queues)])

    def delete_topic(self, instance: int, name: str) -> None:
        answer = self.clients[instance].delete(f"/topics/{name}")
        if self._is_refused(answer, name):
            return
        assert answer.status == 204
        del self.model.topics[name]
        self.believed_until_ms[1 - instance, name] = self.now + BELIEVED_MS

    def put_group(self, instance: int, topic: str, name: str, given: Json, start: str | int) -> None:
        if self.model.missing(topic, name) is None:
            given = {field: value for field, value in given.items() if field not in KEPT}
        answer = self.clients[instance].put(path_of(topic, name), start=start, **given)
        if self._is_refused(answer, topic):
            return
        modelled = self.model.topics[topic]
        assert answer.status == (200 if name in modelled.groups else 201)
        if name not in modelled.groups:
            kept = given.get("settle_by", "receipt"), given.get("ordered", False)
            cursors = [Cursor(offset, *kept) for offset in modelled.starts(start)]
            modelled.groups[name] = Group(next(self.model.ids), {**DEFAULTS, "start": start}, cursors)
        modelled.groups[name].settings |= given
        self._compare(topic, name, answer.json)

    def delete_group(self, instance: int, topic: str, name: str) -> None:
        answer = self.clients[instance].delete(path_of(topic, name))
        if not self._is_refused(answer, topic, name):
            assert answer.status == 204
            del self.model.topics[topic].groups[name]

    @rule(instance=instances, data=st.data())
    def move(self, instance: int, data: st.DataObject) -> None:
        self.reset(instance, *data.draw(self._places()), data.draw(self._targets()))

    def reset(self, instance: int, topic: str, name: str, to: Any) -> None:
        began_ms = self.now
        answer = self.clients[instance].post(f"{path_of(topic, name)}/reset", to=to)
        modelled = self.model.topics.get(topic)
        if modelled and isinstance(to, dict) and to.get("queue", 0) >= len(modelled.logs):
            assert answer.problem == (400, "InvalidField")  # whether the group is there or not
            return
        if self._is_refused(answer, topic, name) or modelled is None:
            return
        if isinstance(to, dict) and "queue" in to:
            queue, offset = to["queue"], to["offset"]
            if offset > len(modelled.logs[queue]):
                assert answer.problem == (400, "InvalidField")
                return
            modelled.groups[name].cursors[queue].reset(offset)
        else:
            starts = modelled.starts(to["at_ms"] if isinstance(to, dict) else to)
            group = modelled.groups[name]
            group.purged_at_ms = None if to != "now" else group.purged_by(began_ms, modelled.has_delayed)
            for cursor, offset in zip(group.cursors, starts, strict=True):
                cursor.reset(offset, group.purged_at_ms)
        self._compare(topic, name, answer.json)

    def _targets(self) -> st.SearchStrategy[Any]:
        places = st.fixed_dictionaries({"queue": st.integers(0, 2), "offset": st.integers(0, 6)})
        instants = st.sampled_from([START_MS, START_MS + 1_000, self.now, self.now - 1_000])
        return st.one_of(
            st.sampled_from(["earliest", "earliest", "latest", "now"]), places, st.builds(dict, at_ms=instants)
        )

    # -- messages -----------------------------------------------------------------------------------------------------

    @rule(instance=instances, batch=new_messages, data=st.data())
    def produce(self, instance: int, batch: list[Json], data: st.DataObject) -> None:
        topic, _ = data.draw(self._places())
        self._produce(instance, topic, batch)

    def _produce(self, instance: int, topic: str, batch: list[Json]) -> None:
        is_believer = self._is_believer(instance, topic)  # who may find the dedup ids of the topic before this one
        sent = [{**_without(message, "dedup_id" * is_believer), **self._body()} for message in batch]
        answer = self.clients[instance].post(f"/topics/{topic}/messages", messages=sent)
        if self._is_believer(instance, topic) and not self._is_stored(topic, answer):
            return
        if self._is_refused(answer, topic):
            return
        modelled = self.model.topics[topic]
        if any(message.get("queue", 0) >= len(modelled.logs) for message in batch):
            assert answer.problem == (400, "InvalidField")
            return
        assert answer.status == 200
        for message, place in zip(sent, answer.json["messages"], strict=True):
            self._keep(modelled, message, place)

    def _keep(self, topic: Topic, message: Json, place: Json) -> None:
        """Unless its dedup id was used within five minutes."""
        dedup_id, delay_ms = message.pop("dedup_id", None), message.pop("delay_ms", 0)
        topic.has_delayed = topic.has_delayed or delay_ms > 0
        at_ms, first = topic.dedup.get(dedup_id, (self.now - DEDUP_MS, {})) if dedup_id else (0, {})
        if at_ms > self.now - DEDUP_MS:
            assert place == first
            return
        if dedup_id:
            topic.dedup[dedup_id] = self.now, place
        if delay_ms:
            self._let_wait(topic, message, place, self.now + delay_ms)
        else:
            self._store(topic, message, place)

    def _let_wait(self, topic: Topic, message: Json, place: Json, due_ms: int) -> None:
        assert place == {**place, "offset": None, "deliver_at_ms": due_ms}
        self._demand_right_queue(topic, message, place["queue"])
        given = {"message_id": place["message_id"], "queue": place["queue"], "topic": topic.name}
        shown = {"key": None, "tag": None, "properties": {}, **message, **given}
        topic.waiting[place["message_id"]] = Waiting(shown, place["queue"], due_ms, self.now)

    def _body(self) -> Json:
        """Another one each time; every third in bytes."""
        self.produced += 1
        text = f"body {self.produced}"
        return {"body": text} if self.produced % 3 else {"body_base64": base64.b64encode(text.encode()).decode()}

    def _store(self, topic: Topic, message: Json, place: Json) -> None:
        queue = place["queue"]
        assert place["offset"] == len(topic.logs[queue])
        self._demand_right_queue(topic, message, queue)
        given = {"key": None, "tag": None, "properties": {}, **message}
        topic.logs[queue].append({**given, **place, "topic": topic.name, "stored_at_ms": self.now})

    def _demand_right_queue(self, topic: Topic, message: Json, queue: int) -> None:
        if "queue" in message:
            assert queue == message["queue"]
        elif "key" in message:
            assert topic.queue_of_key.setdefault(message["key"], queue) == queue

    def _learn(self) -> None:
        """What has waited comes into the log when a pop looks for it, which the log tells."""
        for topic in self.model.topics.values():
            if not topic.waiting:
                continue
            path = f"/topics/{topic.name}"
            for queue in self.observer.get(path).json["queue_offsets"]:
                known = len(topic.logs[queue["queue"]])
                if queue["end_offset"] > known:
                    query = {"queue": queue["queue"], "offset": known, "limit": 1_000}
                    for message in self.observer.get(f"{path}/messages", **query).json["messages"]:
                        topic.meet(message, self.now)

    def _is_stored(self, topic: str, answer: Answer) -> bool:
        """Whether an instance that may cache a deleted topic has stored this in its successor."""
        if answer.status != 200 or topic not in self.model.topics:
            return False
        ids = {message["message_id"] for message in answer.json["messages"]}
        read = self.observer.get(f"/topics/{topic}").json["queue_offsets"]
        ends = [len(log) for log in self.model.topics[topic].logs]
        grown: int = sum(queue["end_offset"] for queue in read) - sum(ends)
        assert grown in (0, len(ids))
        return grown > 0

    @rule(
        instance=instances, queue=st.integers(0, 2), offset=st.integers(0, 8), limit=st.integers(1, 4), data=st.data()
    )
    def look_up(self, instance: int, queue: int, offset: int, limit: int, data: st.DataObject) -> None:
        topic, _ = data.draw(self._places())
        client = self.clients[instance]
        answer = client.get(f"/topics/{topic}/messages", queue=queue, offset=offset, limit=limit)
        if self._is_believer(instance, topic) or self._is_refused(answer, topic):
            return
        logs = self.model.topics[topic].logs
        if queue >= len(logs):
            assert answer.problem == (400, "InvalidField")
            return
        assert answer.json["messages"] == logs[queue][offset : offset + limit]
        assert (answer.json["next"] is None) == (offset + limit >= len(logs[queue]))
        for message in answer.json["messages"][:1]:
            assert client.get(f"/topics/{topic}/messages/{message['message_id']}").json == message

    # -- consuming ----------------------------------------------------------------------------------------------------

    @rule(instance=instances, max_messages=st.integers(1, 6), consumer_id=consumers, data=st.data())
    def pop(self, instance: int, max_messages: int, consumer_id: str | None, data: st.DataObject) -> None:
        place = data.draw(self._places())
        self._pop(instance, place, {"max_messages": max_messages, "consumer_id": consumer_id})

    @rule(instance=instances, fields=pop_fields, data=st.data())
    def pop_with_all_there_is(self, instance: int, fields: Json, data: st.DataObject) -> None:
        place = data.draw(self._places())
        self._pop(instance, place, {**fields, "ack": data.draw(self._receipts(*place, least=0))})

    def _pop(self, instance: int, place: tuple[str, str], fields: Json) -> None:
        began = self.now
        answer = self.clients[instance].post(f"{path_of(*place)}/pop", **fields)
        if self._is_refused(answer, *place):
            return
        assert answer.status == 200
        topic = self.model.topics[place[0]]
        group = topic.groups[place[1]]
        pop = Pop(self.model, topic, group, asked(fields, group, began))
        self._learn()
        held = {(queue, offset): group.cursors[queue].holds[offset] for queue, offset in pop.held()}
        receipts = fields.get("ack", [])
        self._judge_worths(answer.json, "acked", receipts, self.model.ack(group, receipts, began))
        if held:
            pop.judge_repeat(held, answer.json["messages"])
        else:
            pop.judge(answer.json, self.now)
            self.pop_in_doubt = pop
            self.every_group_is_where_the_model_has_it()

    @precondition(lambda self: self.model.tickets)
    @rule(instance=instances, data=st.data())
    def ack(self, instance: int, data: st.DataObject) -> None:
        topic, name = data.draw(self._places())
        receipts = data.draw(self._receipts(topic, name))
        answer = self.clients[instance].post(f"{path_of(topic, name)}/ack", receipts=receipts)
        if not self._is_refused(answer, topic, name):
            group = self.model.topics[topic].groups[name]
            self._judge_worths(answer.json, "acked", receipts, self.model.ack(group, receipts, self.now))

    @precondition(lambda self: self.model.tickets)
    @rule(instance=instances, delay_ms=st.sampled_from([None, 0, 0, 2_000]), reason=reasons, data=st.data())
    def nack(self, instance: int, delay_ms: int | None, reason: str, data: st.DataObject) -> None:
        topic, name = data.draw(self._places())
        receipts = data.draw(self._receipts(topic, name))
        path = f"{path_of(topic, name)}/nack"
        answer = self.clients[instance].post(path, receipts=receipts, delay_ms=delay_ms, reason=reason)
        if self._is_refused(answer, topic, name):
            return
        group = self.model.topics[topic].groups[name]
        held = self.model.held(group, receipts, self.now)
        for queue, offset in {(ticket.queue, ticket.offset) for ticket, _ in held.values()}:
            group.cursors[queue].nack(offset, self.now, delay_ms, group.settings["max_attempts"], reason)
        self._judge_worths(answer.json, "nacked", receipts, self._moved(group, receipts, held))

    @precondition(lambda self: self.model.tickets)
    @rule(instance=instances, invisible_ms=durations, data=st.data())
    def extend(self, instance: int, invisible_ms: int, data: st.DataObject) -> None:
        topic, name = data.draw(self._places())
        receipts = data.draw(self._receipts(topic, name))
        path = f"{path_of(topic, name)}/extend"
        answer = self.clients[instance].post(path, receipts=receipts, invisible_ms=invisible_ms)
        if self._is_refused(answer, topic, name):
            return
        group = self.model.topics[topic].groups[name]
        held = self.model.held(group, receipts, self.now)
        extended = {lease["receipt"]: lease for lease in answer.json["extended"]}
        self._judge_failed(answer.json["failed"], receipts, self._moved(group, receipts, held))
        assert sorted(lease["receipt"] for lease in answer.json["extended"]) == sorted(
            receipt for receipt in receipts if receipt in held
        )
        for receipt, (ticket, cursor) in held.items():
            until_ms, new = self.now + invisible_ms, extended[receipt]["new_receipt"]
            assert extended[receipt]["invisible_until_ms"] == until_ms
            known = self.model.tickets.get(new)
            assert known is None or (cursor.settle_by != "receipt" and known.place == ticket.place)
            cursor.extend(ticket.offset, new if new != receipt else None, until_ms)
            self.model.tickets.setdefault(new, replace(ticket, until_ms=until_ms))

    @rule(ms=st.sampled_from([1, 499, 500, 1_000, 2_000, 5_001, 10_000, 30_000, 270_000, 700_000]))
    def wait(self, ms: int) -> None:
        self.clock.sleep(ms)

    # -- names and receipts ----------------------------------------------------------------------------------------

    def _places(self) -> st.SearchStrategy[tuple[str, str]]:
        """A topic and a group: mostly such as there are."""
        there = [(topic.name, name) for topic in self.model.topics.values() for name in topic.groups]
        return st.sampled_from(12 * there + [(topic, name) for topic in TOPICS for name in GROUPS])

    def _receipts(self, topic: str, name: str, least: int = 1) -> st.SearchStrategy[list[str]]:
        """The newest ones of the group, any that were ever given out, and some that were not."""
        kinds = [st.sampled_from(["x", "", "MTox"])]
        if self.model.missing(topic, name) is None:
            group = self.model.topics[topic].groups[name]
            newest = self.model.newest(group)
            kinds = [st.sampled_from(newest)] * 5 + kinds if newest else kinds
        if self.model.tickets:
            any_of_them = st.sampled_from(list(self.model.tickets))
            kinds += [any_of_them, st.builds(altered, any_of_them, st.integers(0, 150))]
        return st.lists(st.one_of(kinds), min_size=least, max_size=4)

    def _moved(self, group: Group, receipts: list[str], held: Json) -> list[str]:
        lost = {receipt: LOST if self.model.place(group, receipt) else INVALID for receipt in receipts}
        return [COUNTS if receipt in held else lost[receipt] for receipt in receipts]

    def _judge_worths(self, answer: Json, count: str, receipts: list[str], worths: list[str]) -> None:
        assert answer[count] == len(receipts) - len(answer["failed"])
        self._judge_failed(answer["failed"], receipts, worths)

    def _judge_failed(self, failed: list[Json], receipts: list[str], worths: list[str]) -> None:
        codes = {failure["receipt"]: failure["code"] for failure in failed}
        for receipt, worth in zip(receipts, worths, strict=True):
            answered = codes.get(receipt, COUNTS)
            assert answered in ((COUNTS, LOST) if worth == EITHER else (worth,)), (receipt, answered, worth)
        assert sorted(failure["receipt"] for failure in failed) == sorted(
            receipt for receipt in receipts if receipt in codes
        )

    # -- comparing ----------------------------------------------------------------------------------------------------

    def _is_refused(self, answer: Answer, topic: str, group: str | None = None) -> bool:
        """Whether the topic or group does not exist, which the answer must then say."""
        missing = self.model.missing(topic, group)
        assert missing is None or answer.problem == missing
        return missing is not None

    def _is_believer(self, instance: int, topic: str) -> bool:
        return self.now <= self.believed_until_ms.get((instance, topic), -1)

    @invariant()
    def every_group_is_where_the_model_has_it(self) -> None:
        self._learn()
        for topic in self.model.topics.values():
            for name in topic.groups:
                self._compare(topic.name, name, self.observer.get(path_of(topic.name, name)).json)
        self.pop_in_doubt = None

    def _compare(self, topic: str, name: str, seen: Json) -> None:
        modelled = self.model.topics[topic]
        if self.pop_in_doubt and self.pop_in_doubt.group is modelled.groups[name]:
            self._settle_doubt(self.pop_in_doubt, seen)
        known = details(modelled, name, self.now)
        wrong = {field: (seen.get(field), value) for field, value in known.items() if seen.get(field) != value}
        assert not wrong, f"answered and expected: {wrong}"
        assert seen.keys() == {*known, "created_at_ms"}

    def _settle_doubt(self, pop: Pop, seen: Json) -> None:
        """A pop passes what its group does not want as far as it looks. One that took from one queue may have looked
        at others before, and brought all that was delivered often enough there to the dead letters; if it waited, a
        part."""
        for queue, cursor in enumerate(pop.group.cursors):
            self._pass(pop, queue, cursor, seen["queues"][queue])
        for queue, doomed in pop.doubtful.items():
            cursor, end = pop.group.cursors[queue], len(pop.topic.logs[queue])
            buried = len(cursor.ready(self.now, end)) - seen["queues"][queue]["ready"]
            assert buried in range(len(doomed) + 1)
            assert pop.asked.wait_ms or buried in (0, len(doomed))
            for offset in doomed[:buried]:
                cursor.bury(offset, pop.asked.now, self.now)

    def _pass(self, pop: Pop, queue: int, cursor: Cursor, seen: Json) -> None:
        passed = range(cursor.next, seen["next_offset"])
        if passed:
            assert pop.group.unwanted(queue, pop.topic.logs[queue]).issuperset(passed)
            assert pop.asked.now <= seen["last_pop_at_ms"] <= self.now
            cursor.next, cursor.last_pop_at_ms = seen["next_offset"], seen["last_pop_at_ms"]
            cursor.last_consumer_id = pop.asked.consumer_id


def path_of(topic: str, group: str) -> str:
    return f"/topics/{topic}/groups/{group}"


def _without(message: Json, field: str) -> Json:
    return {name: value for name, value in message.items() if name != field}
