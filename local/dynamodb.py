"""Opens the DynamoDB store, and checks that it works before the first request."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import boto3
import botocore.session
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, EndpointConnectionError, WaiterError

from chalicelib import wiring
from chalicelib.core.base.errors import DecantError, StoreUnavailable
from chalicelib.core.base.runtime import system
from chalicelib.core.store.dynamodb import boto
from chalicelib.core.store.dynamodb.requests import Retrier, Trouble, at_once, run
from local import StartupError

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

ENDPOINT_SECONDS = 2
"""How long an endpoint may take to connect or respond before it counts as unreachable."""

_CONFIG = Config(
    connect_timeout=ENDPOINT_SECONDS,
    read_timeout=ENDPOINT_SECONDS,
    retries={"total_max_attempts": 1},
)


class _Unreachable(Exception):
    """No server listens at the endpoint, or its name is invalid. `Retrier` would retry for seconds, but a mistyped name
    should fail at once."""


def open_dynamodb() -> str:
    """Creates the table if it is missing. Returns a description of the store. Raises `StartupError`."""
    endpoint, name = os.environ.get("AWS_ENDPOINT_URL_DYNAMODB"), wiring.settings.table
    if endpoint:
        _set_placeholders()
    description = f"DynamoDB at {endpoint or 'AWS'}"
    try:
        client = boto3.client("dynamodb", config=_CONFIG)
        made = Retrier(system()).put(lambda _ms: at_once(lambda: boto.translated(lambda: _ready(client, name))))
        run([made], system())
    except StoreUnavailable as trouble:
        raise _unusable(description, trouble.__cause__ or trouble) from trouble
    except (_Unreachable, BotoCoreError, ClientError, Trouble, DecantError, ValueError) as error:
        raise _unusable(description, error) from error
    return f"{description}; table {name!r}"


def _set_placeholders() -> None:
    """Emulators check neither credentials nor the region, but boto3 requires them."""
    os.environ.setdefault("AWS_EC2_METADATA_DISABLED", "true")  # otherwise boto3 searches the network for seconds
    session = botocore.session.get_session()
    try:
        credentials, region = session.get_credentials(), session.get_config_variable("region")
    except BotoCoreError as error:
        raise StartupError(f"the settings of AWS cannot be used: {error}") from error
    if credentials is None:
        os.environ.update(AWS_ACCESS_KEY_ID="local", AWS_SECRET_ACCESS_KEY="local")  # noqa: S106
    if region is None:
        os.environ["AWS_DEFAULT_REGION"] = os.environ.get("AWS_REGION", "us-east-1")


def _ready(client: DynamoDBClient, name: str) -> None:
    """Raises errors that `Retrier` can classify: a throttled or slow store is worth a retry."""
    try:
        boto.ensure(client, name)
        wiring.api()
    except EndpointConnectionError as error:
        raise _Unreachable(str(error)) from error
    except WaiterError as error:
        if "Error" in error.last_response:
            raise ClientError(error.last_response, "DescribeTable") from error
        raise


def _unusable(description: str, reason: BaseException) -> StartupError:
    return StartupError(f"the store, {description}, cannot be used: {' '.join(str(reason).split())}")
