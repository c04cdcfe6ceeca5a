"""The ports of a push to the world outside the table, injected so that it runs in a simulation."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextvars import copy_context
from functools import lru_cache
from threading import Lock, Thread
from typing import Any, Protocol

import orjson

from chalicelib.core.base import deadline
from chalicelib.core.base.cache import BoundedCache
from chalicelib.core.base.fields import encodable, read_json, shown
from chalicelib.core.base.limits import MIB, READ_TIMEOUT_MS, SECOND_MS
from chalicelib.core.base.records import record
from chalicelib.core.catalogue.catalogue import Env
from chalicelib.core.catalogue.topic import Topic
from chalicelib.core.consuming.waiters import Waiters

ANSWER_BYTES_MAX = MIB
"""How many bytes of a response the push reads: a report on 256 messages, each with a reason, is a tenth of it."""


@record
class ConsumerResponse:
    """The response of a consumer. `status`: of HTTP; 200 for a function that returns. None: there was no response, and
    `trouble` says why. `retry_after`: the header."""

    status: int | None
    body: bytes = b""
    retry_after: str | None = None
    trouble: str = ""

    @classmethod
    def missing(cls, trouble: str) -> ConsumerResponse:
        return cls(None, trouble=trouble)


class Crew(Protocol):
    """Runs tasks side by side. A task can start others."""

    def start(self, task: Callable[[], None]) -> None: ...

    def join(self) -> None:
        """Returns when all tasks are done."""


class Threads:
    def __init__(self) -> None:
        self._threads: list[Thread] = []

    def start(self, task: Callable[[], None]) -> None:
        thread = Thread(target=copy_context().run, args=[task], name="decant-push", daemon=True)
        thread.start()  # raises RuntimeError where there are too many
        self._threads.append(thread)

    def join(self) -> None:
        for thread in self._threads:  # a thread adds the threads it starts before it ends
            thread.join()


Post = Callable[[str, Mapping[str, str], bytes, int], ConsumerResponse]
"""Takes a URL, headers, a body and a time-out in ms."""

Invoke = Callable[[str, bytes, int], ConsumerResponse]
"""Takes a function's name or ARN, a payload and a time-out in ms."""

Wake = Callable[[str, bool], None]
"""Starts `Dispatcher.run` for a topic, here or in another instance, and does not wait for it. Takes the topic's name,
and whether the run stays for messages that are due later. Never raises."""


@record
class Outside:
    """`post`, `invoke`: call a consumer; they never raise. `allows_loopback`: webhooks may be on this machine, and need
    no TLS."""

    post: Post
    invoke: Invoke
    wake: Wake
    crew: Callable[[], Crew] = Threads
    allows_loopback: bool = False


def _unreachable(*_call: object) -> ConsumerResponse:
    return ConsumerResponse.missing("this instance calls no consumers")


NOWHERE = Outside(post=_unreachable, invoke=_unreachable, wake=lambda _topic_name, _is_staying: None)
"""For an instance that makes no calls."""


# -- wakes ------------------------------------------------------------------------------------------------------------

WAKE_EVERY_MS = SECOND_MS
"""A run looks for longer than this, so it finds messages stored while no other wake is sent."""


class Wakes:
    """Wakes the waiters of a topic: the pops of this instance, and the push, at most once a second for each topic and
    instance."""

    def __init__(self, env: Env, outside: Outside) -> None:
        self._runtime, self._outside, self.waiters = env.runtime, outside, Waiters(env.runtime)
        self._woken_ms: BoundedCache[int] = env.caches.bounded(lambda topic_id, _: [topic_id])
        """When (`Runtime.uptime`) each topic was last woken."""

    def stored(self, topic: Topic) -> None:
        """Call it when messages were stored in the topic or are ready again. Costs nothing for the push in a topic that
        never had a pushed group."""
        self.waiters.stored(topic.id)
        if not topic.pushes:
            return
        now, woken_ms = self._runtime.uptime(), self._woken_ms.get(topic.id)
        if deadline.has_ended(now):  # the schedule runs the push too
            return
        if woken_ms is None or now - woken_ms >= WAKE_EVERY_MS:
            self._woken_ms.keep(topic.id, now)
            self._outside.wake(topic.name, False)


# -- functions of Lambda ----------------------------------------------------------------------------------------------

_CLIENTS_MAX = 64
"""Clients kept, one for each time-out."""

_log = logging.getLogger("decant")


class Functions:
    """Invokes Lambda functions: consumers of groups, synchronously, and the push itself, asynchronously.

    `connect`: makes a Lambda client with this read time-out in ms. `push_function`: the name of the function that
    runs the push; without one, only the schedule runs it."""

    def __init__(self, connect: Callable[[int], Any], push_function: str | None) -> None:
        self._client, self._connecting = lru_cache(_CLIENTS_MAX)(connect), Lock()
        self._push_function = push_function

    def invoke(self, function: str, body: bytes, timeout_ms: int) -> ConsumerResponse:
        """Waits for the function's result. Never raises."""
        try:
            response = self._connected(timeout_ms).invoke(
                FunctionName=function, InvocationType="RequestResponse", Payload=body
            )
            returned = response["Payload"].read(ANSWER_BYTES_MAX + 1)
        except self._troubles as error:
            return ConsumerResponse.missing(f"no answer: {error}")
        if len(returned) > ANSWER_BYTES_MAX:
            return ConsumerResponse.missing(f"the function returned more than {ANSWER_BYTES_MAX} bytes")
        if response.get("FunctionError"):
            return ConsumerResponse.missing(f"the function failed: {_message(returned)}")
        return ConsumerResponse(200, returned)

    def wake(self, topic_name: str, is_staying: bool) -> None:
        """Starts the push. Never raises, since the schedule runs the push anyway."""
        if self._push_function is None:
            return
        event = orjson.dumps({"topic": topic_name, "is_staying": is_staying})
        try:
            self._connected(READ_TIMEOUT_MS).invoke(
                FunctionName=self._push_function, InvocationType="Event", Payload=event
            )
        except self._troubles as error:
            _log.warning("the push of topic %s was not woken: %s", topic_name, error)

    def _connected(self, timeout_ms: int) -> Any:
        """The first client imports boto3. The lock keeps a concurrent caller from seeing boto3 half imported."""
        with self._connecting:
            return self._client(timeout_ms)

    @property
    def _troubles(self) -> tuple[type[Exception], ...]:
        with self._connecting:
            from botocore.exceptions import BotoCoreError, ClientError
        return BotoCoreError, ClientError, OSError


def _message(returned: bytes) -> str:
    """The message of an exception that Lambda reports."""
    try:
        error = read_json(returned, "what it returned")
    except ValueError:
        error = None
    message = error.get("errorMessage") if isinstance(error, dict) else None
    return message if isinstance(message, str) and encodable(message) else shown(returned.decode(errors="replace"))
