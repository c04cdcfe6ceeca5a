"""OpenTelemetry: a span for each call of a handler, linked to the trace of its sender, and the trace of the caller in
all that a client sends. It needs the extra `otel`.

mq.transport = Traced(mq.transport)

@mq.consumer("orders", group="billing", middleware=[spans()])
def bill(order): ...
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, cast

from decant.aio_transport import AsyncTransport
from decant.calls import HttpRequest, HttpResponse
from decant.consumer import Middleware
from decant.messages import Bury, Message, Retry
from decant.middleware import around
from decant.transport import Transport

try:
    from opentelemetry import propagate, trace
    from opentelemetry.trace import Link, SpanKind, Status, StatusCode
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"decant.otel needs {error.name}: pip install 'decant-mq[otel]'", name=error.name
    ) from error


def spans(tracer: trace.Tracer | None = None) -> Middleware:
    """A span around each call of the handler, of the kind consumer. Each message of it is a link to its sender."""
    made = tracer or trace.get_tracer("decant")

    @contextlib.contextmanager
    def call(message: Any) -> Iterator[None]:
        messages: list[Message[Any]] = message if isinstance(message, list) else [message]
        links = [link for link in map(_link, messages) if link]
        with made.start_as_current_span(
            f"process {messages[0].topic}",
            kind=SpanKind.CONSUMER,
            links=links,
            attributes=_attributes(messages),
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield
            except BaseException as error:
                if not isinstance(error, Retry | Bury):
                    span.record_exception(error)
                    span.set_status(Status(StatusCode.ERROR, f"{type(error).__name__}: {error}"))
                span.set_attribute("error.type", type(error).__name__)
                raise

    return around(call)


def _link(message: Message[Any]) -> Link | None:
    context = trace.get_current_span(propagate.extract(dict(message.properties))).get_span_context()
    return Link(context) if context.is_valid else None


def _attributes(messages: list[Message[Any]]) -> dict[str, str | int]:
    """By the conventions for messaging."""
    first = messages[0]
    about: dict[str, str | int] = {
        "messaging.system": "decant",
        "messaging.operation.type": "process",
        "messaging.operation.name": "process",
        "messaging.destination.name": first.topic,
    }
    if len(messages) > 1:
        about["messaging.batch.message_count"] = len(messages)
    else:
        about |= {
            "messaging.message.id": first.id,
            "messaging.destination.partition.id": str(first.queue),
            "messaging.message.delivery_attempt": first.attempt,
        }
    return about


class Traced:
    """A transport whose requests carry the trace of the caller: the service gives it to the messages."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner

    @property
    def address(self) -> str:
        return self._inner.address

    def send(self, request: HttpRequest, timeout_s: float) -> HttpResponse:
        return self._inner.send(marked(request), timeout_s)

    def close(self) -> None:
        self._inner.close()


class AsyncTraced:
    """The same for asyncio."""

    def __init__(self, inner: AsyncTransport) -> None:
        self._inner = inner

    @property
    def address(self) -> str:
        return self._inner.address

    def blocking(self) -> Transport:
        """The same for threads."""
        return Traced(cast(Any, self._inner).blocking())

    async def send(self, request: HttpRequest, timeout_s: float) -> HttpResponse:
        return await self._inner.send(marked(request), timeout_s)

    async def close(self) -> None:
        await self._inner.close()


def marked(request: HttpRequest) -> HttpRequest:
    """The request with the headers of the current trace, unless it names one."""
    headers: dict[str, str] = {}
    propagate.inject(headers)
    return request._replace(headers={**headers, **request.headers})
