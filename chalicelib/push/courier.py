"""Builds the call of a batch: the body and, for a webhook, the headers of the Standard Webhooks convention.

<https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md>"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field
from email.utils import mktime_tz, parsedate_tz
from typing import Any

import orjson

from chalicelib import VERSION
from chalicelib.core.base.errors import StoreUnavailable
from chalicelib.core.base.fields import encodable, read_json, shown
from chalicelib.core.base.limits import NACK_DELAY_MS_MAX, REASON_CHARS_MAX, SECOND_MS
from chalicelib.core.base.records import record
from chalicelib.core.base.runtime import Runtime
from chalicelib.core.catalogue.group import Group
from chalicelib.core.catalogue.push import Push, PushSecret, signing
from chalicelib.core.consuming.delivery import Delivery
from chalicelib.core.telemetry.record import shared_trace
from chalicelib.push.outside import ConsumerResponse, Outside
from chalicelib.push.secrets import Keyring

_SECRET_PREFIX = "whsec_"  # noqa: S105 - the mark of a secret, not one


def secret_text(secret: PushSecret) -> str:
    """The secret as text, for its receiver."""
    return _SECRET_PREFIX + base64.b64encode(secret.value).decode()


class Courier:
    def __init__(self, runtime: Runtime, outside: Outside, keyring: Keyring) -> None:
        self._runtime, self._outside, self._keyring = runtime, outside, keyring

    def demand_keys(self, group: Group, push: Push) -> None:
        """Raises StoreUnavailable if calls must be signed and no key is available: they are never sent unsigned."""
        if push.url is not None:
            self._signing(group, push)

    def _signing(self, group: Group, push: Push) -> list[PushSecret]:
        secrets = signing(group.secrets, push)
        opened = self._keyring.opened(group.topic_id, secrets)
        if secrets and not opened:
            raise StoreUnavailable("the signing key of its secrets was removed: make a new secret")
        return opened

    def send(self, topic_name: str, group: Group, push: Push, deliveries: Sequence[Delivery]) -> ConsumerResponse:
        body = body_of(topic_name, group.name, deliveries)
        if push.function is not None:
            return self._outside.invoke(push.function, body, push.timeout_ms)
        message_ids = [delivery.stored.message_id for delivery in deliveries]
        headers = {"content-type": "application/json", "user-agent": f"Decant/{VERSION}"}
        secrets = self._signing(group, push)
        headers |= shared_trace([delivery.stored.message.properties for delivery in deliveries])
        headers |= signed(webhook_id(group.id, message_ids), self._runtime.now() // SECOND_MS, body, secrets)
        return self._outside.post(push.url or "", headers, body, push.timeout_ms)


def body_of(topic_name: str, group_name: str, deliveries: Sequence[Delivery]) -> bytes:
    """The messages as a pop returns them but without receipts, since the response to the call settles them."""
    messages = [delivery.in_topic(topic_name) for delivery in deliveries]
    for message in messages:
        del message["receipt"]
    return orjson.dumps({"topic": topic_name, "group": group_name, "messages": messages})


def webhook_id(group_id: str, message_ids: Sequence[str]) -> str:
    """An id that is the same whenever exactly these messages are sent to the group again, and different for any others.
    A receiver that remembers ids therefore skips exactly the batches that it has received."""
    return "msg_" + hashlib.blake2b("\0".join([group_id, *message_ids]).encode(), digest_size=16).hexdigest()


def signed(webhook_id: str, seconds: int, body: bytes, secrets: Sequence[PushSecret]) -> dict[str, str]:
    """The headers of a call. One header has the signatures of all secrets, separated by spaces."""
    headers = {"webhook-id": webhook_id, "webhook-timestamp": str(seconds)}
    content = f"{webhook_id}.{seconds}.".encode() + body
    signatures = [hmac.digest(secret.value, content, hashlib.sha256) for secret in secrets]
    if signatures:
        headers["webhook-signature"] = " ".join(f"v1,{base64.b64encode(made).decode()}" for made in signatures)
    return headers


# -- the outcome of a call --------------------------------------------------------------------------------------------

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
