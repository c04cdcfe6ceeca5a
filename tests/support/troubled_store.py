"""A store in memory that fails on demand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, TypeVar

from chalicelib.core.base.errors import StoreUnavailable
from chalicelib.core.store import Outcome, Read
from chalicelib.core.table.writes import Item, Key, Write
from local.memory.store import MemoryStore

T = TypeVar("T")

Trouble = Callable[[str, Any], Exception | None]
"""Called before each request with its verb and its subject; the request raises what it returns."""


class TroubledStore(MemoryStore):
    """`before` fails a request instead of carrying it out, `after` loses the answer of one that was carried out."""

    def __init__(self) -> None:
        super().__init__()
        self.before: Trouble = unavailable()
        self.after: Trouble = unavailable()

    def read(self, reads: Sequence[Read]) -> list[list[Item]]:
        return self._tried("read", reads, lambda: super(TroubledStore, self).read(reads))

    def write(self, write: Write) -> Item:
        return self._tried("write", write, lambda: super(TroubledStore, self).write(write))

    def write_each(self, writes: Sequence[Write]) -> list[Outcome]:
        return [self._outcome_of(write) for write in writes]

    def write_together(self, writes: Sequence[Write]) -> None:
        self._tried("write_together", writes, lambda: super(TroubledStore, self).write_together(writes))

    def put_all(self, items: Sequence[Item]) -> None:
        self._tried("put_all", items, lambda: super(TroubledStore, self).put_all(items))

    def remove_all(self, keys: Sequence[Key]) -> None:
        self._tried("remove_all", keys, lambda: super(TroubledStore, self).remove_all(keys))

    def _outcome_of(self, write: Write) -> Outcome:
        try:
            return self._tried("write", write, lambda: super(TroubledStore, self).write_each([write])[0])
        except StoreUnavailable as trouble:
            return trouble

    def _tried(self, verb: str, about: Any, act: Callable[[], T]) -> T:
        if trouble := self.before(verb, about):
            raise trouble
        result = act()
        if trouble := self.after(verb, about):
            raise trouble
        return result


def unavailable(*verbs: str) -> Trouble:
    """These verbs are throttled; without any, all is well."""
    return lambda verb, _about: StoreUnavailable("the store throttled") if verb in verbs else None


def unknown(*verbs: str) -> Trouble:
    """The answers to these verbs are lost."""
    return lambda verb, _about: StoreUnavailable("no answer", outcome="unknown") if verb in verbs else None


def from_request(number: int) -> Trouble:
    """The store is away from this request on, counted from 0; transactions and batches count as one."""
    seen = count()
    return lambda _verb, _about: StoreUnavailable("the store throttled") if next(seen) >= number else None


def broken(inside: str) -> Trouble:
    """Every request meets a defect."""
    return lambda _verb, _about: RuntimeError(inside)


def throttled_queue(queue: int, **members: str) -> Trouble:
    """Writes to the log of one queue fail."""

    def trouble(verb: str, about: Any) -> Exception | None:
        is_it = verb == "write" and about.key.pk.startswith("log#") and about.key.pk.endswith(f"#{queue}")
        return StoreUnavailable("the store throttled", **members) if is_it else None

    return trouble
