"""`decant take`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from decant.cli import options
from decant.cli.commands import Exec, Runner, words_of
from decant.cli.failures import EMPTY, FAILED, many, note
from decant.cli.leases import Keeper
from decant.cli.output import Out
from decant.cli.popping import POLL_MS, POP_MAX, Popping

if TYPE_CHECKING:
    from decant.client import Decant

LEASE_MS = 30_000


@click.command()
@options.group
@click.option("-n", "--count", type=click.IntRange(1), help="How many messages.  [default: 10; no end with --follow]")
@click.option("--wait", type=options.DURATION, default="0", help="How long to wait for the first.  [default: not]")
@click.option("--follow", is_flag=True, help="Go on until Ctrl-C.")
@click.option(
    "--ack",
    type=click.Choice(["auto", "never", "after-command"]),
    help="When to ack: once it is printed, never, or when the command has ended with 0.  [default: auto]",
)
@click.option("--exec", "command", metavar="COMMAND", help="Run this for each message; {} is its body.")
@click.option(
    "-j", "--at-once", type=click.IntRange(1, 256), default=1, help="How many commands at once.  [default: 1]"
)
@click.option("--lease", type=options.DURATION, help="How long a lease is.  [default: the group's, 30s with --exec]")
@click.option("--consumer", metavar="ID", help="The consumer_id; a broadcast group needs one.")
@click.option("--fail-empty", is_flag=True, help="Exit with 6 if there is no message.")
@options.writing("message_id", "queue", "offset", "attempt", "key", "tag", "body", kind="Delivery")
@options.calling
def take(
    topic: str,
    group: str,
    count: int | None,
    wait: int,
    follow: bool,
    ack: str | None,
    command: str | None,
    at_once: int,
    lease: int | None,
    consumer: str | None,
    fail_empty: bool,
    out: Out,
    mq: Decant,
) -> None:
    """Take messages as a consumer of a group, and ack them.

    A message is acked once its line is written out. With --exec, the command gets the body on stdin, and DECANT_KEY,
    DECANT_TAG, DECANT_PROPERTIES, DECANT_MESSAGE_ID and DECANT_ATTEMPT. Exit code 0 acks, 75 has the message delivered
    again later, others too, with the code as the reason. Its lease is extended while the command runs. No shell reads
    the command.

    \b
    decant take orders billing
    decant take orders billing -n 100 --wait 1s --template '{key} {body}'
    decant take orders billing --exec 'wc -c' -j 4
    decant take orders billing --follow --exec 'sh -c "cat >> orders.txt"'
    """
    if ack == "after-command" and command is None:
        raise click.UsageError("--ack after-command needs --exec")
    if ack == "auto" and command is not None:
        raise click.UsageError("--exec acks after the command; --ack auto is for printed messages")
    if lease == 0:
        raise click.UsageError("--lease must be above 0")
    left = count or (None if follow else 10)
    if command is not None:
        exec_ = Exec(words_of(command), at_once, settles=ack != "never")
        popping = Popping(mq, topic, group, lease or LEASE_MS, consumer)
        runner = Runner(mq, topic, group, exec_, Keeper(popping, lease or LEASE_MS))
        raise SystemExit(_code(run(popping, runner, left, wait, follow), fail_empty))
    printing = Printing(Popping(mq, topic, group, lease, consumer), out, acks=ack != "never")
    raise SystemExit(_code(printing.all(left, wait, follow), fail_empty))


def _code(end: tuple[int, bool], fail_empty: bool) -> int:
    taken, has_failed = end
    if has_failed:
        return FAILED
    return EMPTY if fail_empty and not taken else 0


class Printing:
    """Prints messages, and acks those that are printed."""

    def __init__(self, popping: Popping, out: Out, *, acks: bool) -> None:
        self._popping, self._out, self._acks = popping, out, acks
        self._taken = self._lost = 0

    def all(self, left: int | None, wait_ms: int, follow: bool) -> tuple[int, bool]:
        """Returns how many were taken, and whether an ack has failed."""
        try:
            while left is None or left > 0:
                is_first = self._taken == 0
                messages = self._popping.pop(left or POP_MAX, POLL_MS if follow else wait_ms if is_first else 0)
                if not messages and not follow:
                    break
                self._batch(messages)
                self._taken += len(messages)
                left = None if left is None else left - len(messages)
            self._out.finish()
        finally:
            self._out.end()
        return self._taken, self._lost > 0

    def _batch(self, messages: list[Any]) -> None:
        receipts = [message["receipt"] for message in messages]
        shown = [_without_receipt(message) for message in messages] if self._acks else messages
        is_written = False
        try:
            self._out.many(shown)
            is_written = True
            if self._acks and receipts:
                self._lost += self._popping.ack(receipts)
        except KeyboardInterrupt:
            if self._acks and is_written:
                self._popping.ack(receipts)  # they are printed: once more, in case the first call was interrupted
            elif self._acks:
                self._back(receipts)
            raise
        except OSError:
            if self._acks:
                self._back(receipts)
            raise

    def _back(self, receipts: list[str]) -> None:
        self._popping.give_back(receipts)
        note(f"not acked, so delivered again: {many(len(receipts), 'message')}")


def _without_receipt(message: Any) -> Any:
    return {name: value for name, value in message.items() if name != "receipt"}


def run(popping: Popping, runner: Runner, left: int | None, wait_ms: int, follow: bool) -> tuple[int, bool]:
    """Runs the command for each message. Returns how many were taken, and whether one has failed."""
    taken = 0
    try:
        try:
            while left is None or taken < left:
                free = runner.free()
                count = free if left is None else min(free, left - taken)
                messages = popping.pop(count, POLL_MS if follow else 0 if taken else wait_ms)
                if not messages and not follow:
                    break
                runner.begin(messages)
                taken += len(messages)
            runner.wait()
        except BaseException:
            runner.finish()
            raise
    finally:
        runner.close()
        if runner.counts:
            note(", ".join(f"{number} {end}" for end, number in sorted(runner.counts.items())))
    return taken, any(end not in ("acked", "run") for end in runner.counts)
