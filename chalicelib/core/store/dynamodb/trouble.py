"""What can go wrong with one request, whichever client sends it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

TypedItem = Mapping[str, Any]


class Trouble(Exception):
    """The root. Its text is the reason, for people."""


class Failed(Trouble):
    """The answer is an error. `code` is that of DynamoDB or S3, such as "ThrottlingException"; `item` what refused a
    conditional write, in typed JSON; `reasons` why a transaction was cancelled, one for each of its writes."""

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
    """There is no connection, so that the request was surely not carried out."""


class NoAnswer(Trouble):
    """The request was sent, and may have been carried out. No answer came in time, or none that can be read."""


class KeptConnectionClosed(NoAnswer):
    """The server closed a connection that had been kept, and answered nothing. This is common: another connection
    works at once."""


class Unusable(Trouble):
    """No request succeeds until a person changes the settings, which the text says how to do."""
