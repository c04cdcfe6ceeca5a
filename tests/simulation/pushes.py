"""Histories with a pushed group: its dispatcher, several at once, and a consumer that is slow, fails, or answers in
part."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from random import Random
from typing import TYPE_CHECKING
from unittest.mock import patch

import orjson

from chalicelib.core.base.errors import StoreUnavailable
from chalicelib.core.catalogue.group_forms import Backoff
from chalicelib.core.catalogue.push import Push
from chalicelib.push import dispatcher, slots
from chalicelib.push.outside import ConsumerResponse, Outside
from chalicelib.service import Service
from tests.history.caller import PADDED
from tests.history.facts import Called, Settled
from tests.history.final_state import read_dead, take_all
from tests.history.history import History, Rules
from tests.simulation.faulty_store import NONE
from tests.support.scheduler import Killed

if TYPE_CHECKING:
    from tests.simulation.world import World

GROUP = "pushed"
CONCURRENCY, TIMEOUT_MS = 2, 400
_PUSH = Push({"function": "consumer", "batch": 4, "concurrency": CONCURRENCY, "timeout_ms": TIMEOUT_MS})
_ATTEMPTS_MAX = 1_000
_WRONG_REPORT = orjson.dumps({"batchItemFailures": [{"itemIdentifier": "another"}]})


class _Log:
    """Failures of the store are expected here; defects are not."""

    def __init__(self, history: History) -> None:
        self._history = history

    def warning(self, *_: object) -> None:
        pass

    def exception(self, text: str, group_name: str) -> None:
        self._history.defects.append(f"{text % group_name}: {sys.exception()!r}")


@contextmanager
def quick_calls(history: History) -> Iterator[None]:
    """Seconds that replace minutes of the product."""
    with (
        patch.object(dispatcher, "_log", _Log(history)),
        patch.multiple(slots, LEASE_SPARE_MS=1_500, SLOT_SPARE_MS=2_500, PAUSE_MS_MAX=1_000),
        patch.multiple(dispatcher, LEASE_SPARE_MS=1_500, RUN_MS=5_000),
    ):
        yield


class Crew:
    """Runs tasks side by side in virtual time."""

    def __init__(self, world: World) -> None:
        self._world, self._left = world, 0

    def start(self, task: Callable[[], None]) -> None:
        self._left += 1
        self._world.spawn(lambda: self._run(task))

    def join(self) -> None:
        while self._left:
            self._world.sleep(50)

    def _run(self, task: Callable[[], None]) -> None:
        try:
            task()
        finally:
            self._left -= 1


class Consumer:
    """The consumer that the service calls."""

    def __init__(self, world: World, random: Random) -> None:
        self._world, self._random = world, random

    def outside(self) -> Outside:
        return Outside(post=_no_webhook, invoke=self.invoke, wake=self._wake, crew=lambda: Crew(self._world))

    def invoke(self, _function: str, body: bytes, timeout_ms: int) -> ConsumerResponse:
        history = self._world.history
        messages = orjson.loads(body)["messages"]
        bodies = {(each["queue"], each["offset"]): each["body"].split(PADDED)[0] for each in messages}
        history.called.append(call := Called(bodies, self._world.now))
        takes_ms = self._random.randrange(self._random.choice((30, 2 * timeout_ms)))
        self._world.sleep(min(takes_ms, timeout_ms))
        call.at_ms = self._world.now
        if takes_ms > timeout_ms:
            return ConsumerResponse.missing("no answer")
        luck = self._random.random()
        if luck < 0.02:
            return ConsumerResponse(410)
        if luck < 0.04:
            return ConsumerResponse(200, _WRONG_REPORT)
        if luck < 0.1:
            return ConsumerResponse(500, retry_after=self._random.choice((None, "1")))
        failed = [each for each in messages if self._random.random() < 0.3] if luck < 0.4 else []
        call.succeeded = {*bodies} - {(each["queue"], each["offset"]) for each in failed}
        now = self._world.now
        history.settled += [Settled("ack", GROUP, place, "", now, now, "unknown") for place in call.succeeded]
        reports = [{"itemIdentifier": each["message_id"], "delay_ms": self._random.randrange(600)} for each in failed]
        return ConsumerResponse(200, orjson.dumps({"batchItemFailures": reports}))

    def _wake(self, topic_name: str, is_staying: bool) -> None:
        """Starts a run on an instance, which may not happen."""

        def run() -> None:
            with suppress(Killed):
                self._world.instance().pushing.run(topic_name, is_staying)

        if self._random.random() < 0.3:
            self._world.spawn(run)


def _no_webhook(*_call: object) -> ConsumerResponse:
    raise AssertionError("no group has a webhook")


class Scheduled:
    """The run that the schedule starts."""

    def __init__(self, world: World, random: Random) -> None:
        self._world, self._random = world, random
        self._left = 4

    def work(self, service: Service) -> None:
        while self._left:
            self._left -= 1
            self._world.sleep(self._random.randrange(800))
            with suppress(StoreUnavailable):
                service.admin.groups.put(self._world.topic, GROUP, {"paused": False})  # a 410 pauses it
                service.pushing.run("t", is_staying=True)


def make_group(service: Service, world: World) -> None:
    settings = {"push": _PUSH, "max_attempts": _ATTEMPTS_MAX, "backoff_ms": Backoff([300])}
    service.admin.groups.put(world.topic, GROUP, settings)
    world.history.rules[GROUP] = Rules(_ATTEMPTS_MAX, 1_000)
    world.history.concurrency = CONCURRENCY
    world.history.rated_until_ms[GROUP] = 0


def drain_group(world: World) -> None:
    """Removes the group's push, then pops its messages."""
    service = world.instance(NONE)
    service.admin.groups.put(world.topic, GROUP, {"push": Push({}), "paused": False})
    world.history.drained[GROUP] = take_all(world.caller(service), GROUP)
    world.history.drained_ms[GROUP] = world.now
    read_dead(service, world.topic, GROUP, world.history)
