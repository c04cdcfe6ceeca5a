"""Many instances over an emulator whose partition keys carry little: each message is stored once, or refused."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from contextlib import closing

from chalicelib.api import Api
from chalicelib.core.store.dynamodb import boto
from tests.load.proxy import NONE, Proxy
from tests.load.throttling import Throttling
from tests.load.worker import TABLE, instance
from tests.support.emulators import ROOT, client_of
from tests.support.partitions import Limits, Partitions

PROCESSES, INSTANCES = 2, 32
SECONDS = 2
PER_KEY = Limits(write_units=20, read_units=60, saved_s=1)


def test_with_partitions_that_throttle_messages_are_stored_once_or_refused(dynoxide: str) -> None:
    with closing(client_of(dynoxide)) as client:
        boto.ensure(client, TABLE)
    with instance(dynoxide) as service:
        api = Api(service)
        api.put_topic("throttled", {"queues": 4})
        api.put_group("throttled", "g", {})
        partitions = Partitions(PER_KEY)
        between = Proxy(dynoxide, NONE, seed=1, throttling=Throttling(partitions))
        with between.running() as endpoint:
            told = _crowd(endpoint)
        stored = Counter(_all(api))
    statuses = Counter(status for _, status, _, _ in told)
    assert {200, 503} == set(statuses)
    assert partitions.throttled["log write"] > 0
    assert {retry for _, status, _, retry in told if status == 503} == {"1"}
    for body, status, outcome, _ in told:
        least, most = (1, 1) if status == 200 else (0, 1) if outcome == "unknown" else (0, 0)
        assert least <= stored[body] <= most, (body, status, outcome)
    assert sum(stored.values()) <= len(told)


def _crowd(endpoint: str) -> list[tuple[str, int, str | None, str | None]]:
    commands = [
        [sys.executable, "-m", "tests.load.crowd", *map(str, (f"p{number}", endpoint, "throttled", INSTANCES, SECONDS))]
        for number in range(PROCESSES)
    ]
    processes = [subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) for command in commands]
    printed = [process.communicate(timeout=60)[0] for process in processes]
    assert not any(process.returncode for process in processes)
    return [tuple(json.loads(line)) for text in printed for line in text.splitlines()]


def _all(api: Api) -> list[str]:
    """The bodies of all messages that the group gets, without anything that throttles."""
    bodies: list[str] = []
    while messages := api.pop("throttled", "g", {"max_messages": 100, "fill": True})["messages"]:
        api.ack("throttled", "g", {"receipts": [message["receipt"] for message in messages]})
        bodies += [message["body"] for message in messages]
    return bodies
