"""Callers that send transactions and decide them, and callers that send requests and reply."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from tests.history.facts import Delivered
from tests.history.requests import RequestCaller
from tests.history.transactions import COMMIT, ROLLBACK, TransactionCaller
from tests.load.clock import now, sleep

if TYPE_CHECKING:
    from tests.load.worker import Worker

CHECK_AFTER_MS_MAX = 1_000
_CHECKS_AFTER_MS = (200, CHECK_AFTER_MS_MAX)
_ROLLBACKS_AFTER_MS = (1_500, 6_000, 86_400_000)
_PAUSE_MS_MAX = 1_500
_TIMEOUTS_MS = (300, 1_500, 5_000)
_WORK_MS_MAX = (1, 1, 600, 2_000)


def send_transactions(worker: Worker, name: str, random: Random) -> None:
    """Decides most transactions, some twice and differently, and some of those that a check finds undecided."""
    number = 0
    with worker.journal(name) as journal:
        caller = TransactionCaller(worker.service, worker.topic, journal, now)
        while not worker.is_over:
            sleep(random.randrange(_PAUSE_MS_MAX))
            number += 1
            bodies = [f"{name}{number}-{part}" for part in range(random.choice((1, 3, 5)))]
            keys = [random.choice((None, "a", "b")) for _ in bodies]
            begun = caller.begin(bodies, keys, random.choice(_CHECKS_AFTER_MS), random.choice(_ROLLBACKS_AFTER_MS))
            sleep(random.randrange(random.choice((50, _PAUSE_MS_MAX))))
            if begun.id and random.random() < 0.7:
                outcome = caller.decide(begun.id, random.choice((COMMIT, COMMIT, ROLLBACK)))
                if outcome == "unknown" or random.random() < 0.2:
                    caller.decide(begun.id, random.choice((COMMIT, ROLLBACK)))
            for checked in caller.check(random.choice((1, 16))):
                if random.random() < 0.5:
                    caller.decide(checked.id, random.choice((COMMIT, ROLLBACK)))


def send_requests(worker: Worker, name: str, random: Random) -> None:
    number = 0
    with worker.journal(name) as journal:
        caller = RequestCaller(worker.service, worker.topic, journal, now)
        while not worker.is_over:
            sleep(random.randrange(_PAUSE_MS_MAX))
            number += 1
            body, timeout_ms = f"{name}-{number}", random.choice(_TIMEOUTS_MS)
            wait_ms = random.choice((0, 100, timeout_ms, timeout_ms))
            correlation_id = caller.ask(body, random.choice((None, "a", "b")), timeout_ms, wait_ms)
            if correlation_id and random.random() < 0.5:
                sleep(random.randrange(_PAUSE_MS_MAX))
                caller.fetch(correlation_id, body, random.choice((0, 300)))


def reply(caller: RequestCaller, request: Delivered, body: str, random: Random) -> None:
    """Replies in time or not, sometimes twice and differently; the consumers of other groups reply as well."""
    sleep(random.randrange(random.choice(_WORK_MS_MAX)))
    if caller.reply(request, body, acks=random.random() < 0.5).outcome == "unknown" or random.random() < 0.2:
        caller.reply(request, random.choice((body, f"{body} again")), acks=False)
    if random.random() < 0.2:
        caller.fetch(request.correlation_id, request.body)
