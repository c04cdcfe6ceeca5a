"""Measures the calls of `scale` beside many topics, groups, queues or messages."""

from __future__ import annotations

import gc
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count as counting
from operator import itemgetter
from typing import Any

from benchmarks import servers
from benchmarks.measuring import measured
from benchmarks.workload import Workload
from chalicelib.api import Api
from chalicelib.core.base.limits import PAGE_MAX
from chalicelib.core.base.runtime import system
from chalicelib.core.store import Store
from chalicelib.service import Service
from local.memory.meter import Meter
from local.memory.store import MemoryStore

_SIZE = 200
_TIMES = 10
_BATCH = 10
"""This many messages of 200 bytes fill a segment: a million of them are a log as long as it gets."""
_KEYS = 64
_GROUP = "billing"

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Call:
    """The median of the time, and the mean of the units."""

    write_units: float
    read_units: float
    cpu_ms: float
    ms: float


@dataclass(slots=True)
class Measured:
    """The cost of each call, by name, and the memory of the process in bytes: empty, filled, and after the calls."""

    calls: dict[str, Call] = field(default_factory=dict)
    empty_bytes: int = 0
    filled_bytes: int = 0
    called_bytes: int = 0


class Caller:
    """One instance, and what its calls took."""

    def __init__(self, store: Store, meter: Meter) -> None:
        self.api = Api(Service(store, system()))
        self._meter = meter
        self.found = Measured()
        self._orders = Workload(_SIZE)
        self._names = map(str, counting())

    def call(self, name: str, call: Callable[[], object], times: int = _TIMES) -> None:
        taken = [measured(call, self._meter)[1] for _ in range(times)]
        self.found.calls[name] = Call(
            statistics.fmean(took.cost.write_units for took in taken),
            statistics.fmean(took.cost.read_units for took in taken),
            1_000 * statistics.median(took.cpu_seconds for took in taken),
            1_000 * statistics.median(took.seconds for took in taken),
        )

    def new_name(self) -> str:
        return f"new{next(self._names)}"

    def send(self, topic: str, count: int = 1, keys: Sequence[str] = ()) -> None:
        messages: list[Json] = [{"body": body} for body in self._orders.take(count)]
        for message, key in zip(messages, keys, strict=False):
            message["key"] = key
        self.api.produce(topic, {"messages": messages})

    def take(self, topic: str, group: str, count: int = 1) -> list[str]:
        """The receipts."""
        popped = self.api.pop(topic, group, {"max_messages": count})
        return [message["receipt"] for message in popped["messages"]]

    def drain(self, topic: str, group: str) -> None:
        while receipts := self.take(topic, group, 100):
            self.api.ack(topic, group, {"receipts": receipts})

    def pages(self, ask: Callable[[Json], Json], limit: int) -> None:
        """Reads one page after the other."""
        answer = ask({"limit": str(limit)})
        while answer["next"]:
            answer = ask({"limit": str(limit), "next": answer["next"]})

    def traffic(self, topic: str, group: str) -> None:
        """A message at a time through one group, with a warm instance."""
        self.send(topic, 3)
        self.take(topic, group)
        self.call("produce 1", partial(self.send, topic))
        self.call("pop 1", partial(self.take, topic, group))
        self.drain(topic, group)
        self.call("pop of nothing", partial(self.take, topic, group))

    def sweeps(self) -> None:
        """The first round of each, and then one that finds nothing new."""
        sweeps, wake = self.api.service.sweeps, self.api.service.outside.wake
        rounds: list[Callable[[], object]] = [sweeps.forward, sweeps.revive, sweeps.expire, sweeps.check]
        rounds += [lambda: sweeps.push(wake)]
        self.call("first round of all sweeps, the hourly too", lambda: [sweep() for sweep in rounds], 1)
        for name, sweep in zip(("forward", "revive", "expire", "check", "push"), rounds, strict=True):
            self.call(f"idle round of {name}", sweep, 2)


def measure(what: str, count: int, is_emulated: bool) -> Measured:
    """Makes `count` topics, groups, queues or messages, and calls. In a process of its own."""
    with _store(is_emulated) as store:
        caller = Caller(store, store.meter if isinstance(store, MemoryStore) else Meter())
        caller.api.get_health()
        caller.found.empty_bytes = _resident_bytes()
        MANY[what](caller, count)
        caller.found.called_bytes = _resident_bytes()
        return caller.found


@contextmanager
def _store(is_emulated: bool) -> Iterator[Store]:
    if not is_emulated:
        yield MemoryStore()
        return
    with servers.emulated_store() as store:
        yield store


def _resident_bytes() -> int:
    gc.collect()
    return servers.resident_bytes()


