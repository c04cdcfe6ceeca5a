"""Sends requests and retries them where that helps. Clients do not retry: only this module knows the time left and
whether a failed request may have been applied."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, Generic, TypeVar

from chalicelib.core.base import deadline
from chalicelib.core.base.errors import StoreUnavailable
from chalicelib.core.base.limits import HOP_MS_MIN, QUEUES_MAX, READ_TIMEOUT_MS, SECOND_MS
from chalicelib.core.base.records import mutable
from chalicelib.core.base.runtime import Runtime
from chalicelib.core.store import Throttled
from chalicelib.core.telemetry import record

# -- requests in progress ---------------------------------------------------------------------------------------------

TypedItem = Mapping[str, Any]


class Trouble(Exception):
    """The root. Its text is the reason, for people."""


class Failed(Trouble):
    """The response is an error. `code`: of DynamoDB or S3, such as "ThrottlingException". `item`: the item that a
    conditional write met, in typed JSON. `reasons`: why a transaction was cancelled, one for each of its writes."""

    def __init__(
        self,
        code: str,
        message: str = "",
        status: int = 400,
        item: TypedItem | None = None,
        reasons: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        super().__init__(f"{code}: {message}" if message else code)
        self.code = code
        self.status = status
        self.item = item
        self.reasons = reasons


class NeverSent(Trouble):
    """There is no connection, so the request was not applied."""


class NoAnswer(Trouble):
    """The request was sent and may have been applied, but no readable response arrived in time."""


class KeptConnectionClosed(NoAnswer):
    """The server closed a kept connection without a response. This is common; a new connection works at once."""


class Unusable(Trouble):
    """No request succeeds until an operator changes the settings. The text says how."""


T = TypeVar("T")

SIDE_BY_SIDE_MAX = 2 * QUEUES_MAX
"""Requests of one call that are under way: a pop sends one for each queue, and one more if the topic has delayed
messages. A sweep may have thousands, which then take several round trips."""

Trying = Generator[int, None, T]
"""A request in progress. It yields 0 once it is sent, so that the other requests of the call are sent before the first
answer is read, and the ms to wait before it is sent again. `run` does the waiting, in the thread of the call."""


def at_once(request: Callable[[], T]) -> Trying[T]:
    """A request that blocks until its response arrives."""
    yield 0
    return request()


@mutable
class _Request(Generic[T]):
    trying: Trying[T]
    next_at_ms: int = 0
    answers: tuple[T, ...] = ()
    """None as long as it is in progress, then one."""


def run(tryings: Sequence[Trying[T]], runtime: Runtime) -> list[T]:
    """The answers, in order. Raises the first error; the other requests then end without an answer."""
    requests = [_Request(trying) for trying in tryings]
    try:
        while left := [request for request in requests if not request.answers]:
            _go_on(left[:SIDE_BY_SIDE_MAX], runtime)
    finally:
        for request in requests:
            request.trying.close()
    return [answer for request in requests for answer in request.answers]


def _go_on(left: Sequence[_Request[T]], runtime: Runtime) -> None:
    """Sleeps until a request can continue, then resumes each that can."""
    next_at_ms = min(request.next_at_ms for request in left)
    if next_at_ms and (wait_ms := next_at_ms - runtime.uptime()) > 0:
        runtime.sleep(wait_ms)
    now = max(next_at_ms, runtime.uptime())
    for request in left:
        if request.next_at_ms <= now:
            try:
                wait_ms = next(request.trying)
                request.next_at_ms = runtime.uptime() + wait_ms if wait_ms else 0
            except StopIteration as done:
                request.answers = (done.value,)


# -- retries ----------------------------------------------------------------------------------------------------------

STORE_PAUSE_MS_MIN = 25
STORE_PAUSE_MS_MAX = 2 * SECOND_MS
"""Between two tries of a request to the store: a random time up to the first, then up to twice as long each time."""


Ask = Callable[[int], Trying[T]]
"""Begins one try, of at most this many ms."""

_THROTTLED = frozenset(
    {
        "ProvisionedThroughputExceededException",
        "RequestLimitExceeded",
        "ThrottlingException",
        "Throttling",
        "SlowDown",
        "TransactionConflictException",
        "TransactionInProgressException",
    }
)
"""Codes of requests that were certainly not applied."""

_CODES = {
    "the table does not exist: create it, or set DECANT_TABLE to one that does": "ResourceNotFoundException",
    "the bucket does not exist: create it, or set DECANT_BUCKET to one that does": "NoSuchBucket",
    "the service's credentials do not allow this request to the store: grant the right": (
        "AccessDeniedException AccessDenied OptInRequired AllAccessDisabled KMSAccessDeniedException"
    ),
    "the service's credentials for the store have expired: renew them": (
        "ExpiredTokenException ExpiredToken RequestExpired TokenRefreshRequired"
    ),
    "the store does not accept the service's credentials: correct them": (
        "UnrecognizedClientException InvalidSignatureException IncompleteSignatureException "
        "MissingAuthenticationTokenException MissingAuthenticationToken InvalidClientTokenId InvalidAccessKeyId "
        "InvalidToken SignatureDoesNotMatch"
    ),
    "the encryption key of the store cannot be used: enable it, or grant its use": (
        "KMSDisabledException KMSNotFoundException KMS.DisabledException InaccessibleEncryptionCredentialsException"
    ),
    "the clock of this machine is wrong: set it": "RequestTimeTooSkewed",
    "an object in the bucket is archived: restore it": "InvalidObjectState",
    "the bucket is in another region: set AWS_REGION to that one": "PermanentRedirect AuthorizationHeaderMalformed",
}
_REMEDIES = {code: remedy for remedy, codes in _CODES.items() for code in codes.split()}
"""The remedy for each code of requests that fail until an operator fixes something. Such requests are never applied."""


def _charge_reads(units: float) -> None:
    record.used(read_units=units)


def _charge_writes(units: float) -> None:
    record.used(write_units=units)


class Retrier:
    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def read(self, request: Ask[T]) -> Trying[T]:
        """Like `put`, for requests without effect: their outcome is never in doubt."""
        try:
            return (yield from self.put(request, charge=_charge_reads))
        except StoreUnavailable as unavailable:
            raise StoreUnavailable(unavailable.detail) from unavailable.__cause__

    def write(self, request: Ask[T]) -> Trying[T]:
        """Like `put`, for changes that other calls can see: records that the change may have landed."""
        return self.put(request, deadline.has_written)

    def put(
        self,
        request: Ask[T],
        in_doubt: Callable[[], None] = lambda: None,
        charge: Callable[[float], None] = _charge_writes,
    ) -> Trying[T]:
        """Retries until a response arrives or no time is left. Raises StoreUnavailable, and errors that a retry cannot
        fix. Calls `in_doubt` when a try may have been applied without a response, and `charge` with its units."""
        if deadline.has_ended(self._runtime.uptime()):
            raise _unavailable("the call has no time left for the store")
        patience = _Patience(self._runtime)
        may_have_landed = False
        is_repeat = False
        while True:
            record.asked_store(is_repeat=is_repeat)
            try:
                answer = yield from request(patience.try_ms())
                charge(_units(answer))
                return answer
            except GeneratorExit:  # another request of the call failed
                in_doubt()
                raise
            except Trouble as error:
                trouble = error
            if reason := _lasting(trouble):
                raise _unavailable(reason, may_have_landed) from trouble
            if not _is_passing(trouble):
                raise trouble
            if not _is_surely_unapplied(trouble):
                may_have_landed = True
                in_doubt()
            if deadline.is_hasty() and not may_have_landed and _is_throttle(trouble):
                raise Throttled(f"the store throttles ({trouble})") from trouble
            is_at_once = isinstance(trouble, KeptConnectionClosed) and not is_repeat
            try:
                yield from patience.wait(may_have_landed, is_at_once)
            except TimeoutError:
                raise _unavailable(_late(str(trouble)), may_have_landed) from trouble
            is_repeat = True

    def until_taken(self, request: Callable[[Any], Trying[Any]], asked: Any) -> Trying[None]:
        """Sends a batch, and again the requests that DynamoDB left unprocessed, until none are left."""
        patience = _Patience(self._runtime)
        while asked := (yield from request(asked)):
            try:
                yield from patience.wait()
            except TimeoutError:
                raise _unavailable(_late("it leaves requests unprocessed")) from None


class _Patience:
    """Waits a random time between tries, up to twice as long each time, while the call has time."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        now = runtime.uptime()
        self._give_up_at = deadline.give_up_at_ms(now)
        self._give_up_in_doubt_at = deadline.give_up_at_ms(now, in_doubt=True)
        self._pause_ms = STORE_PAUSE_MS_MIN

    def try_ms(self) -> int:
        """How long one try may take. An interrupted write is in doubt, so the limit for those applies."""
        left_ms = self._give_up_in_doubt_at - self._runtime.uptime()
        return min(max(left_ms, HOP_MS_MIN), READ_TIMEOUT_MS)

    def wait(self, in_doubt: bool = False, is_at_once: bool = False) -> Trying[None]:
        """Raises TimeoutError if no time is left, before or after waiting. A process may be suspended while it waits,
        and must not repeat a write after its call has ended."""
        until_ms = self._give_up_in_doubt_at if in_doubt else self._give_up_at
        wait_ms = 0 if is_at_once else self._runtime.choice(range(1, self._pause_ms + 1))
        if self._runtime.uptime() + wait_ms > until_ms:
            raise TimeoutError
        yield wait_ms
        if self._runtime.uptime() > until_ms:
            raise TimeoutError
        self._pause_ms = min(2 * self._pause_ms, STORE_PAUSE_MS_MAX)


