"""What operators set and see: alarms, rates, full queues, topics for dead messages. Each step asks one of two instances
of the service and the model, and compares the answers."""

from __future__ import annotations

import re
from dataclasses import replace

from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from chalicelib.core.base.limits import DEDUP_MS
from tests.model.cursor import COUNTS, EITHER, INVALID, LOST
from tests.model.keeping import DEAD_TOPIC, TOPICS, instances
from tests.model.model import Json, Waiting, altered
from tests.model.popping import asked
from tests.model.tended import ALARMS, LOOK_MS, Look, TendedTopic
from tests.model.tended_pops import Taking
from tests.model.watching import Watching
from tests.support.client import Answer
from tests.support.small import small_pages, small_segments

GROUPS = ("billing", "shipping")
PAGER = "pager"
"""The only group of the topic of alarms: what its alarm sends is its own backlog."""
SWEEPS = ("revive", "revive", "revive", "forward", "expire", "ttl")
KINDS = (
    *(*9 * ["work"], *4 * ["pop"], *6 * ["settle"], *9 * ["produce"]),
    *(*6 * ["approach"], "wait", *5 * ["check"], *3 * ["maintain"]),
    *(*4 * ["change_group"], "change_depth", *2 * ["upheaval"]),
    *(*5 * ["trace"], "list_groups", "list_topics", "scrape"),
)
VERBS = {"ack": "acked", "nack": "nacked", "extend": "extended", "bury": "buried"}

edges = st.sampled_from([-1, 0, 0, 1])
"""How far from a limit."""
reasons = st.sampled_from(["", "broken", "gone"])
alarms = st.sampled_from(
    [
        {},
        {"ready": 1},
        {"ready": 2},
        {"ready": 3, "age_ms": None},
        {"ready": 4, "age_ms": 5_000},
        {"age_ms": 2_000},
        None,
    ]
)
rates = st.sampled_from([0.5, 1, 1.5, 2, 2, 2.5, 3, 1_000])
backoffs = st.sampled_from(
    [
        [0],
        [1_000, 5_000],
        [0, 500],
        [500, 2_000, 500],
        {"initial_ms": 100, "multiplier": 3, "max_ms": 1_000},
        {"initial_ms": 5, "multiplier": 1.5, "max_ms": 10},
    ]
)
changes = {
    "invisible_ms": st.sampled_from([0, 1_000, 5_000, 20_000]),
    "max_attempts": st.sampled_from([1, 1, 2, 3, None]),
    "max_in_flight": st.sampled_from([1, 2, 3, 1_000]),
    "paused": st.sampled_from([False, False, False, True]),
    "rate_limit": rates,
    "alarm": alarms,
    "backoff_ms": backoffs,
}
CHANGES = (*changes, "alarm", "alarm", "dead_letters", "dead_letters", "several")
first_settings = st.fixed_dictionaries(
    {"max_attempts": st.sampled_from([1, 1, 2, 3, 5]), "invisible_ms": st.sampled_from([1_000, 5_000, 20_000])},
    optional={
        "alarm": alarms,
        "rate_limit": rates,
        "backoff_ms": backoffs,
        "max_in_flight": st.sampled_from([2, 3]),
    },
)
new_messages = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "key": st.sampled_from(["k1", "k1", "k2"]),
            "queue": st.sampled_from([0, 0, 1]),
            "tag": st.just("x"),
            "properties": st.sampled_from([{"p": "1"}, {"decant.reason": "mine"}]),
            "dedup_id": st.sampled_from(["d1", "d2", "d3"]),
            "delay_ms": st.sampled_from([1, 500, 3_000]),
        },
    ),
    min_size=1,
    max_size=4,
)
pop_fields = st.fixed_dictionaries(
    {"max_messages": st.integers(1, 5)},
    optional={
        "consumer_id": st.sampled_from(["c1", "c2"]),
        "invisible_ms": st.sampled_from([1, 1_000, 10_000]),
        "attempt_id": st.sampled_from(["a1", "a2"]),
    },
)


