"""Sends requests, again where that helps, and says what is known when it does not.

The client's own retries are off: only here is it known how much time there is, and whether a request that failed may
have been applied all the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
    NoCredentialsError,
    ParamValidationError,
)

from chalicelib import call
from chalicelib.errors import StoreUnavailable
from chalicelib.limits import STORE_PAUSE_MS_MAX, STORE_PAUSE_MS_MIN
from chalicelib.runtime import Runtime

T = TypeVar("T")

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
"""Codes of requests that were surely not applied."""

_NEVER_SENT = (EndpointConnectionError, ConnectTimeoutError)


class Requests:
    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def read(self, request: Callable[[], T]) -> T:
        """Like `put`, for what leaves nothing behind: its outcome is never in doubt."""
        try:
            return self.put(request)
        except StoreUnavailable as unavailable:
            raise StoreUnavailable(unavailable.detail) from unavailable.__cause__

    def write(self, request: Callable[[], T]) -> T:
        """Like `put`, for what others can see: that it may have landed is noted."""
        return self.put(request, call.has_written)

    def put(self, request: Callable[[], T], in_doubt: Callable[[], None] = lambda: None) -> T:
        """Sends until it is answered or there is no time left. Raises StoreUnavailable, and any answer that no repeat
        would change. `in_doubt` is called when a try may have been applied without an answer."""
        patience = _Patience(self._runtime)
        may_have_landed = False
        while True:
            try:
                return request()
            except (ClientError, BotoCoreError) as trouble:
                if _is_too_large(trouble):
                    raise StoreUnavailable("an item would become too large") from trouble
                if not _is_passing(trouble):
                    raise
                if not _is_surely_unapplied(trouble):
                    may_have_landed = True
                    in_doubt()
                if not patience.pause(may_have_landed):
                    members = {"outcome": "unknown"} if may_have_landed else {}
                    raise StoreUnavailable(_detail(type(trouble).__name__), **members) from trouble

    def until_taken(self, request: Callable[[Any], Any], asked: Any) -> None:
        """Sends a batch, then what of it DynamoDB left undone, until nothing is."""
        patience = _Patience(self._runtime)
        while asked := request(asked):
            if not patience.pause():
                raise StoreUnavailable(_detail("it leaves requests undone"))


class _Patience:
    """Waits between tries, a random time, up to twice as long each time, while the call has time."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._give_up_at = call.give_up_at_ms(runtime.now())
        self._give_up_in_doubt_at = call.give_up_at_ms(runtime.now(), in_doubt=True)
        self._pause_ms = STORE_PAUSE_MS_MIN

    def pause(self, in_doubt: bool = False) -> bool:
        """False, without having waited: there is no time left."""
        wait_ms = self._runtime.choice(range(1, self._pause_ms + 1))
        if self._runtime.now() + wait_ms > (self._give_up_in_doubt_at if in_doubt else self._give_up_at):
            return False
        self._runtime.sleep(wait_ms)
        self._pause_ms = min(2 * self._pause_ms, STORE_PAUSE_MS_MAX)
        return True


def _detail(reason: str) -> str:
    return f"the store did not answer in time ({reason})"


def _code(trouble: Exception) -> str:
    return str(trouble.response["Error"]["Code"]) if isinstance(trouble, ClientError) else ""


def _is_passing(trouble: ClientError | BotoCoreError) -> bool:
    """Whether the same request may do better later."""
    if isinstance(trouble, ClientError):
        status = trouble.response["ResponseMetadata"].get("HTTPStatusCode", 500)
        return _code(trouble) in _THROTTLED or status >= 500 or _is_conflict(trouble)
    return not isinstance(trouble, NoCredentialsError | ParamValidationError)


def _is_too_large(trouble: ClientError | BotoCoreError) -> bool:
    """There is no error of its own for this."""
    return _code(trouble) in ("ValidationException", "TransactionCanceledException") and "tem size" in str(trouble)


def _is_conflict(trouble: ClientError | BotoCoreError) -> bool:
    """Whether a transaction was cancelled for no other reason than that others were writing."""
    reasons = trouble.response.get("CancellationReasons", []) if isinstance(trouble, ClientError) else []
    codes = {reason["Code"] for reason in reasons} - {"None"}
    return bool(codes) and "ConditionalCheckFailed" not in codes and "ValidationError" not in codes


def _is_surely_unapplied(trouble: ClientError | BotoCoreError) -> bool:
    return _code(trouble) in _THROTTLED or isinstance(trouble, _NEVER_SENT) or _is_conflict(trouble)
