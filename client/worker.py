"""Turns a Python function into a worker: it gets each message, and its result is the reply.

    service = Service("http://127.0.0.1:8000")

    @service.worker
    def add(message: Message) -> str:
        return str(sum(map(int, message.text.split("+"))))

    add.run("sums", "adders")  # pops, until the process ends
    handler = add.on_push  # or: of a Lambda function to which the group `adders` pushes

| the function | becomes of the message |
| --- | --- |
| returns text or bytes that are not empty | the reply; then it is acked |
| returns anything else that JSON can hold | the reply, as JSON text |
| returns a `Reply` | the reply, with its properties |
| returns None, or the message is no request | no reply; it is acked |
| raises `Retry` | nacked, with its reason and delay |
| raises any other exception | nacked, with the exception as the reason |
| returns too late, or after another consumer | calls `on_refused`, and is acked, since any reply would be refused |
"""

from __future__ import annotations

import base64
import http.client
import json
import logging
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]
Call = Callable[[str, Json], tuple[int, Json]]
"""Posts JSON to a path. Returns status and answer. Raises OSError if there is no answer."""

POP_WAIT_MS = 20_000
PAUSES_S = (0.1, 0.5, 2.0, 10.0)
"""Seconds before the repeat of a call that the service could not carry out, or did not answer."""
PAUSED_S = 1.0
"""Seconds between two pops of a paused group, which answers at once, however long a pop may wait."""
REASON_CHARS_MAX = 256
DELAY_MS_MAX = 365 * 24 * 60 * 60 * 1_000
"""Bounds that the service sets for a nack."""
REFUSALS = ("RequestExpired", "AlreadyReplied", "RequestNotFound")
"""Codes of refused replies that no repeat would get accepted."""

_log = logging.getLogger("decant.worker")


@dataclass(frozen=True)
class Message:
    """A message as a pop or a push delivers it. `fields`: all of it, as JSON."""

    fields: Json

    @property
    def text(self) -> str:
        """The body of a message that was sent as text."""
        return str(self.fields["body"])

    @property
    def data(self) -> bytes:
        """The body as bytes, however it was sent."""
        return self.text.encode() if "body" in self.fields else base64.b64decode(self.fields["body_base64"])

    @property
    def id(self) -> str:
        return str(self.fields["message_id"])

    @property
    def correlation_id(self) -> str | None:
        """None: the message is no request."""
        return self.fields.get("correlation_id")


@dataclass(frozen=True)
class Reply:
    """A reply with properties: a function may return one instead of a body."""

    body: Any
    properties: Mapping[str, str] = field(default_factory=dict)

    def as_json(self) -> Json:
        properties = {"properties": dict(self.properties)} if self.properties else {}
        if isinstance(self.body, bytes):
            return {"body_base64": base64.b64encode(self.body).decode(), **properties}
        return {
            "body": self.body if isinstance(self.body, str) else json.dumps(self.body, allow_nan=False),
            **properties,
        }


class Retry(Exception):
    """Raised by a function that wants the message again: after `delay_ms`, or else the group's backoff. Raises
    ValueError for a delay that the service would refuse; the message is then nacked with that as the reason."""

    def __init__(self, reason: str = "", delay_ms: int | None = None) -> None:
        super().__init__(reason)
        if delay_ms is not None and not (type(delay_ms) is int and 0 <= delay_ms <= DELAY_MS_MAX):
            raise ValueError(f"delay_ms must be an integer from 0 to {DELAY_MS_MAX}; it is {delay_ms!r}")
        self.delay_ms = delay_ms


class Refused(Exception):
    """The service refused a call. `code`: as in its problem."""

    def __init__(self, status: int, problem: Json) -> None:
        super().__init__(f"{status} {problem.get('code', '')}: {problem.get('detail', '')}")
        self.status = status
        self.code = str(problem.get("code", ""))


Function = Callable[[Message], Any]
OnRefused = Callable[[Message, str], None]


def _warn(message: Message, code: str) -> None:
    _log.warning("the reply to message %s was refused: %s", message.id, code)


