"""`decant api`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from decant.calls import Call, Repeat
from decant.cli import options, sources
from decant.cli.output import Out

if TYPE_CHECKING:
    from decant.client import Decant

METHODS = ("GET", "PUT", "POST", "DELETE")


@click.command()
@click.argument("method", type=click.Choice(METHODS, case_sensitive=False))
@click.argument("path")
@click.argument("body", required=False, metavar="[JSON]")
@options.calling
def api(method: str, path: str, body: str | None, mq: Decant) -> None:
    """Call any operation: a method, a path, and a JSON object, a file as @FILE, or - for the pipe.

    `decant api GET /openapi.json` prints the contract.

    \b
    decant api GET '/topics?limit=5'
    decant api PUT /topics/orders '{"queues": 8}'
    """
    if not path.startswith("/"):
        raise click.UsageError("the path begins with /, such as /topics")
    method = method.upper()
    target = path.replace("{", "{{").replace("}", "}}")
    repeat = Repeat.IF_UNSENT if method == "POST" else Repeat.ALWAYS
    call: Call[str] = Call("api", method, target, {}, {}, _object(body), {}, repeat, is_text=True)
    text = mq.call(call)
    if text is None:
        return
    out = Out(())
    try:
        answer = json.loads(text)
    except ValueError:
        out.write(text if text.endswith("\n") else f"{text}\n")
    else:
        indent = 2 if out.is_terminal else None
        out.write(json.dumps(answer, indent=indent, ensure_ascii=False) + "\n")
    out.flush()


def _object(body: str | None) -> dict[str, Any] | None:
    if body is None:
        return None
    if body == "-":
        body = sources.Stdin().whole().decode(errors="replace")
    elif body.startswith("@"):
        body = Path(body[1:]).read_text(encoding="utf-8", errors="replace")
    try:
        given = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise click.UsageError(f"the body is no JSON: {error}") from None
    if not isinstance(given, dict):
        raise click.UsageError("the body must be a JSON object")
    return given
