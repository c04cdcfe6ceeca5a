"""The store of moto as a DynamoDB endpoint: moto itself reads the JSON of requests, and makes that of responses."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

from moto.core.models import botocore_stubber

_TYPE = "application/x-amz-json-1.0"


def answer(operation: str, body: bytes) -> tuple[int, bytes, str]:
    """Status, body and type of the answer. Credentials and region are ignored: there is one table."""
    region = os.environ.get("AWS_DEFAULT_REGION", "us-east-1")
    scope = f"AWS4-HMAC-SHA256 Credential=embedded/20000101/{region}/dynamodb/aws4_request"
    headers = {"X-Amz-Target": f"DynamoDB_20120810.{operation}", "Content-Type": _TYPE, "Authorization": scope}
    url = f"https://dynamodb.{region}.amazonaws.com/"
    request: Any = SimpleNamespace(method="POST", url=url, headers=headers, body=body)
    response = botocore_stubber.process_prepared_request(request)
    if response is None:
        return 500, b"{}", _TYPE
    status, _, content = response
    return status, content.encode() if isinstance(content, str) else content, _TYPE
