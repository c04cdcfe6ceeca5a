"""The items of an export, kind by kind."""

from __future__ import annotations

from collections.abc import Callable, Collection

from pyspark.sql import DataFrame

from spark import item_schemas


class Items:
    """`read` returns the items of some kinds: `item_schemas.ITEMS`, of which the structs of other kinds may be
    missing."""

    def __init__(self, read: Callable[[Collection[str]], DataFrame]) -> None:
        self._read = read
        self._by_kind: dict[str, DataFrame] = {}

    def __getitem__(self, kind: str) -> DataFrame:
        """The items of this kind."""
        if kind not in self._by_kind:
            self._by_kind[kind] = self._read([kind])
        return self._by_kind[kind]

    def every(self) -> DataFrame:
        """The items of all kinds, with all structs."""
        return self._read(item_schemas.KINDS)
