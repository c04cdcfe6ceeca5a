"""Checks how many function instances the account has before anything is made: CloudFormation rolls back a stack that
reserves too many, and leaves its table and buckets."""

from __future__ import annotations

from typing import Any

from botocore.exceptions import ClientError

from infra.aws import Aws, is_missing
from infra.console import Stop, say
from infra.stack import Stack
from infra.templates import Template

UNRESERVED_MIN = 100
"""Instances that Lambda keeps for functions that reserve none. An account with no more than these can reserve none."""
MORE = "ask AWS for more (Service Quotas, L-B99A9384)"


def check(aws: Aws, stack: Stack, template: Template) -> None:
    """Raises Stop if the template reserves more than the account has left."""
    reserved = _reserved(template)
    client = aws.client("lambda")
    try:
        limits = client.get_account_settings()["AccountLimit"]
        held = _held(client, stack) if reserved else 0
    except ClientError as error:
        if reserved:
            say(f"It is not known whether the account has the instances that the stage reserves: {error}")
        return
    free = max(0, limits["UnreservedConcurrentExecutions"] + held - UNRESERVED_MIN)
    total = limits["ConcurrentExecutions"]
    if sum(reserved.values()) > free:
        wanted = ", ".join(f"{number} for {name}" for name, number in sorted(reserved.items()))
        raise Stop(
            f"the stage reserves instances ({wanted}), but of the {total} of this account {free} can be reserved, "
            f"since Lambda keeps {UNRESERVED_MIN}: lower concurrency or ReservedConcurrentExecutions, or {MORE}; "
            "nothing has changed"
        )
    if total < UNRESERVED_MIN:
        say(f"This account has {total} instances of functions, and each long poll occupies one: {MORE}")


def is_capped(template: Template, function: str) -> bool:
    return RESERVED in template["Resources"][function]["Properties"]


def _reserved(template: Template) -> dict[str, int]:
    """The reserved instances, by function, where the template has a number."""
    said = {name: r.get("Properties", {}).get(RESERVED) for name, r in template["Resources"].items()}
    return {name: number for name, number in said.items() if isinstance(number, int)}


RESERVED = "ReservedConcurrentExecutions"


def _held(client: Any, stack: Stack) -> int:
    """The concurrency that the stack's functions reserve already."""
    if not stack.exists():
        return 0
    return sum(_held_by(client, name) for kind, _, name in stack.resources() if kind == "AWS::Lambda::Function")


def _held_by(client: Any, function: str) -> int:
    try:
        return int(client.get_function_concurrency(FunctionName=function).get(RESERVED, 0))
    except ClientError as error:
        if is_missing(error):  # removed by hand
            return 0
        raise
