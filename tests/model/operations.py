"""The settings and views of operators: alarms, rates, full queues, topics for dead messages, traces, lists."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from chalicelib.core.base.limits import DEDUP_MS, RETENTION_MS_MAX
from tests.model.administration import one_of
from tests.model.consumers import Consumers
from tests.model.letters import ALARMS, REASON
from tests.model.model import details
from tests.model.pair import instances
from tests.model.values import Json

PAGER = "pager"
"""The only group of the topic of alarms, whose own alarm sends into its backlog."""
DEAD_TOPIC = {"orders": "graves", "graves": "orders", ALARMS: "graves"}
"""The topics to which dead messages can move; a message that dies there comes back."""
SWEEPS = ("revive", "revive", "revive", "forward", "expire", "ttl")
STEPS = {
    "work": 9,
    "pop": 4,
    "settle": 6,
    "produce": 9,
    "approach": 6,
    "wait": 1,
    "check": 5,
    "maintain": 3,
    "change_group": 4,
    "change_depth": 1,
    "upheaval": 2,
    "trace": 5,
    "list_groups": 1,
    "list_topics": 1,
}
"""The kinds of steps, and how often each comes."""
PROBES = {
    "leases": "pop",
    "windows": "pop",
    "ages": "check",
    "looks": "produce",
    "waits": "pop",
    "repeats": "repeat",
}
"""The step that looks at a limit."""
RANKS = {"popped": 0, "extended": 1}
"""The order of one delivery's events within a millisecond."""

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


