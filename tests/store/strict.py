"""A memory store that refuses all that DynamoDB refuses, so that tests need no DynamoDB to find too large a request.

Source: Amazon DynamoDB Developer Guide, "Quotas in Amazon DynamoDB", and the reference of each operation.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from chalicelib.core.store import Keys, Outcome, Read
from chalicelib.core.store.dynamodb.expressions import Expressions
from chalicelib.core.table.writes import Item, Key, Path, RemoveItem, Write
from local.memory.sizes import bytes_of, item_bytes
from local.memory.store import ItemChange, MemoryStore

EXPRESSION_BYTES_MAX = 4_096
OPERATORS_MAX = 300
"""The most operators in an update expression."""
ITEM_BYTES_MAX = 400 * 1024
PARTITION_KEY_BYTES_MAX = 2_048
SORT_KEY_BYTES_MAX = 1_024
TRANSACTION_WRITES_MAX = 100
TRANSACTION_BYTES_MAX = 4 * 1024 * 1024


class RefusedByDynamoDB(AssertionError):
    """DynamoDB would answer ValidationException."""


class StrictStore(MemoryStore):
    def read(self, reads: Sequence[Read]) -> list[list[Item]]:
        for read in reads:
            if isinstance(read, Keys):
                _demand_distinct(read.keys)
                for key in read.keys:
                    _demand_key(key)
            else:
                _demand(read.limit is None or read.limit >= 1, f"a limit of {read.limit}")
                if read.pk.startswith("log#"):
                    assert read.limit == 1 if read.descending else read.limit, "a log is never read whole"
                _demand(read.low.encode() <= read.high.encode(), f"a range from {read.low!r} to {read.high!r}")
                for bound in (read.low, read.high):
                    _demand_key(Key(read.pk, bound))
        return super().read(reads)

    def write_each(self, writes: Sequence[Write]) -> list[Outcome]:
        _demand_distinct(write.key for write in writes)
        return super().write_each(writes)

    def write_together(self, writes: Sequence[Write]) -> None:
        _demand_distinct(write.key for write in writes)
        _demand(1 <= len(writes) <= TRANSACTION_WRITES_MAX, f"a transaction of {len(writes)} writes")
        for write in writes:
            _demand_expressions(write)
        super().write_together(writes)
        size = sum(item_bytes(self._get(write.key) or {}) for write in writes)
        _demand(size <= TRANSACTION_BYTES_MAX, f"a transaction of {size} bytes")

    def put_all(self, items: Sequence[Item]) -> None:
        _demand_distinct(Key(item["pk"], item["sk"]) for item in items)
        super().put_all(items)

    def remove_all(self, keys: Sequence[Key]) -> None:
        _demand_distinct(keys)
        super().remove_all(keys)

    def _written(self, write: Write) -> tuple[Item, list[ItemChange]]:
        _demand_expressions(write)
        return super()._written(write)

    def _put(self, key: Key, item: Item | None) -> None:
        _demand_key(key)
        size = item_bytes(item or {})
        assert bytes_of(item) == size, "the size that is carried on from write to write"
        _demand(size <= ITEM_BYTES_MAX, f"an item of {size} bytes")
        super()._put(key, item)


def _demand(is_fine: bool, otherwise: str) -> None:
    if not is_fine:
        raise RefusedByDynamoDB(otherwise)


def _demand_distinct(keys: Iterable[Key]) -> None:
    seen: set[Key] = set()
    for key in keys:
        _demand(key not in seen, f"a request that names {key} twice")
        seen.add(key)


def _demand_key(key: Key) -> None:
    _demand(1 <= len(key.pk.encode()) <= PARTITION_KEY_BYTES_MAX, f"a partition key of {len(key.pk)} characters")
    _demand(1 <= len(key.sk.encode()) <= SORT_KEY_BYTES_MAX, f"a sort key of {len(key.sk)} characters")


def _demand_expressions(write: Write) -> None:
    parameters = Expressions().parameters(write)
    for name in ("ConditionExpression", "UpdateExpression"):
        size = len(parameters.get(name, ""))
        _demand(size <= EXPRESSION_BYTES_MAX, f"a {name} of {size} bytes")
        redundant = re.search(r"\(\([^()]*(\([^()]*\)[^()]*)*\)\)", parameters.get(name, ""))
        _demand(redundant is None, f"redundant parentheses in {parameters.get(name)}")
    operators = len(re.findall(r"if_not_exists|list_append|[+]", parameters.get("UpdateExpression", "")))
    _demand(operators <= OPERATORS_MAX, f"an update of {operators} operators")
    _demand_apart([effect.path for effect in write.effects if not isinstance(effect, RemoveItem)])


def _demand_apart(paths: Sequence[Path]) -> None:
    seen = set(paths)
    _demand(len(seen) == len(paths), f"an update that names a path twice: {paths}")
    for path in paths:
        for end in range(1, len(path)):
            _demand(path[:end] not in seen, f"an update of {path} and of {path[:end]}")
