"""A run: instances at work behind a network that fails, then a drain with faults off, and the verdict."""

from __future__ import annotations

import subprocess
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from unittest import mock
from uuid import uuid4

from chalicelib.base.limits import IN_FLIGHT_DEFAULT
from chalicelib.catalogue.topic import Topic
from chalicelib.service import Service
from chalicelib.store.dynamodb import table
from tests.history import checker
from tests.history.aftermath import read_dead, read_log
from tests.history.facts import History, Rules
from tests.load import journal, proxy
from tests.load.aftermath import Outside, Watch, drain
from tests.load.clock import sleep
from tests.load.proxy import Faults, Proxy
from tests.load.worker import STOP_SECONDS, TABLE, Job, Worker, command, impatient, instance
from tests.support.emulators import ROOT, client_of

CLOCKS_DIFFER_BY_MS = 0
"""All processes read the clock of one machine: the checker need not be lenient."""

ATTEMPTS_MAX = (1_000, 3)
"""Of the groups in turn: in the second messages die."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How big a run is. Instances of the service are either `processes`, `kills` of which die halfway, or, when that
    is 0, `threads` of this process."""

    seconds: float = 2.5
    threads: int = 2
    processes: int = 0
    kills: int = 0
    groups: int = 2
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


def summary(counts: Counter[str]) -> str:
    return ", ".join(f"{counts[what]} {what}" for what in ("messages", "deliveries", *proxy.KINDS, "violations"))


def play(endpoint: str, plan: Plan, folder: Path) -> Report:
    """`endpoint`: of an emulator. `folder`: empty, for the journals."""
    with closing(client_of(endpoint)) as client:
        table.ensure(client, TABLE)
    between = Proxy(endpoint, plan.faults, plan.seed)
    with instance(endpoint) as service:
        topic, groups = _prepared(service, plan)
        outside = Outside(service, topic, groups)
        with between.running() as proxied, Watch(outside, groups) as watch:
            exits = _at_work(_jobs(plan, proxied, topic, groups, folder), plan)
        drained = {group: drain(service, topic, group, outside, folder / f"{group}-drain.jsonl") for group in groups}
        watch.look()
        history = journal.read(sorted(folder.glob("*.jsonl")))
        history.passed, history.drained = watch.passed, drained
        for group in groups:
            read_dead(service, topic, group, history)
        history.rules = {group: Rules(_attempts(number), IN_FLIGHT_DEFAULT) for number, group in enumerate(groups)}
        history.ends = dict(enumerate(outside.ends()))
        read_log(service, topic, history)
    with mock.patch.object(checker, "SKEW_MS", CLOCKS_DIFFER_BY_MS):
        return Report(history, checker.violations(history), between.did, exits)


def _prepared(service: Service, plan: Plan) -> tuple[Topic, list[str]]:
    topic, _ = service.admin.topics.put(f"load-{uuid4().hex[:8]}", {"queues": plan.queues})
    groups = [f"g{number}" for number in range(plan.groups)]
    for number, group in enumerate(groups):
        service.admin.groups.put(topic, group, {"max_attempts": _attempts(number), "invisible_ms": 1_000})
    return topic, groups


def _attempts(number: int) -> int:
    return ATTEMPTS_MAX[number % len(ATTEMPTS_MAX)]


def _jobs(plan: Plan, endpoint: str, topic: Topic, groups: list[str], folder: Path) -> list[Job]:
    about = (plan.seconds, plan.patience_ms, str(folder))
    return [
        Job(f"i{number}", endpoint, topic.name, tuple(groups), plan.seed + number, *about)
        for number in range(plan.processes or plan.threads)
    ]


def _at_work(jobs: list[Job], plan: Plan) -> list[int]:
    if plan.processes:
        return _in_processes(jobs, plan)
    with ExitStack() as instances:
        workers = [Worker(job, instances.enter_context(instance(job.endpoint))) for job in jobs]
        with impatient(plan.patience_ms), ThreadPoolExecutor(len(workers)) as pool:
            list(pool.map(Worker.run, workers))
    return []


def _in_processes(jobs: list[Job], plan: Plan) -> list[int]:
    processes = [subprocess.Popen(command(job), cwd=ROOT) for job in jobs]
    try:
        if plan.kills:
            _wait_until_all_are_at_work(jobs, processes)
            sleep(int(plan.seconds * 1_000 / 2))
            for process in processes[: plan.kills]:
                process.kill()
        exits = [process.wait(plan.seconds + 2 * STOP_SECONDS) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert not any(exits[plan.kills :]), f"workers failed: {exits}"
    return exits


def _wait_until_all_are_at_work(jobs: list[Job], processes: list[subprocess.Popen[bytes]]) -> None:
    while not all(list(Path(job.folder).glob(f"{job.name}*")) for job in jobs):
        assert all(process.poll() is None for process in processes), "a worker died early"
        sleep(20)
