"""The core without I/O: a call becomes a request, a response becomes a result or an error, and `Attempts` decides after
each attempt whether to return, to raise, or to pause and try again."""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, TypeVar, cast
from urllib.parse import quote

from decant.errors import DecantError, NotDecant, OutcomeUnknown, Problem, SettingError, Unreachable, problem_of

if TYPE_CHECKING:
    from decant.payloads import Topic

T = TypeVar("T")
Json = dict[str, Any]

REQUEST_TIMEOUT_MS, REQUEST_WAIT_MS_MAX = 3_000, 25_000
"""How long a request waits for its reply by default, and a call at most."""
DEDUP_S = 240.0
"""How long a produce is repeated: the service knows a `dedup_id` for five minutes."""


class Repeat(enum.Enum):
    """When a call may be sent again."""

    ALWAYS = "always"
    """Also after a lost answer: the repeat changes nothing."""
    IF_UNSENT = "if unsent"
    """Only if the service has certainly stored nothing."""


class Unset(enum.Enum):
    """The value of a setting that is not given, where `None` is a value."""

    UNSET = "unset"


UNSET: Literal[Unset.UNSET] = Unset.UNSET


class Call(NamedTuple, Generic[T]):
    """One call of an operation. Functions of `decant.operations` build it, `mq.call` carries it out."""

    operation: str
    """The operation's name in the contract, such as `pop`."""
    method: str
    path: str
    """With names in braces: `/topics/{topic}`."""
    names: Mapping[str, str]
    """The names in the path."""
    query: Mapping[str, Any]
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


def call(
    operation: str,
    method: str,
    path: str,
    names: Mapping[str, str | Topic[Any]],
    fields: Mapping[str, Any],
    repeat: Repeat,
    headers: Mapping[str, str | None] | None = None,
    *,
    is_text: bool = False,
) -> Call[Any]:
    """A call with these fields, in the query of a GET, else in the body. Fields that are UNSET are left out."""
    set_ = {name: value for name, value in fields.items() if value is not UNSET}
    sent = given(**headers) if headers else {}
    query, body = (set_, None) if method == "GET" else ({}, set_ or None)
    texts = {name: str(value) for name, value in names.items()}
    return Call(operation, method, path, texts, query, body, sent, repeat, _wait_s(operation, set_), is_text)


def given(**fields: Any) -> Json:
    """The fields that are not None."""
    return {name: value for name, value in fields.items() if value is not None}


def if_each_has(name: str, items: Iterable[Mapping[str, Any]]) -> Repeat:
    """ALWAYS if each of these objects has the field."""
    return Repeat.ALWAYS if all(item.get(name) is not None for item in items) else Repeat.IF_UNSENT


def _wait_s(operation: str, fields: Mapping[str, Any]) -> float:
    wait_ms = fields.get("wait_ms")
    if wait_ms is None and operation == "request":
        wait_ms = min(fields.get("timeout_ms") or REQUEST_TIMEOUT_MS, REQUEST_WAIT_MS_MAX)
    return wait_ms / 1_000 if type(wait_ms) is int and 0 < wait_ms <= REQUEST_WAIT_MS_MAX else 0.0


# -- requests ---------------------------------------------------------------------------------------------------------


class HttpRequest(NamedTuple):
    """A request as a transport sends it. `operation`, `names` and `fields` say the same without HTTP."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes
    operation: str
    names: Mapping[str, str]
    fields: Mapping[str, Any]

    def __repr__(self) -> str:  # without the token
        return f"HttpRequest({self.method} {self.target}, {len(self.body)} bytes)"


def request(call: Call[Any], token: str | None = None) -> HttpRequest:
    """The call as a request. Raises SettingError for what no request can carry."""
    headers = {"accept": "application/json, application/problem+json", **call.headers}
    try:
        body = b"" if call.body is None else encoded(call.body)
        target = call.target
    except (TypeError, ValueError, RecursionError) as error:
        raise SettingError(f"{call.operation}: {error}") from error
    if call.body is not None:
        headers["content-type"] = "application/json"
    if token:
        headers["authorization"] = f"Bearer {token}"
    for name, value in headers.items():
        if not re.fullmatch(r"[\t -~]*", value):
            raise SettingError(f"{call.operation}: the header '{name}' has a character that no header can carry")
    return HttpRequest(call.method, target, headers, body, call.operation, call.names, call.body or call.query)


def encoded(value: Any) -> bytes:
    """As JSON. A lone surrogate, which UTF-8 does not have, is sent as its escape: the service names its field."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    try:
        return text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, allow_nan=False, separators=(",", ":")).encode()


# -- responses --------------------------------------------------------------------------------------------------------


