"""The core without I/O: a call becomes a request, a response becomes a result or an error, and `Attempts` decides after
each attempt whether to return, to raise, or to pause and try again."""

from __future__ import annotations

import enum
import json
from collections.abc import Callable, Mapping
from typing import Any, Generic, Literal, NamedTuple, TypeVar, cast
from urllib.parse import quote

from decant.errors import DecantError, NotDecant, OutcomeUnknown, Problem, Unreachable, problem_of

T = TypeVar("T")
Json = dict[str, Any]


class Repeat(enum.Enum):
    """When a call may be sent again."""

    ALWAYS = "always"
    """Its repeat changes nothing: also after a lost answer."""
    IF_UNSENT = "if unsent"
    """Only if it is certain that the service stored nothing."""


class Unset(enum.Enum):
    """The value of a setting that is not given. `None` is a value: it removes the setting."""

    UNSET = "unset"


UNSET: Literal[Unset.UNSET] = Unset.UNSET


class Call(NamedTuple, Generic[T]):
    """One call of an operation. Build it with a function of `decant.operations`, run it with `mq.call`."""

    operation: str
    """The operation's name in the contract, such as `pop`."""
    method: str
    path: str
    """With the names in braces, such as `/topics/{topic}`."""
    names: Mapping[str, str]
    """What stands for the names in the path."""
    query: Mapping[str, str | int]
    body: Json | None
    headers: Mapping[str, str]
    repeat: Repeat
    wait_s: float = 0.0
    """How long the service itself may wait before it answers."""
    is_text: bool = False
    """The answer is text, not JSON."""

    @property
    def target(self) -> str:
        """Path and query, percent-encoded."""
        path = self.path.format_map({name: quote(value, safe="") for name, value in self.names.items()})
        query = "&".join(f"{name}={quote(str(value), safe='')}" for name, value in self.query.items())
        return f"{path}?{query}" if query else path

    def __str__(self) -> str:
        return f"{self.method} {self.path.format_map(self.names)}"


class HttpRequest(NamedTuple):
    """What a transport sends. `operation`, `names` and `fields` are for transports that do not speak HTTP."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes
    operation: str = ""
    names: Mapping[str, str] = {}
    fields: Json | None = None


class HttpResponse(NamedTuple):
    """What a transport returns. `headers`: their names in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class NotSent(Exception):
    """Raised by transports: certainly nothing of the request has reached the service."""


class NoAnswer(Exception):
    """Raised by transports: the request was sent, at least in part, and no whole answer came."""


def call(
    operation: str,
    method: str,
    path: str,
    names: Mapping[str, str],
    fields: Mapping[str, Any],
    repeat: Repeat,
    headers: Mapping[str, str | None] | None = None,
    *,
    is_text: bool = False,
) -> Call[Any]:
    """A call of these fields: a GET has them in its query, others in the body. `None` and `UNSET` are left out."""
    given = {name: value for name, value in fields.items() if value is not UNSET}
    sent = {name: value for name, value in (headers or {}).items() if value is not None}
    query, body = (given, None) if method == "GET" else ({}, given or None)
    return Call(operation, method, path, names, query, body, sent, repeat, _wait_s(operation, given), is_text)


def _wait_s(operation: str, fields: Mapping[str, Any]) -> float:
    wait_ms = fields.get("wait_ms")
    if wait_ms is None and operation == "request":
        wait_ms = min(fields.get("timeout_ms") or REQUEST_TIMEOUT_MS, REQUEST_WAIT_MS_MAX)
    return wait_ms / 1_000 if type(wait_ms) is int and wait_ms > 0 else 0.0


REQUEST_TIMEOUT_MS, REQUEST_WAIT_MS_MAX = 3_000, 25_000
"""How long a request waits by default, and at most."""


def given(**fields: Any) -> Json:
    """The fields that are not None."""
    return {name: value for name, value in fields.items() if value is not None}


def if_each_has(name: str, items: Any) -> Repeat:
    """ALWAYS if each of these objects has this field."""
    return Repeat.ALWAYS if all(item.get(name) is not None for item in items) else Repeat.IF_UNSENT


def request(call: Call[Any], token: str | None = None) -> HttpRequest:
    """The call as a request. Raises SettingError for what is no JSON."""
    headers = {"accept": "application/json, application/problem+json", **call.headers}
    body = b""
    if call.body is not None:
        body = encoded(call.body)
        headers["content-type"] = "application/json"
    if token:
        headers["authorization"] = f"Bearer {token}"
    fields = call.body if call.method != "GET" else dict(call.query)
    return HttpRequest(call.method, call.target, headers, body, call.operation, call.names, fields)


