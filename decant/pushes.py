"""Pushes: a handler as a Lambda function, or as a webhook of WSGI or ASGI. `docs/push.md` says what is sent and how
answers are read."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from decant.calls import Json, given
from decant.errors import SettingError
from decant.lanes import Lane, lane_of
from decant.messages import Message
from decant.settling import Kind, Verdict, nack

if TYPE_CHECKING:
    from decant.consumer import AsyncConsumer, Consumer, Declared

BODY_BYTES_MAX = 8 * 1024 * 1024
"""The service sends less."""
TOLERANCE_S = 300.0
EARLIER = nack("an earlier message failed")

_log = logging.getLogger("decant.consumer")


# -- what is pushed ----------------------------------------------------------------------------------------------------


def parts_of(consumer: Declared[Any], event: Any) -> list[list[Message[Any]]]:
    """The messages of a push, as a handler gets them. Raises ValueError for any other event."""
    fields = event.get("messages") if isinstance(event, dict) else None
    if not isinstance(fields, list) or not all(isinstance(each, dict) and "message_id" in each for each in fields):
        raise ValueError("a push has a list of messages")
    messages = consumer.messages(fields)
    batch = consumer.options.batch
    return [messages[start : start + batch] for start in range(0, len(messages), batch)]


class Outcome:
    """The report about the messages of a push."""

    def __init__(self, consumer: Declared[Any]) -> None:
        self._consumer = consumer
        self._failures: list[Json] = []
        self._failed: set[Lane | None] = set()

    def must_wait(self, messages: Sequence[Message[Any]]) -> bool:
        """Whether an earlier message failed that these must not overtake."""
        ordered = self._consumer.options.ordered
        return any(lane and lane in self._failed for lane in (lane_of(each, ordered) for each in messages))

    def add(self, messages: Sequence[Message[Any]], verdicts: Iterable[Verdict]) -> None:
        for message, verdict in zip(messages, verdicts, strict=True):
            if verdict.kind is Kind.ACK:
                continue
            if verdict.kind is Kind.BURY:
                _log.warning("%s: a push cannot bury message %s: it is nacked", self._consumer, message.id)
            told = given(reason=verdict.reason, delay_ms=verdict.delay_ms)
            self._failures.append({"itemIdentifier": message.id, **told})
            self._failed.add(lane_of(message, self._consumer.options.ordered))

    def report(self) -> Json:
        return {"batchItemFailures": self._failures}


def pushed(consumer: Consumer[Any], event: Any) -> Json:
    """Handles the messages of a push, one after another. Returns which failed."""
    outcome = Outcome(consumer)
    for messages in parts_of(consumer, event):
        wait = outcome.must_wait(messages)
        outcome.add(messages, [EARLIER] * len(messages) if wait else consumer.attend_and_reply(messages))
    return outcome.report()


async def async_pushed(consumer: AsyncConsumer[Any], event: Any) -> Json:
    """The same for asyncio."""
    outcome = Outcome(consumer)
    for messages in parts_of(consumer, event):
        wait = outcome.must_wait(messages)
        outcome.add(messages, [EARLIER] * len(messages) if wait else await consumer.attend_and_reply(messages))
    return outcome.report()


# -- signatures --------------------------------------------------------------------------------------------------------


class Answer(NamedTuple):
    """The answer to a webhook call."""

    status: int
    body: bytes

    @property
    def headers(self) -> list[tuple[str, str]]:
        return [("content-type", "application/json"), ("content-length", str(len(self.body)))]


def answer(status: int, **members: Any) -> Answer:
    return Answer(status, json.dumps(members).encode())


class Refusal(Exception):
    """A call that is none of the service's. `answer`: what its caller gets."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.answer = answer(status, detail=detail)


