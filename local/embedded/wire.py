"""The embedded store as a DynamoDB endpoint: the JSON of requests and responses. Read-only: writes that bypass the
service would invalidate its caches."""

from __future__ import annotations

import json
import os
from types import SimpleNamespace
from typing import Any, NamedTuple

from moto.core.models import botocore_stubber

OPERATIONS = frozenset({"Scan", "Query", "GetItem", "BatchGetItem", "DescribeTable", "ListTables"})
_VERSION = "DynamoDB_20120810"
_TYPE = "application/x-amz-json-1.0"


class Answer(NamedTuple):
    status: int
    body: bytes
    content_type: str = _TYPE


def answer(target: str, body: bytes) -> Answer:
    """`target`: the header `x-amz-target`, which names the operation. Credentials and region are ignored:
    there is one table."""
    version, _, operation = target.partition(".")
    if version != _VERSION:
        return refusal("UnknownOperationException", f"this is a DynamoDB endpoint; x-amz-target is {target[:100]!r}")
    if operation not in OPERATIONS:
        allowed = ", ".join(sorted(OPERATIONS))
        return refusal("AccessDeniedException", f"{operation[:100]} is refused: this endpoint only reads ({allowed})")
    region = os.environ.get("AWS_DEFAULT_REGION", "us-east-1")
    scope = f"AWS4-HMAC-SHA256 Credential=embedded/20000101/{region}/dynamodb/aws4_request"
    headers = {"X-Amz-Target": target, "Content-Type": _TYPE, "Authorization": scope}
    url = f"https://dynamodb.{region}.amazonaws.com/"
    request: Any = SimpleNamespace(method="POST", url=url, headers=headers, body=body)
    response = botocore_stubber.process_prepared_request(request)
    if response is None:
        return refusal("InternalServerError", "the embedded store does not answer", 500)
    status, _, content = response
    return Answer(status, content.encode() if isinstance(content, str) else content)


def refusal(code: str, message: str, status: int = 400) -> Answer:
    return Answer(
        status, json.dumps({"__type": f"com.amazonaws.dynamodb.v20120810#{code}", "message": message}).encode()
    )
