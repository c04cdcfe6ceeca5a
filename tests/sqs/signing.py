"""Requests as botocore signs them, for the SQS door."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from unittest import mock
from urllib.parse import urlsplit

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from chalicelib.doors.http.exchange import Request
from local.server import request_of

KEY_ID, SECRET, REGION = "AKIDEXAMPLE", "a-secret-key", "eu-central-1"
NOW_MS = 1_440_938_160_000
"""2015-08-30, 12:36 UTC."""


def sign(
    method: str = "POST",
    url: str = "https://sqs.test/",
    body: bytes = b"",
    at_ms: int = NOW_MS,
    secret: str = SECRET,
    token: str | None = None,
    scope: tuple[str, str] = (REGION, "sqs"),
    key_id: str = KEY_ID,
    **headers: str,
) -> Request:
    """`scope`: region and service."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    request = AWSRequest(method=method, url=url, data=body, headers=named)
    at = datetime.fromtimestamp(at_ms / 1000, UTC)
    with mock.patch("botocore.auth.get_current_datetime", return_value=at):
        SigV4Auth(Credentials(key_id, secret, token), scope[1], scope[0]).add_auth(request)
    prepared: Any = request.prepare()
    place = urlsplit(prepared.url)
    sent = {"host": place.netloc, **{name.lower(): _text(value) for name, value in prepared.headers.items()}}
    return request_of(method, f"{place.path}?{place.query}" if place.query else place.path, sent, body)


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def changed(request: Request, **headers: str | None) -> Request:
    """With these headers; None takes one away."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    kept = {name: value for name, value in {**request.headers, **named}.items() if value is not None}
    return request._replace(headers=kept)


def flipped(text: str) -> Iterator[str]:
    """With one bit of each character another."""
    for place, char in enumerate(text):
        yield text[:place] + chr(ord(char) ^ 1) + text[place + 1 :]


def altered(request: Request) -> Iterator[Request]:
    """Yields requests with one character changed, in a signed part or in the signature."""
    for part in ("method", "path", "raw_query"):
        yield from (request._replace(**dict[str, Any]({part: text})) for text in flipped(getattr(request, part)))
    body = request.body.decode("latin-1")
    yield from (request._replace(body=text.encode("latin-1")) for text in [*flipped(body), body[:-1], body + " "])
    for name in ("host", "x-amz-date", "x-amz-target", "content-type", "content-length", "authorization"):
        yield from (changed(request, **{name: text}) for text in flipped(request.headers[name]))
