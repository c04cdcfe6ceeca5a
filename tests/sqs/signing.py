"""Requests as botocore signs them, for the SQS door."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from unittest import mock
from urllib.parse import urlsplit

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from chalicelib.protocols.http.respond import Request
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
