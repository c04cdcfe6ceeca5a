"""`decant token`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from decant.cli import options
from decant.cli.failures import note
from decant.cli.output import Out

if TYPE_CHECKING:
    from decant.client import Decant

OPERATIONS = ("produce", "consume", "read", "admin")


@click.group()
def token() -> None:
    """List, make, rotate and remove tokens."""


@token.command()
@options.limited
@options.writing("token_id", "name", "rights", "expires_at_ms")
@options.calling
def ls(limit: int | None, out: Out, mq: Decant) -> None:
    """List the tokens, without their secrets.

    \b
    decant token ls
    """
    out.whole(options.first(mq.each(mq.api.list_tokens), limit))


def _operations(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    if unknown := [name for name in names if name not in OPERATIONS]:
        raise ValueError(f"{unknown[0]!r} is none of {', '.join(OPERATIONS)}")
    return names


@token.command()
@click.argument("name")
@click.option(
    "--can", required=True, type=options.Parsed("operations", _operations), help="produce,consume,read,admin."
)
@click.option("--topics", default="*", show_default=True, help="On these topics: orders*.")
@click.option("--groups", help="In these groups alone: billing*.")
@click.option("--expires", type=options.DURATION, help="After so long: 90d.  [default: never]")
@options.writing("token_id", "token", "access_key_id", "secret_access_key")
@options.calling
def make(name: str, can: list[Any], topics: str, groups: str | None, expires: int | None, out: Out, mq: Decant) -> None:
    """Make a token, and print it with its access key for the SQS door: once.

    \b
    decant token make billing --can produce,consume --topics 'orders*' --expires 90d
    """
    right: Any = {"operations": can, "topics": topics, **({"groups": groups} if groups else {})}
    until = None if expires is None else time.time_ns() // 1_000_000 + expires
    out.one(mq.api.make_token(name=name, rights=[right], expires_at_ms=until))
    note("it is not shown again")


@token.command()
@click.argument("token_id")
@click.option("--old-valid", type=options.DURATION, help="How long the old one works on.  [default: a day]")
@options.writing("token_id", "token", "access_key_id", "secret_access_key")
@options.calling
def rotate(token_id: str, old_valid: int | None, out: Out, mq: Decant) -> None:
    """Give a token a new secret, and print it: once.

    \b
    decant token rotate "$TOKEN_ID" --old-valid 1h
    """
    out.one(mq.api.rotate_token(token_id, old_valid_ms=old_valid))
    note("it is not shown again")


@token.command()
@click.argument("token_id")
@options.destructive
@options.calling
def rm(token_id: str, yes: bool, mq: Decant) -> None:
    """Remove a token: within seconds, every call with it is refused.

    \b
    decant token rm "$TOKEN_ID" --yes
    """
    options.demand(token_id, f"removes the token {token_id}", yes)
    mq.api.delete_token(token_id)
    note(f"removed token {token_id}")
