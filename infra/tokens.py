"""Makes a token for a deployed stage, without showing one: the first cannot be made otherwise."""

from __future__ import annotations

import json
import os
from typing import Any

from infra.addresses import addresses
from infra.aws import Aws
from infra.errors import Stop
from infra.stack import Stack
from infra.stage import Stage


def make_token(aws: Aws, stage: Stage, name: str, rights: str) -> None:
    """Writes it into the table, and prints what `POST /tokens` answers. `rights`: JSON, as there."""
    if stage.access != "tokens":
        raise Stop(f"the stage {stage.name} says access: {stage.access}; nobody asks for tokens there")
    parsed = _parsed(rights)
    _act_as(aws, addresses(aws, Stack(aws.client("cloudformation"), stage.stack)).functions["api"])
    print(json.dumps(_made(name, parsed)))


def _parsed(rights: str) -> Any:
    try:
        return json.loads(rights)
    except ValueError as error:
        raise Stop(f"RIGHTS must be JSON, such as {EXAMPLE}; it is {rights!r}: {error}") from error


EXAMPLE = '[{"operations":["produce","consume"],"topics":"orders*"}]'


def _act_as(aws: Aws, function: str) -> None:
    """With the settings of the deployed functions: table, bucket, where the signing key is. Those of the shell, of a
    `make run` perhaps, would lead elsewhere."""
    described = aws.client("lambda").get_function_configuration(FunctionName=function)
    variables = described.get("Environment", {}).get("Variables", {})
    ours = {key: value for key, value in variables.items() if key.startswith("DECANT_")}
    for name in [name for name in os.environ if name.startswith("DECANT_") or name == LOCAL_TABLE]:
        del os.environ[name]
    os.environ.update({**ours, "DECANT_LOG": "off", "AWS_DEFAULT_REGION": aws.region})


LOCAL_TABLE = "AWS_ENDPOINT_URL_DYNAMODB"


def _made(name: str, rights: Any) -> dict[str, Any]:
    from chalicelib import wiring
    from chalicelib.core.base.errors import DecantError

    try:
        return wiring.first_token(name, rights)
    except (DecantError, ValueError) as error:
        raise Stop(" ".join(str(error).split())) from error
