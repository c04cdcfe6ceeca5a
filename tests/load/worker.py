"""One instance of the service with its callers: a producer, and a consumer for each group. It runs in threads of any
process; `python -m tests.load.worker JOB` is one of its own."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from random import Random
from unittest import mock

from chalicelib.base import deadline
from chalicelib.base.errors import GroupNotFound, TopicNotFound
from chalicelib.base.runtime import system
from chalicelib.consuming.request import Pop
from chalicelib.service import Service
from chalicelib.store.dynamodb import client
from chalicelib.store.dynamodb.store import DynamoStore
from tests.history.caller import Caller
from tests.history.facts import Delivered
from tests.load import brief
from tests.load.clock import now, sleep
from tests.load.journal import Journal
from tests.support.instances import SIGNING_KEY

TABLE = "load"

LEASES_MS = (150, 400, 1_200)
EXTENDED_MS = 700
RETRY_MS_MAX = 300
NAP_MS_MAX = 500
"""Long enough that some leases run out in the hands of a consumer."""
OLD_MS_MAX = 600
"""How long a consumer keeps receipts, to try them again when they are stale. Much later the product may confirm an ack
by a receipt that it has forgotten: of a queue's lost leases it remembers `limits.WITNESSES_MAX`."""

DEDUP_IDS = 300
DELAY_MS_MAX = 2_000

STOP_SECONDS = 30
"""How long callers may go on when their time is over: a request and its retries take ten seconds at most."""

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
    is_mixed: bool = False
    """Its producer uses dedup ids and delays."""


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
        self._job = job
        self._service = service
        self._topic = service.env.catalogue.topic(job.topic)
        self._until_ms = 0
        self._failures: list[Exception] = []

    def run(self) -> None:
        """Raises what a caller did not expect."""
        name, seed = self._job.name, self._job.seed
        acts = [partial(self._produce, f"{name}p", Random(f"{seed} p"))]
        acts += [
            partial(self._consume, f"{name}{group}", group, Random(f"{seed} {group}")) for group in self._job.groups
        ]
        if self._job.is_mixed:
            acts.append(partial(self._visit, f"{name}v", Random(f"{seed} v")))
        self._until_ms = self._job.until_ms or now() + int(self._job.seconds * 1_000)
        threads = [threading.Thread(target=self._guarded, args=(act,), daemon=True) for act in acts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(self._job.seconds + STOP_SECONDS)
        if any(thread.is_alive() for thread in threads):
            raise TimeoutError("callers do not come to an end")
        if self._failures:
            raise ExceptionGroup("callers failed", self._failures)

    def _guarded(self, act: Callable[[], None]) -> None:
        try:
            act()
        except Exception as failure:  # noqa: BLE001 - raised where the threads are joined
            self._failures.append(failure)

    @property
    def _is_over(self) -> bool:
        return now() > self._until_ms

    @contextmanager
    def _caller(self, name: str) -> Iterator[Caller]:
        with closing(Journal(Path(self._job.folder, f"{name}.jsonl"))) as journal:
            yield Caller(self._service, self._topic, journal, now, asks_for_topic=True)

    def _visit(self, name: str, random: Random) -> None:
        """Uses the brief topic, and its group, while they are there."""
        topic, number = replace(self._topic, name=brief.name_of(self._topic.name)), 0
        with closing(Journal(Path(self._job.folder, brief.FOLDER, f"{name}.jsonl"))) as journal:
            caller = Caller(self._service, topic, journal, now, asks_for_topic=True)
            while not self._is_over:
                sleep(random.randrange(self._job.pace_ms))
                number += 1
                with suppress(TopicNotFound, GroupNotFound):
                    caller.send([f"{name}-{number}"], [None], "")
                    if got := caller.pop(brief.GROUP, Pop(10, random.choice(LEASES_MS), 0)):
                        caller.ack(got)

    def _produce(self, name: str, random: Random) -> None:
        number = 0
        with self._caller(name) as caller:
            while not self._is_over:
                sleep(random.randrange(self._job.pace_ms))
                count = random.choice((1, 1, 1, 3, 8))
                keys = [random.choice([None, "a", "b", "c"])] * count
                if random.random() < 0.2:
                    keys = [random.choice([None, "a", "b"]) for _ in keys]
                bodies = [f"{name}-{number}.{part}" for part in range(count)]
                dedup_ids, due_ms = self._specials(random, count)
                caller.send(bodies, keys, _noise(random, random.choice((0, 0, 150, 2_000))), dedup_ids, due_ms)
                number += 1

    def _specials(self, random: Random, count: int) -> tuple[list[str | None], list[int]]:
        """Dedup ids, and when messages are due."""
        if not self._job.is_mixed or random.random() < 0.5:
            return [], []
        dedup_ids = [random.choice([None, f"d{random.randrange(DEDUP_IDS)}"]) for _ in range(count)]
        return dedup_ids, [random.choice([0, 0, now() + random.randrange(DELAY_MS_MAX)]) for _ in range(count)]

    def _consume(self, name: str, group: str, random: Random) -> None:
        acks: list[Delivered] = []
        old: list[Delivered] = []
        number = 0
        with self._caller(name) as caller:
            while not self._is_over:
                number += 1
                ask = _ask(f"{name}{number}", acks, random)
                got = caller.pop(group, ask, acks)
                if ask.attempt_id and (got is None or random.random() < 0.1):
                    got = caller.pop(group, ask, acks) or got
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
    """Acks, nacks or extends. Returns what is still held."""
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
    job = Job(**{**given, "groups": tuple(given["groups"])})
    with instance(job.endpoint, job.skew_ms) as service:
        worker = Worker(job, service)
        with impatient(job.patience_ms):
            worker.run()


if __name__ == "__main__":
    main(sys.argv[1:])
