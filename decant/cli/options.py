"""The options that many commands share, and the types of arguments."""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from decant.cli import values
from decant.cli.failures import Refused, interruptible
from decant.cli.output import FORMS, Out, is_terminal

if TYPE_CHECKING:
    ParamType = click.ParamType[Any]
else:
    ParamType = click.ParamType  # older versions of click take no type here

Function = Callable[..., Any]


def calling(function: Function) -> Function:
    """Gives the command `mq`, a client, and the options that say where the service is."""

    @functools.wraps(function)
    def called(*args: Any, url: str | None, context: str | None, **options: Any) -> Any:
        from decant.cli.service import client

        is_source = options.get("to_url") is not None
        with interruptible(), client(url, context, is_source=is_source) as mq:
            return function(*args, mq=mq, **options)

    called = click.option("--context", metavar="NAME", help="Use this context, see `decant context`.")(called)
    return click.option("--url", metavar="URL", help="Where the service is.  [default: DECANT_URL, or the context]")(
        called
    )


def writing(*columns: str, kind: str | None = None) -> Callable[[Function], Function]:
    """Gives the command `out`, which writes items, and the options that say how. `kind`: the type of the items, in
    `decant.types`, whose fields a template may name."""

    def wrapped(function: Function) -> Function:
        @functools.wraps(function)
        def called(*args: Any, output: str | None, template: str | None, **options: Any) -> Any:
            return function(*args, out=Out(columns, output, template, kind), **options)

        called = click.option("--template", metavar="TEXT", help="Print each as this, such as '{key} {body}'.")(called)
        return click.option(
            "-o", "--output", type=click.Choice(FORMS), help="[default: table on a terminal, else jsonl]"
        )(called)

    return wrapped


def destructive(function: Function) -> Function:
    return click.option("-y", "--yes", is_flag=True, help="Do not ask for the name.")(function)


def demand(name: str, deed: str, yes: bool) -> None:
    """Has the name typed on a terminal. Raises Refused, so that nothing happens, unless the answer is yes."""
    if yes:
        return
    if not is_terminal(sys.stdin) or not is_terminal(sys.stderr):
        raise Refused(f"nothing was done: this {deed}; confirm with --yes")
    typed = click.prompt(f"This {deed}. Type {name} to go on", default="", show_default=False, err=True)
    if typed != name:
        raise Refused(f"nothing was done: {typed!r} is not {name!r}")


# -- types ------------------------------------------------------------------------------------------------------------


class Parsed(ParamType):
    """A value that a function reads."""

    def __init__(self, name: str, read: Callable[[str], Any]) -> None:
        self.name, self._read = name, read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return self._read(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


DURATION = Parsed("duration", values.duration_ms)
INSTANT = Parsed("time", values.instant_ms)


def position(*names: str) -> Parsed:
    return Parsed("position", lambda text: values.position(text, names, time.time_ns() // 1_000_000))


class Name(ParamType):
    """The name of a topic, or of a group of the topic that stands before it. The shell completes it."""

    def __init__(self, name: str) -> None:
        self.name = name

    def shell_complete(self, ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from decant.cli.completion import names

        topic = ctx.params.get("topic") if self.name == "group" else None
        return [CompletionItem(name) for name in names(ctx, topic) if name.startswith(incomplete)]


def topic(function: Function) -> Function:
    return click.argument("topic", type=Name("topic"))(function)


def group(function: Function) -> Function:
    return click.argument("topic", type=Name("topic"))(click.argument("group", type=Name("group"))(function))


def limited(function: Function) -> Function:
    return click.option("-n", "--limit", type=click.IntRange(1), help="Print so many at most.  [default: all]")(
        function
    )


def first(items: Iterable[Any], limit: int | None) -> Iterable[Any]:
    from itertools import islice

    return items if limit is None else islice(items, limit)


def given_settings(pairs: Sequence[str]) -> dict[str, Any]:
    """Raises UsageError."""
    try:
        return values.settings(pairs)
    except ValueError as error:
        raise click.UsageError(str(error)) from None


def given_properties(pairs: Sequence[str]) -> dict[str, str] | None:
    """Raises UsageError."""
    try:
        return values.properties(pairs) or None
    except ValueError as error:
        raise click.UsageError(str(error)) from None
