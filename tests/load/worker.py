"""One instance of the service with its callers: a producer, and a consumer for each group. It runs in threads of any
process; `python -m tests.load.worker JOB` runs it in one of its own."""

from __future__ import annotations

import json
import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from random import Random
from unittest import mock

from chalicelib.core.base import deadline
from chalicelib.core.base.errors import StoreUnavailable
from chalicelib.core.base.runtime import system
from chalicelib.core.catalogue.topic import Topic
from chalicelib.core.consuming.request import Pop
from chalicelib.core.store.dynamodb import client
from chalicelib.core.store.dynamodb.store import DynamoStore
from chalicelib.service import Service
from tests.history.caller import Caller
from tests.history.facts import Delivered
from tests.history.requests import RequestCaller
from tests.load.admin_calls import PURGED, TURNED, reset, resize
from tests.load.clock import now, sleep
from tests.load.exchanges import reply, send_requests, send_transactions
from tests.load.journal import Journal
from tests.load.recreated_topic import visit
from tests.support.instances import SIGNING_KEY

TABLE = "load"

LEASES_MS = (150, 400, 1_200)
EXTENDED_MS = 700
RETRY_MS_MAX = 300
NAP_MS_MAX = 500
"""Long enough for some leases to expire in the hands of a consumer."""
OLD_MS_MAX = 600
"""How long a consumer keeps receipts, to try them again when they are stale. Much later the product may confirm an ack
by a receipt that it has forgotten: of a queue's lost leases it remembers `limits.WITNESSES_MAX`."""

DEDUP_IDS = 300
DELAY_MS_MAX = 2_000
TTLS_MS = (300, 2_000)

ACTS: Mapping[str, Callable[..., None]] = {
    "transactions": send_transactions,
    "requests": send_requests,
    "resizes": resize,
    "recreated": visit,
}
"""The act of an extra caller, if the job has this feature."""
FEATURES = ("dedup_ids", "delays", "ttls", *ACTS)
DEFECTS = ".defects"
"""The suffix of files with tracebacks."""
RESET = (TURNED, PURGED)
"""The groups that callers reset."""

STOP_SECONDS = 30
"""How long callers may continue when their time is over: a request and its retries take ten seconds at most."""

_SETTINGS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1"}


@dataclass(frozen=True, slots=True)
class Job:
    """The work of one instance, for `seconds`. `patience_ms`: how long the store's client tries one request; usually
    less than the product's own ten seconds, so that callers sometimes get an unknown outcome."""

    name: str
    endpoint: str
    topic: str
    groups: tuple[str, ...]
    seed: int
    seconds: float
    patience_ms: int
    folder: str
    skew_ms: int = 0
    """How far its clock is off."""
    pace_ms: int = 60
    """How long its producer waits at most before it sends."""
    until_ms: int = 0
    """When its time is over, even if it was stopped before it began; 0: `seconds` after that."""
    features: tuple[str, ...] = ()
    """Those of `FEATURES` that its callers use."""
    zone: str | None = None
    """The zone that its producer and its consumers name."""


@contextmanager
def instance(endpoint: str, skew_ms: int = 0) -> Iterator[Service]:
    """A fresh one: cold caches, connections of its own, and a clock that is off by `skew_ms`."""
    runtime = replace(system(), now=lambda: now() + skew_ms)
    with mock.patch.dict(os.environ, _SETTINGS, AWS_ENDPOINT_URL_DYNAMODB=endpoint):
        dynamodb = client.open_client(runtime, os.environ)
    yield Service(DynamoStore(dynamodb, TABLE, runtime), runtime, SIGNING_KEY)


def impatient(patience_ms: int) -> mock._patch[int]:
    return mock.patch.object(deadline, "STORE_DEADLINE_MS", patience_ms)


