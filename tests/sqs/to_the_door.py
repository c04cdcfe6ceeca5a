"""A plug-in of pytest that points moto's tests of SQS at `SQS_ENDPOINT`, as they are pointed at moto's own server."""

from __future__ import annotations

import os
from typing import Any

ENDPOINT = os.environ["SQS_ENDPOINT"]
os.environ |= {"TEST_SERVER_MODE": "true", "TEST_SERVER_MODE_ENDPOINT": ENDPOINT}  # before moto reads them

import boto3  # noqa: E402
from botocore.client import BaseClient  # noqa: E402
from moto.core import models  # noqa: E402

_REGION = "us-east-1"
_ASKED = BaseClient._make_api_call  # type: ignore[attr-defined]
_SQS = boto3.client("sqs", region_name=_REGION, endpoint_url=ENDPOINT)


def _ask(client: BaseClient, operation: str, given: dict[str, Any]) -> Any:
    if operation == "GetCallerIdentity":  # of STS, which the door is not
        return {"Account": os.environ["AWS_ACCESS_KEY_ID"]}
    return _ASKED(client, operation, given)


def _reset(self: object) -> None:
    """Each test begins without queues."""
    for url in _SQS.list_queues().get("QueueUrls", []):
        _SQS.delete_queue(QueueUrl=url)


def _do_nothing(self: object) -> None:
    """The environment is right as it is."""


BaseClient._make_api_call = _ask  # type: ignore[attr-defined]
models.ServerModeMockAWS.reset = _reset  # type: ignore[method-assign]
models.MockAWS._mock_env_variables = _do_nothing  # type: ignore[method-assign]
models.MockAWS._unmock_env_variables = _do_nothing  # type: ignore[method-assign]
