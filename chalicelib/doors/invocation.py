"""What every function that Lambda invokes shares: how much time it has, and what it does with events that are none of
its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from chalicelib.core.base.errors import InvalidField
from chalicelib.core.base.fields import shown
from chalicelib.core.base.limits import CONNECT_TIMEOUT_MS, READ_TIMEOUT_MS, SECOND_MS

ENDING_MS = SECOND_MS + CONNECT_TIMEOUT_MS + READ_TIMEOUT_MS
"""How long before the end of an invocation the last request to the store may begin: it is not interrupted, and leaves a
second for the answer. A function that Lambda stops answers nothing, and its instance is lost."""
ENDING_PART = 2
"""In a function of little time half of it is left, so that it works while the store does."""


class ForeignEvent(Exception):
    """An event source invoked a function that does not read its records. They are lost unless the invocation fails:
    then the source sends them again, or sends them to where it sends its failures."""


def left_ms(context: Any) -> Callable[[], int | None]:
    """How much time a call may take from now on, so that its answer is there before Lambda ends the invocation. None
    without Lambda."""
    remaining_ms = getattr(context, "get_remaining_time_in_millis", None)
    if remaining_ms is None:
        return lambda: None
    return lambda: _before_the_end(int(remaining_ms()))


def _before_the_end(remaining_ms: int) -> int:
    return max(remaining_ms - ENDING_MS, remaining_ms // ENDING_PART)


def caller(context: Any) -> str:
    """What stands for the caller of a direct invocation: Lambda tells the function no principal, but CloudTrail's data
    event of this request id names it. Empty without Lambda."""
    request_id = getattr(context, "aws_request_id", "")
    return f"invocation:{request_id}" if request_id else ""


def refuse_records(event: Any) -> None:
    """Raises ForeignEvent for an event of a source: SQS, SNS, S3, Kinesis, DynamoDB Streams, EventBridge."""
    if isinstance(event, dict) and (isinstance(event.get("Records"), list) or "detail-type" in event):
        raise ForeignEvent("this function takes no events of sources: feed them to the function 'ingest'")


def no_request(event: Any) -> InvalidField:
    """The error for an event that is no HTTP request."""
    what = f"a JSON object with {shown(list(event))}" if isinstance(event, dict) else shown(event)
    fronts = "API Gateway, a function URL or a load balancer"
    return InvalidField(f"the event must be an HTTP request as {fronts} sends it; it is {what}")
