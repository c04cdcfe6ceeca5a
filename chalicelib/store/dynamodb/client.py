"""Creates clients. Importing boto3 takes a fifth of a second of a cold start, so it is imported with the first
client."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chalicelib.base.limits import CONNECT_TIMEOUT_MS, READ_TIMEOUT_MS, SECOND_MS

if TYPE_CHECKING:
    from botocore.config import Config
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_s3 import S3Client


def dynamodb() -> DynamoDBClient:
    """A client for the endpoint, region and credentials of the environment."""
    import boto3

    client: DynamoDBClient = boto3.client("dynamodb", config=_config())
    return client


def s3() -> S3Client:
    import boto3

    client: S3Client = boto3.client("s3", config=_config())
    return client


def _config() -> Config:
    from botocore.config import Config

    return Config(
        connect_timeout=CONNECT_TIMEOUT_MS / SECOND_MS,
        read_timeout=READ_TIMEOUT_MS / SECOND_MS,
        retries={"total_max_attempts": 1},
        max_pool_connections=64,
        parameter_validation=False,
    )
