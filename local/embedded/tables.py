"""moto's tables, where a query costs as much as its result and a transaction as its items; installed by `embedded`.

Both run moto's own code on a stand-in for the table that shows only the items needed.
"""

from __future__ import annotations

import copy
import functools
from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Callable
from operator import attrgetter
from typing import Any, cast

from moto.dynamodb.models import DynamoDBBackend
from moto.dynamodb.models.dynamo_type import DynamoType, Item
from moto.dynamodb.models.table import RESULT_SIZE_LIMIT, Table

ITEM_BYTES_MAX = 405_000
"""The size at which moto rejects an item."""

Original = Callable[..., Any]
ItemKey = tuple[DynamoType, DynamoType]

_sort_value = attrgetter("cast_value")


class Partition(dict[DynamoType, Item]):
    """The items of one partition key, by sort key. Keeps the sort keys in order from the first query on."""

    _sorted: list[DynamoType] | None = None

    @property
    def sorted(self) -> list[DynamoType]:
        if self._sorted is None:
            self._sorted = sorted(self, key=_sort_value)
        return self._sorted

    def __setitem__(self, key: DynamoType, item: Item) -> None:
        if self._sorted is not None and key not in self:
            insort(self._sorted, key, key=_sort_value)
        super().__setitem__(key, item)

    def pop(self, key: DynamoType) -> Item:  # type: ignore[override]  # the only way in which moto removes an item
        item = super().pop(key)
        if self._sorted is not None:
            del self._sorted[bisect_left(self._sorted, key.cast_value, key=_sort_value)]
        return item

    def __deepcopy__(self, memo: dict[int, Any]) -> Partition:
        return Partition({copy.deepcopy(key, memo): copy.deepcopy(item, memo) for key, item in self.items()})

    def window(self, low: Any, high: Any, after: Any, limit: int | None, forward: bool) -> Partition:
        """The items a query from `low` to `high` reads: its matches and one more, which shows that the partition goes
        on. If the matches exceed a megabyte, the query may end at any item: then all later ones."""
        keys = self.sorted
        first, last = self._places(low, high, after, forward)
        reach = max(0, last - first if limit is None else min(limit, last - first))
        chosen = keys[first : first + reach + 1] if forward else keys[max(0, last - reach - 1) : last]
        if sum(self[key].size() for key in chosen) > RESULT_SIZE_LIMIT - ITEM_BYTES_MAX:
            chosen = keys[first:] if forward else keys[:last]
        return Partition({key: self[key] for key in chosen})

    def _places(self, low: Any, high: Any, after: Any, forward: bool) -> tuple[int, int]:
        first = bisect_left(self.sorted, low, key=_sort_value)
        last = bisect_right(self.sorted, high, key=_sort_value)
        if after is None:
            return first, last
        if forward:
            return max(first, bisect_right(self.sorted, after, key=_sort_value)), last
        return first, min(last, bisect_left(self.sorted, after, key=_sort_value))


def with_partitions(original: Original) -> Original:
    @functools.wraps(original)
    def init(table: Table, *args: Any, **kwargs: Any) -> None:
        original(table, *args, **kwargs)
        if table.has_range_key:
            table.items = defaultdict(Partition)

    return init


def query_a_slice(original: Original) -> Original:
    @functools.wraps(original)
    def query(table: Table, *args: Any, **conditions: Any) -> Any:
        is_legacy = not conditions.keys() <= {"hash_key_conditions", "range_key_conditions"}
        return original(table if is_legacy else _narrowed(table, *args), *args, **conditions)

    return query


def _narrowed(
    table: Table,
    hash_key: DynamoType | None,
    comparison: str | None,
    bounds: list[DynamoType],
    limit: int | None,
    start_key: dict[str, Any] | None,
    forward: bool,
    _projections: list[list[str]] | None,
    index_name: str | None,
    *_rest: Any,
) -> Table:
    """The items a query of `Store.read` needs: `pk = :pk AND sk BETWEEN :low AND :high`; for others, all."""
    partition = table.items.get(hash_key, Partition())
    types = {bound.type for bound in bounds}
    if comparison != "BETWEEN" or index_name is not None or types != {table.range_key_type}:
        return table
    if not isinstance(partition, Partition) or not _continues(table, hash_key, start_key):
        return table
    low, high = map(_sort_value, bounds)
    after = start_key and DynamoType(start_key[str(table.range_key_attr)]).cast_value
    return _showing(table, {hash_key: partition.window(low, high, after, limit, forward)})


