"""The ports of a push to the world outside the table, injected so that it runs in a simulation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import copy_context
from threading import Thread
from typing import Protocol

from chalicelib.core.base.limits import MIB
from chalicelib.core.base.records import record

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