def encoded(value: Any) -> bytes:
    """As JSON in UTF-8; lone surrogates stay as escapes, and the service refuses them by name."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    try:
        return text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, allow_nan=False, separators=(",", ":")).encode()


def result(call: Call[T], response: HttpResponse) -> T:
    """What the response means for the call. Raises Problem, NotDecant."""
    if response.status == 204:
        return cast(T, None)
    if 200 <= response.status < 300:
        if call.is_text:
            return cast(T, response.body.decode(errors="replace"))
        return cast(T, _object(call, response))
    if 300 <= response.status < 400:
        raise NotDecant(f"{call} was redirected to {response.headers.get('location', 'nowhere')}: use that address")
    raise problem_of(response.status, _object(call, response), retry_after_s(response))


def _object(call: Call[Any], response: HttpResponse) -> Json:
    """The JSON object of the response. Fronts answer 429 and 5xx in forms of their own."""
    try:
        value = json.loads(response.body)
    except (ValueError, RecursionError):
        value = None
    if isinstance(value, dict):
        return value
    kind = response.headers.get("content-type", "no content type")
    if response.status in (429, *_LOST_STATUSES):
        return {"detail": f"answered with {kind}"}
    raise NotDecant(f"{call} was answered by something else than Decant: {response.status}, {kind}")


def retry_after_s(response: HttpResponse) -> float | None:
    """The wait that the response asks for."""
    text = response.headers.get("retry-after", "")
    return float(text) if text.isascii() and text.isdecimal() and len(text) < 7 else None


class Pause(NamedTuple):
    """How long to wait before the next attempt."""

    seconds: float


BACKOFF_S, BACKOFF_S_MAX = 0.1, 5.0
"""The first pause, doubled with each attempt, and the longest one."""


class Attempts(Generic[T]):
    """The attempts of one call. `deadline`, `now`: by the same clock, in seconds. `random`: from 0 to 1."""

    def __init__(self, call: Call[T], address: str, deadline: float, random: Callable[[], float]) -> None:
        self._call, self._address, self._deadline, self._random = call, address, deadline, random
        self._count = 0
        self._is_any_lost = False

    def left_s(self, now: float) -> float:
        return max(self._deadline - now, 0.0)

    def answered(self, response: HttpResponse, now: float) -> T | Pause:
        """The result, or a pause before the next attempt. Raises DecantError."""
        try:
            return result(self._call, response)
        except NotDecant as error:
            raise NotDecant(f"{self._address}: {error}") from None
        except Problem as problem:
            if _is_certainly_refused(problem):
                return self._next(problem, now, problem, problem.retry_after_s or 0.0)
            if problem.status in _LOST_STATUSES and problem.code != "ReplyTimeout":
                return self._lost(problem, now)
            if problem.status == 404 and self._is_any_lost and self._call.method == "DELETE":
                return self._gone(problem)
            raise

    def failed(self, error: NotSent | NoAnswer, now: float) -> Pause:
        """The pause before the next attempt. Raises Unreachable, OutcomeUnknown."""
        if isinstance(error, NotSent):
            return self._next(error, now, self._unreachable(error))
        return self._lost(error, now)

    def _lost(self, error: Exception, now: float) -> Pause:
        """The call may have been carried out."""
        self._is_any_lost = True
        final = self._final(error)
        if self._call.repeat is Repeat.IF_UNSENT and self._call.method != "GET":
            raise final from error
        return self._next(error, now, final)

    def _final(self, error: Exception) -> DecantError:
        problem = error if isinstance(error, Problem) else None
        if self._call.method == "GET":
            return problem or self._unreachable(error)
        text = f"{self._address}: {self._call} may have been carried out, but its answer was lost: {error}"
        return OutcomeUnknown(text, problem)

    def _unreachable(self, error: Exception) -> DecantError:
        if self._is_any_lost and self._call.method != "GET":
            return OutcomeUnknown(f"{self._address}: {self._call} may have been carried out; then: {error}")
        return Unreachable(f"{self._address}: {self._call} got no answer: {error}")

    def _next(self, error: Exception, now: float, final: DecantError, least_s: float = 0.0) -> Pause:
        """A pause that leaves time for another attempt; else raises the final error."""
        backoff_s = min(BACKOFF_S * 2**self._count, BACKOFF_S_MAX) * (0.5 + self._random() / 2)
        self._count += 1
        pause_s = max(backoff_s, least_s)
        if now + pause_s >= self._deadline:
            raise final from (None if final is error else error)
        return Pause(pause_s)

    def _gone(self, problem: Problem) -> T:
        """What was to be deleted is gone, and an attempt before may have done it."""
        if self._call.operation == "cancel_delayed":
            raise OutcomeUnknown(
                f"{self._address}: {self._call}: an answer was lost, and the message waits no more", problem
            )
        return cast(T, None)


_LOST_STATUSES = (408, 500, 502, 503, 504)
"""After these a call may have been carried out, unless the service says otherwise."""


def _is_certainly_refused(problem: Problem) -> bool:
    """Nothing was stored, and a repeat may succeed."""
    return problem.status == 429 or (problem.code == "StoreUnavailable" and problem.outcome is None)
