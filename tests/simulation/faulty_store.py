"""The memory store as a network away: every call may be delayed, lost before or after it was applied, applied again
later by a zombie, throttled, answered from the past, or be the last thing that its caller does."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import TypeVar

from chalicelib.errors import StoreUnavailable
from chalicelib.store import Outcome, Range, Read
from chalicelib.store.memory import MemoryStore
from chalicelib.writes import Item, Key, Refused, Write
from tests.simulation.scheduler import Killed, Scheduler

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Faults:
    """How likely each fault is, for each call."""

    lose_request: float = 0.02
    lose_reply: float = 0.03
    zombie: float = 0.03
    throttle: float = 0.02
    stale: float = 0.2
    kill: float = 0.004
    latency_ms_max: int = 20
    zombie_ms_max: int = 3_000
    stale_ms_max: int = 500


ALL = Faults()
NONE = Faults(0, 0, 0, 0, 0, 0, 2)


class PastStore(MemoryStore):
    """A memory store that remembers what every item was, and when. It counts nothing, to be fast."""

    def __init__(self, scheduler: Scheduler) -> None:
        super().__init__()
        self._scheduler = scheduler
        self._past: dict[str, dict[str, list[tuple[int, Item | None]]]] = {}

    def read_past(self, read: Read, instant: int) -> list[Item]:
        """What the read would have found then."""
        then = MemoryStore()
        for pk in {read.pk} if isinstance(read, Range) else {key.pk for key in read.keys}:
            for versions in self._past.get(pk, {}).values():
                item = next((item for since, item in reversed(versions) if since <= instant), None)
                if item is not None:
                    then.put_all([item])
        return then.read([read])[0]

    def versions(self, attribute: str) -> Iterator[tuple[Key, int, Item]]:
        """Every version that an item with this attribute ever had, and since when."""
        for pk, items in self._past.items():
            for sk, versions in items.items():
                yield from ((Key(pk, sk), since, item) for since, item in versions if item and attribute in item)

    def _put(self, key: Key, item: Item | None) -> None:
        self._past.setdefault(key.pk, {}).setdefault(key.sk, []).append((self._scheduler.now, item))
        super()._put(key, item)

    def _count(self, reads: Iterable[float] = (), writes: Iterable[float] = ()) -> None:
        pass

    def _charge(self, before: Item | None, item: Item | None, times: int = 1) -> None:
        pass


class FaultyStore:
    """What one caller sees of the store. `faults` may be changed while it runs."""

    keeps_blobs = False

    def __init__(self, inner: PastStore, scheduler: Scheduler, random: Random, faults: Faults) -> None:
        self._inner = inner
        self._scheduler = scheduler
        self._random = random
        self.faults = faults

    def read(self, reads: Sequence[Read]) -> list[list[Item]]:
        def answer() -> list[list[Item]]:
            return [self._answer(read) for read in reads]

        return self._call(answer)

    def write(self, write: Write) -> Item:
        return self._call(lambda: self._inner.write(write), zombie=lambda: self._inner.write(write))

    def write_each(self, writes: Sequence[Write]) -> list[Outcome]:
        return [self._outcome(write) for write in writes]

    def write_together(self, writes: Sequence[Write]) -> None:
        self._call(lambda: self._inner.write_together(writes))

    def put_all(self, items: Sequence[Item]) -> None:
        self._call(lambda: self._inner.put_all(items))

    def remove_all(self, keys: Sequence[Key]) -> None:
        self._call(lambda: self._inner.remove_all(keys))

    def put_blob(self, name: str, data: bytes) -> None:
        self._call(lambda: self._inner.put_blob(name, data))

    def get_blob(self, name: str) -> bytes:
        return self._call(lambda: self._inner.get_blob(name))

    def remove_blobs(self, names: Sequence[str]) -> None:
        self._call(lambda: self._inner.remove_blobs(names))

    def _answer(self, read: Read) -> list[Item]:
        faults = self.faults
        if read.strong or self._random.random() >= faults.stale:
            return self._inner.read([read])[0]
        return self._inner.read_past(read, self._scheduler.now - self._random.randrange(faults.stale_ms_max))

    def _outcome(self, write: Write) -> Outcome:
        try:
            return self.write(write)
        except (Refused, StoreUnavailable) as trouble:
            return trouble

    def _call(self, apply: Callable[[], T], zombie: Callable[[], object] | None = None, is_repeat: bool = False) -> T:
        """One request: on its way, applied, and its reply on the way back. Any of that may go wrong. A repeat that
        fails leaves unknown what became of the first."""
        faults = self.faults
        self._travel()
        luck = self._random.random()
        if luck < faults.throttle:
            raise StoreUnavailable("throttled", **({"outcome": "unknown"} if is_repeat else {}))
        luck -= faults.throttle
        if luck < faults.lose_request:
            raise StoreUnavailable("the request was lost", outcome="unknown")
        luck -= faults.lose_request
        if luck < faults.zombie and zombie is not None:
            self._haunt(zombie)
            if self._random.random() < 0.5:
                raise StoreUnavailable("timed out; applied later", outcome="unknown")
            return self._call(apply, is_repeat=True)
        luck -= faults.zombie
        result = apply()
        if luck < faults.lose_reply:
            self._travel()
            if self._random.random() < 0.5:
                raise StoreUnavailable("the reply was lost", outcome="unknown")
            return apply()  # the client library sends it again
        self._travel()
        return result

    def _travel(self) -> None:
        self._scheduler.sleep(self._random.randrange(self.faults.latency_ms_max + 1))
        if self._random.random() < self.faults.kill:
            raise Killed

    def _haunt(self, zombie: Callable[[], object]) -> None:
        def apply_late() -> None:
            with suppress(Refused):
                zombie()

        self._scheduler.spawn(apply_late, self._random.randrange(self.faults.zombie_ms_max))
