"""Administration of topics: creates, changes and deletes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from chalicelib.core.admin.deletion import Deletion
from chalicelib.core.base.errors import InvalidField, StoreUnavailable, TopicNotFound
from chalicelib.core.base.limits import PAGE_MAX, PURGE_MS
from chalicelib.core.catalogue import topic
from chalicelib.core.catalogue.agenda import ALWAYS_MS, CHECK
from chalicelib.core.catalogue.catalogue import Env
from chalicelib.core.catalogue.topic import AUTO, Topic
from chalicelib.core.cursors.progress import QueueOffsets
from chalicelib.core.log.reader import Offsets
from chalicelib.core.store import Keys
from chalicelib.core.store.paging import page, token_of
from chalicelib.core.table import keys
from chalicelib.core.table.writes import Refused

if TYPE_CHECKING:
    from chalicelib.core.admin.draining import Draining

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
