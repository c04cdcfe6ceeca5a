"""The account and region that commands work in, and clients for it. boto3 finds credentials, profile and, with
`AWS_ENDPOINT_URL`, an emulator."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError

from infra.console import Stop

TRIES = 8
"""Attempts per request: a deployment sends many over minutes, and AWS throttles clients that poll often."""


class Aws:
    def __init__(self, region: str | None) -> None:
        """Raises Stop without a region or credentials."""
        self._session = boto3.Session(region_name=region)
        if self._session.region_name is None:
            raise Stop("no region is set; REGION=eu-central-1 names one, or AWS_DEFAULT_REGION, or the profile")
        if self._session.get_credentials() is None:
            raise Stop(WITHOUT_CREDENTIALS)
        self.region: str = self._session.region_name

    def client(self, service: str) -> Any:
        """Raises Stop if the endpoint is not a URL."""
        config = Config(retries={"mode": "standard", "total_max_attempts": TRIES})
        try:
            made: Any = self._session.client(service, config=config)
        except BotoCoreError:
            raise
        except ValueError as error:
            raise Stop(f"AWS_ENDPOINT_URL must be a URL, such as http://127.0.0.1:4566: {error}") from error
        return made

    @cached_property
    def account(self) -> str:
        found: str = self.client("sts").get_caller_identity()["Account"]
        return found

    @property
    def endpoint(self) -> str | None:
        """The URL of an emulator; None for AWS."""
        return os.environ.get("AWS_ENDPOINT_URL")


WITHOUT_CREDENTIALS = (
    "there are no credentials of AWS; AWS_PROFILE names a profile, `aws configure` or `aws login` makes one"
)


@contextmanager
def explained() -> Iterator[None]:
    """Turns errors of AWS and boto3 into Stop, with one line each."""
    try:
        yield
    except NoCredentialsError as error:
        raise Stop(WITHOUT_CREDENTIALS) from error
    except (BotoCoreError, ClientError) as error:
        raise Stop(" ".join(str(error).split())) from error


def is_missing(error: ClientError) -> bool:
    """Whether the error says that the requested object does not exist."""
    answer = error.response
    return answer["ResponseMetadata"]["HTTPStatusCode"] == 404 or answer["Error"]["Code"] == "ResourceNotFoundException"
