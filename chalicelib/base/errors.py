"""The errors, one class and one sentence each. A class's name is the `code` that clients switch on;
`protocols.http.problems` maps it to an HTTP status."""

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


class InvalidJson(DecantError):
    """The request body is not JSON, or not a JSON object."""


class InvalidField(DecantError):
    """A field has the wrong type, or a value outside its range."""


class InvalidFilter(DecantError):
    """The filter is invalid."""


class UnknownField(DecantError):
    """A field or query parameter that the contract does not know."""


class InvalidName(DecantError):
    """A topic or group name outside `limits.NAME_PATTERN`."""


class MessageTooLarge(DecantError):
    """A body, a batch, or a message that no response could carry."""


class TopicNotFound(DecantError):
    """No topic has this name."""


class GroupNotFound(DecantError):
    """The topic has no group of this name."""


class MessageNotFound(DecantError):
    """No message of the topic has this id."""


class AlreadyDelivered(DecantError):
    """The delayed message was delivered before it could be cancelled."""


class NotFound(DecantError):
    """No route has this path."""


class MethodNotAllowed(DecantError):
    """The path does not support this method."""


class StoreUnavailable(DecantError):
    """The store throttled or did not respond, despite retries. With `outcome="unknown"` a write may have landed."""

    @property
    def outcome_unknown(self) -> bool:
        return self.members.get("outcome") == "unknown"


class Internal(DecantError):
    """A defect of the service. The detail has an id to look up in the log, and no internals."""
