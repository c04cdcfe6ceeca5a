"""`decant top`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from decant.cli import options
from decant.cli.groups import COUNTS
from decant.cli.output import Out

if TYPE_CHECKING:
    from decant.client import Decant

CLEAR = "\x1b[H\x1b[2J"


@click.command()
@click.option("--every", type=options.DURATION, default="2s", show_default=True, help="How often to look.")
@click.option("--once", is_flag=True, help="Look once, as in a pipe.")
@options.writing("topic", "group", "paused", *COUNTS)
@options.calling
def top(every: int, once: bool, out: Out, mq: Decant) -> None:
    """Watch the backlog of all groups, the longest first. In a pipe, print it once.

    \b
    decant top --once
    """
    while True:
        rows = sorted(backlog(mq), key=lambda row: (-row["lag"] - row["retrying"], row["topic"], row["group"]))
        if once or not out.is_terminal or out.form != "table":
            return out.whole(rows)
        out.write(f"{CLEAR}{time.strftime('%H:%M:%S')}  {mq.transport.address}\n\n")
        out.whole(rows)
        out.flush()
        time.sleep(max(every, 200) / 1_000)
        out.restart()


def backlog(mq: Decant) -> list[Any]:
    """All groups that the token may see."""
    return [group for topic in mq.each(mq.api.list_topics) for group in mq.each(mq.api.list_groups, topic["topic"])]
