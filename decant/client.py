"""The client: `Decant` for threads, `AsyncDecant` for asyncio."""

from __future__ import annotations

import os
import random as chance
import time
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Self, TypeVar

from decant import address, contexts
from decant.api import Api
from decant.calls import Attempts, Call, NoAnswer, NotSent, Pause, request
from decant.errors import NotDecant
from decant.messages import Outgoing, Sent
from decant.payloads import Topic, topic_of
from decant.transport import HttpTransport, Transport

T = TypeVar("T")


class Decant:
    """Decant at one address, for any number of threads.

    url: By default `DECANT_URL`, else that of the context, else `http://127.0.0.1:8000`.
    token: By default `DECANT_TOKEN`, else that of the context.
    timeout: How long a call may take, with its repeats, in seconds; what the service waits comes on top.
    transport: Carries the requests in place of HTTP.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        timeout: float = 10.0,
        transport: Transport | None = None,
        clock: Callable[[], float] = time.monotonic,
        random: Callable[[], float] = chance.random,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        target = contexts.target(url, token, os.environ)
        self.timeout = timeout
        self._token = target.token
        self.transport: Transport = transport or HttpTransport(address.parsed(target.url, target.source))
        self._clock, self._random, self._sleep = clock, random, sleep
        self.api = Api(self.call)
        """Every operation of the contract as a method."""

    def call(self, call: Call[T], *, timeout: float | None = None) -> T:
        """Carries out a call: repeats it where that is safe, until its deadline. Raises DecantError."""
        sent = request(call, self._token)
        deadline = self._clock() + (self.timeout if timeout is None else timeout) + call.wait_s
        attempts = Attempts(call, self.transport.address, deadline, self._random)
        while True:
            outcome: T | Pause
            try:
                response = self.transport.send(sent, attempts.left_s(self._clock()))
            except (NotSent, NoAnswer) as error:
                outcome = attempts.failed(error, self._clock())
            except NotDecant as error:
                raise NotDecant(f"{self.transport.address}: {error}") from error
            else:
                outcome = attempts.answered(response, self._clock())
            if not isinstance(outcome, Pause):
                return outcome
            self._sleep(outcome.seconds)

    # -- sending -------------------------------------------------------------------------------------------------------

    def send(self, topic: str | Topic[T], value: T, **options: Any) -> Sent:
        """Sends a message. `options`: those of `Outgoing`."""
        return self.send_all(topic, [Outgoing(value, **options)])[0]

    def send_all(self, topic: str | Topic[T], values: Iterable[T | Outgoing[T]]) -> list[Sent]:
        """Sends messages, in calls of up to 256. Raises PartlySent if some are not stored."""
        to = topic_of(topic)
        messages = [(value if isinstance(value, Outgoing) else Outgoing(value)).as_json(to) for value in values]
        answer: Any = self.api.produce(to.name, messages=messages)  # type: ignore[arg-type]
        return [Sent(stored["message_id"], stored["queue"], stored["offset"]) for stored in answer["messages"]]

    # -- consuming -----------------------------------------------------------------------------------------------------

    # -- the end -------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Closes the kept connections."""
        self.transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
