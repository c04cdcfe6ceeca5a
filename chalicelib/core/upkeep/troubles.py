"""Collects errors, so that one topic's failure does not stop a sweep."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from chalicelib.core.base.errors import StoreUnavailable


class Troubles:
    def __init__(self) -> None:
        self._met: list[StoreUnavailable] = []

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Collects a StoreUnavailable raised in the block."""
        try:
            yield
        except StoreUnavailable as trouble:
            self._met.append(trouble)

    def tell(self) -> None:
        """Raises the first collected error, if any."""
        if self._met:
            raise self._met[0]
