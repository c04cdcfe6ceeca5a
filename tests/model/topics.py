"""Topics and groups: pops by every rule of order and settling, filters, caps, attempts, resets and purges, dead
letters, dedup ids, delayed messages, and topics that are deleted under the eyes of the other instance."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from tests.model.administration import one_of
from tests.model.consumers import Consumers
from tests.model.pair import instances
from tests.model.values import Json
from tests.support.clock import START_MS

STEPS = {
    "pop": 12,
    "settle": 10,
    "produce": 4,
    "produce_for_later": 2,
    "wait": 5,
    "approach": 4,
    "change_group": 3,
    "replace_group": 1,
    "put_a_topic": 1,
    "replace_topic": 1,
    "reset": 2,
    "read_a_queue": 1,
    "list_waiting": 1,
    "cancel": 1,
    "list_dead": 2,
    "redrive": 2,
    "purge_dead": 1,
    "purge_waiting": 1,
}
"""The kinds of steps, and how often each comes."""
PROBES = {"leases": "pop", "waits": "pop", "repeats": "repeat"}
"""The step that looks at a limit."""
WAITS_MS = (1, 499, 500, 1_000, 2_000, 5_001, 10_000, 30_000, 270_000, 700_000)


class Topics(Consumers):
    TOPICS = ("orders", "audit")
    SETTINGS = st.fixed_dictionaries(
        {
            "invisible_ms": st.sampled_from([0, 0, 1_000, 3_000, 20_000, 20_000]),
            "ordered": st.sampled_from([False, False, True, "key", "key"]),
            "settle_by": st.sampled_from(["receipt", "delivery", "message"]),
            "max_attempts": st.sampled_from([1, 1, 2, 3, None]),
            "start": st.sampled_from(["earliest", "earliest", "earliest", "latest", START_MS + 1_000]),
        },
        optional={
            "max_in_flight": st.sampled_from([1, 2, 3]),
            "paused": st.sampled_from([False, False, False, True]),
            "filter": st.sampled_from([{"tags": ["x"]}, {"tags": ["x", "y"]}]),
        },
    )
    POPS = st.fixed_dictionaries(
        {"max_messages": st.integers(1, 6), "consumer_id": st.sampled_from([None, None, "c1"])},
        optional={
            "invisible_ms": st.sampled_from([0, 1, 500, 2_000, 10_000]),
            "attempt_id": st.sampled_from(["a1", "a1", "a2"]),
            "wait_ms": st.sampled_from([0, 1_500]),
            "fill": st.booleans(),
        },
    )
    MESSAGES = st.lists(
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
    DELAYS = st.sampled_from([0, 1, 500, 500, 2_000, 10_000, 70_000])

    @initialize(queues=st.sampled_from([1, 2, 3]), settings=SETTINGS, is_small=st.booleans())
    def begin(self, queues: int, settings: Json, is_small: bool) -> None:
        """A group that is not paused, and something for it to read."""
        self.shrink(is_small)
        self.put_topic(0, "orders", queues=queues)
        self.put_group(0, "orders", "billing", {**settings, "paused": False, "start": "earliest"})
        self._produce(0, "orders", [{"key": "k1"}, {"key": "k1"}, {"key": "k2"}, {"queue": 0}])

    @rule(kind=one_of(STEPS), instance=instances, data=st.data())
    def step(self, kind: str, instance: int, data: st.DataObject) -> None:
        """One rule for all: of many, Hypothesis would leave out half in each example, and few things would meet."""
        getattr(self, kind)(instance, data)

    def wait(self, _: int, data: st.DataObject) -> None:
        self.clock.sleep(data.draw(st.sampled_from(WAITS_MS)))

    def approach(self, instance: int, data: st.DataObject) -> None:
        """Waits for something to end or to begin, or nearly, and looks at it."""
        limits = self.limits()
        if known := [kind for kind in PROBES if limits.get(kind)]:
            kind = data.draw(st.sampled_from(known))
            self.sleep_until(data.draw(st.sampled_from(limits[kind][:3])), data)
            getattr(self, PROBES[kind])(instance, data)

    def purge_waiting(self, instance: int, data: st.DataObject) -> None:
        """A group is purged while a message waits, which then comes into the log."""
        topic, name = self.place(data)
        if self.model.missing(topic) is None and self.knows(instance, topic):
            self._produce(instance, topic, [{"delay_ms": 500}, {}])
            self._reset(instance, topic, name, "now")
            self.clock.sleep(500)
            self._pop(1 - instance, (topic, name), data.draw(self.POPS))

    def put_a_topic(self, instance: int, data: st.DataObject) -> None:
        name, queues = data.draw(st.sampled_from(self.TOPICS)), data.draw(st.sampled_from([1, 2, 3]))
        known = self.model.topics.get(name)
        self.put_topic(instance, name, queues=known.queues if known else queues)

    def replace_topic(self, instance: int, data: st.DataObject) -> None:
        """Under the eyes of the other instance, which has just used it and goes on at once. Or it stays away."""
        topic, name = self.place(data)
        other = 1 - instance
        self._pop(other, (topic, name), {"max_messages": 1})
        self.delete_topic(instance, topic)
        if not data.draw(st.sampled_from([True, True, True, False])):
            self._produce(other, topic, [{}])
            return
        self.put_topic(instance, topic, queues=data.draw(st.sampled_from([1, 2, 3])))
        self.put_group(instance, topic, name, {**data.draw(self.SETTINGS), "start": "earliest"})
        self._produce(data.draw(instances), topic, [{}, {"key": "k1"}])
        receipts = data.draw(st.one_of(st.just([]), self._receipts(topic, name)))
        self._pop(other, (topic, name), {"max_messages": 1}, receipts)
