"""`decant context`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import cast

import click

from decant import contexts
from decant.address import parsed
from decant.cli import options
from decant.cli.failures import note
from decant.cli.output import Out, is_terminal
from decant.contexts import Context, Contexts
from decant.errors import SettingError
from decant.functions import SCHEME


@click.group()
def context() -> None:
    """Keep addresses and tokens by name, in a file that only you can read."""


def _held() -> tuple[Path, Contexts]:
    path = contexts.path_in(os.environ)
    return path, contexts.read(path)


@context.command()
@click.argument("name")
@click.argument("url")
@click.option("--token", "has_token", is_flag=True, help="Ask for a token; read it from a pipe elsewhere.")
@click.option("--token-command", metavar="COMMAND", help="Get the token from this command at each use.")
def add(name: str, url: str, has_token: bool, token_command: str | None) -> None:
    """Add a context, or replace one. The first is used from then on.

    \b
    decant context add local http://127.0.0.1:8000
    decant context add prod https://queue.example.com --token-command 'pass show decant'
    """
    if has_token and token_command:
        raise click.UsageError("--token and --token-command exclude each other")
    if not url.startswith(SCHEME):
        parsed(url)
    path, held = _held()
    kept: dict[str, str] = {"url": url}
    if has_token:
        kept["token"] = _token()
    if token_command:
        kept["token_command"] = token_command
    by_name = {**held.by_name, name: cast(Context, kept)}
    contexts.write(path, Contexts(held.current or name, by_name))
    note(f"added context {name} to {path}")


def _token() -> str:
    if is_terminal(sys.stdin):
        token = str(click.prompt("Token", hide_input=True, err=True))
    else:
        token = sys.stdin.readline().strip()
    if not token.isascii() or not token.isprintable() or " " in token or not token:
        raise SettingError("this is no token")
    return token


@context.command()
@click.argument("name")
def use(name: str) -> None:
    """Use a context from now on. DECANT_CONTEXT and DECANT_URL win over it.

    \b
    decant context use local
    """
    path, held = _held()
    _demand(name, held)
    contexts.write(path, Contexts(name, held.by_name))
    note(f"using context {name} from now on")


@context.command()
@options.writing("context", "url", "token", "current")
def ls(out: Out) -> None:
    """List the contexts, without their tokens.

    \b
    decant context ls
    """
    _, held = _held()
    out.whole(
        {
            "context": name,
            "url": kept["url"],
            "token": "kept" if "token" in kept else "by a command" if "token_command" in kept else None,
            "current": name == held.current,
        }
        for name, kept in sorted(held.by_name.items())
    )


@context.command()
@click.argument("name")
@options.destructive
def rm(name: str, yes: bool) -> None:
    """Remove a context, and the token it keeps.

    \b
    decant context rm local --yes
    """
    path, held = _held()
    _demand(name, held)
    options.demand(name, f"removes the context {name}", yes)
    by_name = {kept: value for kept, value in held.by_name.items() if kept != name}
    contexts.write(path, Contexts(None if held.current == name else held.current, by_name))
    note(f"removed context {name}")


def _demand(name: str, held: Contexts) -> None:
    if name not in held.by_name:
        known = ", ".join(sorted(held.by_name)) or "none"
        raise SettingError(f"there is no context {name!r}; there are: {known}")
