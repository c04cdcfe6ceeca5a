"""Batches: the checks of a whole request, and the outcome of each entry."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from chalicelib.protocols.sqs.action import Json
from chalicelib.protocols.sqs.errors import SqsError, missing

T = TypeVar("T")

ENTRIES_MAX = 10
_ID = re.compile("[A-Za-z0-9_-]{1,80}")
_BAD_ID = (
    "A batch entry id can only contain alphanumeric characters, hyphens and underscores."
    " It can be at most 80 letters long."
)

Outcome = Json | SqsError


def demand_batch(entries: Sequence[Json], entry_name: str) -> None:
    """Raises SqsError for a batch that is refused as a whole. `entry_name`: what SQS calls an entry."""
    if not entries:
        raise SqsError("EmptyBatchRequest", f"There should be at least one {entry_name} in the request.")
    if len(entries) > ENTRIES_MAX:
        count = f"Maximum number of entries per request are {ENTRIES_MAX}. You have sent {len(entries)}."
        raise SqsError("TooManyEntriesInBatchRequest", count)
    seen: set[str] = set()
    for number, entry in enumerate(entries, 1):
        if "Id" not in entry:
            raise missing(f"{entry_name}.{number}.Id")
        if not _ID.fullmatch(entry["Id"]):
            raise SqsError("InvalidBatchEntryId", _BAD_ID)
    for entry in entries:
        if entry["Id"] in seen:
            raise SqsError("BatchEntryIdsNotDistinct", f"Id {entry['Id']} repeated.")
        seen.add(entry["Id"])


def each(entries: Sequence[Json], check: Callable[[Json], T]) -> list[T | SqsError]:
    """What the function makes of each entry, or the error that it raises."""

    def checked(entry: Json) -> T | SqsError:
        try:
            return check(entry)
        except SqsError as error:
            return error

    return [checked(entry) for entry in entries]


def answer(entries: Sequence[Json], outcomes: Sequence[Outcome]) -> Json:
    """`outcomes`: the members of each entry's answer, or its error."""
    together = [(entry["Id"], outcome) for entry, outcome in zip(entries, outcomes, strict=True)]
    return {
        "Successful": [{"Id": id_, **outcome} for id_, outcome in together if not isinstance(outcome, SqsError)],
        "Failed": [_failed(id_, outcome) for id_, outcome in together if isinstance(outcome, SqsError)],
    }


def _failed(id_: str, error: SqsError) -> dict[str, Any]:
    about = {"SenderFault": error.shape.is_senders, "Code": error.entry_code, "Message": error.message}
    return {"Id": id_, **about}
