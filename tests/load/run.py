"""A run: instances at work behind a network that fails, then a drain with faults off, and the verdict."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from uuid import uuid4

from chalicelib.core.base.limits import EXPIRED_KEPT_MS, RETENTION_MS_MIN
from chalicelib.core.catalogue.topic import Topic, Zones
from chalicelib.core.store.dynamodb import boto
from chalicelib.service import Service
from tests.history import checker
from tests.history.facts import NEVER_MS, Place
from tests.history.final_state import read_dead, read_log
from tests.history.history import History
from tests.history.transactions import note_places
from tests.load import journal, kinds, processes, proxy, recreated_topic
from tests.load.aftermath import Outside, Watch, ask_at_last, drain
from tests.load.clock import now
from tests.load.proxy import Faults, Proxy
from tests.load.worker import DEFECTS, TABLE, Job, Worker, impatient, instance
from tests.support.emulators import client_of

ZONED = "zones"
"""The feature of zones, which callers name."""
EXPIRING = "expiry"
"""The feature of expiry after a minute, which is the shortest time. Expired messages stay for a day."""
ZONES = {"a": [0], "b": [1]}
"""The queues with zones; others have none."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The size of a run. Instances of the service are either `processes`, `kills` of which die halfway, or, if that is
    0, `threads` of this process."""

    seconds: float = 2.5
    threads: int = 2
    processes: int = 0
    kills: int = 0
    torments: bool = False
    """Processes are also stopped and continued, killed and started again."""
    skew_ms: int = 0
    """How far each process's clock may be off. Journals use the clock of the machine."""
    pace_ms: int = 60
    """How long a producer waits at most before it sends."""
    kinds: tuple[str, ...] = ("patient", "mortal")
    """The kinds of the groups."""
    features: tuple[str, ...] = ()
    """Some of the workers' `FEATURES`, `ZONED` and `EXPIRING`."""
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
    """The exit codes of the processes."""
    recreated: History = field(default_factory=History)
    """The history of the topic that callers delete and make again."""

    def counts(self) -> Counter[str]:
        history, deleted = self.history, Counter(f"{fact.about} deleted" for fact in self.recreated.acted)
        done = {
            "messages": len(history.log),
            "deliveries": len(history.delivered),
            "transactions": len(history.begun),
            "requests": len({fact.body for fact in history.fetched}),
            "resize": len(history.resized),
            "reset": len(history.resets),
        }
        return Counter({**done, **deleted, **self.faults, "violations": len(self.violations)})


_DONE = ("messages", "deliveries", "transactions", "requests")
_MISHAPS = (*proxy.KINDS, "stop", "kill", "resize", "reset", "topic deleted", "group deleted")


def summary(counts: Counter[str]) -> str:
    happened = [what for what in (*_DONE, *_MISHAPS) if counts[what]]
    return ", ".join(f"{counts[what]} {what}" for what in [*happened, "violations"])


def play(endpoint: str, plan: Plan, folder: Path) -> Report:
    """`endpoint`: of an emulator. `folder`: an empty one, for the journals."""
    with closing(client_of(endpoint)) as client:
        boto.ensure(client, TABLE)
    between = Proxy(endpoint, plan.faults, plan.seed)
    with instance(endpoint) as service:
        topic = _prepared(service, plan, folder)
        outside = Outside(service, topic.name, plan.kinds)
        with between.running() as proxied, Watch(outside) as watch:
            exits = _at_work(_jobs(plan, proxied, topic, folder), plan, between.did)
        watch.look()
        history = _history(service, topic, plan, outside, folder)
        history.passed = watch.passed
        report = Report(history, [], between.did, exits)
        if "recreated" in plan.features:
            report.recreated, report.violations = recreated_topic.judged(
                service, recreated_topic.name_of(topic.name), folder / recreated_topic.FOLDER
            )
    history.skew_ms, history.off_ms = 2 * plan.skew_ms, plan.skew_ms
    report.violations += checker.violations(history)
    return report


def _prepared(service: Service, plan: Plan, folder: Path) -> Topic:
    zones = {"zones": Zones(ZONES)} if ZONED in plan.features else {}
    retention = {"retention_ms": RETENTION_MS_MIN} if EXPIRING in plan.features else {}
    topic, _ = service.admin.topics.put(f"load-{uuid4().hex[:8]}", {"queues": plan.queues, **zones, **retention})
    for kind in plan.kinds:
        service.admin.groups.put(topic, kind, kinds.settings(kind))
    if "recreated" in plan.features:
        recreated_topic.make(service, recreated_topic.name_of(topic.name))
        (folder / recreated_topic.FOLDER).mkdir()
    return topic


def _history(service: Service, topic: Topic, plan: Plan, outside: Outside, folder: Path) -> History:
    """Drains the groups and asks for all open replies and transactions, without faults; then judges the history and the
    state that is left."""
    drained: dict[str, set[Place]] = {}
    drained_ms: dict[str, int] = {}
    for kind in plan.kinds:
        drained[kind] = drain(service, topic, kind, outside, folder / f"{kind}-drain.jsonl")
        drained_ms[kind] = now()
    history = journal.read(sorted(folder.glob("*.jsonl")))
    history.drained, history.drained_ms = drained, drained_ms
    ask_at_last(service, topic, history)
    history.defects += [f"{path}: {path.read_text().splitlines()[-1]}" for path in sorted(folder.glob(f"*{DEFECTS}"))]
    history.rules = {kind: kinds.rules(kind) for kind in plan.kinds}
    history.ends = outside.ends()
    if EXPIRING in plan.features:
        history.retention_ms, history.expired_kept_ms = topic.retention_ms, EXPIRED_KEPT_MS
    for kind in plan.kinds:
        read_dead(service, topic, kind, history)
    read_log(service, replace(outside.topic, retention_ms=NEVER_MS), history)
    note_places(history)
    return history


def _jobs(plan: Plan, endpoint: str, topic: Topic, folder: Path) -> list[Job]:
    about = (plan.seconds, plan.patience_ms, str(folder), plan.skew_ms, plan.pace_ms)
    zones = [*ZONES, None] if ZONED in plan.features else [None]
    return [
        Job(
            f"i{number}",
            endpoint,
            topic.name,
            plan.kinds,
            plan.seed + number,
            *about,
            features=plan.features,
            zone=zones[number % len(zones)],
        )
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
