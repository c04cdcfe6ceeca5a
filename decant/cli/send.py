"""`decant send`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from decant import flows
from decant.cli import options, sources
from decant.cli.failures import FAILED, exit_code, note
from decant.cli.output import Out, Progress, is_terminal
from decant.cli.sources import Entry, Json, Malformed
from decant.errors import DecantError, Problem
from decant.flows import Batch
from decant.messages import Sent
from decant.producer import DedupIds

if TYPE_CHECKING:
    from decant.client import Decant


@click.command()
@options.topic
@click.argument("body", nargs=-1)
@click.option("-k", "--key", help="Messages with the same key stay in order.")
@click.option("-t", "--tag", help="The kind of message, for filters.")
@click.option("-H", "--property", "properties", multiple=True, metavar="NAME=VALUE", help="A property; repeat it.")
@click.option("--delay", type=options.DURATION, help="Deliver it so much later: 10m.")
@click.option("--at", type=options.INSTANT, help="Deliver it at this time: 2026-12-01T09:00.")
@click.option("--ttl", type=options.DURATION, help="Do not deliver it after so long.")
@click.option("--id", "dedup_id", help="Store only the first message of this id within five minutes.")
@click.option("--queue", type=click.IntRange(0), help="Put it into this queue.")
@click.option("-f", "--file", type=click.Path(path_type=Path), help="JSON Lines of whole messages; - is the pipe.")
@click.option("--null", is_flag=True, help="Messages of the pipe end at NUL, not at the end of a line.")
@click.option("--whole", is_flag=True, help="The whole pipe is one message.")
@click.option("--linger", type=options.DURATION, default="50ms", show_default=True, help="How long lines wait.")
@click.option("-q", "--quiet", is_flag=True, help="Print no ids.")
@options.writing("message_id", "queue", "offset", "deliver_at_ms")
@options.calling
def send(
    topic: str,
    body: tuple[str, ...],
    file: Path | None,
    null: bool,
    whole: bool,
    linger: int,
    quiet: bool,
    out: Out,
    mq: Decant,
    **fields: Any,
) -> None:
    """Send messages to a topic: arguments, or the lines of a pipe.

    Messages that could not be sent are printed on stderr as JSON Lines, for another `decant send -f`: they keep the
    dedup_id that each gets here, so that within five minutes nothing is stored twice.

    \b
    decant send orders '4711 paid' --key customer-7
    decant send orders 'remind me' --delay 10m -H region=eu
    printf 'one\\ntwo\\n' | decant send orders --tag paid
    decant peek orders -o jsonl | decant send archive -f -
    """
    given = _fields(**fields)
    if file and (body or null or whole):
        raise click.UsageError("--file excludes bodies, --null and --whole")
    if null and whole:
        raise click.UsageError("--null and --whole exclude each other")
    if "dedup_id" in given and not (len(body) == 1 and body != ("-",)) and not whole:
        raise click.UsageError("--id is for one message: a single body, or --whole")
    progress = Progress("messages")
    parts: Iterable[list[Entry]]
    if file and str(file) != "-":
        parts = sources.batches(sources.lines(_Watched(file, progress), given))
    elif body and body != ("-",):
        parts = sources.batches(_said(body, given))
    else:
        parts = _piped(given, file is not None, null, whole, linger / 1_000)
    raise SystemExit(Sending(mq, topic, None if quiet else out, progress).all(parts))


def _said(bodies: tuple[str, ...], given: Json) -> Iterator[Entry]:
    """The messages of arguments."""
    if not all(bodies):
        raise click.UsageError("a body has at least one character")
    return (sources.message_of(os.fsencode(body), given) for body in bodies)


def _piped(given: Json, is_json: bool, null: bool, whole: bool, linger_s: float) -> sources.Lingering:
    """The messages of a pipe."""
    if is_terminal(sys.stdin):
        note("reading messages, one a line, until Ctrl-D")
    stream = sources.Stdin()
    bodies = sources.bodies(stream, null=null, whole=whole)
    entries = sources.lines(stream, given) if is_json else (sources.message_of(body, given) for body in bodies)
    return sources.Lingering(entries, stream, linger_s)


def _fields(*, properties: tuple[str, ...], delay: int | None, at: int | None, ttl: int | None, **fields: Any) -> Json:
    """The fields that are given."""
    if delay is not None and at is not None:
        raise click.UsageError("--delay and --at exclude each other")
    times = {"delay_ms": delay, "deliver_at_ms": at, "ttl_ms": ttl}
    every = {**fields, **times, "properties": options.given_properties(properties)}
    return {name: value for name, value in every.items() if value is not None}


class _Watched:
    """A file whose reading moves the progress."""

    def __init__(self, path: Path, progress: Progress) -> None:
        """Raises OSError."""
        self._file = click.get_current_context().with_resource(path.open("rb"))
        progress.total = path.stat().st_size
        self._progress, self._bytes = progress, 0

    def read(self, size: int) -> bytes:
        data = self._file.read(size)
        self._bytes += len(data)
        self._progress.at(self._bytes)
        return data


class Sending:
    """Sends one batch after another, so that all keep their order."""

    def __init__(
        self, mq: Decant, topic: str, out: Out | None, progress: Progress, *, prints_failed: bool = True
    ) -> None:
        """`prints_failed`: messages that are not sent are printed, since nobody else has them."""
        self._prints_failed = prints_failed
        self._mq, self._topic, self._out, self._progress = mq, topic, out, progress
        self._ids = DedupIds()
        self._messages: list[Json] = []
        self._batch = Batch(topic, [])
        """The batch under way, and its messages."""
        self.sent = self._failed = self._code = 0
        self._reason = ""

    def all(self, parts: Iterable[list[Entry]]) -> int:
        """Returns the exit code."""
        try:
            for part in parts:
                self._send(part)
                if self._code:
                    self._leave(_rest_of(parts))
                    break
        except KeyboardInterrupt:
            self._finish(_rest_of(parts))
            raise
        finally:
            self._progress.end()
            if self._out:
                self._out.end()
        self._tell("")
        return self._code or (FAILED if self._failed else 0)

    def _send(self, part: list[Entry]) -> None:
        """Sends a part. Sets the exit code if the next part would fail too."""
        self._messages = []
        for entry in part:
            if isinstance(entry, Malformed):
                self._fail(_line_of(entry), entry)
            else:
                self._ids.mark(entry)
                self._messages.append(entry)
        self._batch = Batch(self._topic, self._messages, is_shared=True)
        if self._messages:
            self._follow()

    def _follow(self) -> None:
        """Sends what is left of the batch."""
        self._mq.follow(flows.sending(self._batch, self._mq.settings.time))
        sent = [result for result in self._batch.results if isinstance(result, Sent)]
        self.sent += len(sent)
        self._progress.at(count=self.sent)
        for message, result in zip(self._messages, self._batch.results, strict=True):
            if isinstance(result, DecantError):
                self._fail(_line_of(message), result)
                self._code = exit_code(result) if _is_general(result) else self._code
        if self._out and sent:
            self._out.many(map(_shown, sent))

    def _finish(self, rest: list[Entry]) -> None:
        """Sends what was read, after a signal. A second one leaves it."""
        try:
            if self._batch.pending:
                self._follow()
            while rest and not self._code:
                part, rest = rest[: flows.BATCH_MESSAGES_MAX], rest[flows.BATCH_MESSAGES_MAX :]
                self._send(part)
        except KeyboardInterrupt:
            self._leave([*(self._messages[place] for place in self._batch.pending), *rest])
            raise
        else:
            self._leave(rest)
        finally:
            self._tell(" before the end")

    def _leave(self, entries: list[Entry]) -> None:
        """Prints messages that were read and are not sent."""
        for entry in entries:
            self._print(_line_of(entry))

    def _fail(self, line: str, error: Exception) -> None:
        if str(error) != self._reason:
            self._progress.end()
            self._reason = str(error)
            note(f"not sent: {error}")
        self._print(line)

    def _print(self, line: str) -> None:
        self._failed += 1
        if self._prints_failed:
            click.echo(line, err=True)

    def _tell(self, when: str) -> None:
        if self._failed and self.sent + self._failed > 1:
            where = ", which are printed above" if self._prints_failed else ""
            note(f"{self.sent} sent{when}, {self._failed} not sent{where}")
        elif when and self.sent > 1:
            note(f"{self.sent} sent{when}")


def _line_of(entry: Entry) -> str:
    if isinstance(entry, Malformed):
        return entry.raw.decode(errors="backslashreplace")
    return json.dumps(entry, ensure_ascii=False)


def _rest_of(parts: Iterable[list[Entry]]) -> list[Entry]:
    """The messages that are read from a pipe and not sent. Those of a file are still there."""
    return parts.rest() if isinstance(parts, sources.Lingering) else []


def _is_general(error: DecantError) -> bool:
    """Whether the next messages would fail too: unless the error is of the message itself."""
    return not (isinstance(error, Problem) and error.status in (400, 413))


def _shown(sent: Sent) -> Json:
    shown: Json = {"message_id": sent.id, "queue": sent.queue, "offset": sent.offset}
    return shown if sent.deliver_at_ms is None else {**shown, "deliver_at_ms": sent.deliver_at_ms}