def _units(answer: Any) -> float:
    """The units that DynamoDB reports; S3 reports none."""
    consumed = (answer.get("ConsumedCapacity") or {}) if isinstance(answer, dict) else {}
    parts = consumed if isinstance(consumed, list) else [consumed]
    return float(sum(part.get("CapacityUnits", 0) for part in parts))


def _unavailable(detail: str, may_have_landed: bool = False) -> StoreUnavailable:
    return StoreUnavailable(detail, **({"outcome": "unknown"} if may_have_landed else {}))


def _late(reason: str) -> str:
    return f"the store did not answer in time ({reason})"


def _lasting(trouble: Trouble) -> str | None:
    """The remedy that an error needs before a retry can succeed, or None."""
    if isinstance(trouble, Unusable):
        return str(trouble)
    if not isinstance(trouble, Failed):
        return None
    if 300 <= trouble.status < 400 and trouble.code not in _REMEDIES:
        return f"the endpoint of the store redirects ({trouble.status}): set it to that of DynamoDB"
    return "an item would become too large" if _is_too_large(trouble) else _REMEDIES.get(trouble.code)


def _is_passing(trouble: Trouble) -> bool:
    """Whether the same request may succeed later."""
    if isinstance(trouble, Failed):
        return trouble.code in _THROTTLED or trouble.status >= 500 or _is_conflict(trouble)
    return True


def _is_too_large(trouble: Failed) -> bool:
    """DynamoDB has no code for this case."""
    return trouble.code in ("ValidationException", "TransactionCanceledException") and "tem size" in str(trouble)


def _is_conflict(trouble: Trouble) -> bool:
    """Whether a transaction was cancelled only because of concurrent writes."""
    reasons = trouble.reasons if isinstance(trouble, Failed) else []
    codes = {reason["Code"] for reason in reasons} - {"None"}
    return bool(codes) and "ConditionalCheckFailed" not in codes and "ValidationError" not in codes


def _is_surely_unapplied(trouble: Trouble) -> bool:
    return _is_throttle(trouble) or isinstance(trouble, NeverSent) or _is_conflict(trouble)


def _is_throttle(trouble: Trouble) -> bool:
    return isinstance(trouble, Failed) and trouble.code in _THROTTLED
