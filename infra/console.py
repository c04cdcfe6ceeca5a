"""All output to people and questions to them, on stderr, and the reason why a command stops."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from infra.stack import ResourceChange, StackEvent


class Stop(Exception):
    """The reason, and what to do about it, in one line."""


ORDER = ("Remove", "Replace", "Modify", "Import", "Add")
"""The order of changes: dangerous ones first."""


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def show(changes: Sequence[ResourceChange]) -> None:
    say(f"{len(changes)} changes:")
    for change in sorted(changes, key=_rank):
        say(f"  {change.action:8} {change.kind:38} {change.name}")


def ask(question: str, says_yes: bool) -> bool:
    """`says_yes`: the user has agreed beforehand. Raises Stop where nobody can answer."""
    if says_yes:
        return True
    if not sys.stdin.isatty():
        raise Stop(f"{question} Nobody can be asked here; YES=1 says yes")
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


class Progress:
    """Shows progress: one line that changes, on a terminal; elsewhere a line for each resource that is ready or
    failed."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._ready: set[str] = set()
        self._changes_its_line = sys.stderr.isatty()

    def __call__(self, event: StackEvent) -> None:
        is_over = not event.status.endswith("_IN_PROGRESS")
        if is_over and event.kind != "AWS::CloudFormation::Stack":
            self._ready.add(event.name)
        ready = len(self._ready)
        text = f"{ready} of {max(ready, self._total)}: {event.status} {event.name}"
        if self._changes_its_line:
            sys.stderr.write(f"\r{text[:100]}\x1b[K")
            sys.stderr.flush()
        elif is_over:
            say(text)

    def close(self) -> None:
        if self._changes_its_line:
            sys.stderr.write("\r\x1b[K")


def _rank(change: ResourceChange) -> tuple[int, str, str]:
    return ORDER.index(change.action) if change.action in ORDER else 0, change.kind, change.name
