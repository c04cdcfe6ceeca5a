"""The errors, one class each. The class's name is the `code` that clients switch on, and its docstring is shown in the
documentation. Each door maps the class to a status of its own."""

from __future__ import annotations

from typing import Any


class DecantError(Exception):
    """The root. `detail` is one sentence that names the field and the value; `members` are further problem members."""

    def __init__(self, detail: str, **members: Any) -> None:
        super().__init__(detail)
        self.detail = detail
        self.members = members

    @property
    def code(self) -> str:
        return type(self).__name__

    @property
    def outcome_unknown(self) -> bool:
        """Whether the failed write may have been applied."""
        return self.members.get("outcome") == "unknown"


class InvalidJson(DecantError):
    """The request body is not JSON, or not a JSON object."""


class InvalidField(DecantError):
    """A field has the wrong type, or a value outside its range."""


class InvalidFilter(DecantError):
    """The filter is invalid."""


class UnknownField(DecantError):
    """The request has an undocumented field or query parameter."""


class InvalidName(DecantError):
    """The name of a topic or group does not match `{NAME_PATTERN}`."""


class Unauthenticated(DecantError):
    """The request has no token, or one that is malformed, unknown, expired or revoked."""


class Forbidden(DecantError):
    """The token has no right to this operation. The answer does not say whether the named topic or group exists."""


class MessageTooLarge(DecantError):
    """A body, the batch or the request is too large, or the message is too large for any response."""


class TopicNotFound(DecantError):
    """No topic has this name."""


class GroupNotFound(DecantError):
    """The topic has no group of this name."""


class MessageNotFound(DecantError):
    """There is no message with this id here."""


class RequestNotFound(DecantError):
    """This service made no request with this correlation id, or its reply can no longer be fetched."""


class AlreadyReplied(DecantError):
    """The request already has a different reply."""


class RequestExpired(DecantError):
    """The reply came after the deadline of its request."""


class ReplyTimeout(DecantError):
    """No reply came before the request's deadline. Later replies are refused."""


class AlreadyDelivered(DecantError):
    """The delayed message was delivered before it could be cancelled."""


class TransactionNotFound(DecantError):
    """The topic has no such transaction, or the record of its decision has expired."""


class TransactionEnded(DecantError):
    """The transaction was already decided the other way."""


class TokenNotFound(DecantError):
    """There is no token with this id."""


class QueueFull(DecantError):
    """The message's queue, or every queue it could go to, has `max_depth` messages that some group has not consumed."""


class GroupIsPushed(DecantError):
    """The group has a `push`, so its messages cannot be popped."""


class QueuesDraining(DecantError):
    """`queues` cannot rise while queues that it was lowered by still drain. The detail says which queue, and what it
    waits for."""


class NotFound(DecantError):
    """No route has this path, or nothing has this name."""


class MethodNotAllowed(DecantError):
    """The path does not support this method. `Allow` lists the methods that it supports."""


class StoreUnavailable(DecantError):
    """The store throttled or did not respond, after retries. With the outcome `unknown`, the write may have been
    applied."""


class Internal(DecantError):
    """An internal error of the service. The detail has an id to look up in the log."""
