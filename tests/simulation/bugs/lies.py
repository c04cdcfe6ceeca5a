"""Ways to plant a bug from outside: a store that carries out other writes than those sent to it, and public calls that
do something else."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from chalicelib.core.producing.new_message import Sending
from chalicelib.core.producing.produce import Producer
from chalicelib.core.store import Keys, Outcome
from chalicelib.core.store.dynamodb.store import DynamoStore
from chalicelib.core.table import keys
from chalicelib.core.table.writes import Append, Effect, Guard, Item, Path, RemoveItem, Set, Write, never_landed
from local.memory.evaluate import after, allows
from tests.simulation.faulty_store import FaultyStore, PastStore

Plant = AbstractContextManager[Any]
Chosen = Callable[[Write], bool]

CURSORS = "cursor#"
"""The prefix of the sort keys of cursors."""


def calling(owner: type, method: str, call: Callable[..., Any]) -> Plant:
    """`call`: the true method, then its arguments."""
    true = getattr(owner, method)
    return patch.object(owner, method, lambda *args, **more: call(true, *args, **more))


def sending(change: Callable[[Sending], Sending]) -> Plant:
    """Changes the messages of producers."""
    return calling(Producer, "send", lambda true, self, topic, sent: true(self, topic, [change(each) for each in sent]))


@contextmanager
def together(*plants: Plant) -> Iterator[None]:
    with ExitStack() as stack:
        for plant in plants:
            stack.enter_context(plant)
        yield


# -- which writes -----------------------------------------------------------------------------------------------------


def within(*kinds: str) -> Chosen:
    """The writes of items in partitions of this kind."""
    return lambda write: write.key.pk.split("#")[0] in kinds


def of_cursors(write: Write) -> bool:
    return write.key.sk.startswith(CURSORS)


def changes(write: Write, *path: str | int) -> bool:
    """Whether an effect of the write is at this path, or below it."""
    return any(effect.path[: len(path)] == path for effect in write.effects if not write.is_removal)  # type: ignore[union-attr]


def claims(write: Write) -> bool:
    return of_cursors(write) and changes(write, "claims")


def about(*path: str | int) -> Callable[[Guard], bool]:
    """The guards of this path, or of those below it."""
    return lambda guard: getattr(guard, "path", ())[: len(path)] == path


def of_kind(*kinds: type) -> Callable[[Guard], bool]:
    return lambda guard: isinstance(guard, kinds)


# -- stores that lie --------------------------------------------------------------------------------------------------


def storing(change: Callable[[Write], Write | None]) -> Plant:
    """The stores carry out each write as changed by `change`. None: the store of the simulation only answers it."""
    return together(_storing(PastStore, change), _storing(DynamoStore, change))


def _storing(store: type, change: Callable[[Write], Write | None]) -> Plant:
    true: Any = store

    def written(self: Any, sent: Write) -> Item:
        changed = change(sent)
        if changed is None:
            before = next(iter(self.read_now(Keys([sent.key]))), None)
            if allows(sent, before):
                return after(before, sent) or {}
        return true_write(self, changed or sent)  # type: ignore[no-any-return]

    def written_each(self: Any, sent: Sequence[Write]) -> list[Outcome]:
        return true_each(self, [changed for each in sent if (changed := change(each))])  # type: ignore[no-any-return]

    def written_together(self: Any, sent: Sequence[Write]) -> None:
        true_together(self, [changed for each in sent if (changed := change(each))])

    true_write, true_each, true_together = true.write, true.write_each, true.write_together
    return patch.multiple(store, write=written, write_each=written_each, write_together=written_together)


def forgetting(chosen: Chosen) -> Plant:
    """The store answers these writes, and does not carry them out."""
    return storing(lambda write: None if chosen(write) else write)


def unguarded(chosen: Chosen, ignored: Callable[[Guard], bool] = lambda _: True, landed: bool = True) -> Plant:
    """The store does not look at these guards of these writes. `landed`: but knows repeats."""
    return storing(lambda write: without(write, ignored, landed) if chosen(write) else write)


def without(write: Write, ignored: Callable[[Guard], bool], landed: bool = True) -> Write:
    guards = tuple(guard for guard in write.guards if not ignored(guard))
    return replace(write, guards=guards, landed=write.landed if landed else never_landed)


def with_effects(chosen: Chosen, change: Callable[[Effect], Effect | None]) -> Plant:
    """The store makes other effects of those of these writes. None: it leaves one out."""

    def changed(write: Write) -> Write:
        return replace(write, effects=tuple(made for effect in write.effects if (made := change(effect))))

    return storing(lambda write: changed(write) if chosen(write) else write)


def leaving_out(chosen: Chosen, *paths: Path) -> Plant:
    """The store does not carry out these effects of these writes."""

    def changed(effect: Effect) -> Effect | None:
        return effect if isinstance(effect, RemoveItem) or effect.path not in paths else None

    return with_effects(chosen, changed)


def with_leases(chosen: Chosen, change: Callable[[str, list[Any]], list[Any] | None]) -> Plant:
    """The store makes other leases of those that these writes set: `change` gets the token of each, and what is listed
    of it: start (0 for a new claim), count, deadline, attempt. None: the lease is left out."""

    def changed(effect: Effect) -> Effect | None:
        if isinstance(effect, RemoveItem) or effect.path[0] != "leases" or len(effect.path) < 2:
            return effect
        token = str(effect.path[1])
        if isinstance(effect, Append) and effect.onto:
            listed = change(token, [0, *effect.elements])
            return replace(effect, elements=listed[1:]) if listed else None
        if isinstance(effect, Set) and isinstance(effect.value, list):
            listed = change(token, [*effect.value])
            return replace(effect, value=listed) if listed else None
        return effect

    return with_effects(chosen, changed)


def setting(kind: str, name: str, value: Callable[[Any], Any] = lambda _: None) -> Plant:
    """The store keeps another value of this setting of a topic or a group. None: none."""

    def changed(effect: Effect) -> Effect | None:
        if not isinstance(effect, Set) or effect.path != (name,):
            return effect
        kept = value(effect.value)
        return None if kept is None else replace(effect, value=kept)

    return with_effects(lambda write: write.key.sk == keys.SETTINGS and within(kind)(write), changed)


def kept_apart(chosen: Chosen, in_turn: Callable[[Sequence[Write]], Sequence[Write]] = lambda writes: writes) -> Plant:
    """A transaction with such a write is written one item after another."""
    true = FaultyStore.write_together

    def written(self: FaultyStore, writes: Sequence[Write]) -> None:
        if any(map(chosen, writes)):
            for write in in_turn(writes):
                self.write(write)
        else:
            true(self, writes)

    return patch.object(FaultyStore, "write_together", written)
