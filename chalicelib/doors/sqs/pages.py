"""Pages of the lists of queues."""

from __future__ import annotations

from collections.abc import Callable

from chalicelib.core.base.errors import InvalidField
from chalicelib.core.base.limits import PAGE_MAX
from chalicelib.core.store.paging import place_of
from chalicelib.doors.sqs.action import Call
from chalicelib.doors.sqs.errors import bad_value
from chalicelib.doors.sqs.queue import NAME_PATTERN, SqsQueue
from chalicelib.doors.sqs.registry import queues_of


def page(
    call: Call, prefix: str = "", is_wanted: Callable[[SqsQueue], bool] | None = None
) -> tuple[list[str], str | None]:
    """The URLs of the queues that `MaxResults` and `NextToken` ask for, of those whose names begin with the prefix and
    that are wanted; and the token of the next page, if a number was asked for and there is more. Raises SqsError."""
    most, token = call.request.get("MaxResults"), call.request.get("NextToken")
    if most is not None and not 1 <= most <= PAGE_MAX:
        raise bad_value(most, "MaxResults", f"Must be between 1 and {PAGE_MAX}, if provided.")
    try:
        after = place_of(token, NAME_PATTERN) if token else ""
    except InvalidField:
        raise bad_value(token, "NextToken", "It is not from a previous page.") from None
    queues, rest = queues_of(call.service).page(prefix, most or PAGE_MAX, after, is_wanted)
    return [call.context.url(queue.name) for queue in queues], rest if most else None