class Tending(Watching):
    # -- administering ------------------------------------------------------------------------------------------------

    @initialize(
        queues=st.sampled_from([1, 2, 2]),
        settings=st.lists(first_settings, min_size=3, max_size=3),
        depth=st.sampled_from([None, 2, 3, 5]),
        traced=st.sampled_from([True, True, True, False]),
        is_small=st.booleans(),
        source=st.sampled_from([{}, {"source": "s1"}]),
    )
    def begin(
        self, queues: int, settings: list[Json], depth: int | None, traced: bool, is_small: bool, source: Json
    ) -> None:
        """Two topics, and what dies in one mostly moves to the other. `is_small`: segments and retry pages are."""
        self.is_small = is_small
        if is_small:
            self.limits.enter_context(small_segments())
            self.limits.enter_context(small_pages())
        self.make_topic(0, "orders", queues, traced)
        self.make_topic(0, "graves", 2, is_traced=True)
        if depth:
            self.put_topic(0, "orders", max_depth=depth)
        first, second, third = settings
        self.put_group(0, "orders", "billing", {**first, "dead_letters": {"topic": "graves", **source}})
        self.put_group(1, "orders", "shipping", second)
        self.put_group(0, "graves", "billing", {**third, "dead_letters": {"topic": "orders", **source}})
        if source:
            self.make_topic(0, ALARMS, 2, is_traced=True)
            self.put_group(0, ALARMS, PAGER, {"alarm": {"ready": 1}})
        self.clock.sleep(5_001)
        self._produce(0, "orders", [{"key": "k1"}, {"key": "k2"}, {"queue": queues - 1, "delay_ms": 1}])
        self._produce(0, "graves", [{"queue": 1}, {"queue": 1, "delay_ms": 1}])

    @rule(kinds=st.lists(st.sampled_from(KINDS), min_size=2, max_size=2), data=st.data())
    def act(self, kinds: list[str], data: st.DataObject) -> None:
        """One rule for all, by weights of their own: those of hypothesis leave out some rules for the whole history."""
        for kind in kinds:
            getattr(self, kind)(data.draw(instances), data)
            self.settle_doubts()
            self.learn()

    def change_group(self, instance: int, data: st.DataObject) -> None:
        """One setting, or several of a group that may be new."""
        topic, group = data.draw(self._places())
        name = data.draw(st.sampled_from(CHANGES))
        if name == "several":
            given: Json = data.draw(first_settings)
            group = data.draw(st.sampled_from(GROUPS)) if topic != ALARMS else PAGER
        elif name == "dead_letters":
            to = {"topic": DEAD_TOPIC[topic]}
            given = {name: data.draw(st.sampled_from([None, to, to, {**to, "source": "s1"}]))}
        else:
            given = {name: data.draw(changes[name])}
        self.put_group(instance, topic, group, given)
        if name == "alarm" and data.draw(st.booleans()):
            self._flap(topic, group, data)

    def _flap(self, topic: str, group: str, data: st.DataObject) -> None:
        """The alarm changes again, at once."""
        for alarm in (data.draw(alarms), data.draw(alarms)):
            self.sweep(data.draw(instances), "check")
            self.put_group(data.draw(instances), topic, group, {"alarm": alarm})
        self.sweep(data.draw(instances), "check")

    def change_depth(self, instance: int, data: st.DataObject) -> None:
        topic, depth = data.draw(st.sampled_from(TOPICS)), data.draw(st.sampled_from([1, 2, 3, 5, "unlimited"]))
        if topic in self.model.topics:
            self.put_topic(instance, topic, max_depth=depth)

    def upheaval(self, instance: int, data: st.DataObject) -> None:
        kind = data.draw(st.sampled_from(["group", "topic", "topic", "topic", "alarms", "reset"]))
        topic, name = data.draw(self._places())
        again = data.draw(st.booleans())
        if kind == "topic" and not self.is_small:
            self._replace_topic(instance, "graves", again, data)
        elif kind == "alarms" and (ALARMS in self.model.topics or again):
            self._replace_topic(instance, ALARMS, again, data)
        elif kind == "reset":
            self._reset(instance, topic, name, data.draw(st.sampled_from(["earliest", "latest"])))
        elif kind == "group":
            answer = self.clients[instance].delete(f"/topics/{topic}/groups/{name}")
            if not self._is_refused(answer, topic, name):
                del self.model.topics[topic].groups[name]
                if again:
                    self.put_group(1 - instance, topic, name, data.draw(first_settings))

    def _replace_topic(self, instance: int, topic: str, again: bool, data: st.DataObject) -> None:
        self.delete_topic(instance, topic)
        if again:
            self.make_topic(instance, topic, 2, is_traced=True)
            name = PAGER if topic == ALARMS else "billing"
            self.put_group(1 - instance, topic, name, data.draw(first_settings))

    def _reset(self, instance: int, topic: str, name: str, to: str) -> None:
        answer = self.clients[instance].post(f"/topics/{topic}/groups/{name}/reset", to=to)
        if self._is_refused(answer, topic, name):
            return
        group = self.group(topic, name)
        for cursor, offset in zip(group.cursors, self.model.topics[topic].starts(to), strict=True):
            cursor.reset(offset)
        self._compare(topic, name, answer.json)

    def maintain(self, instance: int, data: st.DataObject) -> None:
        self.sweep(instance, data.draw(st.sampled_from(SWEEPS)))

    def check(self, instance: int, data: st.DataObject) -> None:
        self.sweep(instance, "check")

    def wait(self, instance: int, data: st.DataObject) -> None:
        self.clock.sleep(data.draw(st.sampled_from([1, 500, 1_000, 2_000, 5_001, 60_000, DEDUP_MS])))

    def approach(self, instance: int, data: st.DataObject) -> None:
        """Waits for something to end, or nearly."""
        ahead = [sorted({limit for limit in limits if limit > self.now}) for limits in self._limits()]
        kinds = [limits for limits in ahead if limits]
        if kinds:
            limit = data.draw(st.sampled_from(data.draw(st.sampled_from(kinds))[:4]))
            self.clock.sleep(max(0, limit + data.draw(edges) - self.now))

    def _limits(self) -> list[list[int]]:
        """By kind: the instants at which something ends."""
        groups, topics = list(self._groups()), [self._topic(name) for name in self.model.topics]
        holds = [hold.until_ms for _, _, group in groups for cursor in group.cursors for hold in cursor.holds.values()]
        windows = [group.window.end_ms(group.settings["rate_limit"]) for _, _, group in groups if group.window.began_ms]
        ages = [
            message["stored_at_ms"] + (group.settings["alarm"] or {}).get("age_ms", 0)
            for topic, _, group in groups
            for log in topic.logs
            for message in log
        ]
        looks = [look.at_ms + LOOK_MS for topic in topics for look in topic.looks.values()]
        dues = [waiting.due_ms for topic in topics for waiting in topic.waiting.values()]
        firsts = [at_ms + DEDUP_MS for topic in topics for at_ms, _ in topic.dedup.values()]
        return [holds, holds, windows, ages, looks, dues, firsts]

    # -- producing ----------------------------------------------------------------------------------------------------

    def produce(self, instance: int, data: st.DataObject) -> None:
        topic = data.draw(st.sampled_from(["orders", "orders", "orders", "graves"]))
        self._produce(self.knowing(instance, topic), topic, data.draw(new_messages))

    def _produce(self, instance: int, topic: str, batch: list[Json]) -> None:
        sent = [{**message, "body": self._body()} for message in batch]
        answer = self.clients[instance].post(f"/topics/{topic}/messages", messages=sent)
        if self._is_refused(answer, topic):
            return
        modelled = self._topic(topic)
        if any(message.get("queue", 0) >= len(modelled.logs) for message in sent):
            assert answer.problem == (400, "InvalidField")
            return
        firsts: dict[str, Json] = {}
        sent = [
            firsts.setdefault(message["dedup_id"], message) if "dedup_id" in message else message for message in sent
        ]
        full = modelled.full(instance, self.now)
        if answer.status == 429:
            self._judge_refused(modelled, answer, sent, full)
            return
        stored = 0
        for message, place in zip(sent, answer.json["messages"], strict=True):
            if "error" in place:
                self._judge_full(modelled, message, place, instance)
            else:
                stored += 1
                self._keep(modelled, message, place, set(full), instance)
        assert answer.status == (200 if stored == len(sent) else 207)
        assert stored
        self.counts[instance].messages["produced", topic, ""] += stored

    def _body(self) -> str:
        self.sent += 1
        return f"body {self.sent}"

    def _judge_refused(self, topic: TendedTopic, answer: Answer, sent: list[Json], full: dict[int, Look]) -> None:
        assert answer.problem == (429, "QueueFull")
        assert int(answer.headers["Retry-After"]) >= 1
        for message in sent:
            assert "delay_ms" not in message
            assert self._first(topic, message) is None
            assert self._possible(topic, message) <= full.keys()
        self._judge_detail(topic, answer.json["detail"], full, set(full))

    def _possible(self, topic: TendedTopic, message: Json) -> set[int]:
        """The queues that it may go to, as far as they are known: of a key, none before its first message."""
        if "queue" in message:
            return {message["queue"]}
        if "key" in message:
            return {topic.queue_of_key[message["key"]]} if message["key"] in topic.queue_of_key else set()
        return set(range(len(topic.logs)))

    def _first(self, topic: TendedTopic, message: Json) -> Json | None:
        """The answer of its dedup id."""
        at_ms, first = topic.dedup.get(message.get("dedup_id", ""), (self.now - DEDUP_MS, {}))
        return first if at_ms > self.now - DEDUP_MS else None

    def _judge_full(self, topic: TendedTopic, message: Json, place: Json, instance: int) -> None:
        full = topic.full(instance, self.now)
        assert place.keys() == {"error"}
        assert place["error"]["code"] == "QueueFull"
        assert self._first(topic, message) is None
        self._judge_detail(topic, place["error"]["detail"], full, self._possible(topic, message) or set(full))
        if not {"queue", "key"} & message.keys():
            assert len(full) == len(topic.logs)

    def _judge_detail(self, topic: TendedTopic, detail: str, full: dict[int, Look], possible: set[int]) -> None:
        """It says which queue is full, for whom, and how full."""
        numbers, depth_max = [int(number) for number in re.findall(r"\d+", detail)], topic.settings["max_depth"]
        told = [queue for queue in possible & full.keys() if numbers == [queue, full[queue].waiting(queue), depth_max]]
        assert told, (detail, possible, full)
        assert any(f"'{name}'" in detail for name in full[told[0]].slow[told[0]].groups)

    def _keep(self, topic: TendedTopic, message: Json, place: Json, full: set[int], instance: int) -> None:
        """Unless its dedup id was used within five minutes."""
        dedup_id, delay_ms = message.get("dedup_id"), message.get("delay_ms", 0)
        message = {field: value for field, value in message.items() if field not in ("dedup_id", "delay_ms")}
        first = self._first(topic, {"dedup_id": dedup_id}) if dedup_id else None
        if delay_ms:
            topic.delays(instance, self.now)
        if first:
            assert place == first
            return
        if dedup_id:
            topic.dedup[dedup_id] = self.now, place
        queue = place["queue"]
        self._demand_right_queue(topic, message, queue)
        given = {"message_id": place["message_id"], "queue": queue, "topic": topic.name}
        shown = {"key": None, "tag": None, "properties": {}, **message, **given}
        if delay_ms:
            assert place == {**place, "offset": None, "deliver_at_ms": self.now + delay_ms}
            topic.waiting[place["message_id"]] = Waiting(shown, queue, self.now + delay_ms, self.now)
            return
        assert queue not in full
        assert place["offset"] == len(topic.logs[queue])
        topic.logs[queue].append({**shown, "offset": place["offset"], "stored_at_ms": self.now})
        topic.note(instance, queue)

    def _demand_right_queue(self, topic: TendedTopic, message: Json, queue: int) -> None:
        if "queue" in message:
            assert queue == message["queue"]
        elif "key" in message:
            assert topic.queue_of_key.setdefault(message["key"], queue) == queue

    # -- consuming ----------------------------------------------------------------------------------------------------

    def pop(self, instance: int, data: st.DataObject) -> None:
        topic, name = data.draw(self._places())
        receipts = data.draw(st.one_of(st.just([]), self._receipts(topic, name)))
        self._pop(instance, (topic, name), data.draw(pop_fields), receipts)

    def work(self, instance: int, data: st.DataObject) -> None:
        """Pops, and does something with what there is then."""
        place = data.draw(self._places())
        self._pop(instance, place, data.draw(pop_fields), [])
        self.settle_doubts()
        if self.model.missing(*place) is None:
            self._settle(data.draw(instances), place, data)

    def _pop(self, instance: int, at: tuple[str, str], fields: Json, receipts: list[str]) -> None:
        topic, name = at
        self.touched.add(at)
        answer = self.clients[instance].post(f"/topics/{topic}/groups/{name}/pop", **fields, ack=receipts)
        if self._is_refused(answer, topic, name):
            return
        modelled, group = self._topic(topic), self.group(topic, name)
        self.learn_of(modelled)
        pop = Taking(self, modelled, name, asked(fields, group, self.now), instance)
        held = {(queue, offset): group.cursors[queue].holds[offset] for queue, offset in pop.held()}
        self._judge_acks(modelled, name, answer.json, receipts, instance)
        own = {field: value for field, value in answer.json.items() if field not in ("acked", "failed")}
        if held:
            assert own.keys() == {"messages"}
            pop.judge_repeat(held, own["messages"])
        else:
            pop.judge(own, self.now)

    def _judge_acks(self, topic: TendedTopic, name: str, seen: Json, receipts: list[str], instance: int) -> None:
        worths = self.model.ack(self.group(topic.name, name), receipts, self.now)
        counted = self._judge_worths(topic, name, "acked", seen, receipts, worths, instance)
        self._note(topic, name, counted, {"event": "acked"})

    def _judge_worths(
        self,
        topic: TendedTopic,
        name: str,
        done: str,
        seen: Json,
        receipts: list[str],
        worths: list[str],
        instance: int,
    ) -> list[str]:
        """The receipts that counted, which are noted."""
        codes = {failure["receipt"]: failure["code"] for failure in seen["failed"]}
        assert sorted(failure["receipt"] for failure in seen["failed"]) == sorted(
            receipt for receipt in receipts if receipt in codes
        )
        for receipt, worth in zip(receipts, worths, strict=True):
            answered = codes.get(receipt, COUNTS)
            assert answered in ((COUNTS, LOST) if worth == EITHER else (worth,)), (receipt, answered, worth)
        counted = [receipt for receipt in receipts if receipt not in codes]
        number = len(seen[done]) if done == "extended" else seen[done]
        assert number == len(counted)
        self.counts[instance].messages[done, topic.name, name] += number
        return counted

    def _note(self, topic: TendedTopic, name: str, receipts: list[str], event: Json) -> None:
        """What a call did by these receipts: once for each delivery."""
        tickets = [(self.model.tickets[receipt], self.attempts[receipt]) for receipt in receipts]
        for queue, offset, attempt in {(ticket.queue, ticket.offset, attempt) for ticket, attempt in tickets}:
            self.note(topic, name, (queue, offset), attempt, event)

    def settle(self, instance: int, data: st.DataObject) -> None:
        """Mostly what somebody has."""
        there = [(topic.name, name) for topic, name, group in self._groups() if self.model.newest(group)]
        self._settle(instance, data.draw(st.sampled_from(there) if there else self._places()), data)

    def _settle(self, instance: int, at: tuple[str, str], data: st.DataObject) -> None:
        topic, name = at
        self.touched.add(at)
        receipts, reason = data.draw(self._receipts(topic, name)), data.draw(reasons)
        verb = data.draw(st.sampled_from(["ack", "nack", "nack", "nack", "extend", "bury"]))
        delay_ms = data.draw(st.sampled_from([None, None, None, 0, 2_000]))
        invisible_ms = data.draw(st.sampled_from([0, 1, 2_000, 10_000]))
        why: Json = {"reason": reason}
        about: dict[str, Json] = {
            "nack": {**why, "delay_ms": delay_ms},
            "extend": {"invisible_ms": invisible_ms},
            "bury": why,
        }
        answer = self.clients[instance].post(
            f"/topics/{topic}/groups/{name}/{verb}", receipts=receipts, **about.get(verb, {})
        )
        self.calls += 1
        if self._is_refused(answer, topic, name):
            return
        modelled, group = self._topic(topic), self.group(topic, name)
        if verb == "ack":
            self._judge_acks(modelled, name, answer.json, receipts, instance)
            return
        held = self.model.held(group, receipts, self.now)
        lost = {receipt: LOST if self.model.place(group, receipt) else INVALID for receipt in receipts}
        worths = [COUNTS if receipt in held else lost[receipt] for receipt in receipts]
        counted = self._judge_worths(modelled, name, VERBS[verb], answer.json, receipts, worths, instance)
        told: Json = {"invisible_until_ms": self.now + invisible_ms} if verb == "extend" else why
        self._note(
            modelled, name, counted, {"event": VERBS[verb], **{field: value for field, value in told.items() if value}}
        )
        if verb == "extend":
            self._extended(answer.json["extended"], held, self.now + invisible_ms)
            return
        for queue, offset in sorted({(ticket.queue, ticket.offset) for ticket, _ in held.values()}):
            self._given_up(modelled, name, (queue, offset), verb, delay_ms, reason, instance)

    def _extended(self, leases: list[Json], held: Json, until_ms: int) -> None:
        extended = {lease["receipt"]: lease for lease in leases}
        for receipt, (ticket, cursor) in held.items():
            new = extended[receipt]["new_receipt"]
            assert extended[receipt] == {"receipt": receipt, "new_receipt": new, "invisible_until_ms": until_ms}
            assert new not in self.model.tickets
            cursor.extend(ticket.offset, new, until_ms)
            self.model.tickets[new] = replace(ticket, until_ms=until_ms)
            self.attempts[new] = self.attempts[receipt]

    def _given_up(
        self,
        topic: TendedTopic,
        name: str,
        place: tuple[int, int],
        verb: str,
        delay_ms: int | None,
        reason: str,
        instance: int,
    ) -> None:
        """A message that is nacked or buried. While nobody can bury it, a bury is a nack."""
        group, (queue, offset) = self.group(topic.name, name), place
        cursor, most = group.cursors[queue], group.settings["max_attempts"]
        attempt = cursor.attempts_of(offset)
        is_last = verb == "bury" or (most is not None and attempt >= most)
        if is_last and self.can_bury(group):
            self.bury(topic, name, place, reason, instance)
            return
        wait_ms = group.wait_ms(attempt) if delay_ms is None or verb == "bury" else delay_ms
        cursor.nack(offset, self.now, wait_ms, None)

    # -- names and receipts -------------------------------------------------------------------------------------------

    def _places(self) -> st.SearchStrategy[tuple[str, str]]:
        """A topic and a group: mostly such as there are."""
        there = [(topic, name) for topic in self.model.topics for name in self.model.topics[topic].groups]
        return st.sampled_from(6 * there + [(topic, name) for topic in TOPICS for name in GROUPS] + [(ALARMS, PAGER)])

    def _receipts(self, topic: str, name: str) -> st.SearchStrategy[list[str]]:
        """Mostly the newest ones of the group."""
        kinds = [st.sampled_from(["x"])]
        if self.model.missing(topic, name) is None:
            newest = self.model.newest(self.group(topic, name))
            kinds = [st.sampled_from(newest)] * 8 + kinds if newest else kinds
        if self.model.tickets:
            any_of_them = st.sampled_from(list(self.model.tickets))
            kinds += [any_of_them, st.builds(altered, any_of_them, st.integers(0, 150))]
        return st.lists(st.one_of(kinds), min_size=1, max_size=3)
