"""What can go wrong, one class and one sentence each. A class's name is the `code` that clients switch on; which HTTP
status it gets is the business of `protocols.http.problems`."""

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
    """A group's filter is not one."""


class UnknownField(DecantError):
    """A field or query parameter that the contract does not know."""


class InvalidName(DecantError):
    """A topic or group name outside `limits.NAME_PATTERN`."""


class MessageTooLarge(DecantError):
    """A body, a batch, or a message that no response could carry."""


class TopicNotFound(DecantError):
    """There is no topic of this name."""


class GroupNotFound(DecantError):
    """The topic has no group of this name."""


class MessageNotFound(DecantError):
    """No message of the topic has this id."""


class AlreadyDelivered(DecantError):
    """The delayed message was delivered before it could be cancelled."""


class NotFound(DecantError):
    """There is no such path."""


class MethodNotAllowed(DecantError):
    """The path does not know this method."""


class StoreUnavailable(DecantError):
    """The store throttled or did not answer, after retries. With `outcome="unknown"` a write may have landed."""

    @property
    def outcome_unknown(self) -> bool:
        return self.members.get("outcome") == "unknown"


class Internal(DecantError):
    """A defect of ours. The detail carries an id to look up in the log and nothing of the inside."""