class Operations(Consumers):
    TOPICS = ("orders", "graves")
    SETTINGS = st.fixed_dictionaries(
        {"max_attempts": st.sampled_from([1, 1, 2, 3, 5]), "invisible_ms": st.sampled_from([1_000, 5_000, 20_000])},
        optional={
            "alarm": alarms,
            "rate_limit": rates,
            "backoff_ms": backoffs,
            "max_in_flight": st.sampled_from([2, 3]),
        },
    )
    POPS = st.fixed_dictionaries(
        {"max_messages": st.integers(1, 5)},
        optional={
            "consumer_id": st.sampled_from(["c1", "c2"]),
            "invisible_ms": st.sampled_from([1, 1_000, 10_000]),
            "attempt_id": st.sampled_from(["a1", "a2"]),
        },
    )
    MESSAGES = st.lists(
        st.fixed_dictionaries(
            {},
            optional={
                "key": st.sampled_from(["k1", "k1", "k2"]),
                "queue": st.sampled_from([0, 0, 1]),
                "tag": st.just("x"),
                "properties": st.sampled_from([{"p": "1"}, {REASON: "mine"}]),
                "dedup_id": st.sampled_from(["d1", "d2", "d3"]),
                "delay_ms": st.sampled_from([1, 500, 3_000]),
            },
        ),
        min_size=1,
        max_size=4,
    )

    # -- administering ------------------------------------------------------------------------------------------------

    @initialize(
        queues=st.sampled_from([1, 2, 2]),
        settings=st.lists(SETTINGS, min_size=3, max_size=3),
        depth=st.sampled_from([None, 2, 3, 5]),
        traced=st.sampled_from([True, True, True, False]),
        is_small=st.booleans(),
        source=st.sampled_from([{}, {"source": "s1"}]),
    )
    def begin(
        self, queues: int, settings: list[Json], depth: int | None, traced: bool, is_small: bool, source: Json
    ) -> None:
        """Two topics, and what dies in one mostly moves to the other."""
        self.shrink(is_small)
        self._make_topic(0, "orders", queues, traced)
        self._make_topic(0, "graves", 2, is_traced=True)
        if depth:
            self.put_topic(0, "orders", max_depth=depth)
        first, second, third = settings
        self.put_group(0, "orders", "billing", {**first, "dead_letters": {"topic": "graves", **source}})
        self.put_group(1, "orders", "shipping", second)
        self.put_group(0, "graves", "billing", {**third, "dead_letters": {"topic": "orders", **source}})
        if source:
            self._make_topic(0, ALARMS, 2, is_traced=True)
            self.put_group(0, ALARMS, PAGER, {"alarm": {"ready": 1}})
        self.clock.sleep(5_001)
        self._produce(0, "orders", [{"key": "k1"}, {"key": "k2"}, {"queue": queues - 1, "delay_ms": 1}])
        self._produce(0, "graves", [{"queue": 1}, {"queue": 1, "delay_ms": 1}])

    @rule(kinds=st.lists(one_of(STEPS), min_size=2, max_size=2), data=st.data())
    def step(self, kinds: list[str], data: st.DataObject) -> None:
        for kind in kinds:
            getattr(self, kind)(data.draw(instances), data)
            self.learn()

    def place(self, data: st.DataObject) -> tuple[str, str]:
        return self.touch((ALARMS, PAGER)) if data.draw(st.integers(0, 19)) == 0 else super().place(data)

    def _make_topic(self, instance: int, name: str, queues: int, is_traced: bool) -> None:
        self.put_topic(instance, name, queues=queues, trace=is_traced, retention_ms=RETENTION_MS_MAX)

    def put_group(self, instance: int, topic: str, name: str, given: Json) -> None:
        """Where retry pages are small, `max_attempts` stays: nothing that waits in one is to die."""
        if self.model.is_small and self.model.missing(topic, name) is None:
            given = {field: value for field, value in given.items() if field != "max_attempts"}
        super().put_group(instance, topic, name, given)

    def change_group(self, instance: int, data: st.DataObject) -> None:
        """One setting, or several of a group that may be new."""
        topic, group = self.place(data)
        name = data.draw(st.sampled_from(CHANGES))
        if name == "several":
            given: Json = data.draw(self.SETTINGS)
            group = data.draw(st.sampled_from(self.GROUPS)) if topic != ALARMS else PAGER
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
        topic, depth = data.draw(st.sampled_from(self.TOPICS)), data.draw(st.sampled_from([1, 2, 3, 5, "unlimited"]))
        if topic in self.model.topics:
            self.put_topic(instance, topic, max_depth=depth)

    def upheaval(self, instance: int, data: st.DataObject) -> None:
        kind = data.draw(st.sampled_from(["group", "topic", "topic", "topic", "alarms", "reset"]))
        topic, name = self.place(data)
        again = data.draw(st.booleans())
        if kind == "topic" and not self.model.is_small:
            self._replace_topic(instance, "graves", again, data)
        elif kind == "alarms" and (ALARMS in self.model.topics or again):
            self._replace_topic(instance, ALARMS, again, data)
        elif kind == "reset":
            self._reset(instance, topic, name, data.draw(st.sampled_from(["earliest", "latest"])))
        elif kind == "group":
            self.delete_group(instance, topic, name)
            if again:
                self.put_group(1 - instance, topic, name, data.draw(self.SETTINGS))

    def _replace_topic(self, instance: int, topic: str, again: bool, data: st.DataObject) -> None:
        self.delete_topic(instance, topic)
        if again:
            self._make_topic(instance, topic, 2, is_traced=True)
            name = PAGER if topic == ALARMS else "billing"
            self.put_group(1 - instance, topic, name, data.draw(self.SETTINGS))

    # -- time ---------------------------------------------------------------------------------------------------------

    def maintain(self, instance: int, data: st.DataObject) -> None:
        self.sweep(instance, data.draw(st.sampled_from(SWEEPS)))

    def check(self, instance: int, _: st.DataObject) -> None:
        self.sweep(instance, "check")

    def wait(self, _: int, data: st.DataObject) -> None:
        self.clock.sleep(data.draw(st.sampled_from([1, 500, 1_000, 2_000, 5_001, 60_000, DEDUP_MS])))

    def approach(self, instance: int, data: st.DataObject) -> None:
        """Waits for something to end or to begin, or nearly, and looks at it."""
        limits = self.limits()
        if known := [kind for kind in PROBES if limits.get(kind)]:
            kind = data.draw(st.sampled_from(known))
            self.sleep_until(data.draw(st.sampled_from(limits[kind][:4])), data)
            getattr(self, PROBES[kind])(instance, data)

    # -- views --------------------------------------------------------------------------------------------------------

    def trace(self, instance: int, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from([*3 * self.TOPICS, ALARMS]))
        if not self.knows(instance, name):
            return
        client, path = self.clients[instance], f"/topics/{name}/messages"
        if self.is_refused(client.get(f"{path}/x"), name):
            return
        topic = self.model.topics[name]
        stored = [message for log in topic.logs for message in log]
        if not stored:
            assert client.get(f"{path}/x/trace").problem == (404, "MessageNotFound")
            return
        message = data.draw(st.sampled_from(stored))
        assert client.get(f"{path}/{message['message_id']}").json == message
        seen = client.get(f"{path}/{message['message_id']}/trace").json
        place = message["queue"], message["offset"]
        for group in seen["groups"]:
            assert group["events"] == sorted(group["events"], key=lambda event: event["at_ms"])
        known = [topic.groups[group].standing(place, self.now) for group in sorted(topic.groups)]
        about = {field: message[field] for field in ("message_id", "topic", "queue", "offset", "stored_at_ms")}
        for standings in (seen["groups"], known):
            for group in standings:
                group["events"].sort(key=_order)
        assert seen == {**about, "traced": topic.options["trace"], "complete": True, "groups": known}

    def list_groups(self, instance: int, data: st.DataObject) -> None:
        topic, limit = data.draw(st.sampled_from([*self.model.topics])), data.draw(st.sampled_from([1, 2, 100]))
        listed = self.paged(instance, f"/topics/{topic}/groups", "groups", limit)
        modelled = self.model.topics[topic]
        known = [details(modelled, modelled.groups[name], self.now) for name in sorted(modelled.groups)]
        for group, seen in zip(known, listed, strict=True):
            del group["queues"], seen["created_at_ms"]
        assert listed == known

    def list_topics(self, instance: int, data: st.DataObject) -> None:
        listed = self.paged(instance, "/topics", "topics", data.draw(st.sampled_from([1, 2, 100])))
        assert listed == [self.model.topics[name].settings() for name in sorted(self.model.topics)]


def _order(event: Json) -> tuple[object, ...]:
    return event["at_ms"], event["attempt"], RANKS.get(event["event"], 2), str(event)
