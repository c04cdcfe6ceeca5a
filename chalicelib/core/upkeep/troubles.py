"""What one topic meets must not stop a sweep, which has others to look at."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from chalicelib.core.base.errors import StoreUnavailable


class Troubles:
    def __init__(self) -> None:
        self._met: list[StoreUnavailable] = []

    @contextmanager
    def kept(self) -> Iterator[None]:
        """What is unavailable within this context ends it, and nothing else."""
        try:
            yield
        except StoreUnavailable as trouble:
            self._met.append(trouble)

    def tell(self) -> None:
        """Raises the first of them, if there is one."""
        if self._met:
            raise self._met[0]
