"""Commands that need more than click say which extra has it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click


@contextmanager
def needing(extra: str) -> Iterator[None]:
    """Turns the lack of a package, or of the service, into one line that names the extra."""
    try:
        yield
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        raise click.ClickException(f"{missing} is missing; pip install 'decant-mq[{extra}]' has it") from error
