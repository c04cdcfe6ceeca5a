"""Looks from outside, past the faults: at the cursors while callers work, then at the messages that are left."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from types import TracebackType

from chalicelib.core.base.errors import StoreUnavailable
from chalicelib.core.base.limits import CHECKED_MAX, REPLY_WAIT_MS_MAX
from chalicelib.core.catalogue.topic import Topic
from chalicelib.core.consuming.request import Pop
from chalicelib.core.cursors.cursor import Cursor, cursors_of
from chalicelib.core.store import Range
from chalicelib.core.table import keys
from chalicelib.core.table.writes import Item
from chalicelib.service import Service
from tests.history.caller import Caller
from tests.history.facts import Place
from tests.history.history import History
from tests.history.requests import WAITING, RequestCaller
from tests.history.transactions import TransactionCaller
from tests.load.clock import now, sleep
from tests.load.exchanges import CHECK_AFTER_MS_MAX
from tests.load.journal import Journal

WATCH_SECONDS = 0.05

DRAIN_SECONDS = 20
"""After this time a missing message is lost. The longest lease and the longest retry take about a second."""

_CLOCKS_APART_MS = 500
_LEASE_MS = 60_000
_WAIT_MS = 100


class Outside:
    """A view of all groups of a topic that reads the store instead of the service's answers."""

    def __init__(self, service: Service, topic: str, groups: Sequence[str]) -> None:
        self._service = service
        self._name = topic
        self.groups = groups

    @property
    def topic(self) -> Topic:
        return self._service.env.catalogue.current_topic(self._name)

    def cursors(self, group: str) -> list[Cursor]:
        topic = self.topic
        settings = self._service.env.catalogue.group(topic, group)
        partitions = keys.group_partitions(topic.id, group, topic.most)
        return cursors_of(settings, topic, [item for partition in partitions for item in self._all(partition)])

    def ends(self) -> dict[int, int]:
        """By queue, including those that have left."""
        topic = self.topic
        return dict(enumerate(self._service.log.offsets.ends(topic, topic.most)))

    def has_waiting(self) -> bool:
        """Whether delayed messages are still to come."""
        return bool(self._service.delays.messages.page(self.topic, 1, None)[0])

    def _all(self, partition: str) -> list[Item]:
        return self._service.env.store.read([Range(partition, keys.FIRST, keys.LAST, strong=True)])[0]


class Watch:
    """Reads the cursors again and again. It reads the ends later: they can only have grown, so a cursor behind its
    log's end is no accident of reading."""

    def __init__(self, outside: Outside) -> None:
        self.passed: list[str] = []
        self._outside = outside
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def look(self) -> None:
        cursors = [each for group in self._outside.groups for each in enumerate(self._outside.cursors(group))]
        ends = self._outside.ends()
        for queue, cursor in cursors:
            end = ends[queue]
            if cursor.next > end:
                self.passed.append(f"{cursor.key.sk} stood at {cursor.next} at {now()}, the log ended at {end}")

    def _run(self) -> None:
        while not self._over.wait(WATCH_SECONDS):
            with suppress(StoreUnavailable):  # threads share the callers' instances, whose time-outs are short
                self.look()


def drain(service: Service, topic: Topic, group: str, outside: Outside, journal: Path) -> set[Place]:
    """Pops and acks until the group's cursors show that nothing is left. Returns the deliveries."""
    came: set[Place] = set()
    give_up_at = time.monotonic() + DRAIN_SECONDS
    with closing(Journal(journal)) as record:
        caller = Caller(service, topic, record, now, asks_for_topic=True)
        while time.monotonic() < give_up_at:
            got = caller.pop(group, Pop(256, _LEASE_MS, _WAIT_MS))
            if got:
                came |= {each.place for each in got}
                caller.ack(got)
            elif not outside.has_waiting() and _is_empty(outside.cursors(group), outside.ends()):
                break
    return came


def ask_at_last(service: Service, topic: Topic, history: History) -> None:
    """Asks for the reply to each request, once its time is over, and for undecided transactions, once they are due."""
    requester = RequestCaller(service, topic, history, now)
    transactor = TransactionCaller(service, topic, history, now)
    known = {fact.id: fact.body for fact in history.fetched if fact.id}
    known |= {got.correlation_id: got.body for got in history.delivered if got.correlation_id}
    for correlation_id, body in known.items():
        if requester.fetch(correlation_id, body, REPLY_WAIT_MS_MAX).outcome == WAITING:
            history.defects.append(f"{body} is still waited for")
    if not history.begun:
        return
    sleep(CHECK_AFTER_MS_MAX + _CLOCKS_APART_MS)
    history.last_check_ms, history.open_at_last = now(), set()
    while new := {checked.id for checked in transactor.check(CHECKED_MAX)} - history.open_at_last:
        history.open_at_last |= new


def _is_empty(cursors: Sequence[Cursor], ends: Mapping[int, int]) -> bool:
    return all(not cursor.owing and cursor.next >= ends[queue] for queue, cursor in enumerate(cursors))