class Worker:
    def __init__(self, job: Job, service: Service) -> None:
        self.job, self.service = job, service
        self.topic = self._found()
        self._until_ms = 0

    def run(self) -> None:
        self._until_ms = self.job.until_ms or now() + int(self.job.seconds * 1_000)
        threads = [threading.Thread(target=self._guarded, args=(act,), daemon=True) for act in self._acts()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(self.job.seconds + STOP_SECONDS)
        if any(thread.is_alive() for thread in threads):
            raise TimeoutError("callers do not come to an end")

    def _acts(self) -> Iterator[Callable[[], None]]:
        acts: dict[str, Callable[..., None]] = {
            "p": self._produce,
            **{group: partial(self._consume, group=group) for group in self.job.groups},
            **{f"{group}-reset": partial(reset, self, group=group) for group in self.job.groups if group in RESET},
            **{feature: partial(act, self) for feature, act in ACTS.items() if feature in self.job.features},
        }
        for what, act in acts.items():
            yield partial(act, name=f"{self.job.name}{what}", random=Random(f"{self.job.seed} {what}"))

    def _guarded(self, act: Callable[[], None]) -> None:
        """Writes unexpected errors of a caller to a file, for the verdict."""
        try:
            act()
        except Exception:  # noqa: BLE001 - whatever it is
            with Path(self.job.folder, f"{self.job.name}{DEFECTS}").open("a") as defects:
                traceback.print_exc(file=defects)

    def _found(self) -> Topic:
        while True:
            with suppress(StoreUnavailable):
                return self.service.env.catalogue.topic(self.job.topic)

    @property
    def is_over(self) -> bool:
        return now() > self._until_ms

    def pauses(self, ms: float) -> bool:
        """Sleeps for this time; False: the instance's time is over earlier."""
        until_ms = now() + int(ms)
        sleep(max(0, min(until_ms, self._until_ms) - now()))
        return until_ms < self._until_ms

    @contextmanager
    def journal(self, name: str) -> Iterator[Journal]:
        with closing(Journal(Path(self.job.folder, f"{name}.jsonl"))) as journal:
            yield journal

    def caller(self, journal: Journal, topic: Topic | None = None) -> Caller:
        return Caller(self.service, topic or self.topic, journal, now, asks_for_topic=True)

    def _produce(self, name: str, random: Random) -> None:
        number = 0
        with self.journal(name) as journal:
            caller = self.caller(journal)
            while not self.is_over:
                sleep(random.randrange(self.job.pace_ms))
                count = random.choice((1, 1, 1, 3, 8))
                keys = [random.choice([None, "a", "b", "c"])] * count
                if random.random() < 0.2:
                    keys = [random.choice([None, "a", "b"]) for _ in keys]
                bodies = [f"{name}-{number}.{part}" for part in range(count)]
                noise = _noise(random, random.choice((0, 0, 150, 2_000)))
                caller.send(bodies, keys, noise, *self._specials(random, count), self.job.zone)
                number += 1

    def _specials(self, random: Random, count: int) -> tuple[list[str | None], list[int], list[int | None]]:
        """Chooses dedup ids, due times and lifetimes."""
        is_special = {feature: random.random() < 0.5 for feature in self.job.features}
        ids = [random.choice([None, f"d{random.randrange(DEDUP_IDS)}"]) for _ in range(count)]
        due_ms = [random.choice([0, 0, now() + random.randrange(DELAY_MS_MAX)]) for _ in range(count)]
        ttls_ms = [random.choice([None, *TTLS_MS]) for _ in range(count)]
        return (
            ids if is_special.get("dedup_ids") else [],
            due_ms if is_special.get("delays") else [],
            ttls_ms if is_special.get("ttls") else [],
        )

    def _consume(self, name: str, random: Random, group: str) -> None:
        acks: list[Delivered] = []
        old: list[Delivered] = []
        number = 0
        with self.journal(name) as journal:
            caller = self.caller(journal)
            replier = RequestCaller(self.service, self.topic, journal, now)
            while not self.is_over:
                number += 1
                ask = replace(_ask(f"{name}{number}", acks, random), zone=self.job.zone)
                got = caller.pop(group, ask, acks)
                if ask.attempt_id and (got is None or random.random() < 0.1):
                    got = caller.pop(group, ask, acks) or got
                for request in got or []:
                    if request.correlation_id and random.random() < 0.5:
                        reply(replier, request, f"{request.body} by {name} {number}", random)
                old = [each for each in [*old, *(got or [])] if each.at_ms > now() - OLD_MS_MAX]
                acks = self._settled(caller, got or [], random)
                if old and random.random() < 0.15:
                    _settle(caller, random.sample(old, 1), random)

    def _settled(self, caller: Caller, got: list[Delivered], random: Random) -> list[Delivered]:
        """Acks most messages, forgets some. Returns those to ack with the next pop."""
        if not got:
            return []
        if random.random() < 0.25:
            sleep(random.randrange(NAP_MS_MAX))
        fate = random.random()
        if fate < 0.35:
            return got
        if fate < 0.6:
            caller.ack(got)
        elif fate < 0.95:
            renewed = _settle(caller, random.sample(got, -(-len(got) // 2)), random)
            return random.sample(renewed, len(renewed) // 2)
        return []


def _ask(attempt_id: str, acks: Sequence[Delivered], random: Random) -> Pop:
    return Pop(
        max_messages=random.choice((1, 3, 10, 30)),
        invisible_ms=random.choice(LEASES_MS),
        wait_ms=random.choice((0, 100)),
        attempt_id=attempt_id if random.random() < 0.4 else None,
        ack=tuple(each.receipt for each in acks),
    )


def _settle(caller: Caller, messages: list[Delivered], random: Random) -> list[Delivered]:
    """Acks, nacks or extends. Returns the receipts that it still holds."""
    verb = random.choice(("ack", "nack", "extend"))
    if verb == "extend":
        return caller.extend(messages, EXTENDED_MS)
    if verb == "ack":
        caller.ack(messages)
    else:
        caller.nack(messages, random.randrange(RETRY_MS_MAX))
    return []


def _noise(random: Random, length: int) -> str:
    return "".join(random.choices("abcdefghijklmnopqrstuvwxyz0123456789", k=length))


def command(job: Job) -> list[str]:
    """Runs the job in a process of its own."""
    return [sys.executable, "-m", "tests.load.worker", json.dumps(asdict(job))]


def main(arguments: Sequence[str]) -> None:
    given = json.loads(arguments[0])
    job = Job(**{**given, "groups": tuple(given["groups"]), "features": tuple(given["features"])})
    with instance(job.endpoint, job.skew_ms) as service:
        worker = Worker(job, service)
        with impatient(job.patience_ms):
            worker.run()


if __name__ == "__main__":
    main(sys.argv[1:])
