"""The memory store behind a network: every call may be delayed, lost before or after it was applied, applied again
later by a zombie, throttled, answered from the past, or the last one of its caller."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from math import inf
from random import Random
from typing import Protocol, TypeVar

from chalicelib.core.base import deadline
from chalicelib.core.base.errors import StoreUnavailable
from chalicelib.core.store import Keys, Outcome, Read, Throttled
from chalicelib.core.table.writes import Item, Key, Refused, Write
from local.memory.store import MemoryStore
from tests.simulation.outage import NEVER, Outage
from tests.support.scheduler import Killed, Scheduler

T = TypeVar("T")

_PROMPT_MS = 20
"""The longest way of a request, in each direction."""


@dataclass(frozen=True, slots=True)
class Faults:
    """The probability of each fault, for each call."""

    lose_request: float = 0.02
    lose_reply: float = 0.03
    zombie: float = 0.03
    throttle: float = 0.02
    stale: float = 0.2
    kill: float = 0.008
    latency_ms_max: int = 20
    zombie_ms_max: int = 3_000
    stale_ms_max: int = 500
    stall: float = 0.0
    """The probability that a caller sleeps before a request, as if its machine were suspended or out of memory."""
    stall_ms: tuple[int, int] = (2_000, 24_000)
    """The shortest and the longest of these."""
    torn: float = 0.0
    """The probability that a read shows each of its items at another instant: it is a read of many items, not of one
    state."""
    unreadable: float = 0.0
    """The probability that a read of payloads gets no answer."""

    @property
    def are_harmless(self) -> bool:
        """Whether every request except reads of payloads is answered, long before the shortest lease is over."""
        troubles = (self.lose_request, self.lose_reply, self.zombie, self.throttle, self.kill, self.stall)
        return not any(troubles) and self.latency_ms_max <= _PROMPT_MS


ALL = Faults()
NONE = Faults(0, 0, 0, 0, 0, 0, 2)


class Timed(Protocol):
    now: int


class PastStore(MemoryStore):
    """A memory store that remembers every version of its items. It bills nothing, to be fast."""

    is_metered = False

    def __init__(self, time: Timed) -> None:
        super().__init__()
        self._time = time
        self._past: dict[str, dict[str, tuple[list[int], list[Item | None]]]] = {}

    def read_now(self, read: Read) -> list[Item]:
        """The items that the read returns now. All callers share one thread, so that it needs no lock."""
        return self._found(read)

    def read_past(self, read: Read, instant: int) -> list[Item]:
        """The items that the read would have returned at that time."""
        return self.read_torn(read, lambda: instant)

    def read_torn(self, read: Read, instant: Callable[[], int]) -> list[Item]:
        """The same, with an instant of its own for each item."""
        if isinstance(read, Keys):
            items = [self._then(key.pk, key.sk, instant()) for key in read.keys]
            return [item for item in items if item is not None]
        names = sorted(name for name in self._past.get(read.pk, {}) if read.low <= name <= read.high)
        if read.descending:
            names.reverse()
        found = (self._then(read.pk, name, instant()) for name in names)
        return [item for item in found if item is not None][: read.limit]

    def versions(self, attribute: str) -> Iterator[tuple[Key, int, Item]]:
        """Every version that an item with this attribute ever had, and since when."""
        for pk, items in self._past.items():
            for sk, (instants, versions) in items.items():
                for since, item in zip(instants, versions, strict=True):
                    if item and attribute in item:
                        yield Key(pk, sk), since, item

    def lives(self, prefix: str) -> Iterator[tuple[Key, int, float, Item]]:
        """Every version that an item in a partition of this prefix ever had, since when, and until when."""
        for pk in [pk for pk in self._past if pk.startswith(prefix)]:
            for sk, (instants, versions) in self._past[pk].items():
                for since, until, item in zip(instants, [*instants[1:], inf], versions, strict=True):
                    if item:
                        yield Key(pk, sk), since, until, item

    def lose(self, key: Key) -> bool:
        """Removes the item; returns whether it existed."""
        is_there = self._get(key) is not None
        if is_there:
            self._put(key, None)
        return is_there

    def _then(self, pk: str, sk: str, instant: int) -> Item | None:
        instants, versions = self._past.get(pk, {}).get(sk, ([], []))
        place = bisect_right(instants, instant)
        return versions[place - 1] if place else None

    def _put(self, key: Key, item: Item | None) -> None:
        instants, versions = self._past.setdefault(key.pk, {}).setdefault(key.sk, ([], []))
        instants.append(self._time.now)
        versions.append(item)
        super()._put(key, item)


class FaultyStore:
    """The store as one caller sees it."""

    keeps_blobs = is_full = False

    def __init__(
        self,
        inner: PastStore,
        scheduler: Scheduler,
        random: Random,
        faults: Faults,
        outage: Outage = NEVER,
        intrude: Callable[[], None] = lambda: None,
    ) -> None:
        self._inner = inner
        self._scheduler = scheduler
        self._random = random
        self._faults = faults
        self._outage = outage
        self._intrude = intrude
        self.troubles = 0
        """How many requests have failed."""

    def read(self, reads: Sequence[Read]) -> list[list[Item]]:
        if self._faults.unreadable and any(map(_is_of_payloads, reads)):
            self._travel()
            if self._random.random() < self._faults.unreadable:
                self.troubles += 1
                raise StoreUnavailable("the payloads are throttled")
        asked_ms = self._scheduler.now
        return self._call(lambda: [self._answer(read, asked_ms) for read in reads])

    def write(self, write: Write) -> Item:
        return self._call(lambda: self._inner.write(write), is_write=True)

    def write_each(self, writes: Sequence[Write]) -> list[Outcome]:
        """In any order, like parallel requests."""
        order = list(range(len(writes)))
        if len(order) > 1:
            self._random.shuffle(order)
        outcomes = {place: self._outcome(writes[place]) for place in order}
        return [outcomes[place] for place in range(len(writes))]

    def write_together(self, writes: Sequence[Write]) -> None:
        """DynamoDB recognizes a transaction by its token: it applies one of all its repeats, including late ones."""
        done: list[bool] = []

        def once() -> None:
            if not done:
                self._inner.write_together(writes)
                done.append(True)

        self._call(once, is_write=True)

    def put_all(self, items: Sequence[Item]) -> None:
        self._batch([partial(self._inner.put_all, [item]) for item in items])

    def remove_all(self, keys: Sequence[Key]) -> None:
        self._batch([partial(self._inner.remove_all, [key]) for key in keys])

    def put_blob(self, name: str, data: bytes) -> None:
        self._call(lambda: self._inner.put_blob(name, data))

    def get_blob(self, name: str) -> bytes | None:
        return self._call(lambda: self._inner.get_blob(name))

    def remove_blobs(self, names: Sequence[str]) -> None:
        self._call(lambda: self._inner.remove_blobs(names))

    def _answer(self, read: Read, asked_ms: int) -> list[Item]:
        faults, now = self._faults, self._scheduler.now
        is_weak = not read.strong and self._random.random() < faults.stale
        if faults.torn and self._random.random() < faults.torn:
            since_ms = now - faults.stale_ms_max if is_weak else asked_ms
            return self._inner.read_torn(read, lambda: self._random.randint(since_ms, now))
        if not is_weak:
            return self._inner.read_now(read)
        return self._inner.read_past(read, now - int(self._random.random() * faults.stale_ms_max))

    def _outcome(self, write: Write) -> Outcome:
        try:
            return self.write(write)
        except (Refused, StoreUnavailable) as trouble:
            return trouble.with_traceback(None)  # its frames would keep the process alive

    def _batch(self, applies: list[Callable[[], None]]) -> None:
        """One after another in any order, with others in between. A batch that fails halfway leaves a part."""

        def apply_each() -> None:
            self._random.shuffle(applies)
            for number, apply in enumerate(applies):
                if number:
                    self._travel()
                    if self._random.random() < self._faults.throttle:
                        self.troubles += 1
                        raise StoreUnavailable("the rest was throttled", outcome="unknown")
                apply()

        if applies:
            self._call(apply_each, is_write=True)

    def _call(self, apply: Callable[[], T], is_write: bool = False, is_repeat: bool = False) -> T:
        """One request: on its way, applied, and its reply on the way back. Each step may fail. A repeat that fails
        leaves the outcome of the first unknown."""
        faults = self._faults
        self._stall()
        self._travel()
        self._sit_out(is_write)
        self._intrude()
        luck = self._random.random()
        self.troubles += luck < faults.throttle + faults.lose_request + faults.zombie + faults.lose_reply
        if luck < faults.throttle:
            if is_write and deadline.is_hasty() and not is_repeat:
                raise Throttled("throttled")
            raise StoreUnavailable("throttled", **({"outcome": "unknown"} if is_repeat else {}))
        luck -= faults.throttle
        if luck < faults.lose_request:
            raise StoreUnavailable("the request was lost", outcome="unknown")
        luck -= faults.lose_request
        if luck < faults.zombie and is_write:
            self._haunt(apply)
            if self._random.random() < 0.5:
                raise StoreUnavailable("timed out; applied later", outcome="unknown")
            return self._call(apply, is_write, is_repeat=True)
        luck -= faults.zombie
        result = apply()
        self._travel()
        if luck < faults.lose_reply:
            if self._random.random() < 0.5:
                raise StoreUnavailable("the reply was lost", outcome="unknown")
            return apply()  # the client library sends it again
        return result

    def _stall(self) -> None:
        if self._faults.stall and self._random.random() < self._faults.stall:
            self._scheduler.sleep(self._random.randrange(*self._faults.stall_ms))

    def _sit_out(self, is_write: bool) -> None:
        if self._outage.refuses(self._scheduler.now, is_write):
            self.troubles += 1
            self._outage.sit_out(self._scheduler, is_write)

    def _travel(self) -> None:
        self._scheduler.sleep(int(self._random.random() * (self._faults.latency_ms_max + 1)))
        if self._random.random() < self._faults.kill:
            raise Killed

    def _haunt(self, zombie: Callable[[], object]) -> None:
        def apply_late() -> None:
            with suppress(Refused, StoreUnavailable):
                zombie()

        self._scheduler.spawn(apply_late, int(self._random.random() * self._faults.zombie_ms_max))


def _is_of_payloads(read: Read) -> bool:
    return isinstance(read, Keys) and any(key.pk.startswith("payload#") for key in read.keys)
