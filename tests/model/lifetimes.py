"""How long things last and where they are: messages expire, end and wait, retentions change, queues come and go, sweeps
run, and the clock jumps for weeks."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from tests.model.administration import one_of
from tests.model.consumers import Consumers
from tests.model.pair import edges, instances, path_of
from tests.model.topic import DAY_MS, MINUTE_MS, Topic
from tests.model.values import Json

ORDERS: dict[str, bool | str] = {"billing": False, "shipping": True, "ledger": "key"}
"""By group, how it is ordered."""
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
    "maintain": 2,
    "change_topic": 2,
    "lessen": 2,
    "repeat": 1,
    "change_group": 1,
    "replace_group": 1,
    "reset": 1,
    "read_a_queue": 1,
    "read_all_queues": 1,
    "read_on": 1,
    "read_by_key": 1,
    "find": 2,
    "list_waiting": 1,
    "cancel": 1,
    "list_dead": 1,
    "redrive": 2,
    "purge_dead": 1,
}
"""The kinds of steps, and how often each comes."""
OFTEN = {"leases": 6, "lives": 3, "waits": 3, "repeats": 1, "placements": 2, "drains": 1, "removals": 1}
"""How often time approaches a limit of each kind."""
PROBES: dict[str, list[tuple[str, ...]]] = {
    "leases": [("pop",), ("pop",), ("pop", "list_dead"), ("settle", "pop"), ("maintain", "list_dead")],
    "lives": [("pop",), ("find",), ("find", "pop"), ("read_a_queue",), ("read_all_queues",), ("read_by_key",)],
    "waits": [("pop",), ("list_waiting", "pop"), ("cancel",), ("pop", "cancel", "find"), ("maintain", "find")],
    "repeats": [("repeat",), ("repeat",), ("trim", "repeat")],
    "placements": [("produce_keys",)],
    "drains": [("leave",), ("leave", "read_all_queues"), ("leave", "find", "redrive"), ("list_waiting", "leave")],
    "removals": [("trim", "read_a_queue"), ("trim", "find", "cancel"), ("trim", "pop"), ("trim", "list_dead")],
}
"""The steps that look at it then."""
invisible = st.sampled_from([1, 1_000, 1_000, 1_000, 20_000, 70_000, 12 * 60 * MINUTE_MS])


class Lifetimes(Consumers):
    GROUPS = tuple(ORDERS)
    SETTINGS = st.fixed_dictionaries(
        {
            "invisible_ms": invisible,
            "max_attempts": st.sampled_from([1, 2, 2, 3, None]),
            "settle_by": st.sampled_from(["receipt", "receipt", "delivery", "message"]),
            "filter": st.sampled_from([None, None, {"tags": ["x"]}, {"tags": ["x", "y"]}]),
        }
    )
    POPS = st.fixed_dictionaries(
        {"max_messages": st.sampled_from([1, 2, 3, 10])},
        optional={"invisible_ms": invisible, "consumer_id": st.just("c1")},
    )
    MESSAGES = st.lists(
        st.fixed_dictionaries(
            {},
            optional={
                "key": st.sampled_from(["k1", "k1", "k2"]),
                "queue": st.sampled_from([0, 0, 0, 1, 1, 2, 3]),
                "tag": st.sampled_from(["x", "x", "y"]),
                "dedup_id": st.sampled_from(["d1", "d2", "d3"]),
                "ttl_ms": st.sampled_from([1, 1_000, 30_000, 60_000, 100_000, DAY_MS]),
            },
        ),
        min_size=1,
        max_size=4,
    )
    DELAYS = st.sampled_from([0, 1, 1, 1_000, 1_000, 30_000, 60_000, 400_000, DAY_MS, 100 * DAY_MS])
    RETRIES = (None, 0, 0, 1_000, 60_000, 100_000)
    LEASES = (5_000, 1_000, 60_000, 100_000)

    @property
    def topic(self) -> Topic:
        return self.model.topics["orders"]

    # -- topic and groups ---------------------------------------------------------------------------------------------

    @initialize(
        queues=st.sampled_from([1, 2, 3, 3]),
        retention_ms=st.sampled_from(RETENTIONS_MS),
        settings=st.fixed_dictionaries(dict.fromkeys(ORDERS, SETTINGS)),
        has_index=st.sampled_from([True, True, False]),
        is_small=st.booleans(),
    )
    def begin(self, queues: int, retention_ms: int, settings: Json, has_index: bool, is_small: bool) -> None:
        self.shrink(is_small)
        self.put_topic(0, "orders", queues=queues, retention_ms=retention_ms, index_keys=has_index)
        for name, ordered in ORDERS.items():
            self.put_group(0, "orders", name, {**settings[name], "ordered": ordered})
        self._produce(0, "orders", [{"key": "k1"}, {"key": "k1"}, {"key": "k2"}, {"queue": 0}])

    @rule(kind=one_of(STEPS), instance=instances, data=st.data())
    def step(self, kind: str, instance: int, data: st.DataObject) -> None:
        """Sends messages if none are left to look at."""
        if not any(self.topic.readable(queue, self.now) for queue in range(self.topic.readers)):
            self.knows(instance, "orders")
            self._produce(
                instance, "orders", [{"key": "k1"}, {"key": "k1", "ttl_ms": 60_000}, {"key": "k2"}, {"tag": "x"}]
            )
        getattr(self, kind)(instance, data)

    def change_topic(self, instance: int, data: st.DataObject) -> None:
        given: Json = {}
        kind = data.draw(st.sampled_from(["retention", "retention", "queues", "queues", "both"]))
        if kind != "queues":
            given["retention_ms"] = data.draw(st.sampled_from(RETENTIONS_MS))
        if kind != "retention":
            given["queues"] = data.draw(st.sampled_from([1, 1, 1, 2, 2, 3, 4]))
        self.put_topic(instance, "orders", **given)

    def change_group(self, instance: int, data: st.DataObject) -> None:
        """How often it tries stays, as does how its receipts settle."""
        settings = data.draw(self.SETTINGS)
        given = {field: settings[field] for field in ("invisible_ms", "filter") if settings[field] is not None}
        self.put_group(instance, "orders", data.draw(st.sampled_from(self.GROUPS)), given)

    def replace_group(self, instance: int, data: st.DataObject) -> None:
        name, settings = data.draw(st.sampled_from(self.GROUPS)), data.draw(self.SETTINGS)
        self.delete_group(instance, "orders", name)
        start = data.draw(st.sampled_from(["earliest", "latest", self.instant("orders", data)]))
        self.put_group(1 - instance, "orders", name, {**settings, "ordered": ORDERS[name], "start": start})

    def _target(self, name: str, kind: str, data: st.DataObject) -> object:
        return super()._target(name, "earliest" if kind == "now" else kind, data)

    def _pop(self, instance: int, at: tuple[str, str], fields: Json, receipts: Sequence[str] = ()) -> list[Json]:
        """A group by key that is owed messages that may be removed is moved past all: what it has of others of their
        keys is not modelled."""
        cursors = self.group(*at).cursors[: self.topic.readers]
        owed = [(queue, offset) for queue, cursor in enumerate(cursors) for offset in {*cursor.holds, *cursor.aside}]
        if self.group(*at).ordered == "key" and any(self.topic.may_be_gone(*place, self.now) for place in owed):
            assert self.observer.post(f"{path_of(*at)}/reset", to="latest").status == 200
            for cursor, log in zip(cursors, self.topic.logs, strict=False):
                cursor.reset(len(log))
        self.knows(instance, "orders")
        return super()._pop(instance, at, fields, receipts)

    # -- time and maintenance -----------------------------------------------------------------------------------------

    def approach(self, instance: int, data: st.DataObject) -> None:
        """Waits for a limit, or nearly, and looks at exactly that."""
        limits = self.limits()
        known = [kind for kind, often in OFTEN.items() if limits.get(kind) for _ in range(often)]
        kind = data.draw(st.sampled_from(known or ["leases"]))
        if ahead := limits.get(kind):
            self.sleep_until(data.draw(st.sampled_from([ahead[0], ahead[0], *ahead[:3], ahead[-1]])), data)
        for probe in data.draw(st.sampled_from(PROBES[kind])):
            getattr(self, probe)(instance, data)

    def jump(self, _: int, data: st.DataObject) -> None:
        self.clock.sleep(data.draw(st.sampled_from(JUMPS_MS)))

    def maintain(self, instance: int, data: st.DataObject) -> None:
        self.sweep(instance, data.draw(st.sampled_from(SWEEPS)))

    def trim(self, instance: int, data: st.DataObject) -> None:
        for name in data.draw(st.sampled_from([["expire"], ["ttl"], ["ttl", "expire"]])):
            self.sweep(instance, name)

    def produce_keys(self, instance: int, _: st.DataObject) -> None:
        self.knows(instance, "orders")
        self._produce(instance, "orders", [{"key": f"k{number}"} for number in range(1, 9)])

    def leave(self, instance: int, data: st.DataObject) -> None:
        """Lets queues leave that are settled, if it is time."""
        if data.draw(st.sampled_from([True, True, False])):
            self._drain(instance, "orders", self.GROUPS)
        if data.draw(st.booleans()):
            self.sweep(instance, "check")
        else:
            self.put_topic(instance, "orders", queues=data.draw(st.sampled_from([self.topic.queues + 1, 3])))

    def lessen(self, instance: int, data: st.DataObject) -> None:
        """Takes a queue away, and mostly sees it leave."""
        if self.topic.queues == 1 and not self.topic.draining:
            self.put_topic(instance, "orders", queues=data.draw(st.sampled_from([2, 3])))
            return
        self.put_topic(instance, "orders", queues=data.draw(st.integers(1, self.topic.queues)))
        if self.topic.draining and data.draw(st.sampled_from([True, True, False])):
            self.clock.sleep(max(0, max(map(self.topic.leaves_ms, self.topic.draining)) + data.draw(edges) - self.now))
            self.leave(instance, data)
