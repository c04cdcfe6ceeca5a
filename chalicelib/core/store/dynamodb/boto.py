"""boto3's clients: for S3, for secrets, for rare requests, and for DynamoDB with settings that only boto3 supports.

Importing boto3 takes a fifth of a second of a cold start, so it is imported with the first client."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from chalicelib.core.base.errors import StoreUnavailable
from chalicelib.core.base.limits import CONNECT_TIMEOUT_MS, READ_TIMEOUT_MS, SECOND_MS
from chalicelib.core.store.dynamodb.requests import Failed, NeverSent, NoAnswer, Trouble, Trying, Unusable, at_once

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


T = TypeVar("T")

NO_CREDENTIALS = "the service has no usable credentials for the store: configure some"


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


class Boto:
    """A `Client` by way of boto3's client for DynamoDB. It sends the requests of a call one after another, and its own
    timeouts bound a try."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def ask(self, action: str, parameters: dict[str, Any], timeout_ms: int) -> Trying[Any]:  # noqa: ARG002
        from botocore import xform_name

        request = getattr(self._client, xform_name(action))
        return at_once(lambda: translated(lambda: request(**parameters)))


def translated(request: Callable[[], T]) -> T:
    """Calls boto3. Raises Trouble in place of botocore's exceptions."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        return request()
    except (ClientError, BotoCoreError) as error:
        raise _trouble(error) from error


def _trouble(error: Any) -> Trouble:
    from botocore import exceptions as known

    if isinstance(error, known.ClientError):
        response: Any = error.response
        status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 500)
        code, message = response["Error"]["Code"], response["Error"].get("Message", "")
        return Failed(code, message, status, response.get("Item"), response.get("CancellationReasons", []))
    without_credentials = (
        known.NoCredentialsError,
        known.PartialCredentialsError,
        known.CredentialRetrievalError,
        known.ProfileNotFound,
        known.SSOError,
        known.TokenRetrievalError,
    )
    if isinstance(error, without_credentials):
        return Unusable(NO_CREDENTIALS)
    if isinstance(error, known.EndpointConnectionError | known.ConnectTimeoutError):
        return NeverSent(str(error))
    return NoAnswer(str(error))


def ensure(client: DynamoDBClient, name: str) -> None:
    """Creates the table if it is missing, and waits until it is ready."""
    with suppress(client.exceptions.ResourceInUseException):  # it exists, or another process is creating it
        client.create_table(
            TableName=name,
            KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
            AttributeDefinitions=[
                {"AttributeName": "pk", "AttributeType": "S"},
                {"AttributeName": "sk", "AttributeType": "S"},
            ],
            BillingMode="PAY_PER_REQUEST",
        )
    client.get_waiter("table_exists").wait(TableName=name, WaiterConfig={"Delay": 1, "MaxAttempts": 60})


# -- secrets in Parameter Store or Secrets Manager --------------------------------------------------------------------

SECRET_SERVICES = ("ssm", "secretsmanager")


def secret_text_at(place: str) -> tuple[str, int]:
    """The text, and when it last changed, in ms since the epoch. `place`: `ssm:` and the name or ARN of a parameter, or
    `secretsmanager:` and that of a secret. Raises StoreUnavailable, which does not show the place."""
    service, _, name = place.partition(":")
    try:
        return translated(lambda: _parameter(name) if service == "ssm" else _secret(name))
    except Trouble as trouble:
        reason = trouble.code if isinstance(trouble, Failed) else str(trouble)
    raise StoreUnavailable(f"the signing keys cannot be read: {reason}")


def _parameter(name: str) -> tuple[str, int]:
    parameter: Any = connect("ssm").get_parameter(Name=name, WithDecryption=True)["Parameter"]
    return parameter["Value"], _in_ms(parameter["LastModifiedDate"])


def _secret(name: str) -> tuple[str, int]:
    secret: Any = connect("secretsmanager").get_secret_value(SecretId=name)
    return secret.get("SecretString", ""), _in_ms(secret["CreatedDate"])


def _in_ms(moment: Any) -> int:
    return int(moment.timestamp() * SECOND_MS)
