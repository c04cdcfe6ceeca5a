"""Makes, changes, lists and deletes topics."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from chalicelib.core.base.errors import InvalidField, StoreUnavailable, TopicNotFound
from chalicelib.core.base.limits import EXPIRED_KEPT_MS, PAGE_MAX, PURGE_MS, SECOND_MS
from chalicelib.core.catalogue import topic
from chalicelib.core.catalogue.agenda import ALWAYS_MS, CHECK
from chalicelib.core.catalogue.catalogue import Env
from chalicelib.core.catalogue.group import Group
from chalicelib.core.catalogue.topic import AUTO, Topic, unbury
from chalicelib.core.cursors.progress import QueueOffsets
from chalicelib.core.log import segment
from chalicelib.core.log.payloads import Payloads
from chalicelib.core.log.reader import Offsets
from chalicelib.core.log.segment import Entry, Segment
from chalicelib.core.store import Keys, Range, found_items, raise_trouble
from chalicelib.core.store.paging import page, token_of
from chalicelib.core.table import keys
from chalicelib.core.table.writes import Item, Refused, Write, key_of

if TYPE_CHECKING:
    from chalicelib.core.admin.draining import Draining


# -- deletion ---------------------------------------------------------------------------------------------------------

_PAGE = 100

_SPANS_MAX = 256
"""Partitions read at once."""

_Span = tuple[str, str, str]
"""A partition, and the first and last sort key."""


class Deletion:
    """Removes the remains of deleted topics and groups, also from the instance's caches. They are already unreachable,
    so this only saves cost."""

    def __init__(self, env: Env, payloads: Payloads) -> None:
        self._store, self._runtime, self._payloads = env.store, env.runtime, payloads
        self._caches = env.caches

    def group(self, group: Group, queues: int, until_ms: int) -> None:
        """Removes a deleted group's alarm, window, cursors, retries and dead letters, while there is time."""
        self._caches.forget(group.key.pk)
        settings = {group.alarm_key: group.alarm, group.window_key: group.rate_limit}
        if beside := [key for key, setting in settings.items() if setting is not None]:
            self._store.remove_all(beside)
        if self._emptied(group.topic_id, keys.cursors(group.topic_id, group.name, group.id, queues), until_ms):
            self._emptied(group.topic_id, _beside_cursors(group.topic_id, group.id, queues), until_ms)

    def topic(self, topic: Topic, until_ms: int) -> bool:
        """Removes the remains of a deleted topic: its groups, its delayed messages, the content of its log, and last
        its grave, which records the remains left at `until_ms`. Returns whether everything was removed.

        The logs are closed first, so that an instance with a cached topic stores nothing in them."""
        self._caches.forget(topic.id, topic.name)
        self._close(topic)
        queues = range(topic.most)
        waiting = [pk(topic.id, queue) for queue in queues for pk in (keys.delays, keys.decisions)]
        waiting.append(keys.transactions(topic.id))
        is_done = (
            self._groups(topic, until_ms)
            and self._emptied(topic.id, [_whole(pk) for pk in waiting] if topic.delays else [], until_ms)
            and self._empty_logs(topic, until_ms)
        )
        if is_done:
            self._store.write(unbury(topic))
        return is_done

    def _close(self, topic: Topic) -> None:
        """Closes the log of each queue at its end."""
        reads = [Range(*_whole(log), limit=1, descending=True, strong=True) for log in topic.logs]
        newest = [items[0] if items else None for items in self._store.read(reads)]
        segments = dict(zip(topic.logs, newest, strict=True))
        while closing := {log: write for log, item in segments.items() if (write := self._closing(log, item))}:
            outcomes = self._store.write_each([*closing.values()])
            segments = dict(zip(closing, found_items(outcomes), strict=True))

    def _closing(self, log: str, newest: Item | None) -> Write | None:
        """The write that closes a log with this newest segment, or None if it is closed for good."""
        last = Segment.of(newest) if newest else None
        if last is None or not last.is_closed:
            base = 0 if last is None else last.end if last.is_sealed else last.base
            return segment.close(log, base, self._ttl())
        return None if last.left is None else segment.close_left(last, self._ttl())

    def _empty_logs(self, topic: Topic, until_ms: int) -> bool:
        """Empties the segments and deletes the payloads. The empty segments stay for a day, so that a writer with an
        old position still reaches the closed end. False: out of time."""
        spans = [_whole(log) for log in topic.logs]
        while spans and self._runtime.uptime() <= until_ms:
            pages = self._pages(spans)
            held = [segment for page in pages for segment in map(Segment.of, page) if segment.entries]
            self._payloads.remove(topic.id, [entry for segment in held for entry in segment.entries])
            raise_trouble(
                self._store.write_each([segment.empty(filled, self._ttl()) for filled in held]) if held else []
            )
            spans = [
                (pk, f"{page[-1]['sk']}{keys.AFTER}", high)
                for (pk, _, high), page in zip(spans, pages, strict=True)
                if len(page) == _PAGE
            ]
        return not spans

    def _ttl(self) -> int:
        """When no caller can still write based on an older read of the log."""
        return (self._runtime.now() + EXPIRED_KEPT_MS) // SECOND_MS

    def _groups(self, topic: Topic, until_ms: int) -> bool:
        """Removes the groups of a deleted topic, some at a time. Each stays in the directory until it is removed
        entirely. False: out of time."""
        most = max(1, _SPANS_MAX // (topic.most + 2 + keys.page_of(topic.most)))
        while listed := self._pages([_whole(keys.groups(topic.id))])[0][:most]:
            spans: list[_Span] = []
            for item in listed:
                spans += map(_whole, keys.group_partitions(topic.id, item["sk"], topic.most))
                spans += _beside_cursors(topic.id, item["listed"], topic.most)
            if not self._emptied(topic.id, spans, until_ms):
                return False
            self._store.remove_all([key_of(item) for item in listed])
        return True

    def _emptied(self, topic_id: str, spans: Sequence[_Span], until_ms: int) -> bool:
        """Removes all items in these ranges, in parallel, with the payloads of delayed messages. False: out of time."""
        while spans and self._runtime.uptime() <= until_ms:
            pages = self._pages(spans)
            if items := [item for page in pages for item in page]:
                # payloads are found by their entries
                self._payloads.remove(topic_id, [Entry.of(item["entry"]) for item in items if "entry" in item])
                self._store.remove_all([key_of(item) for item in items])
            spans = [span for span, page in zip(spans, pages, strict=True) if len(page) == _PAGE]
        return not spans

    def _pages(self, spans: Sequence[_Span]) -> list[list[Item]]:
        """The first items of each range."""
        return self._store.read([Range(*span, limit=_PAGE, strong=True) for span in spans])


def _whole(pk: str) -> _Span:
    return pk, keys.FIRST, keys.LAST


def _beside_cursors(topic_id: str, group_id: str, queues: int) -> list[_Span]:
    """Retries and dead letters of a group."""
    retries = [keys.retry_partition(topic_id, group_id, queue) for queue in range(queues)]
    return [*map(_whole, retries), _whole(keys.dead_partition(topic_id, group_id))]


# -- topics -----------------------------------------------------------------------------------------------------------

_ID_CHARS = 8


class Topics:
    def __init__(self, env: Env, log_offsets: Offsets, deletion: Deletion, draining: Callable[[], Draining]) -> None:
        self._store, self._runtime = env.store, env.runtime
        self._catalogue, self._agenda, self._log_offsets = env.catalogue, env.agenda, log_offsets
        self._deletion, self._draining = deletion, draining
        self.ends_of = log_offsets.ends_of

    def put(self, name: str, given: Mapping[str, Any]) -> tuple[Topic, bool]:
        """Creates the topic, or changes the given settings. Returns it, and whether it is new. Raises InvalidField,
        QueuesDraining."""
        given = _numbered(given)
        made = Topic(name, self._runtime.name(_ID_CHARS), self._runtime.now(), **given)
        try:
            return self._put(made, given)
        finally:
            self._catalogue.forget(name)  # a check of draining queues may have cached the old one

    def _put(self, made: Topic, given: Mapping[str, Any]) -> tuple[Topic, bool]:
        while True:
            current = self._existing(made)
            if current is None:
                return made, True
            if current.draining and given.get("queues", 0) > current.queues:
                with suppress(TopicNotFound):  # deleted since it was read: the next write creates it
                    current = self._draining().finished(current)
            if all(getattr(current, field) == value for field, value in given.items()):
                return current, False
            if given.get("queues", current.queues) < current.queues:
                self._agenda.appoint(CHECK, made.name, ALWAYS_MS)
            with suppress(Refused):  # another caller changed or deleted it since it was read
                return Topic.of(self._store.write(topic.change(current, given, self._runtime.now()))), False

    def _existing(self, made: Topic) -> Topic | None:
        """The existing topic of this name, or None: this one was created. Settings that are invalid for a new topic may
        be valid for an existing one."""
        try:
            creation = topic.create(made)
        except InvalidField as unfit:
            items = self._store.read([Keys([made.key], strong=True)])[0]
            if not items:
                raise unfit from None
            return Topic.of(items[0])
        try:
            self._store.write_together(creation)
        except Refused as refused:
            return Topic.of(refused.before)
        return None

    def offsets(self, topic: Topic) -> list[QueueOffsets]:
        firsts, ends = self._log_offsets.firsts(topic, self._runtime.now()), self._log_offsets.ends(topic)
        return [QueueOffsets(queue, *offsets) for queue, offsets in enumerate(zip(firsts, ends, strict=True))]

    def names(self, limit: int, token: str | None) -> tuple[list[str], str | None]:
        """Up to `limit` names of topics, in order, and the token of the next page (None: no more topics)."""
        items, rest = page(self._store, keys.topics(), limit, token)
        return [item["sk"] for item in items], rest

    def page(
        self, limit: int, token: str | None, is_shown: Callable[[str], bool] = lambda _: True
    ) -> tuple[Sequence[Topic], str | None]:
        """Up to `limit` topics that the caller may see, and the token of the next page (None: no more topics). The
        token names a topic, so it must be one that the caller may see."""
        names, rest = self.names(limit, token)
        shown = [*filter(is_shown, names)]
        while rest is not None and len(shown) < limit:
            names, rest = self.names(PAGE_MAX, rest)
            shown += filter(is_shown, names)
        if len(shown) > limit or rest is not None:
            rest = token_of(shown[limit - 1])
        return self._catalogue.topics_named(shown[:limit]), rest

    def delete(self, deleted: Topic) -> None:
        """Deletes the topic, which makes all items under its id unreachable, and then as many of its remains as time
        and the store allow; the grave records the rest."""
        current = deleted
        while current.id == deleted.id:
            self._catalogue.forget(deleted.name)
            try:
                self._store.write_together(topic.remove(current))
                break
            except Refused:  # another caller changed or deleted it since it was read
                try:
                    current = self._catalogue.current_topic(deleted.name)
                except TopicNotFound:
                    return
        if current.id == deleted.id:
            with suppress(StoreUnavailable):
                self._deletion.topic(current, self._runtime.uptime() + PURGE_MS)


def _numbered(given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings with a number of queues, or none if the topic chooses it."""
    if "queues" not in given:
        return {**given}
    rest = {name: value for name, value in given.items() if name != "queues"}
    queues = given["queues"]
    return {**rest, "queues_auto": True} if queues == AUTO else {**rest, "queues": queues, "queues_auto": False}
