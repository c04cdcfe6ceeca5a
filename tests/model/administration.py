"""The steps of topics and groups: they are made, changed, moved and deleted; and maintenance."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import invariant

from chalicelib.core.base.limits import RETENTION_MS_DEFAULT
from tests.model.group import Group
from tests.model.model import demand_group
from tests.model.pair import Pair, edges, path_of
from tests.model.topic import BELIEVED_MS, Topic
from tests.model.values import Json
from tests.support.small import small_pages, small_segments

KEPT = ("ordered", "settle_by", "start")
"""Settings that a group of the model keeps: an instance may go by another `settle_by` for five seconds."""


class Administration(Pair):
    TOPICS: ClassVar[tuple[str, ...]] = ("orders",)
    GROUPS: ClassVar[tuple[str, ...]] = ("billing", "shipping")
    SETTINGS: ClassVar[st.SearchStrategy[Json]]
    """Settings of a new group, or of one that changes."""

    def __init__(self) -> None:
        super().__init__()
        self.small = ExitStack()
        self.steps = 0
        self.touched: set[tuple[str, str]] = set()
        """The groups that this step was about."""
        self.stale_until_ms: dict[tuple[int, str], int] = {}
        """Until when an instance may cache a topic as it was."""

    def teardown(self) -> None:
        self.small.close()
        super().teardown()

    def shrink(self, is_small: bool) -> None:
        """Segments and retry pages are small."""
        self.model.is_small = is_small
        if is_small:
            self.small.enter_context(small_segments())
            self.small.enter_context(small_pages())

    def place(self, data: st.DataObject) -> tuple[str, str]:
        """A topic and a group: mostly existing ones."""
        there = [(topic.name, group.name) for topic, group in self.model.groups()]
        others = [(topic, name) for topic in self.TOPICS for name in self.GROUPS]
        return self.touch(data.draw(st.sampled_from(12 * there + others)))

    def touch(self, place: tuple[str, str]) -> tuple[str, str]:
        self.touched.add(place)
        return place

    def group(self, topic: str, name: str) -> Group:
        return self.model.topics[topic].groups[name]

    # -- caches -------------------------------------------------------------------------------------------------------

    def changed(self, name: str, instance: int | None = None) -> None:
        """A topic was changed, by this instance or by both."""
        for other in {0, 1} - {instance}:
            self.stale_until_ms[other, name] = self.now + BELIEVED_MS

    def is_stale(self, instance: int, name: str) -> bool:
        return self.now <= self.stale_until_ms.get((instance, name), -1)

    def knows(self, instance: int, name: str) -> bool:
        """Whether the instance knows the topic as it is. If not, it learns it, unless the topic is deleted."""
        if self.is_stale(instance, name) and name in self.model.topics:
            assert self.clients[instance].get(f"/topics/{name}").json == self.model.topics[name].shown(self.now)
            del self.stale_until_ms[instance, name]
        return not self.is_stale(instance, name)

    # -- topics -------------------------------------------------------------------------------------------------------

    def put_topic(self, instance: int, name: str, **given: Any) -> None:
        answer, topic, status = self.clients[instance].put(f"/topics/{name}", **given), self.model.topics.get(name), 200
        queues = given.get("queues", topic.queues if topic else 4)
        if topic is None:
            retention_ms, logs = given.get("retention_ms", RETENTION_MS_DEFAULT), [list[Json]() for _ in range(queues)]
            topic, status = Topic(next(self.model.ids), name, logs, retention_ms, self.now), 201
            self.model.topics[name] = topic
        self.changed(name, instance)
        if queues > topic.queues and not topic.finish_draining(self.now):
            assert answer.problem == (409, "QueuesDraining")
            return
        topic.resize(queues, self.now)
        if given.get("retention_ms", topic.retention_ms) != topic.retention_ms:
            topic.retain(given["retention_ms"], self.now)
        options = {field: value for field, value in given.items() if field in topic.options}
        topic.options |= {field: None if value == "unlimited" else value for field, value in options.items()}
        assert (answer.status, answer.json) == (status, topic.settings())

    def delete_topic(self, instance: int, name: str) -> None:
        answer = self.clients[instance].delete(f"/topics/{name}")
        if not self.is_refused(answer, name):
            assert answer.status == 204
            del self.model.topics[name]
            self.changed(name, instance)

    # -- groups -------------------------------------------------------------------------------------------------------

    def put_group(self, instance: int, topic: str, name: str, given: Json) -> None:
        is_known = self.model.missing(topic, name) is None
        if is_known:
            given = {field: value for field, value in given.items() if field not in KEPT}
        answer = self.clients[instance].put(path_of(topic, name), **given)
        if self.is_refused(answer, topic):
            return
        target = (given.get("dead_letters") or {}).get("topic")
        if target is not None and target not in self.model.topics:
            assert answer.problem == (400, "InvalidField")
            return
        assert answer.status == (200 if is_known else 201)
        modelled = self.model.topics[topic]
        if is_known:
            modelled.groups[name].change(given)
        else:
            starts = self._starts(modelled, given.get("start", "earliest"), answer.json)
            modelled.new_group(next(self.model.ids), name, given, starts)
        self.compare(topic, name, answer.json)

    def delete_group(self, instance: int, topic: str, name: str) -> None:
        answer = self.clients[instance].delete(path_of(topic, name))
        if not self.is_refused(answer, topic, name):
            assert answer.status == 204
            del self.model.topics[topic].groups[name]

    def change_group(self, instance: int, data: st.DataObject) -> None:
        topic, _ = self.place(data)
        self.put_group(instance, topic, data.draw(st.sampled_from(self.GROUPS)), data.draw(self.SETTINGS))

    def replace_group(self, instance: int, data: st.DataObject) -> None:
        """Mostly makes it again at once, or the rest of the steps would be about a missing one."""
        topic, name = self.place(data)
        self.delete_group(instance, topic, name)
        again = data.draw(st.sampled_from([0, 0, 1, 1, None]))
        if again is not None:
            self.put_group(again, topic, name, data.draw(self.SETTINGS))

    def reset(self, instance: int, data: st.DataObject) -> None:
        topic, name = self.place(data)
        kinds = ["earliest", "earliest", "latest", "now", "at", "queue", "queue"]
        self._reset(instance, topic, name, self._target(topic, data.draw(st.sampled_from(kinds)), data))

    def _reset(self, instance: int, topic: str, name: str, to: Any) -> None:
        began_ms = self.now
        answer = self.clients[instance].post(f"{path_of(topic, name)}/reset", to=to)
        modelled = self.model.topics.get(topic)
        if modelled and isinstance(to, dict) and to.get("queue", 0) >= modelled.readers:
            assert answer.problem == (400, "InvalidField")  # whether the group is there or not
            return
        if self.is_refused(answer, topic, name) or modelled is None:
            return
        group = modelled.groups[name]
        if isinstance(to, dict) and "queue" in to:
            queue, offset = to["queue"], to["offset"]
            if not modelled.first(queue, began_ms) <= offset <= len(modelled.logs[queue]):
                assert answer.problem == (400, "InvalidField")
                return
            group.cursors[queue].reset(offset)
        else:
            starts = self._starts(modelled, to["at_ms"] if isinstance(to, dict) else to, answer.json)
            group.purged_at_ms = None if to != "now" else group.purged_by(began_ms, modelled.has_delayed)
            for cursor, offset in zip(group.cursors[: modelled.readers], starts, strict=False):
                cursor.reset(offset, group.purged_at_ms)
        self.compare(topic, name, answer.json)

    def _starts(self, topic: Topic, to: str | int, seen: Json) -> list[int]:
        """Where a group begins in each queue."""
        starts = topic.starts(to)
        if isinstance(to, int):
            for queue in range(topic.readers):
                shown = seen["queues"][queue]["next_offset"]
                assert shown in topic.offsets_at(queue, to, self.now)
                starts[queue] = shown
        return starts

    def _target(self, name: str, kind: str, data: st.DataObject) -> Any:
        if kind == "at":
            return {"at_ms": self.instant(name, data)}
        if kind != "queue":
            return kind
        queue, topic, ends = data.draw(st.integers(0, 3)), self.model.topics.get(name), [0]
        if topic and queue < topic.most:
            ends += [topic.first(queue, self.now), len(topic.logs[queue])]
        return {"queue": queue, "offset": max(0, data.draw(st.sampled_from(ends)) + data.draw(edges))}

    def instant(self, name: str, data: st.DataObject) -> int:
        """Near that of a message."""
        logs = self.model.topics[name].logs if name in self.model.topics else []
        stored = [message["stored_at_ms"] for log in logs for message in log]
        return int(data.draw(st.sampled_from([0, self.now, *stored]))) + data.draw(st.sampled_from([0, 0, 1]))

    # -- time and maintenance -----------------------------------------------------------------------------------------

    def limits(self) -> dict[str, list[int]]:
        """The instants at which something ends or begins, by kind, the next one first."""
        limits: dict[str, set[int]] = {}
        for topic in self.model.topics.values():
            for kind, instants in topic.limits().items():
                limits.setdefault(kind, set()).update(at_ms for at_ms in instants if at_ms > self.now)
        return {kind: sorted(instants) for kind, instants in limits.items()}

    def sleep_until(self, at_ms: int, data: st.DataObject) -> None:
        """Or nearly."""
        self.clock.sleep(max(0, at_ms + data.draw(edges) - self.now))

    def sweep(self, instance: int, name: str) -> None:
        """Maintenance, which shows only where this says so."""
        client = self.clients[instance]
        self.model.begin(instance)
        if name == "ttl":
            client.store.drop_expired(self.now)
            return
        swept = getattr(client.api.service.sweeps, name)()
        if name == "revive":
            self._bury_doomed()
        elif name == "check":
            readers = [topic.readers for topic in self.model.topics.values()]
            for topic in self.model.topics.values():
                topic.check(self.now)
            if readers == [topic.readers for topic in self.model.topics.values()]:
                assert swept.done == self.model.check_alarms(self.now)
            for topic in self.model.topics.values():
                self.changed(topic.name)
        elif name == "expire":
            self._forget_letters()
        self.learn()
        assert name != "forward" or not any(topic.due(self.now) for topic in self.model.topics.values())

    def _bury_doomed(self) -> None:
        """Messages at their last attempt are dead."""
        for topic, group in self.model.groups():
            for queue in range(topic.readers):
                for offset in self.model.doomed(group, queue, self.now):
                    self.model.bury(topic, group, (queue, offset), self.now)

    def _forget_letters(self) -> None:
        """The sweep may have removed letters. Then all of the group are purged, which tells how many there were."""
        for topic, group in self.model.groups():
            places = [(queue, offset) for queue, cursor in enumerate(group.cursors) for offset in cursor.letters]
            lasting = [place for place in places if not topic.may_be_gone(*place, self.now)]
            if len(lasting) < len(places):
                purged = self.observer.delete(f"{path_of(topic.name, group.name)}/dead").json["purged"]
                assert len(lasting) <= purged <= sum(cursor.purge() for cursor in group.cursors)

    # -- comparing ----------------------------------------------------------------------------------------------------

    def learn(self) -> None:
        for topic in self.model.topics.values():
            self.learn_of(topic)
            assert all(each.is_late for each in topic.coming), "it has not come"

    @invariant()
    def all_is_where_the_model_has_it(self) -> None:
        """The groups that a step was about, and another one after each step; and the topics in turn."""
        self.learn()
        there = [(topic.name, group.name) for topic, group in self.model.groups()]
        self.steps += 1
        for name in [*self.model.topics][self.steps % 4 :][:1]:
            assert self.observer.get(f"/topics/{name}").json == self.model.topics[name].shown(self.now)
        turn = [there[self.steps % len(there)]] if there else []
        for topic, name in sorted({*self.touched, *turn}.intersection(there)):
            self.compare(topic, name, self.observer.get(path_of(topic, name)).json)
        self.touched.clear()

    def compare(self, topic: str, name: str, seen: Json) -> None:
        demand_group(self.model.topics[topic], self.group(topic, name), seen, self.now)

    def paged(self, instance: int, path: str, items: str, limit: int) -> list[Json]:
        return self.rest_of(instance, path, self.clients[instance].get(path, limit=limit), items, limit)


def one_of(kinds: dict[str, int]) -> st.SearchStrategy[str]:
    """A kind of step, as often as it says."""
    return st.sampled_from([kind for kind, often in kinds.items() for _ in range(often)])
