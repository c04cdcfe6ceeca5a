"""A second topic that callers delete and make again while others use it, and its group."""

from __future__ import annotations

from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from chalicelib.core.base.errors import GroupNotFound, StoreUnavailable, TopicNotFound
from chalicelib.core.consuming.request import Pop
from chalicelib.service import Service
from tests.history.caller import Caller
from tests.history.facts import Acted
from tests.history.final_state import take_all
from tests.history.history import History
from tests.history.recreation import lost, out_of_place
from tests.load import journal
from tests.load.clock import now, sleep
from tests.load.journal import Journal

if TYPE_CHECKING:
    from tests.load.worker import Worker

FOLDER = "recreated"
"""The folder of its callers' journals."""
TOPIC, GROUP = "topic", "group"
"""Objects that callers delete; the group has this name, too."""

_DELETED = {TOPIC: 0.05, GROUP: 0.03}
"""The probability of a deletion in place of a message."""
_MADE = 0.3
_LEASES_MS = (150, 400, 1_200)


def name_of(topic: str) -> str:
    """The name of the topic beside this one."""
    return f"{topic}-recreated"


def visit(worker: Worker, name: str, random: Random) -> None:
    """Uses the topic and its group, sometimes deletes either, and makes those that are missing."""
    topic, number = replace(worker.topic, name=name_of(worker.topic.name)), 0
    with worker.journal(f"{FOLDER}/{name}") as record:
        caller = worker.caller(record, topic)
        while not worker.is_over:
            sleep(random.randrange(worker.job.pace_ms))
            number += 1
            try:
                if what := next((what for what, likely in _DELETED.items() if random.random() < likely), None):
                    _delete(worker.service, topic.name, what, record)
                else:
                    caller.send([f"{name}-{number}"], [None], "")
                    if got := caller.pop(GROUP, Pop(10, random.choice(_LEASES_MS), 0)):
                        caller.ack(got)
            except (TopicNotFound, GroupNotFound):
                if random.random() < _MADE:
                    with suppress(StoreUnavailable, TopicNotFound):
                        make(worker.service, topic.name)


def make(service: Service, name: str) -> None:
    topic, _ = service.admin.topics.put(name, {"queues": 2})
    service.admin.groups.put(topic, GROUP, {"invisible_ms": 1_000})


def _delete(service: Service, name: str, what: str, record: Journal) -> None:
    fact = Acted(name, "delete", what, now())
    with suppress(StoreUnavailable):
        topic = service.env.catalogue.current_topic(name)
        record.begin([fact])
        if what == TOPIC:
            service.admin.topics.delete(topic)
        else:
            service.admin.groups.delete(topic, GROUP)
        fact.outcome, fact.at_ms = "ok", now()
        record.end([fact])


def judged(service: Service, name: str, folder: Path) -> tuple[History, list[str]]:
    """Returns the history of its callers, and the violations. First makes the group once more, and drains the topic
    into it."""
    history = journal.read(sorted(folder.glob("*.jsonl")))
    make(service, name)
    topic = service.env.catalogue.current_topic(name)
    service.admin.groups.delete(topic, GROUP)
    make(service, name)
    with closing(Journal(folder / "drain.jsonl")) as record:
        take_all(Caller(service, topic, record, now), GROUP)
    drained = journal.read([folder / "drain.jsonl"]).delivered
    came = [*history.delivered, *drained]
    deleted = [(fact.began_ms, fact.at_ms) for fact in history.acted if (fact.about, fact.outcome) == (TOPIC, "ok")]
    wrong = [*out_of_place(history.sent, came, deleted), *lost(history.sent, drained, topic.created_at_ms)]
    return history, wrong
