"""Signs requests to DynamoDB by AWS Signature Version 4, for the one shape that they have.

Source: https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from hashlib import sha256
from time import gmtime, strftime
from typing import NamedTuple

from chalicelib.core.base.limits import SECOND_MS

_ALGORITHM = "AWS4-HMAC-SHA256"


class Credentials(NamedTuple):
    access_key: str
    secret_key: str
    token: str | None = None


class Signer:
    """`credentials` is called for each request, since they may be temporary."""

    def __init__(self, host: str, region: str, credentials: Callable[[], Credentials], service: str = "dynamodb"):
        self._host = host
        self._region = region
        self._credentials = credentials
        self._service = service
        self._kept: tuple[str, str, bytes] = ("", "", b"")

    def headers(self, target: str, body: bytes, now_ms: int) -> str:
        """The headers of `POST /` with this `x-amz-target` and body, each with the end of its line."""
        access_key, secret_key, token = self._credentials()
        at = strftime("%Y%m%dT%H%M%SZ", gmtime(now_ms // SECOND_MS))
        day = at[:8]
        signed = f"host:{self._host}\nx-amz-date:{at}\n"
        names = "host;x-amz-date"
        if token:
            signed += f"x-amz-security-token:{token}\n"
            names += ";x-amz-security-token"
        if target:
            signed += f"x-amz-target:{target}\n"
            names += ";x-amz-target"
        scope = f"{day}/{self._region}/{self._service}/aws4_request"
        request = f"POST\n/\n\n{signed}\n{names}\n{sha256(body).hexdigest()}"
        to_sign = f"{_ALGORITHM}\n{at}\n{scope}\n{sha256(request.encode()).hexdigest()}"
        signature = hmac.digest(self._key(secret_key, day), to_sign.encode(), "sha256").hex()
        authorization = f"{_ALGORITHM} Credential={access_key}/{scope}, SignedHeaders={names}, Signature={signature}"
        return f"{signed}authorization:{authorization}\n".replace("\n", "\r\n")

    def _key(self, secret_key: str, day: str) -> bytes:
        """The key of the day, which takes four of the five digests of a signature."""
        kept_secret, kept_day, key = self._kept
        if (kept_secret, kept_day) != (secret_key, day):
            key = f"AWS4{secret_key}".encode()
            for step in (day, self._region, self._service, "aws4_request"):
                key = hmac.digest(key, step.encode(), "sha256")
            self._kept = (secret_key, day, key)
        return key
