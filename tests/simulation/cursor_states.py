"""Checks of every state of a cursor that the store has seen, for promises that callers cannot observe. They run when
the history is over."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import groupby
from typing import NamedTuple

from chalicelib.core.catalogue.topic import Topic
from chalicelib.core.cursors.cursor import Cursor
from chalicelib.core.cursors.lease import Lease
from chalicelib.core.log.segment import Entry
from chalicelib.core.table import keys
from chalicelib.core.table.keys import queue_of
from chalicelib.core.table.writes import Key
from tests.history.facts import Place, Sent
from tests.history.history import History
from tests.simulation.faulty_store import PastStore

RECOVERED_MS = 2_500
"""After this time a drained queue takes messages again, even with stale reads."""
UNSEEN_MS = 2_000
"""How long a caller may not know new groups."""

Versions = list[tuple[Key, int, Cursor]]


def remember(store: PastStore, topic: Topic, history: History) -> None:
    of_groups = (version for version in store.versions("leases") if version[0].pk.split("#")[1] == topic.id)
    versions = [(key, since_ms, Cursor.of(item)) for key, since_ms, item in of_groups]
    history.appended_ms = _appended_ms(store, topic)
    history.passed = list(_passed(store, topic, versions, history))
    history.given_back = set(_given_back(versions))
    history.crowded = list(_crowded(versions, history))
    history.overlooked = list(_overlooked(versions, history.aside_max))
    if topic.max_depth and history.are_all_answered:
        history.overfull = list(_overfull(store, topic, versions, history))


def _appended_ms(store: PastStore, topic: Topic) -> dict[Place, int]:
    appended_ms: dict[Place, int] = {}
    for key, since_ms, item in store.versions("entries"):
        queue, first = int(key.pk.split("#")[2]), keys.number_of(key.sk)
        if key.pk not in topic.logs:
            continue
        held = sum(Entry.of(entry).count for entry in item["entries"])
        for offset in range(max(first, item["end"] - held), item["end"]):
            appended_ms.setdefault((queue, offset), since_ms)
    return appended_ms


def _passed(store: PastStore, topic: Topic, versions: Versions, history: History) -> Iterator[str]:
    ends: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for key, since, item in store.versions("entries"):
        ends[key.pk].append((since, item["end"]))
    if (history.log and not ends) or (history.delivered and not versions):
        yield f"saw {len(ends)} logs and {len(versions)} cursors in the store, which had some"
    for key, at, cursor in versions:
        log = topic.logs[queue_of(key)]
        end = max((end for since, end in ends.get(log, ()) if since <= at), default=0)
        if cursor.next > end:
            yield f"{key.sk} stood at {cursor.next} at {at}, the log ended at {end}"


def _overfull(store: PastStore, topic: Topic, versions: Versions, history: History) -> Iterator[str]:
    """A caller knows the ends that its own earlier calls saw, and can know of no group that it settled more than it
    ever had. A refusal is wrong if no queue was full, even by settlements a while before."""
    most, settled = topic.max_depth or 0, _settled(topic, versions, history)
    ends: dict[int, list[tuple[int, int]]] = {queue: [(0, 0)] for queue in range(topic.queues)}
    for key, since, item in sorted(store.versions("entries"), key=lambda version: version[1]):
        ends[topic.logs.index(key.pk)].append((since, max(item["end"], ends[topic.logs.index(key.pk)][-1][1])))
    seen = [(sent, *sent.place) for sent in history.sent if sent.place]
    for sent, queue, _ in seen:
        if sent.began_ms < topic.created_at_ms + UNSEEN_MS:
            continue
        own = (other for other, of, _ in seen if of == queue and _is_earlier(other, sent))
        end = max((other.place[1] + 1 for other in own if other.place), default=0)
        best = min(max(_until(sent.at_ms, marks)) for (of, _), marks in settled.items() if of == queue)
        if end - best >= most:
            yield f"{sent.body} went to queue {queue}, that its caller knew to end at {end}; {best} were settled"
    for sent in history.sent:
        depths = (
            _until(sent.at_ms, ends[queue])[-1] - _until(sent.began_ms - RECOVERED_MS, marks)[-1]
            for (queue, _), marks in settled.items()
        )
        if sent.is_refused and all(depth < most for depth in depths):
            yield f"{sent.body} was refused at {sent.at_ms}, and no queue was full"


def _settled(topic: Topic, versions: Versions, history: History) -> dict[tuple[int, str], list[tuple[int, int]]]:
    """By queue and group, the lowest offset that is not settled, and since when."""
    settled = {(queue, group): [(0, 0)] for queue in range(topic.queues) for group in history.rules}
    for key, since, cursor in versions:
        if marks := settled.get((queue_of(key), _group(key))):
            marks.append((since, cursor.committed(bool(history.rules[_group(key)].ordered))))
    return settled


def _until(ms: int, marks: list[tuple[int, int]]) -> list[int]:
    return [value for since, value in marks if since <= ms]


def _is_earlier(other: Sent, sent: Sent) -> bool:
    """Whether the same producer had the answer before."""
    return other.at_ms <= sent.began_ms and other.body.split("-")[0] == sent.body.split("-")[0]


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
            for change, count in _claims(list(of_one), history.off_ms):
                if count > rules.max_in_flight:
                    yield (
                        f"{_group(key)} had {count} in flight in queue {queue_of(key)} at {change.at_ms},"
                        f" over {rules.max_in_flight}"
                    )
                    break


def _overlooked(versions: Versions, aside_max: int) -> Iterator[str]:
    for key, at_ms, cursor in versions:
        if (aside := cursor.aside) > aside_max:
            yield f"{_group(key)} had {aside} messages set aside in queue {queue_of(key)} at {at_ms}, over {aside_max}"


def _changes(versions: Versions) -> Iterator[_Change]:
    """`versions`: of one cursor."""
    for (_, _, before), (_, at_ms, after) in zip(versions, versions[1:], strict=False):
        yield _Change(before, at_ms, after)


def _claims(versions: Versions, off_ms: int) -> Iterator[tuple[_Change, int]]:
    """Each claim, and how many messages were in flight after it, by whichever clock.

    A lease that had run out before its holder extended it does not count: that needs no room, and takes none from
    those who have claimed since."""
    counted: set[str] = set()
    for change in _changes(versions):
        until_ms = change.at_ms + off_ms
        held = {offset for lease in _running(change.before, counted, until_ms) for offset in lease.owed_offsets}
        counted -= set(_prolonged(change, until_ms))
        counted |= {lease.token for lease in change.new if change.is_claim or held.issuperset(lease.owed_offsets)}
        if change.is_claim:
            running = _running(change.after, counted, until_ms)
            yield change, len({offset for lease in running for offset in lease.owed_offsets})


def _prolonged(change: _Change, until_ms: int) -> Iterator[str]:
    """The leases that had run out before somebody extended them in place."""
    for token, lease in change.before.leases.items():
        after = change.after.leases.get(token)
        if after and lease.deadline <= until_ms < after.deadline and after.start == lease.start:
            yield token


def _running(cursor: Cursor, counted: set[str], until_ms: int) -> list[Lease]:
    owing = (lease for lease in cursor.owing if lease.token in counted and not lease.parked)
    return [lease for lease in owing if lease.deadline > until_ms]


def _group(key: Key) -> str:
    return key.pk.split("#")[2]
