"""The errors of one request, for either client."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

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