def _continues(table: Table, hash_key: DynamoType | None, start_key: dict[str, Any] | None) -> bool:
    """Whether the query starts at the beginning, or after a key of its own partition."""
    if start_key is None:
        return True
    return start_key.keys() == set(table.table_key_attrs) and DynamoType(start_key[table.hash_key_attr]) == hash_key


def _showing(table: Table, items: dict[Any, Any]) -> Table:
    shown = copy.copy(table)
    shown.items = defaultdict(Partition, items)
    return shown


# -- scans ------------------------------------------------------------------------------------------------------------

Segments = tuple[None, None] | tuple[int, int]


def scan_a_page(original: Original) -> Original:
    @functools.wraps(original)
    def scan(
        table: Table,
        filters: Any,
        limit: int | None,
        start_key: dict[str, Any] | None,
        filter_expression: Any = None,
        index_name: str | None = None,
        consistent_read: bool = False,
        projections: Any = None,
        segments: Segments = (None, None),
    ) -> Any:
        is_plain = (
            not filters and index_name is None and all(isinstance(part, Partition) for part in table.items.values())
        )
        shown = _showing(table, _page(table, limit, start_key, segments)) if is_plain else table
        rest = (filter_expression, index_name, consistent_read, projections, segments)
        return original(shown, filters, limit, start_key, *rest)

    return scan


def _page(
    table: Table, limit: int | None, start_key: dict[str, Any] | None, segments: Segments
) -> dict[DynamoType, Partition]:
    """The items a scan reads from this key on: its result and one more, which shows that there are more."""
    after = start_key and tuple(DynamoType(start_key[name]).cast_value for name in table.table_key_attrs)
    page: dict[DynamoType, Partition] = {}
    size = count = 0
    for pk in sorted(table.items, key=_sort_value):
        if after and pk.cast_value < after[0]:
            continue
        partition = cast("Partition", table.items[pk])
        first = bisect_right(partition.sorted, after[1], key=_sort_value) if after and pk.cast_value == after[0] else 0
        for sk in partition.sorted[first:]:
            item = partition[sk]
            if not item.is_within_segment(segments):
                break  # nor is any other of this partition
            page.setdefault(pk, Partition())[sk] = item
            size, count = size + item.size(), count + 1
            if size > RESULT_SIZE_LIMIT or count - 1 == limit:
                return page
    return page


# -- transactions -----------------------------------------------------------------------------------------------------


def transact_on_copies(original: Original) -> Original:
    @functools.wraps(original)
    def transact_write_items(backend: DynamoDBBackend, transact_items: list[dict[str, Any]]) -> None:
        tables = backend.tables
        named = _named(tables, transact_items)
        if named is None:
            original(backend, transact_items)
            return
        backend.tables = {name: _showing(tables[name], _copies(tables[name], keys)) for name, keys in named.items()}
        try:
            original(backend, transact_items)
            for name, keys in named.items():
                _take_over(tables[name], backend.tables[name], keys)
        finally:
            backend.tables = tables

    return transact_write_items


def _named(tables: dict[str, Table], transact_items: list[dict[str, Any]]) -> dict[str, set[ItemKey]] | None:
    """The keys of the transaction's items, by table; None for what moto has to refuse, or a stream to see."""
    named: dict[str, set[ItemKey]] = defaultdict(set)
    for action in transact_items:
        for request in action.values():
            table = tables.get(request["TableName"])
            attributes = request.get("Item") or request.get("Key") or {}
            if table is None or table.stream_shard is not None or not table.has_range_key:
                return None
            if not attributes.keys() >= set(table.table_key_attrs):
                return None
            pk, sk = (DynamoType(attributes[name]) for name in table.table_key_attrs)
            named[table.name].add((pk, sk))
    return named


def _copies(table: Table, keys: set[ItemKey]) -> dict[DynamoType, Partition]:
    copies: dict[DynamoType, Partition] = defaultdict(Partition)
    for pk, sk in keys:
        item = table.get_item(pk, sk)
        if item is not None:
            copies[pk][sk] = copy.deepcopy(item)
    return copies


def _take_over(table: Table, changed: Table, keys: set[ItemKey]) -> None:
    for pk, sk in keys:
        item = changed.get_item(pk, sk)
        if item is None:
            table.delete_item(pk, sk)
        else:
            table.items[pk][sk] = item
