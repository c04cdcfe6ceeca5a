"""Checks of every state of a cursor that the store has seen, for promises that callers cannot observe. They run when
the history is over."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import groupby
from typing import NamedTuple

from chalicelib.catalogue.topic import Topic
from chalicelib.cursors.cursor import Cursor
from chalicelib.cursors.lease import Lease
from chalicelib.table.keys import queue_of
from chalicelib.table.writes import Item, Key
from tests.history import checker
from tests.history.facts import History, Place
from tests.simulation.faulty_store import PastStore

Versions = list[tuple[Key, int, Item]]


def remember(store: PastStore, topic: Topic, history: History) -> None:
    versions = list(store.versions("leases"))
    history.passed = list(_passed(store, topic, versions, history))
    history.given_back = set(_given_back(versions))
    history.crowded = list(_crowded(versions, history))


def _passed(store: PastStore, topic: Topic, versions: Versions, history: History) -> Iterator[str]:
    ends: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for key, since, item in store.versions("entries"):
        ends[key.pk].append((since, item["end"]))
    if (history.log and not ends) or (history.delivered and not versions):
        yield f"saw {len(ends)} logs and {len(versions)} cursors in the store, which had some"
    for key, at, cursor in versions:
        log = topic.logs[queue_of(key)]
        end = max((end for since, end in ends.get(log, ()) if since <= at), default=0)
        if cursor["next"][0] > end:
            yield f"{key.sk} stood at {cursor['next'][0]} at {at}, the log ended at {end}"


def _given_back(versions: Versions) -> Iterator[tuple[str, Place]]:
    """Messages in leases of no attempt, which a pop made that could not read them. A redrive makes such leases too."""
    for key, of_one in groupby(versions, key=lambda version: version[0]):
        for change in _changes(list(of_one)):
            for lease in change.new if not change.is_redrive else ():
                if not lease.attempt:
                    yield from ((_group(key), (queue_of(key), offset)) for offset in lease.owed_offsets)


class _Change(NamedTuple):
    """One change of a cursor: its state before, the time, and its state after."""

    before: Cursor
    at_ms: int
    after: Cursor

    @property
    def is_claim(self) -> bool:
        return self.after.claims > self.before.claims

    @property
    def is_redrive(self) -> bool:
        return bool(self.new) and self.after.dead < self.before.dead

    @property
    def new(self) -> list[Lease]:
        return [lease for token, lease in self.after.leases.items() if token not in self.before.leases]


def _crowded(versions: Versions, history: History) -> Iterator[str]:
    """Claims that left more in flight than allowed, at the instants when the store carried them out."""
    for key, of_one in groupby(versions, key=lambda version: version[0]):
        if rules := history.rules.get(_group(key)):
            for change, count in _claims(list(of_one)):
                if count > rules.max_in_flight:
                    yield (
                        f"{_group(key)} had {count} in flight in queue {queue_of(key)} at {change.at_ms},"
                        f" over {rules.max_in_flight}"
                    )
                    break


def _changes(versions: Versions) -> Iterator[_Change]:
    """`versions`: of one cursor."""
    for (_, _, before), (_, at_ms, after) in zip(versions, versions[1:], strict=False):
        yield _Change(Cursor.of(before), at_ms, Cursor.of(after))


def _claims(versions: Versions) -> Iterator[tuple[_Change, int]]:
    """Each claim, and how many messages were in flight after it, by whichever clock.

    A lease that had run out before its holder extended it does not count: that needs no room, and takes none from
    those who have claimed since."""
    counted: set[str] = set()
    for change in _changes(versions):
        until_ms = change.at_ms + checker.SKEW_MS // 2
        held = {offset for lease in _running(change.before, counted, until_ms) for offset in lease.owed_offsets}
        counted |= {lease.token for lease in change.new if change.is_claim or held.issuperset(lease.owed_offsets)}
        if change.is_claim:
            running = _running(change.after, counted, until_ms)
            yield change, len({offset for lease in running for offset in lease.owed_offsets})


def _running(cursor: Cursor, counted: set[str], until_ms: int) -> list[Lease]:
    owing = (lease for lease in cursor.owing if lease.token in counted and not lease.parked)
    return [lease for lease in owing if lease.deadline > until_ms]


def _group(key: Key) -> str:
    return key.pk.rsplit("#", 1)[1]
