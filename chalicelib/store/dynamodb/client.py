"""Creates clients. Importing boto3 takes a fifth of a second of a cold start, so it is imported with the first
client."""

from __future__ import annotations

from typing import Any, Literal

from chalicelib.base.limits import CONNECT_TIMEOUT_MS, READ_TIMEOUT_MS, SECOND_MS


def connect(
    service: Literal["dynamodb", "s3", "lambda", "ssm", "secretsmanager"], read_timeout_ms: int = READ_TIMEOUT_MS
) -> Any:
    """A client for the endpoint, region and credentials of the environment. Our own code retries, see `requests`."""
    import boto3
    from botocore.config import Config

    config = Config(
        connect_timeout=CONNECT_TIMEOUT_MS / SECOND_MS,
        read_timeout=read_timeout_ms / SECOND_MS,
        retries={"total_max_attempts": 1},
        max_pool_connections=64,
        parameter_validation=False,
    )
    return boto3.client(service, config=config)
