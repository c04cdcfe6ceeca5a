"""Reads a secret text from a parameter of Parameter Store or a secret of Secrets Manager."""

from __future__ import annotations

from typing import Any

from chalicelib.core.base.errors import StoreUnavailable
from chalicelib.core.base.limits import SECOND_MS
from chalicelib.core.store.dynamodb import boto
from chalicelib.core.store.dynamodb.trying import Failed, Trouble

SERVICES = ("ssm", "secretsmanager")


def text_at(place: str) -> tuple[str, int]:
    """The text, and when it last changed, in ms since the epoch. `place`: `ssm:` and the name or ARN of a parameter, or
    `secretsmanager:` and that of a secret. Raises StoreUnavailable, which does not show the place."""
    service, _, name = place.partition(":")
    try:
        return boto.translated(lambda: _parameter(name) if service == "ssm" else _secret(name))
    except Trouble as trouble:
        reason = trouble.code if isinstance(trouble, Failed) else str(trouble)
    raise StoreUnavailable(f"the signing keys cannot be read: {reason}")


def _parameter(name: str) -> tuple[str, int]:
    parameter: Any = boto.connect("ssm").get_parameter(Name=name, WithDecryption=True)["Parameter"]
    return parameter["Value"], _in_ms(parameter["LastModifiedDate"])


def _secret(name: str) -> tuple[str, int]:
    secret: Any = boto.connect("secretsmanager").get_secret_value(SecretId=name)
    return secret.get("SecretString", ""), _in_ms(secret["CreatedDate"])


def _in_ms(moment: Any) -> int:
    return int(moment.timestamp() * SECOND_MS)
