"""Each failure is one line on stderr and an exit code."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from types import FrameType

import click

from decant.errors import DecantError, NotDecant, OutcomeUnknown, Problem, ReplyTimeout, SettingError, Unreachable

FAILED, USAGE, NOT_FOUND, REFUSED, UNAVAILABLE, EMPTY = 1, 2, 3, 4, 5, 6
INTERRUPTED = 128 + signal.SIGINT
_BY_STATUS = {
    400: USAGE,
    401: REFUSED,
    403: REFUSED,
    404: NOT_FOUND,
    **dict.fromkeys((429, 500, 502, 503, 504), UNAVAILABLE),
}


class Refused(click.ClickException):
    """Nothing was done, since nobody has confirmed it."""

    exit_code = USAGE

    def show(self, _file: object = None) -> None:
        note(self.message)


class Ended(KeyboardInterrupt):
    """A signal asks the process to end."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """SIGTERM and SIGHUP raise `Ended`, as Ctrl-C raises KeyboardInterrupt, unless they are ignored."""

    def end(number: int, _frame: FrameType | None) -> None:
        raise Ended(number)

    taken = []
    try:
        for name in ("SIGTERM", "SIGHUP"):
            number = getattr(signal, name, None)
            if number is not None and signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, end)
                taken.append(number)
        yield
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)


def is_known(error: BaseException) -> bool:
    """Whether a line says enough: else it is a defect, whose trace is wanted."""
    return isinstance(error, DecantError | OSError | KeyboardInterrupt | click.Abort)


def told(error: BaseException) -> int:
    """Says on stderr what has happened. Returns the exit code."""
    if isinstance(error, OSError):
        _leave_stdout()
    note(_line(error))
    return exit_code(error)


def note(text: str) -> None:
    """A line on stderr, if that is still open."""
    from decant.cli.output import safe

    line = safe(" ".join(text.split()))
    with contextlib.suppress(OSError, ValueError):
        click.echo(f"decant: {line}", err=True)


def many(count: int, noun: str) -> str:
    """`1 message`, `2 messages`."""
    if count == 1:
        return f"1 {noun}"
    return f"{count} {noun.removesuffix('y')}ies" if noun.endswith("y") else f"{count} {noun}s"


def exit_code(error: BaseException) -> int:
    if isinstance(error, Ended):
        return 128 + error.number
    if isinstance(error, KeyboardInterrupt | click.Abort):
        return INTERRUPTED
    if isinstance(error, SettingError):
        return USAGE
    if isinstance(error, Problem) and not isinstance(error, ReplyTimeout):
        return _BY_STATUS.get(error.status, FAILED)
    return UNAVAILABLE if isinstance(error, NotDecant | OutcomeUnknown | Unreachable) else FAILED


def _line(error: BaseException) -> str:
    if isinstance(error, Ended):
        return f"ended by {signal.Signals(error.number).name}"
    if isinstance(error, KeyboardInterrupt | click.Abort):
        return "interrupted"
    if isinstance(error, BrokenPipeError):
        return "the reader of the output has closed it"
    if isinstance(error, OSError):
        place = f"{error.filename}: " if error.filename else ""
        return f"{place}{error.strerror or error}"
    return str(error) or type(error).__name__


def _leave_stdout() -> None:
    """Drops the rest of stdout, which the interpreter would try to write at its end."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError, AttributeError):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, sys.stdout.fileno())
            os.close(nowhere)
