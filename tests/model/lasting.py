"""How long things last and where they are: messages expire, end and wait, retentions change, queues come and go. Each
step asks one of two instances of the service and the model, and compares the answers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from tests.model.cursor import Cursor
from tests.model.lasting_topic import DAY_MS, DEDUP_MS, MINUTE_MS, LastingTopic
from tests.model.looking import PATH, TOPIC, edges, instances
from tests.model.model import DEFAULTS, Group, Json
from tests.model.using import GROUPS, Using, groups, invisible, letters_of
from tests.support.small import small_pages, small_segments

RETENTIONS_MS = (60_000, 90_000, 1_200_000, 1_200_000, DAY_MS, 3 * DAY_MS, 200 * DAY_MS)
JUMPS_MS = (1, 1_000, 1_000, 20_000, 20_000, 59_999, 6 * MINUTE_MS, 16 * MINUTE_MS, 60 * MINUTE_MS, DAY_MS, 21 * DAY_MS)
SWEEPS = ("forward", "expire", "revive", "check", "ttl")
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


group_settings = st.fixed_dictionaries(
    {
        "invisible_ms": invisible,
        "max_attempts": st.sampled_from([1, 2, 2, 3, None]),
        "settle_by": st.sampled_from(["receipt", "receipt", "delivery", "message"]),
        "filter": st.sampled_from([None, None, {"tags": ["x"]}, {"tags": ["x", "y"]}]),
    }
)


class Lasting(Using):
    def __init__(self) -> None:
        super().__init__()
        self.limits = ExitStack()

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
            lasting = {place for place in letters_of(group) if not self.topic.may_be_gone(*place, self.now)}
            if len(lasting) < len(letters_of(group)):
                purged = self.observer.delete(f"{PATH}/groups/{name}/dead").json["purged"]
                known = sum(cursor.purge() for cursor in group.cursors)
                assert len(lasting) <= purged <= known

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
