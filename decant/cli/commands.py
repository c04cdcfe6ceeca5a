"""Runs a command for each message, several at a time, and settles by its exit code."""

from __future__ import annotations

import errno
import json
import os
import select
import shlex
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from decant import calls
from decant.cli.failures import many, note
from decant.cli.leases import Keeper
from decant.cli.sources import message_of
from decant.errors import AlreadyReplied, DecantError, RequestExpired, RequestNotFound
from decant.payloads import as_bytes, encoded_in

if TYPE_CHECKING:
    from decant.client import Decant

AGAIN = 75
"""EX_TEMPFAIL: the exit code that nacks without a reason."""
REASON_MAX = 200
STDOUT = 1


class Exec(NamedTuple):
    """The command, and how it is run. `replies`: its output is the reply to a request."""

    words: list[str]
    at_once: int
    settles: bool = True
    replies: bool = False


def words_of(command: str) -> list[str]:
    """The words of a command, as a shell splits them. Raises UsageError for a command that there is not."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise click.UsageError(f"--exec: {error}") from None
    if not words or shutil.which(words[0]) is None:
        raise click.UsageError(f"--exec: there is no command {words[0] if words else command!r}; no message was taken")
    return words


def environment_of(message: Mapping[str, Any]) -> dict[str, str]:
    fields = {
        "DECANT_MESSAGE_ID": message["message_id"],
        "DECANT_KEY": message["key"],
        "DECANT_TAG": message["tag"],
        "DECANT_PROPERTIES": json.dumps(message["properties"], ensure_ascii=False),
        "DECANT_ATTEMPT": str(message["attempt"]),
    }
    kept = {name: value for name, value in os.environ.items() if name not in fields}
    return kept | {name: value for name, value in fields.items() if value is not None}


class Runner:
    """Runs commands in threads. `counts`: how many messages had which end."""

    def __init__(self, mq: Decant, topic: str, group: str, exec_: Exec, keeper: Keeper) -> None:
        self._mq, self._topic, self._group, self._exec, self._keeper = mq, topic, group, exec_, keeper
        self._changed = threading.Condition()
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._running = 0
        self.counts: dict[str, int] = {}

    def free(self) -> int:
        """How many commands can be begun. Waits for the first. Raises BrokenPipeError if nobody reads what they write:
        each would end by SIGPIPE."""
        if not self._exec.replies:
            _demand_reader()
        with self._changed:
            while self._running >= self._exec.at_once:
                self._changed.wait(0.5)  # so that signals are seen
            return self._exec.at_once - self._running

    def begin(self, messages: Sequence[Mapping[str, Any]]) -> None:
        """Runs the command for each message of the last pop."""
        self._keeper.hold(messages)
        for message in messages:
            with self._changed:
                self._running += 1
            threading.Thread(target=self._work, args=(message,), daemon=True).start()

    def wait(self) -> None:
        """Until no command runs."""
        with self._changed:
            while self._running:
                self._changed.wait(0.5)

    def finish(self) -> None:
        """Lets the commands end; ends them at a second Ctrl-C or SIGTERM."""
        try:
            if self._running:
                note(f"waiting for {many(self._running, 'command')}; a second signal ends them")
            self.wait()
        except KeyboardInterrupt:
            for process in list(self._processes.values()):
                _signal(process, signal.SIGTERM)
            until = time.monotonic() + 3
            with self._changed:
                while self._running and time.monotonic() < until:
                    self._changed.wait(0.1)
            for process in list(self._processes.values()):
                _signal(process, signal.SIGKILL)
            self.wait()
            raise

    def close(self) -> None:
        self._keeper.close()

    def _work(self, message: Mapping[str, Any]) -> None:
        id_ = message["message_id"]
        end = "not settled"
        try:
            try:
                reason, output = self._run(message)
            finally:
                receipt = self._keeper.release(id_)
            end = self._settled(message, receipt, reason, output) if self._exec.settles else "run"
        except DecantError as error:
            note(f"{id_} is not settled: {error}")
        finally:
            with self._changed:
                self.counts[end] = self.counts.get(end, 0) + 1
                self._running -= 1
                self._changed.notify_all()

    def _run(self, message: Mapping[str, Any]) -> tuple[str | None, bytes]:
        """Why the message comes again, None if the command has ended with 0; and the output of the command."""
        body = as_bytes(encoded_in(message))
        words = [os.fsencode(word).replace(b"{}", body) for word in self._exec.words]
        output = subprocess.PIPE if self._exec.replies else None
        try:
            process = subprocess.Popen(  # noqa: S603 - the user's own command
                words, stdin=subprocess.PIPE, stdout=output, env=environment_of(message), process_group=0
            )
        except (OSError, ValueError) as error:  # too long for an argument, or with a NUL
            return f"the command was not run: {getattr(error, 'strerror', None) or error}", b""
        self._processes[process.pid] = process
        try:
            said, _ = process.communicate(body)
        finally:
            self._processes.pop(process.pid, None)
        if process.returncode == 0:
            return None, said or b""
        if process.returncode == AGAIN:
            return "", b""
        if process.returncode < 0:
            return f"signal {-process.returncode}", b""
        return f"exit code {process.returncode}", b""

    def _settled(self, message: Mapping[str, Any], receipt: str | None, reason: str | None, output: bytes) -> str:
        if receipt is None:
            return "lost"
        api = self._mq.api
        if reason is not None:
            note(f"{message['message_id']}: {reason or 'comes again'}")
            answer: Any = api.nack(
                self._topic, self._group, receipts=[receipt], **calls.given(reason=reason[:REASON_MAX] or None)
            )
        elif output and message.get("correlation_id"):
            answer = self._replied(message["correlation_id"], receipt, output)
        else:
            answer = api.ack(self._topic, self._group, receipts=[receipt])
        for failure in answer.get("failed", ()):
            note(f"{message['message_id']} is not settled: {failure['code']}")
            return "lost"
        return "acked" if reason is None else "nacked"

    def _replied(self, correlation_id: str, receipt: str, output: bytes) -> Any:
        """Sends the reply. A request that takes none any more is acked: a further reply would be refused too."""
        try:
            return self._mq.api.reply(correlation_id, receipt=receipt, **message_of(output, {}))
        except (AlreadyReplied, RequestExpired, RequestNotFound) as error:
            note(f"the reply is refused: {error}")
            return self._mq.api.ack(self._topic, self._group, receipts=[receipt])


def _demand_reader() -> None:
    stdout = select.poll()
    stdout.register(STDOUT, 0)
    if any(events & select.POLLERR for _, events in stdout.poll(0)):
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    """To the command and all that it has started."""
    try:
        os.killpg(process.pid, number)
    except (ProcessLookupError, PermissionError):
        pass
