"""Callers that reset groups or change the number of queues."""

from __future__ import annotations

from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING

from chalicelib.core.admin.groups import OneQueue
from chalicelib.core.base.errors import InvalidField, QueuesDraining, StoreUnavailable
from chalicelib.core.catalogue.group import NOW
from tests.history.facts import Resized
from tests.load.clock import now

if TYPE_CHECKING:
    from tests.load.worker import Worker

TURNED, PURGED = "turned", "purged"
"""Groups that are reset: to anywhere, and to now alone."""

_PAUSE_MS = (3_000, 30_000)
_QUEUES_MAX = 4
_BACK_MS_MAX = 10_000
_OFFSETS = 200


def reset(worker: Worker, name: str, group: str, random: Random) -> None:
    with worker.journal(name) as journal:
        caller = worker.caller(journal)
        while worker.pauses(random.uniform(*_PAUSE_MS)):
            caller.reset(group, NOW if group == PURGED else _target(random))


def _target(random: Random) -> str | int | OneQueue:
    somewhere = (0, random.randrange(_OFFSETS))  # refused if the log of queue 0 is shorter
    back = [now() - random.randrange(_BACK_MS_MAX)] * 3
    targets: list[str | int | OneQueue] = ["earliest", "latest", *back, somewhere]
    return random.choice(targets)


def resize(worker: Worker, name: str, random: Random) -> None:
    with worker.journal(name) as journal:
        while worker.pauses(random.uniform(*_PAUSE_MS)):
            journal.begin([resized := Resized(random.randint(1, _QUEUES_MAX), now())])
            with suppress(StoreUnavailable, QueuesDraining, InvalidField):
                worker.service.admin.topics.put(worker.topic.name, {"queues": resized.queues})
                worker.service.sweeps.check()
