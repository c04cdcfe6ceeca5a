"""Chooses the store by the environment, and sees to it that it answers before the first request does."""

from __future__ import annotations

import os

import boto3
import botocore.session
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from chalicelib import wiring
from chalicelib.errors import DecantError
from chalicelib.store.dynamodb import table

ENDPOINT_SECONDS = 2
"""How long an endpoint may take to be reached, or to answer, before it counts as unreachable."""


class StoreUnusable(Exception):
    """What the environment names as the store cannot be it."""


def open_store() -> str:
    """Opens the store and makes its table if it is missing. Returns what to call it."""
    endpoint = os.environ.get("AWS_ENDPOINT_URL_DYNAMODB")
    kind = "dynamodb" if endpoint else os.environ.get("DECANT_STORE") or "embedded"
    os.environ["DECANT_STORE"] = kind
    if kind == "embedded":
        _start_embedded()
        return _opened("embedded, in memory: it is gone when this ends")
    if kind != "dynamodb":
        raise StoreUnusable(f"DECANT_STORE is {kind!r}; it must be 'embedded' or 'dynamodb'")
    if endpoint:
        _set_placeholders()
    return _opened(f"DynamoDB at {endpoint or 'AWS'}")


def _start_embedded() -> None:
    from chalicelib.store import embedded  # brings moto, which an endpoint can do without

    os.environ["AWS_IGNORE_CONFIGURED_ENDPOINT_URLS"] = "true"  # moto answers for the addresses of AWS only
    embedded.start()


def _set_placeholders() -> None:
    """Emulators check neither credentials nor the region, but boto3 wants some."""
    os.environ.setdefault("AWS_EC2_METADATA_DISABLED", "true")  # or it asks the network for seconds
    session = botocore.session.get_session()
    if session.get_credentials() is None:
        os.environ.update(AWS_ACCESS_KEY_ID="local", AWS_SECRET_ACCESS_KEY="local")  # noqa: S106
    if session.get_config_variable("region") is None:
        os.environ["AWS_DEFAULT_REGION"] = os.environ.get("AWS_REGION", "us-east-1")


def _opened(description: str) -> str:
    name = os.environ.get("DECANT_TABLE", wiring.TABLE_DEFAULT)
    patience = Config(
        connect_timeout=ENDPOINT_SECONDS, read_timeout=ENDPOINT_SECONDS, retries={"total_max_attempts": 1}
    )
    try:
        table.ensure(boto3.client("dynamodb", config=patience), name)
        wiring.api()
    except (BotoCoreError, ClientError, DecantError, ValueError) as error:
        raise StoreUnusable(f"the store, {description}, cannot be used: {' '.join(str(error).split())}") from error
    return f"{description}; table {name!r}"
