"""The store in memory: real, complete, and metered as DynamoDB bills. `make run`, tests and the simulation run on it.

Items are never changed in place, so readers keep a consistent copy.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Protocol

from chalicelib.core.base import deadline
from chalicelib.core.base.errors import StoreUnavailable
from chalicelib.core.base.limits import ITEM_BYTES_MAX, SECOND_MS
from chalicelib.core.store import Keys, Outcome, Range, Read
from chalicelib.core.table.writes import Item, Key, Refused, Write, key_of
from chalicelib.core.telemetry import record
from local.memory.evaluate import after, allows
from local.memory.meter import Meter
from local.memory.sizes import Sized, bytes_of, read_units, sized, write_units
from local.memory.sort_keys import SortKeys

ItemChange = tuple[Key, Item | None]
"""The new state of an item; None: it is removed."""

_NO_KEYS = SortKeys([])


class Keeper(Protocol):
    """Keeps on disk what the store holds in memory. A call that raises `StoreUnavailable` has changed nothing."""

    def keep(self, changes: Sequence[ItemChange]) -> None:
        """All of them or none."""

    def keep_blob(self, name: str, data: bytes) -> None: ...

    def remove_blobs(self, names: Sequence[str]) -> None: ...

    def items(self) -> Iterator[Item]:
        """All items that it keeps."""

    def blobs(self) -> Iterator[tuple[str, bytes]]:
        """All blobs that it keeps, with their names."""

    def close(self) -> None: ...

    @property
    def is_full(self) -> bool:
        """Whether it keeps only changes that make room."""


class MemoryStore:
    """Implements `chalicelib.core.store.Store`. One lock makes every request atomic. With a keeper it loads the kept
    items, and keeps each change before anyone can read it."""

    is_metered = True
    """Whether requests are billed, and items that are too large are refused."""

    def __init__(self, keeps_blobs: bool = False, keeper: Keeper | None = None) -> None:
        self.keeps_blobs = keeps_blobs
        self.meter = Meter()
        self._keeper = keeper
        self._lock = threading.RLock()
        self._items: dict[str, dict[str, Item]] = {}
        self._order: dict[str, SortKeys] = {}  # only of partitions that were read by range
        self._blobs: dict[str, bytes] = {}
        if keeper:
            for item in keeper.items():
                self._put(key_of(item), Sized(item))
            self._blobs.update(keeper.blobs())

    @property
    def is_full(self) -> bool:
        with self._lock:
            return self._keeper is not None and self._keeper.is_full

    def close(self) -> None:
        """Closes the keeper between two requests. Later changes raise StoreUnavailable if there is a keeper."""
        with self._lock:
            if self._keeper:
                self._keeper.close()

    def read(self, reads: Sequence[Read]) -> list[list[Item]]:
        with self._lock:
            self._count_calls(len(reads))
            return [self._found(read) for read in reads]

    def write(self, write: Write) -> Item:
        with self._lock:
            self._count_calls()
            item, changes = self._written(write)
            self._apply(changes)
            return item

    def write_each(self, writes: Sequence[Write]) -> list[Outcome]:
        with self._lock:
            self._count_calls(len(writes))
            written = [self._outcome(write) for write in writes]
            try:
                self._apply([change for _, changes in written for change in changes])
            except StoreUnavailable as trouble:
                return [trouble if changes else outcome for outcome, changes in written]
            return [outcome for outcome, _ in written]

    def write_together(self, writes: Sequence[Write]) -> None:
        with self._lock:
            self._count_calls()
            known = [(write, self._get(write.key)) for write in writes]
            refused, current = next((one for one in known if not allows(*one)), (None, None))
            changes = [
                (write.key, self._after(write, before) if allows(write, before) else None) for write, before in known
            ]
            for (_, before), (_, item) in zip(known, changes, strict=True):
                self._charge(before, item, times=2)
            if refused is None:
                self._apply(changes)
            elif not refused.landed(current or {}):
                raise Refused(current or {})

    def put_all(self, items: Sequence[Item]) -> None:
        with self._lock:
            self._count_calls()
            changes: list[ItemChange] = [(key_of(item), Sized(item)) for item in items]
            for _, item in changes:
                self._charge(None, item)
            self._store(changes)

    def remove_all(self, keys: Sequence[Key]) -> None:
        with self._lock:
            self._count_calls()
            for key in keys:
                self._charge(self._get(key), None)
            self._store([(key, None) for key in keys])

    def put_blob(self, name: str, data: bytes) -> None:
        with self._lock:
            self._count_calls()
            if self._keeper:
                self._keeper.keep_blob(name, data)
            self._blobs[name] = data

    def get_blob(self, name: str) -> bytes | None:
        with self._lock:
            self._count_calls()
            return self._blobs.get(name)

    def remove_blobs(self, names: Sequence[str]) -> None:
        with self._lock:
            if self._keeper:
                self._keeper.remove_blobs(names)
            for name in names:
                self._blobs.pop(name, None)

    def drop_expired(self, now_ms: int) -> int:
        """Removes the items whose `ttl` has passed, as DynamoDB does, and returns their number. It locks one partition
        at a time, so that no request waits for all of it."""
        dropped = 0
        for pk in self.partitions():
            with self._lock:
                items = self._items.get(pk, {}).values()
                gone = [key_of(item) for item in items if item.get("ttl", now_ms) * SECOND_MS < now_ms]
                self._store([(key, None) for key in gone])
            dropped += len(gone)
        return dropped

    def partitions(self) -> list[str]:
        """The keys of all partitions that hold something, in no order."""
        with self._lock:
            return list(self._items)

    def count(self) -> int:
        """The number of items."""
        with self._lock:
            return sum(map(len, self._items.values()))

    def _found(self, read: Read) -> list[Item]:
        return self._keys(read) if isinstance(read, Keys) else self._range(read)

    def _keys(self, read: Keys) -> list[Item]:
        items = [self._get(key) for key in read.keys]
        for item in items:
            self._charge_read([item] if item else [], read.strong)
        return [item for item in items if item is not None]

    def _range(self, read: Range) -> list[Item]:
        order, partition = self._ordered(read.pk), self._items.get(read.pk, {})
        names = (order.descending if read.descending else order.ascending)(read.low, read.high)
        items = [partition[name] for name in islice(names, read.limit)]
        self._charge_read(items, read.strong)
        return items

    def _ordered(self, pk: str) -> SortKeys:
        """The sort keys of the partition, made at the first read by range: most partitions have one item, and need no
        order."""
        if pk not in self._order and pk in self._items:
            self._order[pk] = SortKeys(self._items[pk])
        return self._order.get(pk, _NO_KEYS)

    def _outcome(self, write: Write) -> tuple[Outcome, list[ItemChange]]:
        try:
            return self._written(write)
        except (Refused, StoreUnavailable) as trouble:
            return trouble, []

    def _written(self, write: Write) -> tuple[Item, list[ItemChange]]:
        """The item that the caller gets, and what changes: nothing if the write has landed before."""
        before = self._get(write.key)
        if not allows(write, before):
            self._charge(before, None)
            if write.landed(before or {}):
                return before or {}, []
            raise Refused(before or {})
        item = self._after(write, before)
        self._charge(before, item)
        return item or {}, [(write.key, item)]

    def _after(self, write: Write, before: Item | None) -> Item | None:
        item = after(before, write)
        return sized(before, write, item) if item and self.is_metered else item

    def _apply(self, changes: Sequence[ItemChange]) -> None:
        self._store(changes)
        if changes:
            deadline.has_written()

    def _store(self, changes: Sequence[ItemChange]) -> None:
        if self._keeper and changes:
            self._keeper.keep(changes)
        for key, item in changes:
            self._put(key, item)

    def _count_calls(self, requests: int = 1) -> None:
        """One round trip of so many requests."""
        self.meter.round_trips += 1
        record.asked_store(requests)

    def _charge(self, before: Item | None, item: Item | None, times: int = 1) -> None:
        if not self.is_metered:
            return
        units = times * write_units(before, item)
        self.meter.write_units += units
        record.used(write_units=units)
        self.meter.requests += 1
        if bytes_of(item) > ITEM_BYTES_MAX:
            raise StoreUnavailable(f"an item would have more than {ITEM_BYTES_MAX} bytes")

    def _charge_read(self, items: Sequence[Item], strong: bool) -> None:
        if not self.is_metered:
            return
        units = read_units(sum(map(bytes_of, items)), strong)
        self.meter.read_units += units
        record.used(read_units=units)
        self.meter.requests += 1

    def _get(self, key: Key) -> Item | None:
        return self._items.get(key.pk, {}).get(key.sk)

    def _put(self, key: Key, item: Item | None) -> None:
        if item is None:
            self._remove(key)
            return
        partition = self._items.setdefault(key.pk, {})
        if key.sk not in partition and (order := self._order.get(key.pk)) is not None:
            order.add(key.sk)
        partition[key.sk] = item

    def _remove(self, key: Key) -> None:
        partition = self._items.get(key.pk, {})
        if partition.pop(key.sk, None) is None:
            return
        if not partition:
            del self._items[key.pk]
            self._order.pop(key.pk, None)
        elif (order := self._order.get(key.pk)) is not None:
            order.remove(key.sk)
