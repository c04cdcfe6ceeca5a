"""Bugs planted into dead letters, their moves, and messages that cannot be read."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from chalicelib.core.catalogue.topic import DELAYS
from chalicelib.core.consuming.settle import Settler
from chalicelib.core.dead_letters.queue import DeadLetterQueue
from chalicelib.core.table.writes import Add, Effect, Equals, Key, Set, Write
from tests.history import deaths, drains, moves
from tests.simulation.bugs.cursors import ATTEMPT
from tests.simulation.bugs.lies import (
    Plant,
    calling,
    changes,
    kept_apart,
    of_cursors,
    storing,
    unguarded,
    with_effects,
    with_leases,
    within,
)
from tests.simulation.bugs.registry import shown_by
from tests.simulation.faulty_store import NONE, FaultyStore
from tests.simulation.plans import GRAVES, LOSSES, MOVED, NAMED, REMOVED, RETURNED, UNREADABLE

_PROLONGED = replace(
    NAMED,
    settle_by="message",
    max_attempts=1,
    messages=40,
    consumers=6,
    meddlers=6,
    pops=12,
    faults=replace(NONE, stale=0.3, stale_ms_max=500, latency_ms_max=200),
)


@shown_by(deaths.dead_letters_are_counted, GRAVES)
def purges_that_do_not_count() -> Plant:
    """The letters go, but the cursor still counts them."""

    def uncounted(effect: Effect) -> Effect:
        is_less = isinstance(effect, Add) and effect.path == ("dead",) and effect.amount < 0
        return Add(("dead",), 0) if is_less else effect

    return with_effects(of_cursors, uncounted)


@shown_by(deaths.purged_dead_letters_are_gone, GRAVES)
def purges_that_do_nothing() -> Plant:
    """A purge succeeds, and removes nothing."""
    return calling(DeadLetterQueue, "purge", lambda *_: 0)


@shown_by(deaths.undelivered_messages_do_not_die, replace(UNREADABLE, max_attempts=1))
def leases_that_count_though_nobody_read_them() -> Plant:
    """An attempt counts although its messages could not be read."""
    return with_leases(
        of_cursors, lambda _, listed: [*listed[:ATTEMPT], max(1, listed[ATTEMPT]), *listed[ATTEMPT + 1 :]]
    )


@shown_by(deaths.only_lost_messages_die_as_lost)
def payloads_after_their_pointers() -> Plant:
    """A payload is stored a while after its entry."""

    def put_all(true: Any, self: FaultyStore, items: Any) -> None:
        self._scheduler.spawn(lambda: self._inner.put_all(items), 500)

    return calling(FaultyStore, "put_all", put_all)


@shown_by(deaths.extended_messages_do_not_expire, _PROLONGED)
def burials_that_miss_extensions() -> Plant:
    """A message dies of the end of its lease although that was extended in place since it was seen."""
    return unguarded(
        lambda write: of_cursors(write) and changes(write, "dead"),
        lambda guard: isinstance(guard, Equals) and len(guard.path) == 3,
    )


@shown_by(moves.a_dead_message_is_in_one_place, MOVED)
def moves_in_two_writes() -> Plant:
    """A message is stored in the topic, and leaves its lease after: a caller that hears nothing stores it again."""
    return kept_apart(of_cursors, lambda writes: writes[::-1])


@shown_by(moves.a_dead_message_is_in_one_place, replace(REMOVED, removals=8))
def moves_into_what_is_gone() -> Plant:
    """A move checks an item that always exists instead of the topic."""

    def elsewhere(write: Write) -> Write:
        is_look = within("topic")(write) and write.effects == (Set((DELAYS,), True),)
        return replace(write, key=Key("nowhere", write.key.pk), guards=()) if is_look else write

    return storing(elsewhere)


@shown_by(drains.no_message_is_lost, LOSSES)
def losses_that_are_settled_silently() -> Plant:
    """A message whose payload is gone counts as acked."""

    def give_up(_: Any, self: Settler, topic: Any, group: Any, batches: Any, _reason: str) -> None:
        self.acknowledge(topic, group.name, batches)

    return calling(Settler, "give_up", give_up)


@shown_by(moves.what_tasks_move_comes_once, RETURNED)
def tasks_that_move_in_two_writes() -> Plant:
    """A move stores a message at its destination, and removes it from the dead-letter queue later."""
    return kept_apart(within("moves"), lambda writes: writes[::-1])
