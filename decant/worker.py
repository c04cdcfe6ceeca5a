"""Makes a worker of a function: it gets each message, and what it returns is the reply to it.

    service = Service("http://127.0.0.1:8000")

    @service.worker
    def add(message: Message) -> str:
        return str(sum(map(int, message.text.split("+"))))

    add.run("sums", "adders")  # pops, until the process ends
    handler = add.on_push  # or: of a Lambda function to which the group `adders` pushes

It is the small sister of `mq.consumer`: it handles one message after another, and extends no lease. `decant.consumer`
says what becomes of a message when the function returns or raises. A reply that comes too late, or after that of
another consumer, is told to `on_refused`, and the message is acked.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any, Self, cast

from decant import messages, operations
from decant.calls import HttpRequest, HttpResponse, Json, encoded
from decant.client import Decant
from decant.consumer import Consumer, Function, OnRefused, Options, warn_of_refusal
from decant.engine import PAUSED_S, warn_of_failures
from decant.errors import DecantError, Problem
from decant.messages import MS_MAX
from decant.messages import Reply as Reply
from decant.payloads import PLAIN, Topic
from decant.settling import ACK, Settlements

Call = Callable[[str, Json], tuple[int, Json]]
"""Posts JSON to a path. Returns status and answer. Raises NotSent or NoAnswer of `decant.calls` if there is none."""
OnCode = Callable[[messages.Message[Any], str], None]
Refused = Problem
"""The service refused a call. `status`, and `code` as in its problem."""

POP_WAIT_MS = 20_000
_ANY: Topic[Any] = Topic("any", codec=PLAIN)


class Message(messages.Message[Any]):
    """A message as a pop or a push delivers it."""

    def __init__(self, fields: Json) -> None:
        super().__init__(fields, _ANY)


class Retry(messages.Retry):
    """Raised by a function that wants the message again: after `delay_ms`, or else the group's backoff. Raises
    ValueError for a delay that the service would refuse, which then is why the message is nacked."""

    def __init__(self, reason: str = "", delay_ms: int | None = None) -> None:
        if delay_ms is not None and not (type(delay_ms) is int and 0 <= delay_ms <= MS_MAX):
            raise ValueError(f"delay_ms must be an integer from 0 to {MS_MAX}; it is {delay_ms!r}")
        super().__init__(None, reason)
        self.delay_ms = delay_ms


class Service:
    """Decant at this URL. `call` replaces HTTP. `settings`: further ones of a `Decant`."""

    def __init__(self, url: str, token: str | None = None, call: Call | None = None, **settings: Any) -> None:
        transport = _Called(url, call) if call else None
        self.mq = Decant(url or "http://127.0.0.1:8000", token, transport=transport, **settings)

    def worker(self, function: Function) -> Worker:
        return Worker(self, function)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.mq.close()


class _Called:
    """Carries requests by a function of the user's."""

    def __init__(self, url: str, call: Call) -> None:
        self.address, self._call = url, call

    def send(self, request: HttpRequest, _timeout_s: float) -> HttpResponse:
        status, answer = self._call(request.target, json.loads(request.body or b"{}"))
        return HttpResponse(status, {}, encoded(answer))

    def close(self) -> None:
        pass


class Worker:
    """A function that answers messages. `on_refused(message, code)` is called for each reply that came too late."""

    def __init__(
        self,
        service: Service,
        function: Function,
        on_refused: Callable[[messages.Message[Any], str], None] | None = None,
    ) -> None:
        self._mq, self._function = service.mq, function
        self._on_refused: OnRefused = warn_of_refusal
        if on_refused:
            self._on_refused = lambda message, error: on_refused(message, getattr(error, "code", ""))

    def run(self, topic: str, group: str, is_over: Callable[[], bool] = lambda: False, **pop: Any) -> None:
        """Pops and answers messages of a group, one after another, until `is_over`; acks ride in the next pop. `pop`:
        further fields of a pop, such as `max_messages` (default 1: the leases of all must outlast the work on all).
        Raises DecantError, such as Refused, or Unreachable once the service has not answered for a while."""
        consumer = self._consumer(topic, group)
        acks = Settlements(topic, group)
        about: Json = {"max_messages": 1, "wait_ms": POP_WAIT_MS, **pop}
        try:
            while not is_over():
                ridden = acks.acks()
                fields = {"attempt_id": os.urandom(12).hex(), **about}
                try:
                    answer = self._mq.call(operations.pop(topic, group, **fields, ack=ridden or None))
                except DecantError:
                    acks.put_back(ridden, ACK, 0.0)
                    raise
                warn_of_failures(consumer, answer)
                for message in consumer.messages(cast("list[Json]", answer["messages"])):
                    self._handle(consumer, message, acks)
                if answer.get("paused"):
                    self._mq.sleep(PAUSED_S)
        finally:
            self._settle(consumer, acks)

    def on_push(self, event: Any, _context: object = None) -> Json:
        """The handler of a Lambda function that a group pushes to: answers the messages of the event, and returns which
        of them failed."""
        return self._consumer("any", "any").on_push(event)

    def _consumer(self, topic: str, group: str) -> Consumer[Any]:
        def handle(_value: object, message: messages.Message[Any]) -> Any:
            return self._function(message)

        consumer: Consumer[Any] = Consumer(self._mq, handle, Topic(topic, codec=PLAIN), Options(group))
        consumer.on_refused = self._on_refused
        return consumer

    def _handle(self, consumer: Consumer[Any], message: messages.Message[Any], acks: Settlements) -> None:
        """Has the function answer a message. A verdict other than an ack is sent at once."""
        [verdict] = consumer.attend_and_reply([message])
        if verdict == ACK:
            acks.add(message.receipt, verdict, 0.0)
            return
        now = Settlements(consumer.topic.name, consumer.options.group)
        now.add(message.receipt, verdict, 0.0)
        self._settle(consumer, now)

    def _settle(self, consumer: Consumer[Any], settlements: Settlements) -> None:
        while len(settlements):
            warn_of_failures(consumer, self._mq.call(settlements.take().call))
