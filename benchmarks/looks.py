"""(m) Measures how late and how evenly pops serve topics with many queues, and what they read: the service itself over
the memory store, in virtual time. A request to the store takes no time."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import accumulate
from random import Random
from statistics import mean
from unittest.mock import patch

from benchmarks.report import Cell, table
from chalicelib.api import Api
from chalicelib.core.base.limits import QUEUES_MAX, SECOND_MS, WAIT_MS_MAX
from chalicelib.core.consuming import pop as pops
from chalicelib.core.table.writes import Key
from chalicelib.service import Service
from local.memory.meter import Meter
from local.memory.store import MemoryStore
from tests.support.clock import Clock
from tests.support.instances import SIGNING_KEY, instance
from tests.support.partitioned_store import PartitionedStore
from tests.support.partitions import READ_UNITS, Limits, Partitions

LOAD = 0.8
"""How busy the consumers are while they keep up."""
AGAIN_MS = 15
"""The pause of a consumer after an empty pop."""
_HEADERS = (
    "queues",
    "messages",
    "messages/s",
    "consumers",
    "looked at",
    "pops/s",
    "read units a pop",
    "mean wait ms",
    "99th percentile ms",
    "latest ms",
    "left",
)
_SILENCE_HEADERS = ("queues", "consumers", "looked at", "mean ms", "latest ms", "read units in 20 s of silence")


@dataclass(frozen=True, slots=True)
class Setting:
    queues: int
    messages_per_s: int
    consumers: int
    batch: int = 10


SETTINGS = (Setting(4, 200, 4), Setting(16, 1_000, 16), Setting(128, 3_000, 40))


@dataclass
class _Scene:
    """A topic, a group, and consumers with an instance each."""

    queues: int
    consumers: int
    clock: Clock = field(default_factory=Clock)
    store: MemoryStore = field(default_factory=MemoryStore)
    random: Random = field(default_factory=lambda: Random(1))

    def __post_init__(self) -> None:
        self.producer = instance(self.store, self.clock, 0)
        self.instances: list[Api] = [instance(self.store, self.clock, 1 + at) for at in range(self.consumers)]
        self.producer.put_topic("t", {"queues": self.queues})
        self.producer.put_group("t", "g", {})

    def produce(self, queue: int) -> None:
        self.producer.produce("t", {"messages": [{"body": "x" * 100, "queue": queue}]})


def looks(seconds: int) -> str:
    """`seconds`: of virtual time, for each row."""
    rows = [
        _row(setting, is_skewed, looked_at, seconds)
        for setting in SETTINGS
        for is_skewed in (False, True)
        for looked_at in _looked_at(setting.queues)
    ]
    silences = [
        _silence(queues, consumers, looked_at)
        for queues in (4, 16, QUEUES_MAX)
        for consumers in (1, 8)
        for looked_at in _looked_at(queues)
    ]
    title = f"(m) Pops of topics with many queues, consumers {LOAD:.0%} busy, {seconds} s of virtual time"
    carried = [[queues, round(looks_per_second(queues))] for queues in (1, 4, 16, QUEUES_MAX)]
    most = table(
        "Looks a second of one topic, by many groups, until a partition throttles", ("queues", "looks/s"), carried
    )
    below = "A message of another instance that breaks a silence of up to 20 s"
    return f"{table(title, _HEADERS, rows)}\n{most}\n{table(below, _SILENCE_HEADERS, silences)}"


class _Charged(Partitions):
    """Notes the read units by partition key."""

    def __init__(self) -> None:
        super().__init__(Limits())
        self.units: defaultdict[str, float] = defaultdict(float)

    def charge(self, key: Key, is_write: bool, now: int, units: float) -> None:
        super().charge(key, is_write, now, units)
        if not is_write:
            self.units[key.pk] += units


def looks_per_second(queues: int, groups: int = 32, pops: int = 8) -> float:
    """How many looks of this many groups, by an instance each, a topic carries while all its queues have messages:
    until the busiest partition key has used its read units of a second. Pops that find a message look once."""
    store, clock, charged = MemoryStore(), Clock(), _Charged()
    producer = instance(store, clock, 0)
    producer.put_topic("t", {"queues": queues})
    consumers = []
    for number in range(groups):
        producer.put_group("t", f"g{number}", {})
        runtime = clock.runtime(1 + number)
        seen = PartitionedStore(store, store.meter, charged, runtime, Meter())
        consumers.append(Api(Service(seen, runtime, SIGNING_KEY)))
    for queue in range(queues):
        producer.produce("t", {"messages": [{"body": "x", "queue": queue}] * pops * 4})
    for turn in range(1 + pops):
        if turn == 1:  # the caches are warm
            charged.units.clear()
        for number, consumer in enumerate(consumers):
            clock.ms += 20
            consumer.pop("t", f"g{number}", {"max_messages": 1})
    return READ_UNITS * groups * pops / max(charged.units.values())


def _looked_at(queues: int) -> tuple[int, ...]:
    return (pops.LOOKED_AT, queues) if queues > pops.LOOKED_AT else (queues,)


def _row(setting: Setting, is_skewed: bool, looked_at: int, seconds: int) -> list[Cell]:
    with _looking_at(looked_at):
        waits, pops, units, left = _played(setting, is_skewed, seconds * SECOND_MS)
    waits.sort()
    late: list[Cell] = [mean(waits), waits[-(-99 * len(waits) // 100) - 1], waits[-1]]
    how = "by Zipf's law" if is_skewed else "evenly"
    who = f"{setting.consumers} x {setting.batch}"
    seen: Cell = "all" if looked_at == setting.queues else looked_at
    return [setting.queues, how, setting.messages_per_s, who, str(seen), pops // seconds, units / pops, *late, left]


def _played(setting: Setting, is_skewed: bool, for_ms: int) -> tuple[list[int], int, float, int]:
    """How long each message waited, how many pops there were, what they read, and how many messages are left."""
    scene = _Scene(setting.queues, setting.consumers)
    clock, random, began_ms = scene.clock, scene.random, scene.clock.ms
    shares = [*accumulate(1 / (place + 1) if is_skewed else 1.0 for place in range(setting.queues))]
    busy_ms = setting.consumers * setting.batch * LOAD * SECOND_MS / setting.messages_per_s
    events = [(began_ms + random.random() * busy_ms, consumer) for consumer in range(setting.consumers)]
    heapify(events)
    receipts: list[list[str]] = [[] for _ in scene.instances]
    next_ms, sent, pops, units = began_ms + random.expovariate(setting.messages_per_s) * SECOND_MS, 0, 0, 0.0
    waits: list[int] = []
    while events[0][0] < began_ms + for_ms:
        at_ms, consumer = heappop(events)
        while next_ms <= at_ms:
            clock.ms = int(next_ms)
            scene.produce(bisect_left(shares, random.random() * shares[-1]))
            sent, next_ms = sent + 1, next_ms + random.expovariate(setting.messages_per_s) * SECOND_MS
        clock.ms = int(at_ms)
        before = scene.store.meter.read_units
        ask = {"max_messages": setting.batch, "ack": receipts[consumer]}
        messages = scene.instances[consumer].pop("t", "g", ask)["messages"]
        pops, units = pops + 1, units + scene.store.meter.read_units - before
        receipts[consumer] = [message["receipt"] for message in messages]
        waits += [clock.ms - message["stored_at_ms"] for message in messages]
        pause_ms = busy_ms * (0.8 + 0.4 * random.random()) if messages else AGAIN_MS
        heappush(events, (at_ms + pause_ms, consumer))
    return waits, pops, units, sent - len(waits)


def _silence(queues: int, consumers: int, looked_at: int) -> list[Cell]:
    """Consumers that wait are alike, and independent: the first of several that wake is the earliest."""
    random, late = Random(1), []
    with _looking_at(looked_at):
        for _ in range(40):
            silence_ms, queue = random.randrange(WAIT_MS_MAX), random.randrange(queues)
            late.append(min(_woken_ms(queues, queue, silence_ms, random.randrange(10**6)) for _ in range(consumers)))
        scene = _Scene(queues, 1)
        scene.instances[0].pop("t", "g", {"wait_ms": WAIT_MS_MAX})
        before = scene.store.meter.read_units
        scene.instances[0].pop("t", "g", {"wait_ms": WAIT_MS_MAX})
    seen: Cell = "all" if looked_at == queues else looked_at
    return [queues, consumers, str(seen), mean(late), max(late), scene.store.meter.read_units - before]


def _woken_ms(queues: int, queue: int, silence_ms: int, seed: int) -> int:
    """How long after its store a waiting consumer has the message."""
    scene = _Scene(queues, 0)
    stored_ms = scene.clock.ms + silence_ms
    scene.clock.at(stored_ms, lambda: scene.produce(queue))
    consumer = instance(scene.store, scene.clock, seed)
    while not consumer.pop("t", "g", {"wait_ms": WAIT_MS_MAX})["messages"]:
        pass
    return scene.clock.ms - stored_ms


@contextmanager
def _looking_at(queues: int) -> Iterator[None]:
    with patch.object(pops, "LOOKED_AT", queues):
        yield
