"""Measures many callers that append single messages to the same few queues, over the memory store in virtual time. A
refused append is billed as a write unit, and counts against the partition of its queue."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import Any

from benchmarks.progress import shown
from benchmarks.report import Cell, table
from chalicelib.api import Api
from chalicelib.core.base.runtime import Runtime
from chalicelib.service import Service
from local.memory.meter import Meter
from local.memory.store import MemoryStore
from tests.support.scheduler import Scheduler

TRIP_MS = 5
"""One round trip to the store."""
PACE_MS = 1
"""The pause between two messages of writers that take turns."""
BODY_BYTES = 100
"""In hex: 200 bytes."""


@dataclass(frozen=True, slots=True)
class Crowd:
    """Callers that each send one message at a time, `messages` in all to measure. `per_second`: how many all of them
    send together while their calls overlap; 0: they take turns. `key`: of all messages. `processes`: those that the
    callers share; 0: each has its own. `body_bytes`: of a message, before it becomes hex."""

    queues: int
    writers: int
    messages: int
    per_second: int = 0
    key: str | None = None
    processes: int = 0
    body_bytes: int = BODY_BYTES


CROWDS = (
    *(Crowd(1, 16, 960), Crowd(1, 150, 1_500), Crowd(4, 150, 1_800), Crowd(4, 600, 3_000), Crowd(128, 150, 9_000)),
    *(Crowd(1, 16, 1_000, 300), Crowd(1, 150, 2_000, 500), Crowd(4, 150, 4_000, 1_000)),
    *(Crowd(4, 600, 6_000, 2_000), Crowd(128, 150, 9_000, 2_000), Crowd(4, 150, 2_000, 500, "hot")),
    *(Crowd(1, 16, 2_000, 4_000, processes=1), Crowd(4, 64, 4_000, 8_000, processes=4)),
)
QUICK = tuple(replace(crowd, messages=max(2 * crowd.writers, crowd.messages // 8)) for crowd in CROWDS)

_HEADERS = (
    "queues",
    "writers",
    "processes",
    "key",
    "messages/s",
    "write units",
    "read units",
    "round trips",
    "p50 ms",
    "p99 ms",
)


@dataclass(frozen=True, slots=True)
class Paid:
    """For each message; `took_ms`: each call, sorted, and nothing where they take turns."""

    write_units: float
    read_units: float
    round_trips: float
    took_ms: Sequence[int] = ()


def writers(crowds: Sequence[Crowd]) -> str:
    rows = [_row(crowd, paid(crowd)) for crowd in shown(crowds, len(crowds), "many writers of few queues")]
    return table("(l) What many writers pay for each message of 200 B, in so many processes", _HEADERS, rows)


def paid(crowd: Crowd) -> Paid:
    """Once each of them has sent a message."""
    random = Random(1)
    scheduler = Scheduler(random)
    store = MemoryStore()
    sleep = scheduler.sleep if crowd.per_second else partial(_pass, scheduler)
    far = _FarStore(store, scheduler.sleep if crowd.per_second else lambda _ms: None)
    runtime = Runtime(lambda: scheduler.now, sleep, random.randbytes, lambda: scheduler.now, scheduler.bell)
    instances = [Api(Service(far, runtime)) for _ in range(crowd.processes or crowd.writers)]
    apis = [instances[number % len(instances)] for number in range(crowd.writers)]

    def send(api: Api) -> int:
        began_ms = scheduler.now
        api.produce("t", {"messages": [_message(random, crowd)]})
        return scheduler.now - began_ms

    def prepare() -> None:
        apis[0].put_topic("t", {"queues": crowd.queues})
        for api in apis:
            send(api)

    _run(scheduler, prepare)
    before = store.meter.copy()
    if crowd.per_second:
        took = _overlapping(crowd, scheduler, apis, send, random)
    else:
        took = _in_turn(crowd, sleep, apis, send)
    return _paid(store.meter.since(before), sorted(took))


def _in_turn(crowd: Crowd, sleep: Callable[[int], None], apis: Sequence[Api], send: Callable[[Api], int]) -> list[int]:
    for number in range(crowd.messages):
        sleep(PACE_MS)
        send(apis[number % crowd.writers])
    return [0] * crowd.messages


def _overlapping(
    crowd: Crowd, scheduler: Scheduler, apis: Sequence[Api], send: Callable[[Api], int], random: Random
) -> list[int]:
    took: list[int] = []
    apart_ms = 1_000 * crowd.writers // crowd.per_second

    def work(api: Api) -> None:
        scheduler.sleep(random.randrange(apart_ms))
        for _ in range(crowd.messages // crowd.writers):
            took.append(ms := send(api))
            scheduler.sleep(max(0, random.randrange(2 * apart_ms) - ms))

    _run(scheduler, *(partial(work, api) for api in apis))
    return took


def _run(scheduler: Scheduler, *works: Callable[[], None]) -> None:
    for work in works:
        scheduler.spawn(work)
    scheduler.run()


def _pass(scheduler: Scheduler, ms: int) -> None:
    scheduler.now += ms


def _message(random: Random, crowd: Crowd) -> dict[str, Any]:
    return {"body": random.randbytes(crowd.body_bytes).hex(), **({"key": crowd.key} if crowd.key else {})}


def _paid(cost: Meter, took: Sequence[int]) -> Paid:
    write_units, read_units, round_trips = cost.write_units, cost.read_units, cost.round_trips
    count = len(took)
    return Paid(write_units / count, read_units / count, round_trips / count, took if any(took) else ())


def _row(crowd: Crowd, paid: Paid) -> list[Cell]:
    at = [str(paid.took_ms[len(paid.took_ms) * part // 100]) if paid.took_ms else "-" for part in (50, 99)]
    pace = str(crowd.per_second) if crowd.per_second else "in turn"
    about: list[Cell] = [crowd.queues, crowd.writers, crowd.processes or crowd.writers, crowd.key or "-", pace]
    return [*about, paid.write_units, paid.read_units, paid.round_trips, *at]


class _FarStore:
    """A store whose requests take `TRIP_MS`, and are carried out halfway."""

    keeps_blobs = False

    def __init__(self, store: MemoryStore, sleep: Callable[[int], None]) -> None:
        self._store, self._sleep = store, sleep

    def __getattr__(self, verb: str) -> Any:
        ask = getattr(self._store, verb)

        def far(*asked: Any) -> Any:
            self._sleep(TRIP_MS // 2)
            answer = ask(*asked)
            self._sleep(TRIP_MS - TRIP_MS // 2)
            return answer

        return far
