"""Batches: the checks of a whole request, and the outcome of each entry."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, TypeVar

from chalicelib.doors.sqs.action import Json
from chalicelib.doors.sqs.errors import SqsError, missing

T = TypeVar("T")

ENTRIES_MAX = 10
_ID = re.compile("[A-Za-z0-9_-]{1,80}")
_BAD_ID = (
    "A batch entry id can only contain alphanumeric characters, hyphens and underscores."
    " It can be at most 80 letters long."
)

Outcome = Json | SqsError


def demand_batch(entries: Sequence[Json], entry_name: str, demand: Callable[[Json], object] = lambda _: None) -> None:
    """Raises SqsError for a batch that is refused as a whole. `entry_name`: what SQS calls an entry. `demand`: raises
    it for an entry for which the whole batch is refused."""
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
        demand(entry)
    for entry in entries:
        if entry["Id"] in seen:
            raise SqsError("BatchEntryIdsNotDistinct", f"Id {entry['Id']} repeated.")
        seen.add(entry["Id"])


class Batch(Generic[T]):
    """The entries of a request, and what the function makes of each, or the SqsError that it raises."""

    def __init__(self, entries: Sequence[Json], check: Callable[[Json], T]) -> None:
        self._checked = [(entry["Id"], _checked(entry, check)) for entry in entries]

    @property
    def valid(self) -> list[T]:
        return [each for _, each in self._checked if not isinstance(each, SqsError)]

    def answer(self, outcomes: Iterable[Outcome]) -> Json:
        """`outcomes`: of each valid entry, the members of its answer, or its error."""
        results = iter(outcomes)
        each = [(id_, own if isinstance(own, SqsError) else next(results)) for id_, own in self._checked]
        return {
            "Successful": [{"Id": id_, **outcome} for id_, outcome in each if not isinstance(outcome, SqsError)],
            "Failed": [_failed(id_, outcome) for id_, outcome in each if isinstance(outcome, SqsError)],
        }


def _checked(entry: Json, check: Callable[[Json], T]) -> T | SqsError:
    try:
        return check(entry)
    except SqsError as error:
        return error


def _failed(id_: str, error: SqsError) -> dict[str, Any]:
    about = {"SenderFault": error.shape.is_senders, "Code": error.entry_code, "Message": error.message}
    return {"Id": id_, **about}
