"""A topic under load in virtual time: a table whose partitions throttle, functions that come with the load, consumers.

The code of the service is the real one, each instance with caches of its own. Load and partitions are scaled down
together; printed rates are those of the whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any
from unittest.mock import patch

from chalicelib.api import Api
from chalicelib.core.base.errors import DecantError, StoreUnavailable
from chalicelib.core.base.runtime import Runtime
from chalicelib.core.catalogue import catalogue
from chalicelib.core.catalogue.catalogue import APPENDS_PER_SECOND_MAX
from chalicelib.service import Service
from local.memory.meter import Meter
from local.memory.store import MemoryStore
from tests.support.partitioned_store import PartitionedStore
from tests.support.partitions import Limits, Partitions
from tests.support.scheduler import Scheduler

TRIP_MS = 5
"""The time to the store and back."""
COLD_MS = 200
"""The time until a new instance serves its first call."""
INSTANCES_MAX = 3_000
"""AWS rejects calls that find all of them busy, before they reach our code."""
BODY_BYTES = 100
"""In hex: 200 bytes."""
SAVED_S = 1
"""Seconds of unused units that partitions have saved: next to nothing. Savings of 300 s would carry twice the load for
five minutes."""
POP_SIZE = 10
PER_CONSUMER = 100
"""Messages a second per consumer of a group."""
_IDLE_MS = 1_000
"""The longest pause of a consumer that has found nothing, or has failed."""


@dataclass(frozen=True, slots=True)
class Load:
    """`per_second`: produces, each of `batch` messages. `hot`: the share that has one and the same key; `keyed`: the
    others have keys too, one of many each."""

    per_second: float
    batch: int = 1
    keyed: bool = False
    hot: float = 0


@dataclass(slots=True)
class Calls:
    """The calls of producers, counted where they began."""

    stored: int = 0
    """Messages."""
    stored_ms: list[int] = field(default_factory=list)
    refused_ms: list[int] = field(default_factory=list)
    """503 without `outcome`, which the fronts answer with `Retry-After`."""
    in_doubt: int = 0
    turned_away: int = 0
    last_failed_ms: int = 0
    """When the last call began that did not store all its messages."""
    hot_refused: int = 0
    """How many of `refused_ms` had the hot key."""
    popped: dict[str, int] = field(default_factory=dict)
    lag_ms: list[int] = field(default_factory=list)
    pops_failed: int = 0

    @property
    def count(self) -> int:
        return len(self.stored_ms) + len(self.refused_ms) + self.in_doubt + self.turned_away


class Site:
    """`queues`: a number, or "auto". `processes`: this many serve all calls, side by side, instead of functions.
    `scale`: the divisor of load, partitions and instances."""

    def __init__(
        self,
        queues: int | str = 4,
        scale: float = 50,
        groups: Sequence[str] = ("a", "b", "c"),
        processes: int = 0,
        seed: int = 1,
    ) -> None:
        self.random = Random(seed)
        self.scale = scale
        self.scheduler = Scheduler(self.random)
        self.partitions = Partitions(Limits(saved_s=SAVED_S).scaled(scale))
        self.store = MemoryStore()
        self.produced, self.consumed = Meter(), Meter()
        """The meters of producers, and of consumers."""
        self.calls = Calls()
        self._groups, self._is_over = groups, False
        self._idle: list[Api] = []
        self._processes = [self._instance(self.produced) for _ in range(processes)]
        self._made = 0
        self._consumers = dict.fromkeys(groups, 0)
        self._play(lambda: self._prepare(queues))

    @property
    def now(self) -> int:
        return self.scheduler.now

    @property
    def queues(self) -> int:
        return int(Api(Service(self.store, self._runtime())).get_topic("t")["queues"])

    @property
    def logs(self) -> list[str]:
        """The partition keys of the logs with segments."""
        return sorted(pk for pk in self.store.partitions() if pk.startswith("log#"))

    def run(self, story: Callable[[], None]) -> None:
        """Plays it, and ends with it."""

        def play() -> None:
            story()
            self._is_over = True

        self._play(play)

    def bear(self, load: Load, seconds: float) -> Calls:
        """Starts calls at random for this time. Returns their outcomes; counts calls under way as they end."""
        self.calls = calls = Calls(popped=dict.fromkeys(self._groups, 0))
        self._staff(load)
        ms_apart = 1_000 * self.scale / load.per_second
        until_ms, next_ms = self.now + 1_000 * seconds, self.now + self.random.expovariate(1) * ms_apart
        while next_ms < until_ms:
            if next_ms >= self.now + 1:
                self.scheduler.sleep(int(next_ms) - self.now)
            self.scheduler.spawn(partial(self._serve, load, calls))
            next_ms += self.random.expovariate(1) * ms_apart
        self.scheduler.sleep(max(0, int(until_ms) - self.now))
        return calls

    def _prepare(self, queues: int | str) -> None:
        api = self._instance(Meter(), is_near=True)
        api.put_topic("t", {"queues": queues})
        for group in self._groups:
            api.put_group("t", group, {})

    def _serve(self, load: Load, calls: Calls) -> None:
        began_ms = self.now
        if not (api := self._taken()):
            calls.turned_away, calls.last_failed_ms = calls.turned_away + 1, began_ms
            return
        is_hot = self.random.random() < load.hot
        key = "hot" if is_hot else str(self.random.randrange(10_000)) if load.keyed else None
        messages = [_message(self.random, key) for _ in range(load.batch)]
        try:
            results = api.produce("t", {"messages": messages})["messages"]
            stored = sum("error" not in result for result in results)
            calls.stored += stored
            (calls.stored_ms if stored == load.batch else calls.refused_ms).append(self.now - began_ms)
        except StoreUnavailable as trouble:
            stored = 0
            if trouble.outcome_unknown:
                calls.in_doubt += 1
            else:
                calls.refused_ms.append(self.now - began_ms)
                calls.hot_refused += is_hot
        if stored < load.batch:
            calls.last_failed_ms = max(calls.last_failed_ms, began_ms)
        if not self._processes:
            self._idle.append(api)

    def _taken(self) -> Api | None:
        """The most recently used idle instance, a new one, or None."""
        if self._processes:
            return self.random.choice(self._processes)
        if self._idle:
            return self._idle.pop()
        if self._made >= INSTANCES_MAX / self.scale:
            return None
        self._made += 1
        self.scheduler.sleep(COLD_MS)
        return self._instance(self.produced)

    def _staff(self, load: Load) -> None:
        """Adds consumers to each group until there are as many as the load needs."""
        needed = 1 + int(load.per_second * load.batch / self.scale / PER_CONSUMER)
        for group in self._groups:
            for _ in range(needed - self._consumers[group]):
                self._consumers[group] += 1
                self.scheduler.spawn(partial(self._consume, group))

    def _consume(self, group: str) -> None:
        api, receipts = self._instance(self.consumed), list[str]()
        while not self._is_over:
            try:
                answer = api.pop("t", group, {"max_messages": POP_SIZE, **({"ack": receipts} if receipts else {})})
                messages, receipts = answer["messages"], [message["receipt"] for message in answer["messages"]]
            except DecantError:
                self.calls.pops_failed += 1
                messages = []
            self.calls.popped[group] = self.calls.popped.get(group, 0) + len(messages)
            self.calls.lag_ms += [self.now - message["stored_at_ms"] for message in messages]
            if not messages:
                self.scheduler.sleep(self.random.randrange(_IDLE_MS))

    def _instance(self, spent: Meter, is_near: bool = False) -> Api:
        """`is_near`: that of an operator, which nothing throttles."""
        runtime = self._runtime()
        far = PartitionedStore(self.store, self.store.meter, self.partitions, runtime, spent, TRIP_MS)
        return Api(Service(self.store if is_near else far, runtime))

    def _runtime(self) -> Runtime:
        scheduler = self.scheduler
        return Runtime(
            lambda: scheduler.now, scheduler.sleep, self.random.randbytes, lambda: scheduler.now, scheduler.bell
        )

    def _play(self, work: Callable[[], None]) -> None:
        appends = APPENDS_PER_SECOND_MAX / self.scale
        with patch.object(catalogue, "APPENDS_PER_SECOND_MAX", appends):
            self.scheduler.spawn(work)
            self.scheduler.run()


def _message(random: Random, key: str | None) -> dict[str, Any]:
    return {"body": random.randbytes(BODY_BYTES).hex(), **({"key": key} if key else {})}
