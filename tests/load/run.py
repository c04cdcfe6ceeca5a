"""A run: instances at work behind a network that fails, then a drain with faults off, and the verdict."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from unittest import mock
from uuid import uuid4

from chalicelib.base.errors import InvalidField, QueuesDraining, StoreUnavailable
from chalicelib.catalogue.topic import Topic
from chalicelib.service import Service
from chalicelib.store.dynamodb import table
from tests.history import checker
from tests.history.aftermath import read_dead, read_log
from tests.history.facts import History, Resized
from tests.load import brief, journal, kinds, processes, proxy
from tests.load.aftermath import Outside, Watch, drain
from tests.load.clock import now
from tests.load.proxy import Faults, Proxy
from tests.load.worker import TABLE, Job, Worker, impatient, instance
from tests.support.emulators import client_of

RESIZED_SECONDS = (5.0, 25.0)
QUEUES_MAX = 4


@dataclass(frozen=True, slots=True)
class Plan:
    """How big a run is. Instances of the service are either `processes`, `kills` of which die halfway, or, when that
    is 0, `threads` of this process."""

    seconds: float = 2.5
    threads: int = 2
    processes: int = 0
    kills: int = 0
    torments: bool = False
    """The processes are stopped and continued, killed and started anew, the topic gets more queues and fewer, and
    producers use dedup ids and delays."""
    skew_ms: int = 0
    """How far each process's clock may be off. The clock of the machine is that of the journals."""
    pace_ms: int = 60
    """How long a producer waits at most before it sends."""
    kinds: tuple[str, ...] = ("patient", "mortal")
    """Of the groups."""
    queues: int = 2
    seed: int = 0
    faults: Faults = proxy.ALL
    patience_ms: int = 60


@dataclass(slots=True)
class Report:
    history: History
    violations: list[str]
    faults: Counter[str]
    exits: list[int]
    """How the processes ended."""

    def counts(self) -> Counter[str]:
        done = {"messages": len(self.history.log), "deliveries": len(self.history.delivered)}
        return Counter({**done, **self.faults, "violations": len(self.violations)})


_MISHAPS = (*proxy.KINDS, "stop", "kill", "resize", "topic deleted", "group deleted")


def summary(counts: Counter[str]) -> str:
    happened = [what for what in _MISHAPS if counts[what]]
    return ", ".join(f"{counts[what]} {what}" for what in ("messages", "deliveries", *happened, "violations"))


def play(endpoint: str, plan: Plan, folder: Path) -> Report:
    """`endpoint`: of an emulator. `folder`: empty, for the journals."""
    with closing(client_of(endpoint)) as client:
        table.ensure(client, TABLE)
    between = Proxy(endpoint, plan.faults, plan.seed)
    with instance(endpoint) as service:
        topic = _prepared(service, plan)
        outside = Outside(service, topic.name, plan.kinds)
        with between.running() as proxied, Watch(outside) as watch, _changing(service, topic, plan, folder) as changes:
            exits = _at_work(_jobs(plan, proxied, topic, folder), plan, between.did)
        drained = {kind: drain(service, topic, kind, outside, folder / f"{kind}-drain.jsonl") for kind in plan.kinds}
        watch.look()
        history = journal.read(sorted(folder.glob("*.jsonl")))
        history.passed, history.drained, history.resized = watch.passed, drained, changes.resized
        between.did.update(changes.counts())
        for kind in plan.kinds:
            read_dead(service, topic, kind, history)
        history.rules = {kind: kinds.rules(kind) for kind in plan.kinds}
        history.ends = outside.ends()
        read_log(service, outside.topic, history)
    with mock.patch.object(checker, "SKEW_MS", 2 * plan.skew_ms):
        found = checker.violations(history)
    return Report(history, [*found, *changes.wrong], between.did, exits)


def _prepared(service: Service, plan: Plan) -> Topic:
    topic, _ = service.admin.topics.put(f"load-{uuid4().hex[:8]}", {"queues": plan.queues})
    for kind in plan.kinds:
        service.admin.groups.put(topic, kind, kinds.settings(kind))
    return topic


@dataclass(slots=True)
class _Changes:
    resized: list[Resized] = field(default_factory=list)
    lives: brief.Lives = field(default_factory=brief.Lives)
    wrong: list[str] = field(default_factory=list)
    """About the brief topic."""

    def counts(self) -> dict[str, int]:
        lives = self.lives
        return {"resize": len(self.resized), "topic deleted": len(lives.deleted), "group deleted": lives.groups}


@contextmanager
def _changing(service: Service, topic: Topic, plan: Plan, folder: Path) -> Iterator[_Changes]:
    """Where a plan torments: the topic gets more queues and fewer, and one beside it is deleted and made again."""
    changes = _Changes()
    if not plan.torments:
        yield changes
        return
    name, journals = brief.name_of(topic.name), folder / brief.FOLDER
    journals.mkdir()
    with brief.living(service, name, plan.seed) as changes.lives, _resizing(service, topic, plan, changes.resized):
        yield changes
    changes.wrong = brief.violations(service, name, changes.lives, journals)


@contextmanager
def _resizing(service: Service, topic: Topic, plan: Plan, resized: list[Resized]) -> Iterator[None]:
    random, over = Random(f"{plan.seed} queues"), threading.Event()

    def resize() -> None:
        while not over.wait(random.uniform(*RESIZED_SECONDS)):
            resized.append(Resized(random.randint(1, QUEUES_MAX), now()))
            with suppress(StoreUnavailable, QueuesDraining, InvalidField):
                service.admin.topics.put(topic.name, {"queues": resized[-1].queues})
                service.sweeps.check()

    thread = threading.Thread(target=resize)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _jobs(plan: Plan, endpoint: str, topic: Topic, folder: Path) -> list[Job]:
    about = (plan.seconds, plan.patience_ms, str(folder), plan.skew_ms, plan.pace_ms)
    return [
        Job(f"i{number}", endpoint, topic.name, plan.kinds, plan.seed + number, *about, is_mixed=plan.torments)
        for number in range(plan.processes or plan.threads)
    ]


def _at_work(jobs: list[Job], plan: Plan, did: Counter[str]) -> list[int]:
    if plan.torments:
        did.update(processes.torment(jobs, plan.seconds, plan.seed))
        return []
    if plan.processes:
        return processes.work(jobs, plan.seconds, plan.kills)
    with ExitStack() as instances:
        workers = [Worker(job, instances.enter_context(instance(job.endpoint, job.skew_ms))) for job in jobs]
        with impatient(plan.patience_ms), ThreadPoolExecutor(len(workers)) as pool:
            list(pool.map(Worker.run, workers))
    return []