class Guard:
    """Accepts calls that are signed with one of the secrets, as Standard Webhooks says."""

    def __init__(
        self, secrets: Sequence[str], tolerance_s: float = TOLERANCE_S, clock: Callable[[], float] = time.time
    ) -> None:
        """Raises SettingError for a malformed secret."""
        self._keys = [_key(secret) for secret in secrets]
        self._tolerance_s, self._clock = tolerance_s, clock

    def event(self, method: str, headers: Mapping[str, str], body: bytes) -> Any:
        """The event in the call. `headers`: their names in lower case. Raises Refusal."""
        if method != "POST":
            raise Refusal(405, "a webhook is called by POST")
        if not self._keys:
            _log.error("the webhook has no secrets: pass secrets= to its consumer")
            raise Refusal(500, "the webhook has no secrets")
        self._demand_signed(headers, body)
        try:
            return json.loads(body)
        except (ValueError, RecursionError):
            raise Refusal(400, "the body is no JSON") from None

    def _demand_signed(self, headers: Mapping[str, str], body: bytes) -> None:
        id_, sent_at = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
        if not (sent_at.isascii() and sent_at.isdecimal() and len(sent_at) < 16):
            raise Refusal(401, "webhook-timestamp is missing or malformed")
        if abs(self._clock() - int(sent_at)) > self._tolerance_s:
            raise Refusal(401, "webhook-timestamp is too far from now")
        content = f"{id_}.{sent_at}.".encode() + body
        expected = [base64.b64encode(hmac.digest(key, content, hashlib.sha256)) for key in self._keys]
        for each in headers.get("webhook-signature", "").split():
            version, _, made = each.partition(",")
            if version == "v1" and any(hmac.compare_digest(made.encode(), one) for one in expected):
                return
        raise Refusal(401, "no signature is by a known secret")


def _key(secret: str) -> bytes:
    prefix, _, encoded = secret.partition("_") if isinstance(secret, str) else ("", "", "")
    try:
        key = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if prefix != "whsec" or not key:
        raise SettingError("a secret looks like whsec_..., as make_push_secret returns it")
    return key


# -- WSGI --------------------------------------------------------------------------------------------------------------

REASONS = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 405: "Method Not Allowed", 411: "Length Required"}


class Wsgi:
    """The webhook as an application of WSGI."""

    def __init__(self, consumer: Consumer[Any], guard: Guard) -> None:
        self._consumer, self._guard = consumer, guard

    def __call__(self, environ: Mapping[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
        made = _answered(lambda: pushed(self._consumer, self._event(environ)))
        start_response(f"{made.status} {REASONS.get(made.status, 'So')}", made.headers)
        return [made.body]

    def _event(self, environ: Mapping[str, Any]) -> Any:
        length = str(environ.get("CONTENT_LENGTH") or "")
        if environ["REQUEST_METHOD"] == "POST" and not (length.isascii() and length.isdecimal()):
            raise Refusal(411, "content-length is missing")
        if int(length or 0) > BODY_BYTES_MAX:
            raise Refusal(413, "the body is too large")
        body = environ["wsgi.input"].read(int(length)) if length else b""
        return self._guard.event(environ["REQUEST_METHOD"], dict(_headers(environ)), body)


def _headers(environ: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in environ.items():
        if name.startswith("HTTP_"):
            yield name[5:].replace("_", "-").lower(), value


def _answered(handle: Callable[[], Json]) -> Answer:
    try:
        return answer(200, **handle())
    except Exception as error:  # noqa: BLE001 - the service calls again
        return _failure(error)


def _failure(error: Exception) -> Answer:
    if isinstance(error, Refusal):
        return error.answer
    if isinstance(error, ValueError):
        return answer(400, detail=str(error))
    _log.error("a push failed", exc_info=error)
    return answer(500, detail="the push failed")


# -- ASGI --------------------------------------------------------------------------------------------------------------

Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]


class Asgi:
    """The webhook as an application of ASGI. `handle`: handles an event."""

    def __init__(self, handle: Callable[[Any], Awaitable[Json]], guard: Guard) -> None:
        self._handle, self._guard = handle, guard

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _live(receive, send)
        elif scope["type"] == "http":
            made = await self._answered(scope, receive)
            headers = [(name.encode(), value.encode()) for name, value in made.headers]
            await send({"type": "http.response.start", "status": made.status, "headers": headers})
            await send({"type": "http.response.body", "body": made.body})
        else:
            raise ValueError(f"a webhook speaks no {scope['type']}")

    async def _answered(self, scope: Mapping[str, Any], receive: Receive) -> Answer:
        try:
            body = await _body(receive)
            headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
            return answer(200, **await self._handle(self._guard.event(scope["method"], headers, body)))
        except Exception as error:  # noqa: BLE001 - the service calls again
            return _failure(error)


async def _body(receive: Receive) -> bytes:
    body = b""
    while True:
        event = await receive()
        if event["type"] == "http.disconnect":
            raise Refusal(400, "the body is cut off")
        body += bytes(event.get("body", b""))
        if len(body) > BODY_BYTES_MAX:
            raise Refusal(413, "the body is too large")
        if not event.get("more_body"):
            return body


async def _live(receive: Receive, send: Send) -> None:
    """A webhook has nothing to begin or to end."""
    while True:
        event = await receive()
        await send({"type": f"{event['type']}.complete"})
        if event["type"] == "lifespan.shutdown":
            return
