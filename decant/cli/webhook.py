"""Posts messages to a webhook as a push does: the same body, headers and signature; and reads the answer."""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import json
import os
import re
import time
from collections.abc import Sequence
from typing import Any, NamedTuple
from urllib.parse import SplitResult, urlsplit

import click

Json = dict[str, Any]

PREFIX = "whsec_"
ANSWER_BYTES_MAX = 1_048_576
DELAY_MS_MAX = 365 * 86_400_000


class Answer(NamedTuple):
    """`status`: None if no answer came. `failed`: the items that are nacked; None: all."""

    status: int | None
    reason: str | None
    failed: dict[str, Json] | None
    delay_ms: int | None = None


def new_secret() -> str:
    return PREFIX + base64.b64encode(os.urandom(24)).decode()


def key_of(secret: str) -> bytes:
    """Raises UsageError."""
    try:
        return base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except ValueError:
        raise click.UsageError(f"the secret must be {PREFIX} and base64") from None


def target_of(text: str) -> SplitResult:
    """A URL, or a port of this machine. Raises UsageError."""
    url = urlsplit(f"http://127.0.0.1:{text}/" if text.isdecimal() else text)
    try:
        is_well = url.scheme in ("http", "https") and url.hostname and url.port != 0
    except ValueError:
        is_well = False
    if not is_well:
        raise click.UsageError(f"{text!r} is no address such as http://localhost:3000/hooks or 3000")
    return url


def body_of(topic: str, group: str, messages: Sequence[Any]) -> bytes:
    sent = [{name: value for name, value in message.items() if name != "receipt"} for message in messages]
    return json.dumps(
        {"topic": topic, "group": group, "messages": sent}, ensure_ascii=False, separators=(",", ":")
    ).encode(errors="surrogatepass")


def headers_of(group: str, message_ids: Sequence[str], body: bytes, key: bytes) -> dict[str, str]:
    """The headers of Standard Webhooks."""
    id_ = "msg_" + hashlib.blake2b("\0".join([group, *message_ids]).encode(), digest_size=16).hexdigest()
    seconds = int(time.time())
    signature = hmac.digest(key, f"{id_}.{seconds}.".encode() + body, hashlib.sha256)
    return {
        "content-type": "application/json",
        "user-agent": "Decant",
        "webhook-id": id_,
        "webhook-timestamp": str(seconds),
        "webhook-signature": f"v1,{base64.b64encode(signature).decode()}",
    }


def post(url: SplitResult, body: bytes, headers: dict[str, str], timeout_s: float) -> Answer:
    kind = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
    connection = kind(url.hostname or "", url.port, timeout=timeout_s)
    try:
        connection.request("POST", (url.path or "/") + (f"?{url.query}" if url.query else ""), body, headers)
        response = connection.getresponse()
        said = response.read(ANSWER_BYTES_MAX + 1)
    except (OSError, http.client.HTTPException) as error:
        return Answer(None, _reason(error), None)
    finally:
        connection.close()
    if not 200 <= response.status < 300:
        return Answer(response.status, f"status {response.status}", None, _retry_after_ms(response))
    if len(said) > ANSWER_BYTES_MAX:
        return Answer(response.status, "the answer is over 1 MiB", None)
    try:
        return Answer(response.status, None, reported(said))
    except ValueError as error:
        return Answer(response.status, f"status {response.status}, but {error}", None)


def reported(said: bytes) -> dict[str, Json]:
    """The failures that the answer reports, by message id. Raises ValueError for a delay that the service refuses."""
    try:
        failures = {str(failure["itemIdentifier"]): failure for failure in json.loads(said)["batchItemFailures"]}
    except (ValueError, KeyError, TypeError):
        return {}
    for failure in failures.values():
        delay_ms = failure.get("delay_ms")
        if delay_ms is not None and not (type(delay_ms) is int and 0 <= delay_ms <= DELAY_MS_MAX):
            raise ValueError(f"a 'delay_ms' in batchItemFailures is {delay_ms!r:.80}, not from 0 to {DELAY_MS_MAX}")
    return failures


def _retry_after_ms(response: http.client.HTTPResponse) -> int | None:
    text = response.getheader("retry-after", "")
    return int(text) * 1_000 if re.fullmatch("[0-9]{1,5}", text) else None


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return str(getattr(error, "strerror", None) or error or type(error).__name__)
