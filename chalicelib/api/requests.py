"""Send a request and get a reply. A *request* is a message with a correlation id and a deadline. Every group receives
it, and the first *reply* of a consumer counts. The caller waits for the reply in the same call, or fetches it later
from any instance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from chalicelib.api.operation import CORRELATION_ID, TOPIC, Answers, Family, Json
from chalicelib.core.base.errors import AlreadyReplied, QueueFull, ReplyTimeout, RequestExpired
from chalicelib.core.base.fields import Answer, Sometimes, array, declarations, instant, integer, optional
from chalicelib.core.base.fields import request as request_type
from chalicelib.core.base.limits import REPLY_TIMEOUT_MS_DEFAULT, REPLY_TIMEOUT_MS_MAX, REPLY_WAIT_MS_MAX
from chalicelib.core.catalogue.topic import Topic
from chalicelib.core.consuming.receipt_batch import Failure
from chalicelib.core.consuming.request import RECEIPT
from chalicelib.core.producing.new_message import (
    BODY_OR_BYTES,
    Content,
    PlainMessage,
    Sending,
    message_of,
    place_of,
    traced,
)
from chalicelib.core.telemetry.record import TRACE_HEADERS
from chalicelib.service import Service

if TYPE_CHECKING:
    from chalicelib.core.requests.asking import ReceivedReply as Replied

REQUESTS = Family("Requests", __doc__)

_REQUEST = "/requests/{correlation_id}"
_CONTENT = {name: declared.schema for name, declared in declarations(Content).items()}

# -- types ------------------------------------------------------------------------------------------------------------


@request_type
class AskRequest(PlainMessage):
    """The request's message. Exactly one of `body` and `body_base64` is given.

    timeout_ms: How long consumers may reply, in milliseconds from now. After that, the request is no longer delivered.
    wait_ms: How long this call waits for the reply, in milliseconds. By default `timeout_ms`, but at most
        {REPLY_WAIT_MS_MAX}."""

    timeout_ms: int = optional(integer(1, REPLY_TIMEOUT_MS_MAX, default=REPLY_TIMEOUT_MS_DEFAULT))
    wait_ms: int | None = optional(integer(0, REPLY_WAIT_MS_MAX))


@request_type
class FetchRequest:
    """wait_ms: How long to wait for the reply, in milliseconds."""

    wait_ms: int = optional(integer(0, REPLY_WAIT_MS_MAX, default=0))


@request_type
class ReplyRequest(Content):
    """The reply. Exactly one of `body` and `body_base64` is given.

    receipt: A receipt for the request's message, which is acked once the reply is stored."""

    receipt: str | None = optional(RECEIPT)


class Reply(Answer):
    """The reply, with exactly one of `body` and `body_base64`.

    body: The payload, if it was sent as text.
    body_base64: The payload in base64, if it was sent as bytes.
    properties: The replier's own names and values.
    replied_at_ms: When the reply was stored."""

    RULES: ClassVar[Any] = BODY_OR_BYTES
    body = Sometimes(_CONTENT["body"])
    body_base64 = Sometimes(_CONTENT["body_base64"])
    properties = _CONTENT["properties"]
    replied_at_ms = instant()


class Unanswered(Answer):
    """There is no reply yet, but there may be one later."""

    correlation_id = CORRELATION_ID


class Answered(Answer):
    """There is a reply."""

    correlation_id = CORRELATION_ID
    reply = Reply


class ReplyResult(Answer):
    """The reply is stored, by this request or an earlier one.

    acked: 1 if the receipt counts, else 0. Only if one was given.
    failed: The receipt, if it did not count, and why. Only if one was given."""

    acked = Sometimes(integer(0, 1, examples=[1]))
    failed = Sometimes(array(Failure, maxItems=1))


# -- operations -------------------------------------------------------------------------------------------------------

_ASKED: Answers = {200: Answered, 202: Unanswered}


@REQUESTS.operation(
    "POST",
    TOPIC + "/requests",
    "produce",
    _ASKED,
    AskRequest,
    errors=(ReplyTimeout, QueueFull),
    headers=TRACE_HEADERS,
    is_frequent=True,
)
def request(service: Service, topic: Topic, request: AskRequest, **trace: str | None) -> tuple[int, Json]:
    """Send a request, and wait for its reply.

    504 is final: no reply is accepted after it. If the store fails when the request may have been sent, the problem
    carries its `correlation_id`."""
    given = {name: getattr(request, name) for name in declarations(PlainMessage)}
    fields = {name: value for name, value in given.items() if value is not None}

    def parse(current: Topic) -> Sending:
        place = place_of(fields, current)
        return Sending(traced(message_of(fields, "the request"), trace), *place)

    wait_ms = min(request.timeout_ms, REPLY_WAIT_MS_MAX) if request.wait_ms is None else request.wait_ms
    correlation_id, reply = service.requests.ask(topic, parse, request.timeout_ms, wait_ms)
    return _answered(correlation_id, reply)


@REQUESTS.operation("GET", _REQUEST, "produce", _ASKED, FetchRequest, errors=(ReplyTimeout,))
def get_reply(service: Service, correlation_id: str, request: FetchRequest) -> tuple[int, Json]:
    """Fetch a reply, and wait for it.

    The reply can be fetched until {REPLY_KEPT_MS} ms after the request's deadline. 504 is final."""
    return _answered(correlation_id, service.requests.fetch(correlation_id, request.wait_ms))


@REQUESTS.operation(
    "POST",
    _REQUEST + "/reply",
    "consume",
    {201: ReplyResult},
    ReplyRequest,
    errors=(AlreadyReplied, RequestExpired),
    headers=TRACE_HEADERS,
)
def reply(service: Service, correlation_id: str, request: ReplyRequest, **trace: str | None) -> Json:
    """Reply to a request.

    The first reply counts. A repeat with the same content succeeds, so retrying after a lost response is safe. The
    receipt counts only if the reply does."""
    given = {name: getattr(request, name) for name in declarations(Content)}
    message = message_of({name: value for name, value in given.items() if value is not None}, "the reply")
    correlation = service.requests.correlation(correlation_id)
    failed = service.requests.reply(correlation, message, request.receipt, trace)
    if request.receipt is None:
        return {}
    return {"acked": 1 - len(failed), "failed": [failure.as_json() for failure in failed]}


def _answered(correlation_id: str, reply: Replied | None) -> tuple[int, Json]:
    if reply is None:
        return 202, {"correlation_id": correlation_id}
    content = {name: value for name, value in reply.message.content().items() if name not in ("key", "tag")}
    return 200, {"correlation_id": correlation_id, "reply": {**content, "replied_at_ms": reply.replied_at_ms}}
