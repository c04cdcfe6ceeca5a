"""The errors, one class and one sentence each, which documentation shows to clients. A class's name is the `code` that
they switch on; each door maps it to a status of its own."""

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
        """Whether what failed may have happened nevertheless."""
        return self.members.get("outcome") == "unknown"


class InvalidJson(DecantError):
    """The request body is not JSON, or not a JSON object."""


class InvalidField(DecantError):
    """A field has the wrong type, or a value outside its range."""


class InvalidFilter(DecantError):
    """The filter is invalid."""


class UnknownField(DecantError):
    """The request has a field or a query parameter that is not documented."""


class InvalidName(DecantError):
    """The name of a topic or group does not match `{NAME_PATTERN}`."""


class Unauthenticated(DecantError):
    """No token was shown, or one that is malformed, unknown, expired or revoked."""


class Forbidden(DecantError):
    """The token has no right to this. It is the answer whether or not what the request names exists."""


class MessageTooLarge(DecantError):
    """A body, the batch, or the request is too large, or no response could carry the message; nothing else is wrong."""


class TopicNotFound(DecantError):
    """No topic has this name."""


class GroupNotFound(DecantError):
    """The topic has no group of this name."""


class MessageNotFound(DecantError):
    """There is no message with this id here."""


class RequestNotFound(DecantError):
    """This service made no request with this correlation id, or its reply can no longer be fetched."""


class AlreadyReplied(DecantError):
    """The request has another reply."""


class RequestExpired(DecantError):
    """The reply came after the deadline of its request."""


class ReplyTimeout(DecantError):
    """No reply came before the deadline of the request, and none can come any more."""


class AlreadyDelivered(DecantError):
    """The delayed message was delivered before it could be cancelled."""


class TransactionNotFound(DecantError):
    """The topic has no such transaction: it never had, or the record of its decision has expired."""


class TransactionEnded(DecantError):
    """The opposite was decided about the transaction before."""


class TokenNotFound(DecantError):
    """There is no token with this id."""


class QueueFull(DecantError):
    """The message's queue, or every queue it could go to, has `max_depth` messages that some group has not consumed."""


class GroupIsPushed(DecantError):
    """The group has a `push`: the queue calls its consumer, and nobody pops."""


class QueuesDraining(DecantError):
    """The topic has queues that are still read although it was given fewer: it cannot have more before they are
    settled. The detail says what holds them."""


class NotFound(DecantError):
    """No route has this path, or there is nothing of this name."""


class MethodNotAllowed(DecantError):
    """The path does not support this method; `Allow` lists those that it supports."""


class StoreUnavailable(DecantError):
    """The store throttled or did not respond, despite retries. With the outcome `unknown`, a write may have landed."""


class Internal(DecantError):
    """A defect of the service. The detail has an id to look up in the log."""
