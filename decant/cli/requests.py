"""`decant request` and `decant reply`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from decant.cli import options, sources
from decant.cli.commands import Exec, Runner, words_of
from decant.cli.leases import Keeper
from decant.cli.output import Out, safe
from decant.cli.popping import Popping
from decant.cli.take import LEASE_MS, run
from decant.payloads import as_bytes

if TYPE_CHECKING:
    from decant.client import Decant


@click.command()
@options.topic
@click.argument("body")
@click.option("--timeout", type=options.DURATION, default="3s", show_default=True, help="How long to wait, up to 1h.")
@click.option("-k", "--key", help="Requests with the same key stay in order.")
@click.option("-t", "--tag", help="The kind of message, for filters.")
@click.option("-H", "--property", "properties", multiple=True, metavar="NAME=VALUE", help="A property; repeat it.")
@options.calling
def request(
    topic: str,
    body: str,
    timeout: int,
    key: str | None,
    tag: str | None,
    properties: tuple[str, ...],
    mq: Decant,
) -> None:
    """Send a request, and print the body of its reply. A body of - is read from the pipe.

    \b
    decant request sums 1+2
    decant request sums 1+2 --timeout 1m
    """
    value: str | bytes = sources.text_or_bytes(sources.Stdin().whole()) if body == "-" else body
    if not value:
        raise click.UsageError("a body has at least one character")
    reply: Any = mq.request(
        topic, value, timeout=timeout / 1_000, key=key, tag=tag, properties=options.given_properties(properties)
    )
    out = Out(())
    data = as_bytes(reply)
    if out.is_terminal:
        out.write("".join(f"{safe(line)}\n" for line in data.decode(errors="backslashreplace").splitlines()))
    else:
        out.write(data)
    out.flush()


@click.command()
@options.group
@click.option("--exec", "command", required=True, metavar="COMMAND", help="Its output is the reply; {} is the body.")
@click.option("-n", "--count", type=click.IntRange(1), help="Stop after so many.  [default: at Ctrl-C]")
@click.option("-j", "--at-once", type=click.IntRange(1, 256), default=1, help="Commands at once.  [default: 1]")
@click.option("--lease", type=options.DURATION, default="30s", show_default=True, help="How long a lease is.")
@options.calling
def reply(topic: str, group: str, command: str, count: int | None, at_once: int, lease: int, mq: Decant) -> None:
    """Reply to requests by a command, as `decant take --exec` runs it: the body on stdin, the reply on stdout.

    Exit code 0 sends the reply and acks. Others have the request delivered again. A message that is no request, or
    for which the command prints nothing, is acked.

    \b
    decant reply sums adders --exec bc
    decant reply sums adders --exec 'expr {}' -j 4 -n 1
    """
    exec_ = Exec(words_of(command), at_once, replies=True)
    popping = Popping(mq, topic, group, lease or LEASE_MS)
    runner = Runner(mq, topic, group, exec_, Keeper(popping, lease or LEASE_MS))
    _, has_failed = run(popping, runner, count, 0, follow=True)
    raise SystemExit(1 if has_failed else 0)
