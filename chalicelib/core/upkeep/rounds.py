"""Iterates for the sweeps over pages of a partition, and the topics and groups that these name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain

from chalicelib.core.admin.groups import StoredGroup
from chalicelib.core.base.errors import StoreUnavailable
from chalicelib.core.catalogue.agenda import Appointment
from chalicelib.core.catalogue.catalogue import Env
from chalicelib.core.catalogue.group import Group
from chalicelib.core.catalogue.topic import Topic, is_readable
from chalicelib.core.cursors.cursor import joined, pages_of
from chalicelib.core.store import Keys, Range
from chalicelib.core.table import keys
from chalicelib.core.table.writes import Item, Set, Write


class Troubles:
    def __init__(self) -> None:
        self._met: list[StoreUnavailable] = []

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Collects a StoreUnavailable raised in the block."""
        try:
            yield
        except StoreUnavailable as trouble:
            self._met.append(trouble)

    def tell(self) -> None:
        """Raises the first collected error, if any."""
        if self._met:
            raise self._met[0]


_PAGE = 100
"""Topics or appointments read at once."""


class Rounds:
    """Iterates over partitions, a page at a time, and reads the topics and groups that they name. The next sweep
    continues where the time ran out."""

    def __init__(self, env: Env) -> None:
        self._store, self._runtime = env.store, env.runtime

    def pages(
        self, sweep: str, partitions: Sequence[str], until_ms: int, last: str = keys.LAST, every_ms: int = 0
    ) -> Iterator[list[Item]]:
        """Pages of items from where the last sweep of this name stopped, of all partitions side by side, up to the sort
        key `last` or until the time is over. A new round begins `every_ms` after the previous one. Concurrent sweeps
        repeat work harmlessly."""
        key = keys.sweep(sweep)
        noted = self._store.read([Keys([key])])[0]
        began = noted[0]["after"] if noted else ""
        after = began if began < last else ""  # an instance whose clock is ahead, or of another release, has noted it
        if noted and not began and self._runtime.now() < noted[0]["at"] + every_ms:
            return
        is_over = False
        while not is_over:
            for page, reached in self._side_by_side(partitions, after, last):
                if page:
                    yield page
                after = reached
                if is_over := not after or self._runtime.uptime() > until_ms:
                    break
        if every_ms or after != began:
            self._store.write(Write(key, (), (Set(("after",), after), Set(("at",), self._runtime.now()))))

    def _side_by_side(self, partitions: Sequence[str], after: str, last: str) -> Iterator[tuple[list[Item], str]]:
        """The next pages of all partitions together, and how far each goes; the empty string: to the end."""
        parts = self._store.read([Range(pk, after + keys.AFTER, last, limit=_PAGE) for pk in partitions])
        known_to = min((part[-1]["sk"] for part in parts if len(part) == _PAGE), default=last)
        items = sorted((item for part in parts for item in part if item["sk"] <= known_to), key=lambda item: item["sk"])
        for at in range(0, max(1, len(items)), _PAGE):
            page = items[at : at + _PAGE]
            is_end = known_to == last and at + _PAGE >= len(items)
            yield page, "" if is_end else page[-1]["sk"]

    def due(self, sweep: str, until_ms: int) -> Iterator[dict[str, list[Appointment]]]:
        """The appointments that are due now, by subject, a page at a time."""
        last = keys.due_until(self._runtime.now())
        for items in self.pages(sweep, keys.agendas(sweep), until_ms, last):
            by_subject: dict[str, list[Appointment]] = {}
            for appointment in map(Appointment.of, items):
                by_subject.setdefault(appointment.subject, []).append(appointment)
            yield by_subject

    def topics(self, names: Sequence[str]) -> dict[str, Topic]:
        """Those of these topics that exist. This and all later reads may be stale, since appointments that end are
        older than any stale read. Omits topics in another form: the daily round of the release that reads them makes
        their appointments again."""
        items = self._store.read([Keys([keys.topic(name) for name in dict.fromkeys(names)])])[0]
        return {topic.name: topic for topic in map(Topic.of, filter(is_readable, items))}

    def groups_of(self, topics: Sequence[Topic]) -> list[StoredGroup]:
        """All groups of these topics, possibly stale: two round trips, half a read unit per topic and page of a
        group."""
        listed = self._store.read([Range(keys.groups(topic.id), keys.FIRST, keys.LAST) for topic in topics])
        return self._groups(
            [(topic, item["sk"]) for topic, items in zip(topics, listed, strict=True) for item in items]
        )

    def groups_named(self, subjects: Sequence[str]) -> dict[str, StoredGroup]:
        """Those of these groups that exist, by subject."""
        named = [keys.named_in(subject) for subject in subjects]
        topics = self.topics([topic for topic, _ in named])
        groups = self._groups([(topics[topic], group) for topic, group in named if topic in topics])
        return {keys.subject(stored.topic.name, stored.group.name): stored for stored in groups}

    def _groups(self, named: Sequence[tuple[Topic, str]]) -> list[StoredGroup]:
        """Those of these groups that exist."""
        groups: list[StoredGroup] = []
        pages = [pages_of(topic, name) for topic, name in named]
        answers = self._store.read([*chain.from_iterable(pages)])
        for (topic, name), items in zip(named, joined(pages, answers), strict=True):
            settings = next((item for item in items if item["sk"] == keys.SETTINGS), None)
            if settings:
                groups.append(StoredGroup(topic, Group.of(topic.id, name, settings), items))
        return groups
