"""How long things last and where they are: messages expire, end and wait, retentions change, queues come and go. Each
step asks one of two instances of the service and the model, and compares the answers."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from tests.model.cursor import COUNTS, EITHER, INVALID, LOST, Cursor
from tests.model.lasting_topic import DAY_MS, DEDUP_MS, MINUTE_MS, LastingTopic, details, forgive
from tests.model.looking import KEYS, PATH, TOPIC, Looking, edges, instances
from tests.model.model import DEFAULTS, Group, Json, Waiting
from tests.model.popping import asked
from tests.model.taking import Taking
from tests.support.small import small_pages, small_segments

GROUPS: dict[str, bool | str] = {"billing": False, "shipping": True, "ledger": "key"}
"""By name, how they are ordered."""
HEARD_MS = 5_000
"""How long an instance may cache what it read about a topic."""
RETENTIONS_MS = (60_000, 90_000, 1_200_000, 1_200_000, DAY_MS, 3 * DAY_MS, 200 * DAY_MS)
JUMPS_MS = (1, 1_000, 1_000, 20_000, 20_000, 59_999, 6 * MINUTE_MS, 16 * MINUTE_MS, 60 * MINUTE_MS, DAY_MS, 21 * DAY_MS)
SWEEPS = ("forward", "expire", "revive", "check", "ttl")
LARGE_CHARS = 1_600

groups = st.sampled_from([*GROUPS])
VERBS = ("ack", "nack", "nack", "bury", "extend")
STEPS = {
    "produce": 4,
    "produce_for_later": 3,
    "pop": 10,
    "drain": 2,
    "settle": 5,
    "approach": 12,
    "jump": 1,
    "sweep": 2,
    "change_topic": 2,
    "lessen": 2,
    "repeat": 1,
    "put_group": 1,
    "reset": 1,
    "read_a_queue": 1,
    "read_all_queues": 1,
    "read_on": 1,
    "read_by_key": 1,
    "find": 2,
    "list_what_waits": 1,
    "cancel": 1,
    "list_the_dead": 1,
    "use_the_dead": 3,
}
"""What a step may be, and how often."""
OFTEN = {"leases": 6, "lives": 3, "waits": 3, "repeats": 1, "placements": 2, "drains": 1, "removals": 1}
"""How often time comes near to a limit of each kind."""
PROBES: dict[str, list[tuple[str, ...]]] = {
    "leases": [("pop",), ("pop",), ("pop", "list_the_dead"), ("settle", "pop"), ("sweep", "list_the_dead")],
    "lives": [("pop",), ("find",), ("find", "pop"), ("read_a_queue",), ("read_all_queues",), ("read_by_key",)],
    "waits": [("pop",), ("list_what_waits", "pop"), ("cancel",), ("pop", "cancel", "find"), ("sweep", "find")],
    "repeats": [("repeat",), ("repeat",), ("trim", "repeat")],
    "placements": [("produce_keys",)],
    "drains": [
        ("leave",),
        ("leave", "read_all_queues"),
        ("leave", "find", "use_the_dead"),
        ("list_what_waits", "leave"),
    ],
    "removals": [("trim", "read_a_queue"), ("trim", "find", "cancel"), ("trim", "pop"), ("trim", "list_the_dead")],
}
"""What a step looks at then."""


def batches(queues: int) -> st.SearchStrategy[list[Json]]:
    """New messages for a topic with so many queues, a few for one that it does not have."""
    places = st.sampled_from([*3 * [*range(queues)], queues])
    new_message = st.fixed_dictionaries(
        {},
        optional={
            "key": st.sampled_from(KEYS),
            "queue": places,
            "tag": st.sampled_from(["x", "x", "y"]),
            "dedup_id": st.sampled_from(["d1", "d2", "d3"]),
            "ttl_ms": st.sampled_from([1, 1_000, 30_000, 60_000, 100_000, DAY_MS]),
        },
    )
    return st.lists(new_message, min_size=1, max_size=4)


delays = st.sampled_from([0, 1, 1, 1_000, 1_000, 30_000, 60_000, 400_000, DAY_MS, 100 * DAY_MS])
invisible = st.sampled_from([1, 1_000, 1_000, 1_000, 20_000, 70_000, 12 * 60 * MINUTE_MS])
pop_fields = st.fixed_dictionaries(
    {"max_messages": st.sampled_from([1, 2, 3, 10])},
    optional={"invisible_ms": invisible, "consumer_id": st.just("c1")},
)
group_settings = st.fixed_dictionaries(
    {
        "invisible_ms": invisible,
        "max_attempts": st.sampled_from([1, 2, 2, 3, None]),
        "settle_by": st.sampled_from(["receipt", "receipt", "delivery", "message"]),
        "filter": st.sampled_from([None, None, {"tags": ["x"]}, {"tags": ["x", "y"]}]),
    }
)


class Lasting(Looking):
    def __init__(self) -> None:
        super().__init__()
        self.limits = ExitStack()
        self.sent = self.steps = 0
        self.stale_until_ms = {0: 0, 1: 0}
        """Until when an instance may cache the topic as it was."""

    def teardown(self) -> None:
        self.limits.close()
        super().teardown()

    # -- topic and groups ---------------------------------------------------------------------------------------------

    @initialize(
        queues=st.sampled_from([1, 2, 3, 3]),
        retention_ms=st.sampled_from(RETENTIONS_MS),
        settings=st.fixed_dictionaries(dict.fromkeys(GROUPS, group_settings)),
        has_index=st.sampled_from([True, True, False]),
        is_small=st.booleans(),
    )
    def begin(self, queues: int, retention_ms: int, settings: Json, has_index: bool, is_small: bool) -> None:
        """`is_small`: segments and retry pages are."""
        if is_small:
            self.limits.enter_context(small_segments())
            self.limits.enter_context(small_pages())
        given = {"queues": queues, "retention_ms": retention_ms, "index_keys": has_index}
        answer = self.clients[0].put(PATH, **given)
        logs: list[list[Json]] = [[] for _ in range(queues)]
        topic = LastingTopic(TOPIC, logs, queues=queues, readers=queues, retention_ms=retention_ms)
        topic.index_keys, topic.created_at_ms, topic.placements = has_index, self.now, [(0, queues)]
        self.model.topics[TOPIC] = topic
        assert (answer.status, answer.json) == (201, topic.settings())
        for name in GROUPS:
            self._make_group(0, name, settings[name], "earliest")
        self._produce(0, [{"key": "k1"}, {"key": "k1"}, {"key": "k2"}, {"queue": 0}])

    @rule(
        kind=st.sampled_from([kind for kind, often in STEPS.items() for _ in range(often)]),
        instance=instances,
        data=st.data(),
    )
    def step(self, kind: str, instance: int, data: st.DataObject) -> None:
        """One rule for all: of many, Hypothesis would leave out half in each example, and few things would meet. If
        there is nothing to look at any more, there is again."""
        if not any(self.topic.readable(queue, self.now) for queue in range(self.topic.readers)):
            self._produce(instance, [{"key": "k1"}, {"key": "k1", "ttl_ms": 60_000}, {"key": "k2"}, {"tag": "x"}])
        if kind == "settle" and not any(self.model.newest(group) for group in self.topic.groups.values()):
            self._pop(instance, data.draw(groups), {"max_messages": 2}, [])
        getattr(self, kind)(instance, data)

    def change_topic(self, instance: int, data: st.DataObject) -> None:
        given: Json = {}
        kind = data.draw(st.sampled_from(["retention", "retention", "queues", "queues", "both"]))
        if kind != "queues":
            given["retention_ms"] = data.draw(st.sampled_from(RETENTIONS_MS))
        if kind != "retention":
            given["queues"] = data.draw(st.sampled_from([1, 1, 1, 2, 2, 3, 4]))
        self._put_topic(instance, given)

    def _put_topic(self, instance: int, given: Json) -> None:
        answer = self.clients[instance].put(PATH, **given)
        topic, queues = self.topic, given.get("queues", self.topic.queues)
        if queues > topic.queues and not topic.finish_draining(self.now):
            assert answer.problem == (409, "QueuesDraining")
        else:
            topic.resize(queues, self.now)
            if given.get("retention_ms", topic.retention_ms) != topic.retention_ms:
                topic.retain(given["retention_ms"], self.now)
            assert (answer.status, answer.json) == (200, topic.settings())
        self._note_change(instance)

    def _note_change(self, instance: int | None) -> None:
        """The topic was changed, by this instance or by both."""
        for other in (0, 1):
            if other != instance:
                self.stale_until_ms[other] = self.now + HEARD_MS

    def _informed(self, instance: int) -> int:
        """The instance, once it has heard of the last change: what it does within five seconds is not modelled."""
        if self.now <= self.stale_until_ms[instance]:
            assert self.clients[instance].get(PATH).json == self.topic.shown(self.now)
            self.stale_until_ms[instance] = 0
        return instance

    def put_group(self, instance: int, data: st.DataObject) -> None:
        """How its receipts settle, and after how many attempts it gives up, stays."""
        name, settings = data.draw(groups), data.draw(group_settings)
        if data.draw(st.booleans()):
            assert self.clients[instance].delete(f"{PATH}/groups/{name}").status == 204
            del self.topic.groups[name]
            starts: st.SearchStrategy[str | int] = st.sampled_from(["earliest", "latest", self._instant(1, data)])
            self._make_group(1 - instance, name, settings, data.draw(starts))
            return
        given = {field: settings[field] for field in ("invisible_ms", "filter") if settings[field] is not None}
        answer = self.clients[instance].put(f"{PATH}/groups/{name}", **given)
        self.topic.groups[name].settings |= given
        assert answer.status == 200
        self._compare(name, answer.json)

    def _make_group(self, instance: int, name: str, given: Json, start: str | int) -> None:
        answer = self.clients[instance].put(f"{PATH}/groups/{name}", ordered=GROUPS[name], start=start, **given)
        assert answer.status == 201
        settings = {**DEFAULTS, **given, "ordered": GROUPS[name], "start": start}
        cursors = [Cursor(0, given["settle_by"], GROUPS[name]) for _ in self.topic.logs]
        group = self.topic.groups[name] = Group(next(self.model.ids), settings, cursors)
        for queue, cursor in enumerate(cursors):
            cursor.next = self._target(queue, start, answer.json)
        self._compare(name, answer.json)
        assert group is self.topic.groups[name]

    def _target(self, queue: int, to: str | int, seen: Json) -> int:
        """Where a group begins in a queue."""
        if to == "earliest":
            return 0
        if to == "latest":
            return len(self.topic.logs[queue])
        allowed = self.topic.offsets_at(queue, int(to), self.now)
        shown: int = seen["queues"][queue]["next_offset"] if queue < self.topic.readers else allowed[0]
        assert shown in allowed
        return shown

    def reset(self, instance: int, data: st.DataObject) -> None:
        topic, now, name = self.topic, self.now, data.draw(groups)
        to = self._reset_to(
            data.draw(st.sampled_from(["earliest", "earliest", "latest", "at", "queue", "queue"])), data
        )
        answer = self.clients[instance].post(f"{PATH}/groups/{name}/reset", to=to)
        group = topic.groups[name]
        if isinstance(to, dict) and "queue" in to:
            queue, offset = to["queue"], to["offset"]
            if queue >= topic.readers or not topic.first(queue, now) <= offset <= len(topic.logs[queue]):
                assert answer.problem == (400, "InvalidField")
                return
            group.cursors[queue].reset(offset)
        else:
            for queue in range(topic.readers):
                target = self._target(queue, to["at_ms"] if isinstance(to, dict) else to, answer.json)
                group.cursors[queue].reset(target)
        self._compare(name, answer.json)

    def _reset_to(self, kind: str, data: st.DataObject) -> Any:
        if kind == "queue":
            queue = data.draw(st.integers(0, 3))
            ends = [0]
            if queue < self.topic.most:
                ends += [self.topic.first(queue, self.now), len(self.topic.logs[queue])]
            return {"queue": queue, "offset": max(0, data.draw(st.sampled_from(ends)) + data.draw(edges))}
        return {"at_ms": self._instant(data.draw(edges), data)} if kind == "at" else kind

    # -- time and maintenance -----------------------------------------------------------------------------------------

    def approach(self, instance: int, data: st.DataObject) -> None:
        """Waits for something to end or to begin, or nearly, and looks at just that."""
        kinds = {kind: sorted({at_ms for at_ms in own if at_ms > self.now}) for kind, own in self._limits().items()}
        known = [kind for kind, often in OFTEN.items() if kinds[kind] for _ in range(often)]
        kind = data.draw(st.sampled_from(known or ["leases"]))
        if ahead := kinds[kind]:
            at_ms = data.draw(st.sampled_from([ahead[0], ahead[0], *ahead[:3], ahead[-1]]))
            self.clock.sleep(max(0, at_ms + data.draw(edges) - self.now))
        for probe in data.draw(st.sampled_from(PROBES[kind])):
            getattr(self, probe)(instance, data)

    def _limits(self) -> dict[str, Iterator[int]]:
        topic = self.topic
        return {
            "leases": topic.leases(),
            "lives": iter([*topic.retained.values(), *topic.ends.values()]),
            "waits": (waiting.due_ms for waiting in topic.waiting.values()),
            "repeats": (at_ms + DEDUP_MS for at_ms, _ in topic.dedup.values()),
            "placements": (from_ms for from_ms, _ in topic.placements),
            "drains": topic.leavings(),
            "removals": topic.removals(),
        }

    def repeat(self, instance: int, data: st.DataObject) -> None:
        """Sends a dedup id again."""
        self._produce(instance, [{"dedup_id": data.draw(st.sampled_from([*self.topic.dedup, "d1"]))}])

    def produce_keys(self, instance: int, _: st.DataObject) -> None:
        self._produce(instance, [{"key": f"k{number}"} for number in range(1, 9)])

    def leave(self, instance: int, data: st.DataObject) -> None:
        """Lets queues leave that are settled, if it is time."""
        if data.draw(st.sampled_from([True, True, False])):
            self._drain(instance, [*GROUPS])
        if data.draw(st.booleans()):
            self._sweep(instance, "check")
        else:
            self._put_topic(instance, {"queues": data.draw(st.sampled_from([self.topic.queues + 1, 3]))})

    def trim(self, instance: int, data: st.DataObject) -> None:
        for name in data.draw(st.sampled_from([["expire"], ["ttl"], ["ttl", "expire"]])):
            self._sweep(instance, name)

    def lessen(self, instance: int, data: st.DataObject) -> None:
        """Takes a queue away, and mostly sees it leave."""
        if self.topic.queues == 1 and not self.topic.draining:
            self._put_topic(instance, {"queues": data.draw(st.sampled_from([2, 3]))})
            return
        self._put_topic(instance, {"queues": data.draw(st.integers(1, self.topic.queues))})
        if self.topic.draining and data.draw(st.sampled_from([True, True, False])):
            self.clock.sleep(max(0, max(self.topic.leavings()) + data.draw(edges) - self.now))
            self.leave(instance, data)

    def jump(self, _: int, data: st.DataObject) -> None:
        self.clock.sleep(data.draw(st.sampled_from(JUMPS_MS)))

    def sweep(self, instance: int, data: st.DataObject) -> None:
        self._sweep(instance, data.draw(st.sampled_from(SWEEPS)))

    def _sweep(self, instance: int, name: str) -> None:
        """Maintenance, which nobody notices but where it says so."""
        client = self.clients[instance]
        if name == "ttl":
            client.store.drop_expired(self.now)
            return
        getattr(client.api.service.sweeps, name)()
        self._learn()
        getattr(self, f"_after_{name}")()

    def _after_forward(self) -> None:
        assert not self.topic.due(self.now)

    def _after_check(self) -> None:
        self.topic.check(self.now)
        self._note_change(None)

    def _after_revive(self) -> None:
        for group in self.topic.groups.values():
            for cursor in group.cursors[: self.topic.readers]:
                for offset in cursor.doomed(self.now, group.settings["max_attempts"]):
                    cursor.bury(offset, self.now, self.now)

    def _after_expire(self) -> None:
        """It may have removed letters. Then all of the group are purged, which tells how many there were."""
        for name, group in self.topic.groups.items():
            lasting = {place for place in _letters(group) if not self.topic.may_be_gone(*place, self.now)}
            if len(lasting) < len(_letters(group)):
                purged = self.observer.delete(f"{PATH}/groups/{name}/dead").json["purged"]
                known = sum(cursor.purge() for cursor in group.cursors)
                assert len(lasting) <= purged <= known

    # -- messages -----------------------------------------------------------------------------------------------------

    def produce(self, instance: int, data: st.DataObject) -> None:
        self._produce(instance, data.draw(batches(self.topic.queues)))

    def produce_for_later(self, instance: int, data: st.DataObject) -> None:
        batch = data.draw(batches(self.topic.queues))
        self._produce(instance, [message | {"delay_ms": data.draw(delays)} for message in batch])

    def _produce(self, instance: int, batch: list[Json]) -> None:
        sent = [{**message, "body": self._body()} for message in batch]
        has_delayed = self.topic.has_delayed
        answer = self.clients[self._informed(instance)].post(f"{PATH}/messages", messages=sent)
        if any(message.get("queue", 0) >= self.topic.queues for message in batch):
            assert answer.problem == (400, "InvalidField")
            return
        assert answer.status == 200
        for message, place in zip(sent, answer.json["messages"], strict=True):
            self._keep(message, place)
        if self.topic.has_delayed and not has_delayed:
            self._note_change(instance)

    def _body(self) -> str:
        """Another one each time. Every fourth does not fit a segment."""
        self.sent += 1
        text = f"body {self.sent}"
        if self.sent % 4:
            return text
        digits = (hashlib.sha256(f"{text}.{part}".encode()).hexdigest() for part in range(LARGE_CHARS // 64))
        return text + "".join(digits)

    def _keep(self, message: Json, place: Json) -> None:
        """Unless its dedup id was used within five minutes."""
        topic, delay_ms, ttl_ms = self.topic, message.pop("delay_ms", 0), message.pop("ttl_ms", None)
        dedup_id = message.pop("dedup_id", None)
        topic.has_delayed = topic.has_delayed or delay_ms > 0
        at_ms, first = topic.dedup.get(dedup_id, (self.now - DEDUP_MS, {}))
        if at_ms > self.now - DEDUP_MS:
            assert place == first
            return
        if dedup_id:
            topic.dedup[dedup_id] = self.now, place
        queue = place["queue"]
        if "queue" in message:
            assert queue == message["queue"]
        elif "key" in message:
            topic.place(message["key"], queue, self.now)
        else:
            assert queue < topic.writers(self.now)
        shown = {"key": None, "tag": None, "properties": {}, **message, "queue": queue, "topic": TOPIC}
        shown["message_id"] = place["message_id"]
        if delay_ms:
            due_ms = self.now + delay_ms
            assert place == {**place, "offset": None, "deliver_at_ms": due_ms}
            topic.waiting[place["message_id"]] = Waiting(shown, queue, due_ms, self.now)
            topic.ttls[place["message_id"]] = ttl_ms
        else:
            assert place == {**place, "offset": len(topic.logs[queue])}
            topic.store({**shown, **place, "stored_at_ms": self.now}, ttl_ms)

    def _learn(self) -> None:
        """What has waited comes into the log when somebody looks for it, which the log tells."""
        topic = self.topic
        if not topic.due(self.now):
            return
        for queue in self.observer.get(PATH).json["queue_offsets"]:
            known = len(topic.logs[queue["queue"]])
            if queue["end_offset"] > known:
                query = {"queue": queue["queue"], "offset": known, "limit": 1_000}
                for message in self.observer.get(f"{PATH}/messages", **query).json["messages"]:
                    self._meet(message)

    def _meet(self, message: Json) -> None:
        ttl_ms = self.topic.ttls[message["message_id"]]
        log = self.topic.logs[message["queue"]]
        self.topic.meet(message, self.now)
        log.remove(message)
        assert message["stored_at_ms"] == self.now
        self.topic.store(message, ttl_ms)

    # -- consuming ----------------------------------------------------------------------------------------------------

    def pop(self, instance: int, data: st.DataObject) -> None:
        name = data.draw(groups)
        acks = data.draw(st.lists(self._receipts(name), max_size=2, unique=True))
        self._pop(instance, name, data.draw(pop_fields), acks)

    def drain(self, instance: int, data: st.DataObject) -> None:
        """Some groups take and ack all that they can get, perhaps after all leases are over."""
        if data.draw(st.booleans()):
            self.clock.sleep(max([0, *(limit - self.now for limit in self.topic.leases())]))
        self._drain(instance, data.draw(st.sampled_from([[*GROUPS], [*GROUPS], ["billing"], ["ledger"]])))

    def _drain(self, instance: int, names: list[str]) -> None:
        for name in names:
            acks: list[str] = self.model.newest(self.topic.groups[name])
            while taken := self._pop(instance, name, {"max_messages": 10}, acks[:250]):
                acks = [message["receipt"] for message in taken]

    def _pop(self, instance: int, name: str, fields: Json, acks: list[str]) -> list[Json]:
        self._give_up_what_is_gone(name)
        answer = self.clients[self._informed(instance)].post(f"{PATH}/groups/{name}/pop", **fields, ack=acks or None)
        assert answer.json.keys() == {"messages", "acked", "failed"}
        self._learn()
        group, messages = self.topic.groups[name], answer.json["messages"]
        worths = self.model.ack(group, acks, self.now)
        self._judge_settled(answer.json, "acked", acks, worths)
        seen = self.observer.get(f"{PATH}/groups/{name}").json
        Taking(self.model, self.topic, group, asked(fields, group, self.now)).judge(messages, seen)
        assert messages or not self.topic.due(self.now)
        self._compare(name, seen)
        return list(messages)

    def _give_up_what_is_gone(self, name: str) -> None:
        """What a group by key has of messages that may be removed, and of others of their keys, is not modelled."""
        cursors = self.topic.groups[name].cursors[: self.topic.readers]
        owed = [(queue, offset) for queue, cursor in enumerate(cursors) for offset in {*cursor.holds, *cursor.aside}]
        if GROUPS[name] == "key" and any(self.topic.may_be_gone(*place, self.now) for place in owed):
            assert self.observer.post(f"{PATH}/groups/{name}/reset", to="latest").status == 200
            for cursor, log in zip(cursors, self.topic.logs, strict=False):
                cursor.reset(len(log))

    def settle(self, instance: int, data: st.DataObject) -> None:
        name, verb = data.draw(self._groups_with_receipts()), data.draw(st.sampled_from(VERBS))
        ms = data.draw(st.sampled_from([None, 0, 0, 1_000, 60_000, 100_000]))
        receipts = data.draw(st.lists(self._receipts(name), min_size=1, max_size=3, unique=True))
        group, client = self.topic.groups[name], self.clients[instance]
        fields: dict[str, Json] = {"nack": {"delay_ms": ms}, "extend": {"invisible_ms": ms or 5_000}}
        more = fields.get(verb, {})
        answer = client.post(f"{PATH}/groups/{name}/{verb}", receipts=receipts, **more).json
        if verb == "ack":
            self._judge_settled(answer, "acked", receipts, self.model.ack(group, receipts, self.now))
            return
        held = self.model.held(group, receipts, self.now)
        places = {(ticket.queue, ticket.offset): receipt for receipt, (ticket, _) in held.items()}
        for queue, offset in places:
            cursor = group.cursors[queue]
            if verb == "nack":
                cursor.nack(offset, self.now, ms, group.settings["max_attempts"])
            elif verb == "bury":
                cursor.bury(offset, self.now, self.now, "")
        if verb == "extend":
            self._extend(group, answer, held, self.now + (ms or 5_000))
            answer = {"extended": len(answer["extended"]), "failed": answer["failed"]}
        lost = {receipt: LOST if self.model.place(group, receipt) else INVALID for receipt in receipts}
        worths = [COUNTS if receipt in held else lost[receipt] for receipt in receipts]
        counts = {"nack": "nacked", "bury": "buried", "extend": "extended"}
        self._judge_settled(answer, counts[verb], receipts, worths)

    def _extend(self, group: Group, answer: Json, held: Json, until_ms: int) -> None:
        assert {lease["receipt"] for lease in answer["extended"]} == held.keys()
        for lease in answer["extended"]:
            receipt, new = lease["receipt"], lease["new_receipt"]
            assert lease["invisible_until_ms"] == until_ms
            ticket, cursor = held[receipt]
            known = self.model.tickets.get(new)
            assert known is None or (cursor.settle_by != "receipt" and known.place == ticket.place)
            cursor.extend(ticket.offset, new if new != receipt else None, until_ms)
            self.model.tickets.setdefault(new, replace(ticket, until_ms=until_ms))

    def _judge_settled(self, answer: Json, count: str, receipts: list[str], worths: list[str]) -> None:
        failed = {failure["receipt"]: failure["code"] for failure in answer["failed"]}
        for receipt, worth in zip(receipts, worths, strict=True):
            assert failed.get(receipt, COUNTS) in ((COUNTS, LOST) if worth == EITHER else (worth,))
        assert (
            answer == {count: len(receipts) - len(answer["failed"]), "failed": answer["failed"]} or "messages" in answer
        )

    def _groups_with_receipts(self) -> st.SearchStrategy[str]:
        """Mostly such as have messages out."""
        holding = [name for name, group in self.topic.groups.items() if self.model.newest(group)]
        return st.sampled_from([*3 * holding, *GROUPS])

    def _receipts(self, name: str) -> st.SearchStrategy[str]:
        """Mostly such as are held."""
        held = self.model.newest(self.topic.groups[name])
        kinds = [*([st.sampled_from(held)] * 5 if held else []), st.just("x")]
        if self.model.tickets:
            kinds.append(st.sampled_from(list(self.model.tickets)))
        return st.one_of(kinds)

    # -- dead letters -------------------------------------------------------------------------------------------------

    def list_the_dead(self, instance: int, data: st.DataObject) -> None:
        """But for those whose messages may be removed."""
        name, limit = data.draw(groups), data.draw(st.sampled_from([1, 2, 100]))
        client, path = self.clients[instance], f"{PATH}/groups/{name}/dead"
        answer = client.get(path, limit=limit)
        listed: list[Json] = answer.json["messages"]
        while token := answer.json["next"]:
            answer = client.get(path, limit=limit, next=token)
            assert len(answer.json["messages"]) <= limit
            listed += answer.json["messages"]
        letters = _letters(self.topic.groups[name])
        found = {(message["queue"], message["offset"]): message for message in listed}
        expected = [place for place in letters if place in found or not self.topic.may_be_gone(*place, self.now)]
        assert list(found) == expected
        for (queue, offset), message in found.items():
            letter = letters[queue, offset]
            death = {"attempts": letter.attempts, "reason": letter.reason, "dead_at_ms": letter.to_ms}
            assert message == {**self.topic.logs[queue][offset], **death}

    def use_the_dead(self, instance: int, data: st.DataObject) -> None:
        name, kind = data.draw(groups), data.draw(st.sampled_from(["all", "some", "some", "purge"]))
        client, path, group = self.clients[instance], f"{PATH}/groups/{name}/dead", self.topic.groups[name]
        letters = _letters(group)
        if kind == "purge" and data.draw(st.booleans()):
            assert client.delete(path).json == {"purged": len(letters)}
            for cursor in group.cursors:
                cursor.purge()
        elif kind == "all":
            assert client.post(f"{path}/redrive").json == {"redriven": len(letters), "remaining": 0}
            for queue, offset in letters:
                group.cursors[queue].redrive(offset, self.now)
        elif letters:
            self._redrive_one(instance, name, *data.draw(st.sampled_from(list(letters))))

    def _redrive_one(self, instance: int, name: str, queue: int, offset: int) -> None:
        group, message = self.topic.groups[name], self.topic.logs[queue][offset]
        path = f"{PATH}/groups/{name}/dead/redrive"
        answer = self.clients[instance].post(path, message_ids=[message["message_id"]])
        if answer.status == 404 and self.topic.may_be_gone(queue, offset, self.now):
            assert answer.problem == (404, "MessageNotFound")
            return
        group.cursors[queue].redrive(offset, self.now)
        assert (answer.status, answer.json) == (200, {"redriven": 1, "remaining": len(_letters(group))})

    # -- comparing ----------------------------------------------------------------------------------------------------

    @invariant()
    def all_is_where_the_model_has_it(self) -> None:
        """The topic, or one of its groups, another one after each step."""
        if TOPIC not in self.model.topics:
            return
        self.steps += 1
        name = [*GROUPS, None][self.steps % 4]
        if name is None:
            assert self.observer.get(PATH).json == self.topic.shown(self.now)
        else:
            self._compare(name, self.observer.get(f"{PATH}/groups/{name}").json)

    def _compare(self, name: str, seen: Json) -> None:
        seen = forgive(self.topic, self.topic.groups[name], seen, self.now)
        known = details(self.topic, name, self.now)
        wrong = {field: (seen.get(field), value) for field, value in known.items() if seen.get(field) != value}
        assert not wrong, f"answered and expected: {wrong}"
        assert seen.keys() == {*known, "created_at_ms"}


def _letters(group: Group) -> dict[tuple[int, int], Any]:
    """By queue and offset."""
    cursors = enumerate(group.cursors)
    return {(queue, offset): letter for queue, cursor in cursors for offset, letter in sorted(cursor.letters.items())}
