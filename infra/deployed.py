"""A deployed stage: its addresses, and a token for it, which needs no other token."""

from __future__ import annotations

import json
import os
import re
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import urlsplit

from botocore.exceptions import ClientError

from infra.aws import Aws, is_missing
from infra.console import Stop
from infra.stack import Stack
from infra.stage import Stage

RIGHTS_EXAMPLE = '[{"operations":["produce","consume"],"topics":"orders*"}]'

LOCAL_TABLE = "AWS_ENDPOINT_URL_DYNAMODB"


@dataclass(frozen=True)
class Addresses:
    url: str
    """The function URL; the REST API where there is none."""
    rest_url: str
    sqs_url: str
    """The address for clients of SQS, which sign host and path."""
    functions: dict[str, str]
    """The names of the Lambda functions, by those in `app.py`; `api` takes HTTP requests."""
    table: str

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def addresses(aws: Aws, stack: Stack) -> Addresses:
    """Raises Stop if the stack does not exist, or has no table."""
    if not stack.exists():
        raise Stop(f"there is no stack {stack.name} in {aws.region}; make deploy makes it")
    functions, table, rest, outputs = {}, None, "", stack.outputs()
    for kind, name, physical in stack.resources():
        if kind == "AWS::Lambda::Function":
            functions["api" if name == "APIHandler" else _snake(name)] = physical
        elif (kind, name) == ("AWS::DynamoDB::Table", "Table"):
            table = physical
        elif kind == "AWS::ApiGateway::RestApi":
            rest = physical
    if table is None:
        raise Stop(f"the stack {stack.name} has no table: it was not made by make deploy, or its template lacks it")
    rest_url, function_url = outputs.get("EndpointURL", ""), _function_url(aws, functions["api"])
    if aws.endpoint:
        rest_url, function_url = _emulated(aws.endpoint, rest, rest_url, function_url)
    url = function_url or rest_url
    sqs_url = outputs.get("HttpUrl", "") if aws.endpoint else url
    return Addresses(url.rstrip("/"), rest_url.rstrip("/"), sqs_url.rstrip("/"), functions, table)


def _function_url(aws: Aws, function: str) -> str | None:
    try:
        return str(aws.client("lambda").get_function_url_config(FunctionName=function)["FunctionUrl"])
    except ClientError as error:
        if is_missing(error):
            return None
        raise


def _emulated(endpoint: str, rest: str, url: str, function_url: str | None) -> tuple[str, str | None]:
    """An emulator has the paths, but not the hosts of AWS."""
    stage = urlsplit(url).path.strip("/")
    host = urlsplit(function_url or "").hostname
    return (
        f"{endpoint}/restapis/{rest}/{stage}/_user_request_",
        f"{endpoint}/_aws/lambda-url/{host.split('.')[0]}" if host else None,
    )


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def make_token(aws: Aws, stage: Stage, name: str, rights: str) -> None:
    """Writes a token into the table, and prints it as `POST /tokens` answers. `rights`: JSON, as there."""
    if stage.access != "tokens":
        raise Stop(f"the stage {stage.name} says access: {stage.access}; nobody asks for tokens there")
    parsed = _parsed(rights)
    _act_as(aws, addresses(aws, Stack(aws.client("cloudformation"), stage.stack)).functions["api"])
    print(json.dumps(_made(name, parsed)))


def _parsed(rights: str) -> Any:
    try:
        return json.loads(rights)
    except ValueError as error:
        raise Stop(f"RIGHTS must be JSON, such as {RIGHTS_EXAMPLE}; it is {rights!r}: {error}") from error


def _act_as(aws: Aws, function: str) -> None:
    """Takes over the settings of the deployed functions: table, bucket, place of the signing key. Those of the shell,
    perhaps for `make run`, would lead elsewhere."""
    described = aws.client("lambda").get_function_configuration(FunctionName=function)
    variables = described.get("Environment", {}).get("Variables", {})
    ours = {key: value for key, value in variables.items() if key.startswith("DECANT_")}
    for name in [name for name in os.environ if name.startswith("DECANT_") or name == LOCAL_TABLE]:
        del os.environ[name]
    os.environ.update({**ours, "DECANT_LOG": "off", "AWS_DEFAULT_REGION": aws.region})


def _made(name: str, rights: Any) -> dict[str, Any]:
    from chalicelib import wiring
    from chalicelib.core.base.errors import DecantError

    try:
        return wiring.first_token(name, rights)
    except (DecantError, ValueError) as error:
        raise Stop(" ".join(str(error).split())) from error
