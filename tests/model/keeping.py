"""What the steps of operators share: topics and groups as they are made, what a sweep or a pop does besides, and the
comparison after each step."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

from hypothesis import strategies as st
from hypothesis.stateful import invariant

from chalicelib.core.base.limits import RETENTION_MS_DEFAULT, RETENTION_MS_MAX
from tests.model.cursor import EXPIRED, Cursor
from tests.model.model import DEFAULTS, Json, details
from tests.model.pair import Pair
from tests.model.tended import (
    ALARMS,
    BELIEVED_MS,
    Counts,
    TendedGroup,
    TendedTopic,
    alarm_coming,
    moved_coming,
)
from tests.support.client import Answer

TOPICS = ("orders", "graves")
DEAD_TOPIC = {"orders": "graves", "graves": "orders", ALARMS: "graves"}
"""Where dead messages of a topic can move: what dies there again comes back."""
instances = st.sampled_from([0, 1])


@dataclass(frozen=True)
class Doubt:
    """Messages of a queue that were delivered often enough. All of them have died by now, or none."""

    topic: TendedTopic
    name: str
    queue: int
    doomed: list[int]
    instance: int


class Keeping(Pair):
    def __init__(self) -> None:
        super().__init__()
        self.limits = ExitStack()
        self.sent = self.calls = self.steps = 0
        self.is_small = False
        self.counts = [Counts(), Counts()]
        self.attempts: dict[str, int] = {}
        """By receipt: the number of the delivery."""
        self.doubts: list[Doubt] = []
        self.touched: set[tuple[str, str]] = set()
        """The groups that this step was about."""
        self.changed: dict[str, tuple[int, int]] = {}
        """Which instance has changed a topic last, and until when the other may not know."""

    def teardown(self) -> None:
        self.limits.close()
        super().teardown()

    # -- topics and groups --------------------------------------------------------------------------------------------

    def put_topic(self, instance: int, name: str, **given: object) -> None:
        """One that exists keeps its number of queues."""
        answer = self.clients[instance].put(f"/topics/{name}", **given)
        known = self.model.topics.get(name)
        assert answer.status == (200 if known else 201)
        topic = self._topic(name) if known else self._made_topic(name, int(str(given.get("queues", 4))))
        shown = {field: None if value == "unlimited" else value for field, value in given.items()}
        topic.settings |= shown
        seen = answer.json
        topic.settings["created_at_ms"] = self.now if known is None else topic.settings["created_at_ms"]
        assert seen == topic.settings
        self.changed[name] = instance, self.now + BELIEVED_MS

    def _made_topic(self, name: str, queues: int) -> TendedTopic:
        topic = TendedTopic(name, [[] for _ in range(queues)])
        plain = {"retention_ms": RETENTION_MS_DEFAULT, "index_keys": False, "max_depth": None, "trace": False}
        topic.settings = {"topic": name, "queues": queues, **plain, "zones": None, "created_at_ms": self.now}
        self.model.topics[name] = topic
        return topic

    def delete_topic(self, instance: int, name: str) -> None:
        answer = self.clients[instance].delete(f"/topics/{name}")
        if not self._is_refused(answer, name):
            assert answer.status == 204
            del self.model.topics[name]
            self.changed[name] = instance, self.now + BELIEVED_MS

    def make_topic(self, instance: int, name: str, queues: int, is_traced: bool) -> None:
        self.put_topic(instance, name, queues=queues, trace=is_traced, retention_ms=RETENTION_MS_MAX)

    def put_group(self, instance: int, topic: str, name: str, given: Json) -> None:
        """Where retry pages are small, `max_attempts` stays: nothing that waits in one is to die."""
        if self.is_small and self.model.missing(topic, name) is None:
            given = {field: value for field, value in given.items() if field != "max_attempts"}
        answer = self.clients[instance].put(f"/topics/{topic}/groups/{name}", **given)
        if self._is_refused(answer, topic):
            return
        target = (given.get("dead_letters") or {}).get("topic")
        if target is not None and target not in self.model.topics:
            assert answer.problem == (400, "InvalidField")
            return
        modelled = self._topic(topic)
        assert answer.status == (200 if name in modelled.groups else 201)
        if name not in modelled.groups:
            cursors = [Cursor(0) for _ in modelled.logs]
            modelled.groups[name] = TendedGroup(next(self.model.ids), {**DEFAULTS}, cursors)
        self.group(topic, name).set(given)
        self._compare(topic, name, answer.json)

    def knowing(self, instance: int, topic: str) -> int:
        """The instance, or the other one if only that is sure to know the topic as it is."""
        changer, until_ms = self.changed.get(topic, (instance, 0))
        return changer if self.now <= until_ms else instance

    def _topic(self, name: str) -> TendedTopic:
        topic = self.model.topics[name]
        assert isinstance(topic, TendedTopic)
        return topic

    def group(self, topic: str, name: str) -> TendedGroup:
        group = self.model.topics[topic].groups[name]
        assert isinstance(group, TendedGroup)
        return group

    def _groups(self) -> Iterator[tuple[TendedTopic, str, TendedGroup]]:
        for topic in self.model.topics:
            for name in self.model.topics[topic].groups:
                yield self._topic(topic), name, self.group(topic, name)

    def _is_refused(self, answer: Answer, topic: str, group: str | None = None) -> bool:
        """Whether the topic or group does not exist, which the answer must then say."""
        missing = self.model.missing(topic, group)
        assert missing is None or answer.problem == missing
        return missing is not None

    # -- what dies ----------------------------------------------------------------------------------------------------

    def can_bury(self, group: TendedGroup) -> bool:
        target = group.settings["dead_letters"]
        return target is None or target["topic"] in self.model.topics

    def doomed(self, group: TendedGroup, queue: int) -> list[int]:
        if not self.can_bury(group):
            return []
        return group.cursors[queue].doomed(self.now, group.settings["max_attempts"])

    def bury(self, topic: TendedTopic, name: str, place: tuple[int, int], reason: str, instance: int) -> None:
        """Into the dead letters of the group, or into the topic for dead messages. `self.calls` tells calls apart."""
        group, (queue, offset) = self.group(topic.name, name), place
        cursor, target = group.cursors[queue], group.settings["dead_letters"]
        self.counts[instance].messages["dead", topic.name, name] += 1
        self.touched.add((topic.name, name))
        if target is None:
            cursor.bury(offset, self.now, self.now, reason)
            return
        attempt = cursor.holds.pop(offset).attempt
        cursor.moves += 1
        came = moved_coming(topic.logs[queue][offset], name, group, attempt, reason, self.calls)
        self._topic(target["topic"]).coming.append(came)
        self._topic(target["topic"]).delays(instance, self.now)

    def bury_doomed(self, topic: TendedTopic, name: str, queue: int, instance: int) -> None:
        for offset in self.doomed(self.group(topic.name, name), queue):
            self.bury(topic, name, (queue, offset), EXPIRED, instance)

    def doubt(self, topic: TendedTopic, name: str, queue: int, instance: int) -> None:
        if doomed := self.doomed(self.group(topic.name, name), queue):
            self.doubts.append(Doubt(topic, name, queue, doomed, instance))

    def settle_doubts(self) -> None:
        """What a group has ready tells whether its messages have died."""
        for doubt in self.doubts:
            seen = self.observer.get(f"/topics/{doubt.topic.name}/groups/{doubt.name}").json["queues"][doubt.queue]
            ready = doubt.topic.groups[doubt.name].cursors[doubt.queue].ready(self.now, seen["end_offset"])
            assert len(ready) - seen["ready"] in (0, len(doubt.doomed))
            if len(ready) != seen["ready"]:
                self.bury_doomed(doubt.topic, doubt.name, doubt.queue, doubt.instance)
        self.doubts.clear()

    def note(self, topic: TendedTopic, name: str, place: tuple[int, int], attempt: int, event: Json) -> None:
        if topic.settings["trace"]:
            told = self.group(topic.name, name).events.setdefault(place, [])
            told.append({**event, "at_ms": self.now, "attempt": attempt})

    # -- sweeps -------------------------------------------------------------------------------------------------------

    def sweep(self, instance: int, name: str) -> None:
        """Maintenance: most of it nobody notices."""
        client = self.clients[instance]
        self.calls += 1
        if name == "ttl":
            client.store.drop_expired(self.now)
            return
        swept = getattr(client.api.service.sweeps, name)()
        if name == "revive":
            self._revived(instance)
        elif name == "check":
            assert swept.done == self._checked(instance)
            self.learn()
        elif name == "forward":
            self.learn()
            for topic in map(self._topic, self.model.topics):
                assert not [*topic.due(self.now), *topic.late(self.now)]

    def _revived(self, instance: int) -> None:
        """Whatever was delivered often enough is dead."""
        for topic, name, _ in self._groups():
            for queue in range(len(topic.logs)):
                self.bury_doomed(topic, name, queue, instance)

    def _checked(self, instance: int) -> int:
        """How many alarms have changed. What they tell is on its way."""
        changes = 0
        for topic, name, group in sorted(self._groups(), key=lambda each: each[0].name):
            seen = details(topic, name, self.now)
            oldest = [each["oldest_ready_at_ms"] for each in seen["queues"] if each["ready"]]
            told = group.check(topic.name, name, seen["ready"], self.now - min(oldest, default=self.now), self.now)
            if told:
                changes += 1
            if told and (topic.name, told["state"]) != (ALARMS, "cleared"):
                alarms = self.model.topics.get(ALARMS) or self._made_topic(ALARMS, 4)
                assert isinstance(alarms, TendedTopic)
                alarms.delays(instance, self.now)
                alarms.coming.append(alarm_coming(told, self.now))
        return changes

    # -- comparing ----------------------------------------------------------------------------------------------------

    def learn(self) -> None:
        """What has come into the logs besides what was sent at once, which the logs tell."""
        for topic in map(self._topic, self.model.topics):
            self.learn_of(topic)
            assert topic.coming == topic.late(None), "it has not come"

    def learn_of(self, topic: TendedTopic) -> None:
        if not (topic.waiting or topic.coming):
            return
        path = f"/topics/{topic.name}"
        for queue in self.observer.get(path).json["queue_offsets"]:
            known = len(topic.logs[queue["queue"]])
            if queue["end_offset"] == known:
                continue
            page = self.observer.get(f"{path}/messages", queue=queue["queue"], offset=known, limit=1_000)
            for message in page.json["messages"]:
                if message["message_id"] in topic.waiting:
                    topic.meet(message, self.now)
                else:
                    topic.meet_coming(message, self.now)

    @invariant()
    def groups_are_where_the_model_has_them(self) -> None:
        """Those that a step was about, and another one after each step."""
        self.settle_doubts()
        self.learn()
        places = [(topic.name, name) for topic, name, _ in self._groups()]
        self.steps += 1
        self.touched |= {places[self.steps % len(places)]}
        for topic_name, name in sorted(self.touched.intersection(places)):
            self._compare(topic_name, name, self.observer.get(f"/topics/{topic_name}/groups/{name}").json)
        self.touched.clear()

    def _compare(self, topic: str, name: str, seen: Json) -> None:
        modelled = self.model.topics[topic]
        known = details(modelled, name, self.now)
        wrong = {field: (seen.get(field), value) for field, value in known.items() if seen.get(field) != value}
        assert not wrong, f"answered and expected: {wrong}"
        assert seen.keys() == {*known, "created_at_ms"}
