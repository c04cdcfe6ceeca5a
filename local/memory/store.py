"""The store in memory: real, complete, and metered as DynamoDB bills. Tests and the simulation run on it.

Items are never changed in place, so readers keep a consistent copy.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right, insort
from collections.abc import Sequence

from chalicelib.base import deadline
from chalicelib.base.errors import StoreUnavailable
from chalicelib.base.limits import ITEM_BYTES_MAX
from chalicelib.store import Keys, Outcome, Range, Read
from chalicelib.table.writes import Item, Key, Refused, Write, key_of
from chalicelib.telemetry import record
from local.memory.evaluate import after, holds
from local.memory.meter import Meter
from local.memory.sizes import item_bytes, read_units, write_units


class MemoryStore:
    """Implements `chalicelib.store.Store`. One lock makes every request atomic."""

    def __init__(self, keeps_blobs: bool = False) -> None:
        self.keeps_blobs = keeps_blobs
        self.meter = Meter()
        self._lock = threading.RLock()
        self._items: dict[str, dict[str, Item]] = {}
        self._order: dict[str, list[str]] = {}
        self._blobs: dict[str, bytes] = {}

    def read(self, reads: Sequence[Read]) -> list[list[Item]]:
        with self._lock:
            self._count_calls(len(reads))
            return [self._keys(read) if isinstance(read, Keys) else self._range(read) for read in reads]

    def write(self, write: Write) -> Item:
        with self._lock:
            self._count_calls()
            return self._write(write)

    def write_each(self, writes: Sequence[Write]) -> list[Outcome]:
        with self._lock:
            self._count_calls(len(writes))
            return [self._outcome(write) for write in writes]

    def write_together(self, writes: Sequence[Write]) -> None:
        with self._lock:
            self._count_calls()
            refused = next((write for write in writes if not self._allows(write)), None)
            items = [after(self._get(write.key), write) if self._allows(write) else None for write in writes]
            for write, item in zip(writes, items, strict=True):
                self._charge(self._get(write.key), item, times=2)
            if refused is None:
                for write, item in zip(writes, items, strict=True):
                    self._put(write.key, item)
                deadline.has_written()
            elif not refused.landed(before := self._get(refused.key)):
                raise Refused(before)

    def put_all(self, items: Sequence[Item]) -> None:
        with self._lock:
            self._count_calls()
            for item in items:
                self._charge(None, item)
                self._put(key_of(item), item)

    def remove_all(self, keys: Sequence[Key]) -> None:
        with self._lock:
            self._count_calls()
            for key in keys:
                self._charge(self._get(key), None)
                self._put(key, None)

    def put_blob(self, name: str, data: bytes) -> None:
        with self._lock:
            self._count_calls()
            self._blobs[name] = data

    def get_blob(self, name: str) -> bytes | None:
        with self._lock:
            self._count_calls()
            return self._blobs.get(name)

    def remove_blobs(self, names: Sequence[str]) -> None:
        with self._lock:
            for name in names:
                self._blobs.pop(name, None)

    def _keys(self, read: Keys) -> list[Item]:
        items = [self._get(key) for key in read.keys]
        for item in items:
            self._charge_read([item] if item else [], read.strong)
        return [item for item in items if item is not None]

    def _range(self, read: Range) -> list[Item]:
        order = self._order.get(read.pk, [])
        names = order[bisect_left(order, read.low) : bisect_right(order, read.high)]
        if read.descending:
            names.reverse()
        items = [self._items[read.pk][name] for name in names[: read.limit]]
        self._charge_read(items, read.strong)
        return items

    def _outcome(self, write: Write) -> Outcome:
        try:
            return self._write(write)
        except (Refused, StoreUnavailable) as trouble:
            return trouble

    def _write(self, write: Write) -> Item:
        before = self._get(write.key)
        if not self._allows(write):
            self._charge(before, None)
            if write.landed(before):
                return before or {}
            raise Refused(before)
        item = after(before, write)
        self._charge(before, item)
        self._put(write.key, item)
        deadline.has_written()
        return item or {}

    def _allows(self, write: Write) -> bool:
        before = self._get(write.key)
        return all(holds(guard, before) for guard in write.guards)

    def _count_calls(self, requests: int = 1) -> None:
        """One round trip of so many requests."""
        self.meter.round_trips += 1
        for _ in range(requests):
            record.asked_store()

    def _charge(self, before: Item | None, item: Item | None, times: int = 1) -> None:
        units = times * write_units(before, item)
        self.meter.write_units += units
        record.used(write_units=units)
        self.meter.requests += 1
        if item_bytes(item or {}) > ITEM_BYTES_MAX:
            raise StoreUnavailable(f"an item would have more than {ITEM_BYTES_MAX} bytes")

    def _charge_read(self, items: Sequence[Item], strong: bool) -> None:
        units = read_units(sum(map(item_bytes, items)), strong)
        self.meter.read_units += units
        record.used(read_units=units)
        self.meter.requests += 1

    def _get(self, key: Key) -> Item | None:
        return self._items.get(key.pk, {}).get(key.sk)

    def _put(self, key: Key, item: Item | None) -> None:
        partition = self._items.setdefault(key.pk, {})
        order = self._order.setdefault(key.pk, [])
        if item is None:
            if partition.pop(key.sk, None) is not None:
                order.remove(key.sk)
            return
        if key.sk not in partition:
            insort(order, key.sk)
        partition[key.sk] = item