class HttpResponse(NamedTuple):
    """A response as a transport returns it. The names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class NotSent(Exception):
    """Raised by transports: certainly nothing of the request has reached the service."""


class NoAnswer(Exception):
    """Raised by transports: at least a part of the request was sent, and no whole answer came."""


_LOST_STATUSES = (408, 500, 502, 503, 504)
"""After these a call may have been carried out, unless the service says otherwise."""


def result(call: Call[T], response: HttpResponse) -> T:
    """The result of the call that got this response. Raises Problem, NotDecant."""
    if response.status == 204:
        return cast(T, None)
    if 200 <= response.status < 300:
        return cast(T, response.body.decode(errors="replace") if call.is_text else _object(call, response))
    if 300 <= response.status < 400:
        raise NotDecant(f"{call} was redirected to {response.headers.get('location', 'nowhere')}: use that address")
    raise problem_of(response.status, _object(call, response), _retry_after_s(response))


def _object(call: Call[Any], response: HttpResponse) -> Json:
    """The JSON object in the response. A front may answer 429 and 5xx in a form of its own."""
    try:
        value = json.loads(response.body)
    except (ValueError, RecursionError):
        value = None
    if isinstance(value, dict):
        return value
    kind = response.headers.get("content-type", "no content type")
    if response.status in (429, *_LOST_STATUSES):
        return {"detail": f"the answer is {kind}"}
    raise NotDecant(f"{call} was answered with {response.status} and {kind} that is no JSON object")


def _retry_after_s(response: HttpResponse) -> float | None:
    text = response.headers.get("retry-after", "")
    return float(text) if re.fullmatch("[0-9]{1,6}", text) else None


# -- attempts ---------------------------------------------------------------------------------------------------------


class Pause(NamedTuple):
    """How long to wait before the next attempt."""

    seconds: float


class Backoff:
    """Pauses that double, each shortened at random by up to a half. `random`: from 0 to 1."""

    FIRST_S, LONGEST_S = 0.1, 5.0

    def __init__(self, random: Callable[[], float]) -> None:
        self._random = random
        self._longest_s = self.FIRST_S

    def next_s(self, least_s: float = 0.0) -> float:
        """The next pause, no shorter than `least_s`."""
        pause_s = self._longest_s * (0.5 + self._random() / 2)
        self._longest_s = min(self._longest_s * 2, self.LONGEST_S)
        return max(pause_s, least_s)


class Attempts(Generic[T]):
    """The attempts of one call. `now` and `deadline` are in seconds by the same clock."""

    def __init__(self, call: Call[T], address: str, now: float, timeout_s: float, random: Callable[[], float]) -> None:
        self._call, self._address = call, address
        self._deadline = now + timeout_s + call.wait_s
        if call.operation == "produce":
            self._deadline = min(self._deadline, now + DEDUP_S)
        self._backoff = Backoff(random)
        self._is_any_lost = False

    def left_s(self, now: float) -> float:
        """How long the next attempt may take."""
        return max(self._deadline - now, 0.001)

    def answered(self, response: HttpResponse, now: float) -> T | Pause:
        """The result, or the pause before the next attempt. Raises DecantError."""
        try:
            return result(self._call, response)
        except NotDecant as error:
            raise self.foreign(error) from None
        except Problem as problem:
            if _has_stored_nothing(problem):
                return self._next(self._refused(problem), now, problem.retry_after_s or 0.0)
            if problem.status in _LOST_STATUSES and problem.code != "ReplyTimeout":
                return self._lost(problem, now)
            if self._is_any_lost and problem.status == 404 and self._call.method == "DELETE":
                return self._gone(problem)
            if self._is_any_lost and problem.status in (401, 403):  # the service has not looked
                raise self._unknown(problem) from None
            raise

    def failed(self, error: NotSent | NoAnswer, now: float) -> Pause:
        """The pause before the next attempt. Raises Unreachable, OutcomeUnknown."""
        return self._next(self._unreachable(error), now) if isinstance(error, NotSent) else self._lost(error, now)

    def foreign(self, error: NotDecant) -> NotDecant:
        """The error, with the address."""
        return NotDecant(f"{self._address} does not answer as Decant does: {error}")

    def _lost(self, error: Problem | NoAnswer, now: float) -> Pause:
        """The call may have been carried out."""
        if self._call.method == "GET":
            return self._next(error if isinstance(error, Problem) else self._unreachable(error), now)
        self._is_any_lost = True
        unknown = self._unknown(error)
        if self._call.repeat is Repeat.IF_UNSENT:
            raise unknown
        return self._next(unknown, now)

    def _refused(self, problem: Problem) -> DecantError:
        return self._unknown(problem) if self._is_any_lost else problem

    def _unreachable(self, error: Exception) -> DecantError:
        if self._is_any_lost:
            return self._unknown(error)
        return Unreachable(f"{self._address} did not carry out {self._call}: {error}")

    def _unknown(self, error: Exception) -> OutcomeUnknown:
        text = f"{self._address} may have carried out {self._call}, whose answer was lost: {error}"
        return OutcomeUnknown(text, error if isinstance(error, Problem) else None)

    def _next(self, final: DecantError, now: float, least_s: float = 0.0) -> Pause:
        """A pause that leaves time for another attempt. Else raises the final error."""
        pause_s = self._backoff.next_s(least_s)
        if now + pause_s >= self._deadline:
            raise final
        return Pause(pause_s)

    def _gone(self, problem: Problem) -> T:
        """The attempt whose answer was lost may have deleted it, or it never existed."""
        if not self._call.operation.startswith("delete_"):  # the others say what they have removed
            raise self._unknown(problem)
        return cast(T, None)


def _has_stored_nothing(problem: Problem) -> bool:
    """And a repeat may succeed."""
    return problem.status == 429 or (problem.code == "StoreUnavailable" and problem.outcome is None)