class Service:
    """Decant at this URL. `call` replaces HTTP, for example to invoke the service's Lambda functions. `post`: `call`,
    or else HTTP."""

    def __init__(
        self,
        url: str,
        token: str | None = None,
        call: Call | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._url, self.sleep = url.rstrip("/"), sleep
        self._headers = {"content-type": "application/json"}
        if token:
            self._headers["authorization"] = f"Bearer {token}"
        self.post = call or self._post

    def worker(self, function: Function) -> Worker:
        return Worker(self, function)

    def call(self, path: str, body: Json) -> Json:
        """Repeats the call while the service is unavailable: repeats of a worker's calls do no harm. Raises Refused,
        and OSError."""
        for pause_s in (*PAUSES_S, None):
            try:
                status, answer = self.post(path, body)
            except OSError:
                if pause_s is None:
                    raise
            else:
                if status < 300:
                    return answer
                if status not in (429, 500, 502, 503, 504) or pause_s is None:
                    raise Refused(status, answer)
            self.sleep(pause_s)
        raise AssertionError("the last try returns or raises")

    def _post(self, path: str, body: Json) -> tuple[int, Json]:
        request = urllib.request.Request(self._url + path, json.dumps(body).encode(), self._headers, method="POST")
        try:
            with urllib.request.urlopen(request, timeout=POP_WAIT_MS / 1_000 + 10) as response:
                return response.status, json.loads(response.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, _problem(error.read())
        except http.client.HTTPException as error:  # the answer was cut off, or is not HTTP
            raise OSError(f"no answer: {error!r}") from error


def _problem(raw: bytes) -> Json:
    """A proxy in between may answer with something other than a problem."""
    try:
        problem = json.loads(raw)
    except (ValueError, RecursionError):
        problem = None
    return problem if isinstance(problem, dict) else {"detail": raw[:REASON_CHARS_MAX].decode(errors="replace")}


class Worker:
    """A function that answers messages. Calls `on_refused(message, code)` for replies that came too late."""

    def __init__(self, service: Service, function: Function, on_refused: OnRefused = _warn) -> None:
        self.service, self.function, self.on_refused = service, function, on_refused

    def run(self, topic: str, group: str, is_over: Callable[[], bool] = lambda: False, **pop: Any) -> None:
        """Pops and answers messages of a group, one after another, until `is_over`; acks ride in the next pop. `pop`:
        further fields of a pop, such as `max_messages` (default 1: the leases of all must outlast the work on all).
        Raises Refused, and OSError once the service has not answered for a while."""
        path = f"/topics/{topic}/groups/{group}"
        acks: list[str] = []
        try:
            while not is_over():
                popped = self.service.call(
                    f"{path}/pop", {"max_messages": 1, "wait_ms": POP_WAIT_MS, **pop, "ack": acks}
                )
                _warn_of(popped["failed"])
                acks = []
                for fields in popped["messages"]:
                    if failure := self._failure(Message(fields)):
                        self.service.call(f"{path}/nack", {"receipts": [fields["receipt"]], **failure})
                    else:
                        acks.append(fields["receipt"])
                if popped.get("paused"):
                    self.service.sleep(PAUSED_S)
        finally:
            if acks:
                _warn_of(self.service.call(f"{path}/ack", {"receipts": acks})["failed"])

    def on_push(self, event: Json, _context: object = None) -> Json:
        """The handler of a Lambda function that a group pushes to: answers the messages of the event, and returns which
        of them failed."""
        answered = [(message, self._failure(message)) for message in map(Message, event["messages"])]
        failures = [{"itemIdentifier": message.id, **failure} for message, failure in answered if failure]
        return {"batchItemFailures": failures}

    def _failure(self, message: Message) -> Json | None:
        """Answers the message. Returns the nack's fields, or None if the message is settled."""
        try:
            returned = self.function(message)
            if returned is not None and message.correlation_id:
                self._reply(message, returned if isinstance(returned, Reply) else Reply(returned))
        except Exception as error:  # noqa: BLE001 - whatever goes wrong, the message comes again
            is_retry = isinstance(error, Retry)
            _log.log(
                logging.INFO if is_retry else logging.WARNING, "message %s failed", message.id, exc_info=not is_retry
            )
            told = str(error) if is_retry else f"{type(error).__name__}: {error}"
            reason = told.encode(errors="replace").decode()  # half a surrogate pair is no text
            delay_ms = getattr(error, "delay_ms", None) if is_retry else None
            return {"reason": reason[:REASON_CHARS_MAX], **({} if delay_ms is None else {"delay_ms": delay_ms})}
        return None

    def _reply(self, message: Message, reply: Reply) -> None:
        try:
            self.service.call(f"/requests/{message.correlation_id}/reply", reply.as_json())
        except Refused as refused:
            if refused.code not in REFUSALS:
                raise
            self.on_refused(message, refused.code)


def _warn_of(failed: list[Json]) -> None:
    for failure in failed:
        _log.warning("an ack failed: %s", failure["code"])
