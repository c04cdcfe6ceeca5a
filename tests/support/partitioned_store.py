"""A store behind partitions that throttle, as the DynamoDB store meets them: with its retries, pauses and deadlines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from chalicelib.core.base.errors import StoreUnavailable
from chalicelib.core.base.runtime import Runtime
from chalicelib.core.store import Keys, Outcome, Range, Read, Store
from chalicelib.core.store.dynamodb.requests import Failed, Retrier, Trying, run
from chalicelib.core.table.writes import Item, Key, Refused, Write, key_of
from local.memory.meter import Meter
from tests.support.partitions import Partitions

T = TypeVar("T")

_LEAST_UNITS = {True: 1.0, False: 0.5}
"""The units of a write, and of a read."""


class PartitionedStore:
    """`meter`: that of the memory store below. `trip_ms`: to the table and back; each request is carried out halfway.
    `spent`: the cost of the requests through this store, including refused ones. All share one thread."""

    def __init__(
        self, inner: Store, meter: Meter, partitions: Partitions, runtime: Runtime, spent: Meter, trip_ms: int = 0
    ) -> None:
        self._inner, self._meter, self._partitions, self._runtime = inner, meter, partitions, runtime
        self._requests = Retrier(runtime)
        self._there_ms, self._back_ms = trip_ms // 2, trip_ms - trip_ms // 2
        self.spent = spent
        self._throttled = 0

    @property
    def troubles(self) -> int:
        """How many requests have failed."""
        return self._throttled + int(getattr(self._inner, "troubles", 0))

    @property
    def keeps_blobs(self) -> bool:
        return self._inner.keeps_blobs

    @property
    def is_full(self) -> bool:
        return self._inner.is_full

    def read(self, reads: Sequence[Read]) -> list[list[Item]]:
        return run(
            [self._range(read) if isinstance(read, Range) else self._keys(read) for read in reads], self._runtime
        )

    def write(self, write: Write) -> Item:
        return run([self._write(write)], self._runtime)[0]

    def write_each(self, writes: Sequence[Write]) -> list[Outcome]:
        return run([self._outcome(write) for write in writes], self._runtime)

    def write_together(self, writes: Sequence[Write]) -> None:
        keys = [write.key for write in writes]

        def ask(_timeout_ms: int) -> Trying[None]:
            yield from self._travel(self._there_ms)
            throttled = [not self._admits(key, is_write=True) for key in keys]
            if any(throttled):
                yield from self._travel(self._back_ms)
                reasons = [{"Code": "ThrottlingError" if one else "None"} for one in throttled]
                raise Failed("TransactionCanceledException", reasons=reasons)
            yield from self._carried_out(keys, True, lambda: self._inner.write_together(writes))

        run([self._requests.write(ask)], self._runtime)

    def put_all(self, items: Sequence[Item]) -> None:
        self._batch(items, key_of, self._inner.put_all)

    def remove_all(self, keys: Sequence[Key]) -> None:
        self._batch(keys, lambda key: key, self._inner.remove_all)

    def put_blob(self, name: str, data: bytes) -> None:
        self._inner.put_blob(name, data)

    def get_blob(self, name: str) -> bytes | None:
        return self._inner.get_blob(name)

    def remove_blobs(self, names: Sequence[str]) -> None:
        self._inner.remove_blobs(names)

    def _range(self, read: Range) -> Trying[list[Item]]:
        begins = Key(read.pk, read.high if read.descending else read.low)
        found = yield from self._requests.read(lambda _: self._one(begins, False, lambda: self._inner.read([read])[0]))
        return found

    def _keys(self, read: Keys) -> Trying[list[Item]]:
        found: dict[Key, Item] = {}

        def get(keys: Sequence[Key]) -> None:
            found.update((key_of(item), item) for item in self._inner.read([Keys(keys, read.strong)])[0])

        unique = list(dict.fromkeys(read.keys))
        yield from self._taken(unique, lambda key: key, False, get)
        return [found[key] for key in read.keys if key in found]

    def _write(self, write: Write) -> Trying[Item]:
        return self._requests.write(lambda _: self._one(write.key, True, lambda: self._inner.write(write)))

    def _outcome(self, write: Write) -> Trying[Outcome]:
        try:
            return (yield from self._write(write))
        except (Refused, StoreUnavailable) as trouble:
            return trouble.with_traceback(None)

    def _batch(self, asked: Sequence[T], key: Callable[[T], Key], carry_out: Callable[[Sequence[T]], None]) -> None:
        if asked:
            run([self._taken(asked, key, True, carry_out)], self._runtime)

    def _taken(
        self, asked: Sequence[T], key: Callable[[T], Key], is_write: bool, carry_out: Callable[[Sequence[T]], Any]
    ) -> Trying[None]:
        """A batch: writes that a partition throttles are left undone, and sent again."""

        def ask(left: Sequence[T]) -> Trying[Sequence[T]]:
            requests = self._requests.put if is_write else self._requests.read
            return (yield from requests(lambda _: sent(left)))

        def sent(left: Sequence[T]) -> Trying[Sequence[T]]:
            yield from self._travel(self._there_ms)
            taken: list[T] = []
            undone: list[T] = []
            for each in left:
                (taken if self._admits(key(each), is_write) else undone).append(each)
            if not taken:
                yield from self._travel(self._back_ms)
                raise Failed("ProvisionedThroughputExceededException")
            yield from self._carried_out([key(each) for each in taken], is_write, lambda: carry_out(taken))
            return undone

        return self._requests.until_taken(ask, asked)

    def _one(self, key: Key, is_write: bool, carry_out: Callable[[], T]) -> Trying[T]:
        yield from self._travel(self._there_ms)
        if not self._admits(key, is_write):
            yield from self._travel(self._back_ms)
            raise Failed("ProvisionedThroughputExceededException")
        return (yield from self._carried_out([key], is_write, carry_out))

    def _admits(self, key: Key, is_write: bool) -> bool:
        is_admitted = self._partitions.admits(key, is_write, self._runtime.uptime())
        self._throttled += not is_admitted
        return is_admitted

    def _carried_out(self, keys: Sequence[Key], is_write: bool, carry_out: Callable[[], T]) -> Trying[T]:
        """A write whose condition fails is paid for too."""
        before = self._meter.copy()
        refused: Refused | None = None
        try:
            answer = carry_out()
        except Refused as why:
            refused = why
        units = self._meter.since(before)
        self.spent.write_units += units.write_units
        self.spent.read_units += units.read_units
        each = max(_LEAST_UNITS[is_write], (units.write_units + units.read_units) / len(keys))
        for key in keys:
            self._partitions.charge(key, is_write, self._runtime.uptime(), each)
        yield from self._travel(self._back_ms)
        if refused is not None:
            raise refused
        return answer

    def _travel(self, ms: int) -> Trying[None]:
        """Parallel requests share one trip."""
        arrives_ms = self._runtime.uptime() + ms
        yield 0
        if ms and (left_ms := arrives_ms - self._runtime.uptime()) > 0:
            self._runtime.sleep(left_ms)