def _topics(caller: Caller, count: int) -> None:
    """Each with a group. One of them is used."""
    api = caller.api
    names = [f"t{number}" for number in range(count)]
    for name in names:
        api.put_topic(name, {})
        api.put_group(name, _GROUP, {})
    caller.found.filled_bytes = _resident_bytes()
    caller.call("create a topic", lambda: api.put_topic(caller.new_name(), {}))
    caller.call("list a page of 100 topics", lambda: api.list_topics({"limit": "100"}))
    caller.call("list all topics", lambda: caller.pages(api.list_topics, PAGE_MAX), 2)
    caller.call("GET topic", lambda: api.get_topic(names[0]))
    caller.traffic(names[0], _GROUP)
    caller.call("GET /metrics, a look", api.get_metrics, 1)
    caller.call("GET /metrics again", api.get_metrics, 2)
    caller.sweeps()
    made = map("new{}".format, counting())
    caller.call("delete a topic", lambda: api.delete_topic(next(made)))


def _groups(caller: Caller, count: int) -> None:
    """Measures calls beside `count` groups of one topic."""
    api = caller.api
    api.put_topic("t", {})
    for number in range(count):
        api.put_group("t", f"g{number}", {})
    caller.found.filled_bytes = _resident_bytes()
    caller.call("create a group", lambda: api.put_group("t", caller.new_name(), {}))
    caller.call("GET topic", lambda: api.get_topic("t"))
    caller.call("GET group", lambda: api.get_group("t", "g0"))
    caller.call("list a page of 100 groups", lambda: api.list_groups("t", {"limit": "100"}), 3)
    caller.call("list all groups", lambda: caller.pages(partial(api.list_groups, "t"), 100), 1)
    caller.traffic("t", "g0")
    caller.call("GET /metrics, a look", api.get_metrics, 1)
    caller.sweeps()
    made = map("new{}".format, counting())
    caller.call("delete a group", lambda: api.delete_group("t", next(made)))
    api.put_topic("t", {"max_depth": 1_000_000})
    caller.call("produce 1 with max_depth, once a second", partial(caller.send, "t"), 1)
    caller.call("produce 1 with max_depth, else", partial(caller.send, "t"), 1)
    caller.call("delete the topic", lambda: api.delete_topic("t"), 1)


def _queues(caller: Caller, count: int) -> None:
    """Measures calls on a topic with `count` queues that hold a message each."""
    api = caller.api
    caller.call("create the topic", lambda: api.put_topic("t", {"queues": count}), 1)
    caller.call("create a group", lambda: api.put_group("t", _GROUP, {}), 1)
    for queue in range(count):
        api.produce("t", {"messages": [{"body": "first", "queue": queue}]})
    caller.drain("t", _GROUP)
    caller.found.filled_bytes = _resident_bytes()
    caller.traffic("t", _GROUP)
    caller.call(
        "produce 16 with keys of their own", lambda: caller.send("t", 16, [f"key-{number}" for number in range(16)])
    )
    caller.call("GET topic", lambda: api.get_topic("t"))
    caller.call("GET group", lambda: api.get_group("t", _GROUP))
    caller.call("list groups", lambda: api.list_groups("t", {}))
    caller.call("reset to the end", lambda: api.reset_group("t", _GROUP, {"to": "latest"}), 3)
    caller.sweeps()
    caller.call("delete the topic", lambda: api.delete_topic("t"), 1)


def _messages(caller: Caller, count: int) -> None:
    """In one topic of four queues, for groups at the start, in the middle and near the end of the backlog."""
    api = caller.api
    api.put_topic("t", {})
    api.put_group("t", "at-start", {})
    at_ms = []
    for number in range(count // _BATCH):
        caller.send("t", _BATCH, [f"key-{number % _KEYS}"] * _BATCH)
        at_ms.append(system().now())
    caller.found.filled_bytes = _resident_bytes()
    instants = {"in-middle": at_ms[len(at_ms) // 2], "near-end": at_ms[-len(at_ms) // 10]}
    for name, instant in instants.items():
        where = name.replace("-", " ")
        caller.call(f"create a group {where}", partial(api.put_group, "t", name, {"start": instant}), 1)
        caller.call(f"reset {where}", partial(api.reset_group, "t", name, {"to": {"at_ms": instant}}), 3)
    for name in ("at-start", "in-middle", "near-end"):
        caller.take("t", name)
        caller.call(f"pop 10 {name.replace('-', ' ')}", partial(caller.take, "t", name, 10))
    caller.call("produce 1", partial(caller.send, "t"))
    caller.call("GET topic", lambda: api.get_topic("t"))
    caller.call("GET group", lambda: api.get_group("t", "in-middle"))
    caller.call("list groups", lambda: api.list_groups("t", {}))
    queue, end = max(
        ((own["queue"], own["end_offset"]) for own in api.get_topic("t")["queue_offsets"]), key=itemgetter(1)
    )
    caller.call(
        "browse 10 in the middle",
        lambda: api.read_messages("t", {"queue": str(queue), "offset": str(end // 2), "limit": "10"}),
    )
    caller.sweeps()
    caller.call("delete the topic, one request", lambda: api.delete_topic("t"), 1)


MANY = {"topics": _topics, "groups": _groups, "queues": _queues, "messages": _messages}
