"""The errors of this package. Every one is a `DecantError` and says in one line what happened and to which address.

| error | what happened | may the call have been carried out? |
| --- | --- | --- |
| `Problem` and its subclasses | the service refused the call | no |
| `Unreachable` | no connection, or a read without an answer | no |
| `OutcomeUnknown` | the answer to a write was lost | yes |
| `NotDecant` | something else answers at this address | ask its owner |
| `PartlySent` | some messages of `send_all` are not stored | its `results` say which |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from decant.messages import Sent


class DecantError(Exception):
    """The root of all errors of this package."""


class SettingError(DecantError):
    """An address, a token, a context or an argument is malformed. Nothing was sent."""


class Unreachable(DecantError):
    """The service could not be reached within the deadline. The call changed nothing."""


class NotDecant(DecantError):
    """Something answers at this address that is no Decant: a proxy, a web page, another protocol, a redirect."""


class OutcomeUnknown(DecantError):
    """The call was sent and no answer came: it may have been carried out. `problem`: the service's own answer, if it
    gave one."""

    def __init__(self, text: str, problem: Problem | None = None) -> None:
        super().__init__(text)
        self.problem = problem


class PartlySent(DecantError):
    """Some messages are not stored. `results`: for each message, in the order given, a `Sent` or the error."""

    def __init__(self, results: Sequence[Sent | DecantError]) -> None:
        failed = [result for result in results if isinstance(result, DecantError)]
        super().__init__(f"{len(failed)} of {len(results)} messages were not sent; the first: {failed[0]}")
        self.results = list(results)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.results,)


class Problem(DecantError):
    """The service refused the call. `code` is stable; `detail` names the field and the value."""

    def __init__(self, status: int, body: Mapping[str, Any], retry_after_s: float | None = None) -> None:
        self.status = status
        self.body = dict(body)
        """The problem document (RFC 9457)."""
        self.code = str(body.get("code") or "")
        self.detail = str(body.get("detail") or body.get("message") or body.get("Message") or body.get("title") or "")
        self.retry_after_s = retry_after_s
        super().__init__(f"{self.code or status}: {self.detail}")

    @property
    def outcome(self) -> str | None:
        """`"unknown"` if a write may have been applied."""
        value = self.body.get("outcome")
        return None if value is None else str(value)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.status, self.body, self.retry_after_s)


def problem_of(status: int, body: Mapping[str, Any], retry_after_s: float | None = None) -> Problem:
    """The error of the class that the code names."""
    return PROBLEMS.get(str(body.get("code")), Problem)(status, body, retry_after_s)


# -- generated from the OpenAPI document by `python -m tests.client.generate` ------------------------------------------


class InvalidJson(Problem):
    """The request body is not JSON, or not a JSON object."""


class InvalidField(Problem):
    """A field has the wrong type, or a value outside its range."""


class UnknownField(Problem):
    """The request has an undocumented field or query parameter."""


class InvalidFilter(Problem):
    """The filter is invalid."""


class InvalidName(Problem):
    """The name of a topic or group does not match `^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$`."""


class Unauthenticated(Problem):
    """The request has no token, or one that is malformed, unknown, expired or revoked."""


class Forbidden(Problem):
    """The token has no right to this operation. The answer does not say whether the named topic or group exists."""


class TopicNotFound(Problem):
    """No topic has this name."""


class GroupNotFound(Problem):
    """The topic has no group of this name."""


class MessageNotFound(Problem):
    """There is no message with this id here."""


class RequestNotFound(Problem):
    """This service made no request with this correlation id, or its reply can no longer be fetched."""


class AlreadyReplied(Problem):
    """The request already has a different reply."""


class RequestExpired(Problem):
    """The reply came after the deadline of its request."""


class ReplyTimeout(Problem):
    """No reply came before the request's deadline. Later replies are refused."""


class AlreadyDelivered(Problem):
    """The delayed message was delivered before it could be cancelled."""


class TransactionNotFound(Problem):
    """The topic has no such transaction, or the record of its decision has expired."""


class TransactionEnded(Problem):
    """The transaction was already decided the other way."""


class TokenNotFound(Problem):
    """There is no token with this id."""


class GroupIsPushed(Problem):
    """The group has a `push`, so its messages cannot be popped."""


class QueuesDraining(Problem):
    """`queues` cannot rise while queues that it was lowered by still drain. The detail says which queue, and what it
    waits for."""


class NotFound(Problem):
    """No route has this path, or nothing has this name."""


class MethodNotAllowed(Problem):
    """The path does not support this method. `Allow` lists the methods that it supports."""


class MessageTooLarge(Problem):
    """A body, the batch or the request is too large, or the message is too large for any response."""


class QueueFull(Problem):
    """The message's queue, or every queue it could go to, has `max_depth` messages that some group has not consumed."""


class Internal(Problem):
    """An internal error of the service. The detail has an id to look up in the log."""


class StoreUnavailable(Problem):
    """The store throttled or did not respond, after retries. With the outcome `unknown`, the write may have been
    applied."""


PROBLEMS: dict[str, type[Problem]] = {
    "InvalidJson": InvalidJson,
    "InvalidField": InvalidField,
    "UnknownField": UnknownField,
    "InvalidFilter": InvalidFilter,
    "InvalidName": InvalidName,
    "Unauthenticated": Unauthenticated,
    "Forbidden": Forbidden,
    "TopicNotFound": TopicNotFound,
    "GroupNotFound": GroupNotFound,
    "MessageNotFound": MessageNotFound,
    "RequestNotFound": RequestNotFound,
    "AlreadyReplied": AlreadyReplied,
    "RequestExpired": RequestExpired,
    "ReplyTimeout": ReplyTimeout,
    "AlreadyDelivered": AlreadyDelivered,
    "TransactionNotFound": TransactionNotFound,
    "TransactionEnded": TransactionEnded,
    "TokenNotFound": TokenNotFound,
    "GroupIsPushed": GroupIsPushed,
    "QueuesDraining": QueuesDraining,
    "NotFound": NotFound,
    "MethodNotAllowed": MethodNotAllowed,
    "MessageTooLarge": MessageTooLarge,
    "QueueFull": QueueFull,
    "Internal": Internal,
    "StoreUnavailable": StoreUnavailable,
}
"""By code."""
