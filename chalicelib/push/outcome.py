"""The outcome of a call: which messages the consumer's response acks and nacks."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import field
from email.utils import mktime_tz, parsedate_tz
from typing import Any

from chalicelib.core.base.fields import encodable, read_json, shown
from chalicelib.core.base.limits import NACK_DELAY_MS_MAX, REASON_CHARS_MAX, SECOND_MS
from chalicelib.core.base.records import record
from chalicelib.push.outside import ConsumerResponse

GONE = 410
_FAILURES = "batchItemFailures"


@record
class FailedMessage:
    """Why a message is nacked. `delay_ms`: when it is delivered again; None: by the group's backoff."""

    reason: str
    delay_ms: int | None = None


@record
class CallOutcome:
    """`failed`: by message id; the others are acked. `is_gone`: the consumer no longer exists. `has_failed`: the call
    failed, and so did all its messages. `retry_after_ms`: the wait that the consumer asks for."""

    failed: Mapping[str, FailedMessage] = field(default_factory=dict)
    is_gone: bool = False
    has_failed: bool = False
    retry_after_ms: int | None = None


def judge(answer: ConsumerResponse, message_ids: Sequence[str], now: int) -> CallOutcome:
    """A 2xx acks all messages except those that its body reports. A 410 nacks none. Any other response, none, or an
    invalid report nacks all of them."""
    if answer.status == GONE:
        return CallOutcome(is_gone=True)
    reason = answer.trouble or f"status {answer.status}"
    if answer.status is not None and 200 <= answer.status < 300:
        try:
            return CallOutcome(_reported(answer.body, message_ids))
        except ValueError as wrong:
            reason = f"status {answer.status}, but {wrong}"
    delay_ms = retry_after_ms(answer.retry_after, now)
    failed = FailedMessage(reason[:REASON_CHARS_MAX], delay_ms)
    return CallOutcome(dict.fromkeys(message_ids, failed), has_failed=True, retry_after_ms=delay_ms)


def _reported(body: bytes, message_ids: Sequence[str]) -> dict[str, FailedMessage]:
    """The messages that failed. Raises ValueError, since acking a message that failed would lose it. A body without a
    report may be anything, but JSON may spell the report's name with escapes."""
    if _FAILURES.encode() not in body and b"\\u" not in body:
        return {}
    try:
        answer = read_json(body, f"its body with {_FAILURES}")
    except ValueError:
        if _FAILURES.encode() in body:
            raise
        return {}
    reports = answer.get(_FAILURES) if isinstance(answer, dict) else None
    if reports is None:
        return {}
    if not isinstance(reports, list):
        raise ValueError(f"{_FAILURES} is {shown(reports)}, not a list")
    known = frozenset(message_ids)
    return dict(_failure(report, known) for report in reports)


def _failure(report: Any, message_ids: Collection[str]) -> tuple[str, FailedMessage]:
    known = report if isinstance(report, dict) else {}
    message_id, reason, delay_ms = known.get("itemIdentifier"), known.get("reason"), known.get("delay_ms")
    if not isinstance(message_id, str) or message_id not in message_ids:
        raise ValueError(f"{_FAILURES} names no message of the call: {shown(report)}")
    if reason is not None and not (isinstance(reason, str) and encodable(reason)):
        raise ValueError(f"a 'reason' in {_FAILURES} is {shown(reason)}, not text")
    if delay_ms is not None and not (type(delay_ms) is int and 0 <= delay_ms <= NACK_DELAY_MS_MAX):
        raise ValueError(f"a 'delay_ms' in {_FAILURES} is {shown(delay_ms)}, not from 0 to {NACK_DELAY_MS_MAX}")
    return message_id, FailedMessage((reason or "")[:REASON_CHARS_MAX], delay_ms)


def retry_after_ms(header: str | None, now: int) -> int | None:
    """The wait in a `Retry-After`, given in seconds or as a date. None if there is none, or it is invalid."""
    text = (header or "").strip()
    if text.isdecimal():
        return min(int(text[:12]) * SECOND_MS, NACK_DELAY_MS_MAX)
    try:
        date = parsedate_tz(text)
        return None if date is None else min(max(0, int(mktime_tz(date)) * SECOND_MS - now), NACK_DELAY_MS_MAX)
    except (ValueError, OverflowError):
        return None
