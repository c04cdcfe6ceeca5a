"""Looks at a group: reads its settings, cursors of its queues, and the logs of some of them from there on.

If the cached positions of the cursors are right, all of it takes one round trip. A log that cannot be read fails alone:
where a look at several queues takes too long, their logs are read one by one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from chalicelib.core.base import deadline
from chalicelib.core.base.errors import InvalidField, StoreUnavailable
from chalicelib.core.base.limits import HOP_MS_MIN, SECOND_MS
from chalicelib.core.catalogue.catalogue import Env
from chalicelib.core.catalogue.group import Group
from chalicelib.core.catalogue.group_forms import Steps
from chalicelib.core.catalogue.topic import Topic
from chalicelib.core.consuming.request import Pop
from chalicelib.core.consuming.view import FILTERING_MS, GroupView, QueueView, want
from chalicelib.core.consuming.waiters import WaitKey
from chalicelib.core.cursors import Cursors
from chalicelib.core.cursors.broadcast import ReadAgain, newest
from chalicelib.core.cursors.cursor import Cursor, completed, standing_cursors_of
from chalicelib.core.delays.promoter import Promoter, first_due
from chalicelib.core.log.reader import LogReader, SeenSegments, Want
from chalicelib.core.store import Keys, Range, Read
from chalicelib.core.table import keys
from chalicelib.core.table.writes import Item

UNKNOWN_ITEMS_MAX = 2 * keys.CURSORS_IN_PAGE
"""Items read of a page if the group's mode is unknown: the settings and the cursors of a clustering group, plus those
left by a deleted one of the same name."""
SETTINGS_AGE_MS_MAX = SECOND_MS // 2
"""How old the settings may be by which a pop goes that does not look into the page that holds them: the pops of a busy
group then do not share the key of that page."""
HURRY_MS = SECOND_MS // 2
"""How long a look at several queues takes before it reads their logs one by one. A healthy store takes a tenth."""
APART_MS = 4 * HURRY_MS
"""How long it then reads: the logs that are left are not looked at."""


class ViewReader:
    def __init__(self, env: Env, reader: LogReader, cursors: Cursors, promoter: Promoter) -> None:
        self._store, self._runtime = env.store, env.runtime
        self._catalogue, self._reader, self._promoter = env.catalogue, reader, promoter
        self._cursors, self._consumers = cursors.cache, cursors.consumers

    def read(
        self,
        topic: Topic,
        group_name: str,
        ask: Pop,
        looked_at: Sequence[int],
        strong: bool = False,
        is_patient: bool = False,
    ) -> GroupView:
        """The group now, in a broadcast group as this consumer has it, and up to `max_messages` ahead in each of these
        queues. `is_patient`: waits for each log for as long as the call may.

        Raises GroupNotFound, and InvalidField if a pop of a broadcast group lacks its `consumer_id`."""
        while True:
            try:
                return self._read(topic, group_name, ask, looked_at, strong, is_patient)
            except ReadAgain:
                strong = True

    def _read(
        self, topic: Topic, group_name: str, ask: Pop, looked_at: Sequence[int], strong: bool, is_patient: bool
    ) -> GroupView:
        at_ms, asked_at_ms = self._runtime.now(), self._runtime.uptime()
        known = self._catalogue.seen_group(topic, group_name)
        pages = _pages(topic, known, ask, looked_at)
        is_recent = self._catalogue.seen_group(topic, group_name, SETTINGS_AGE_MS_MAX) is not None and not strong
        of_group = _reads(topic, group_name, known, ask, pages, is_recent, strong)
        of_logs = self._reader.guess(self._guess(topic, known, ask, looked_at))
        of_delays = self._promoter.glances(topic, looked_at) if topic.delays else []
        is_hurried = not is_patient and len(looked_at) > 1
        answers = self._answers(of_group, [*of_logs, *of_delays], is_hurried)
        items = [item for answer in answers[: len(of_group)] for item in answer]
        is_told = 0 in pages or not is_recent
        group = self._group(topic, group_name, known, items, asked_at_ms) if known is None or is_told else known
        cursors = self._cursors_of(topic, group, known, items, ask, pages, strong)
        queues = self._views(topic, group, ask, cursors, at_ms)
        looked = [queues[queue] for queue in looked_at]
        self._read_logs(looked, of_logs, bool(of_delays), answers[len(of_group) :], is_hurried)
        if not is_told and any(view.would_create(at_ms) for view in looked):  # if the group is still there
            raise ReadAgain
        window = _window(group, items) if group.rate_limit else None
        return GroupView(topic, group, ask, queues, window, at_ms)

    def wait_key(self, topic: Topic, group_name: str, ask: Pop) -> WaitKey:
        """Where a pop waits. Before the group is known, each consumer is on its own."""
        known = self._catalogue.seen_group(topic, group_name)
        if known is None or known.is_broadcast:
            return WaitKey(topic.id, group_name, consumer_id=ask.consumer_id)
        return WaitKey(topic.id, group_name, zone=ask.zone)

    def promote(self, view: QueueView) -> None:
        """Promotes the first due messages of a queue, and reads them in its log, where a weak read may not see them
        yet."""
        self._promoter.promote(view.topic, view.queue)
        self.read_log(view, strong=True)

    def read_log(self, view: QueueView, strong: bool = False) -> None:
        """Raises StoreUnavailable."""
        view.saw(self._reader.chains([view.want(view.ask.max_messages)], strong=strong)[0])

    def _answers(self, of_group: Sequence[Read], beside: Sequence[Read], is_hurried: bool) -> list[list[Item]]:
        """The answers to all reads, or to those of the group alone, since others take too long."""
        if not is_hurried:
            return self._store.read([*of_group, *beside])
        try:
            with deadline.part_until(self._runtime.uptime() + HURRY_MS):
                return self._store.read([*of_group, *beside])
        except StoreUnavailable:
            return self._store.read(of_group)

    def _views(
        self, topic: Topic, group: Group, ask: Pop, cursors: Sequence[Cursor], at_ms: int
    ) -> dict[int, QueueView]:
        until_ms, steps = self._runtime.uptime() + FILTERING_MS, Steps()
        for cursor in cursors:
            self._cursors.keep(cursor.key, cursor)
        return {
            cursor.queue: QueueView(topic, group, cursor.queue, ask, cursor, [], until_ms, at_ms, steps=steps)
            for cursor in cursors
        }

    def _read_logs(
        self,
        views: Sequence[QueueView],
        of_logs: Sequence[Read],
        is_delaying: bool,
        answers: Sequence[Sequence[Item]],
        is_hurried: bool,
    ) -> None:
        """`answers`: to the reads of logs, and of delayed messages; none if these took too long."""
        seen, is_first = SeenSegments(), bool(answers) or not (of_logs or is_delaying)
        if answers:
            self._reader.learn(seen, of_logs, answers[: len(of_logs)])
            if is_delaying:
                for view, due_ms in zip(views, first_due(answers[len(of_logs) :]), strict=False):
                    view.waits_until_ms = due_ms
        if is_hurried:
            self._read_readable(views, seen, is_first)
        else:
            self._read_together(views, seen)

    def _read_together(self, views: Sequence[QueueView], seen: SeenSegments) -> None:
        chains = self._reader.chains([view.want(view.ask.max_messages) for view in views], seen)
        for view, chain in zip(views, chains, strict=True):
            view.saw(chain)

    def _read_readable(self, views: Sequence[QueueView], seen: SeenSegments, is_first: bool) -> None:
        """Reads the logs together, or one by one, and notes where that fails. `is_first`: nothing has failed yet."""
        now = self._runtime.uptime()
        if is_first:
            try:
                with deadline.part_until(now + HURRY_MS):
                    self._read_together(views, seen)
                return
            except StoreUnavailable:
                pass
        for view in views:
            view.trouble = StoreUnavailable("too many logs cannot be read")
            if self._runtime.uptime() < now + APART_MS:
                view.trouble = self._tried_alone(view, seen)

    def _tried_alone(self, view: QueueView, seen: SeenSegments) -> StoreUnavailable | None:
        try:
            with deadline.part_until(self._runtime.uptime() + HOP_MS_MIN):
                glances = self._promoter.glances(view.topic, [view.queue])
                if glances and view.waits_until_ms is None:
                    view.waits_until_ms = first_due(self._store.read(glances))[0]
                view.saw(self._reader.chains([view.want(view.ask.max_messages)], seen)[0])
        except StoreUnavailable as trouble:
            return trouble
        return None

    def _guess(self, topic: Topic, known: Group | None, ask: Pop, queues: Iterable[int]) -> list[Want]:
        if known is None:
            return []
        consumer = keys.consumer(ask.consumer_id) if known.is_broadcast and ask.consumer_id is not None else ""
        cached = [(queue, self._cursors.get(known.cursor_key(queue, consumer))) for queue in queues]
        return [want(topic, queue, cursor, ask.max_messages) for queue, cursor in cached if cursor]

    def _group(self, topic: Topic, name: str, known: Group | None, items: list[Item], asked_at_ms: int) -> Group:
        """The group's settings, read again before GroupNotFound is raised."""
        item = next((item for item in items if item["sk"] == keys.SETTINGS), None)
        if not item:
            return self._catalogue.group(topic, name)
        if known is None or (known.id, known.version) != (item["id"], item["version"]):
            known = Group.of(topic.id, name, item)
        self._catalogue.keep_group(known, asked_at_ms)
        return known

    def _cursors_of(
        self,
        topic: Topic,
        group: Group,
        known: Group | None,
        items: list[Item],
        ask: Pop,
        pages: Sequence[int],
        strong: bool,
    ) -> list[Cursor]:
        """The cursors of the queues in these pages, in a broadcast group those of this consumer. Raises ReadAgain."""
        queues = [queue for page in pages for queue in keys.queues_of(page, topic.readers)]
        if not group.is_broadcast:
            is_limited_anew = known is not None and 0 not in pages and group.rate_limit and not known.rate_limit
            if known and (known.is_broadcast or (0 not in pages and known.id != group.id) or is_limited_anew):
                raise ReadAgain
            return completed(group, queues, standing_cursors_of(group, items))
        if ask.consumer_id is None:
            raise InvalidField(
                f"field 'consumer_id' must be given, since group '{group.name}' is broadcast; it is null"
            )
        if known is None or known.id != group.id:
            raise ReadAgain
        own = completed(group, queues, standing_cursors_of(group, items), keys.consumer(ask.consumer_id))
        if topic.delays and not strong and newest(own) is None:
            raise ReadAgain  # it would begin as the settings say, which a purge may have changed
        return self._consumers.admit(group, ask.consumer_id, own, strong)


def _window(group: Group, items: list[Item]) -> Item | None:
    return next((item for item in items if item["sk"] == group.window_key.sk), None)


def _pages(topic: Topic, known: Group | None, ask: Pop, looked_at: Iterable[int]) -> list[int]:
    """The pages to read for a look at these queues. Where a consumer has cursors of its own, the newest of all tells
    whether it was forgotten; an attempt is repeated in whichever queue it took from."""
    if topic.readers <= keys.CURSORS_IN_PAGE:
        return [0]
    if ask.attempt_id is not None or (known and known.is_broadcast):
        return [*range(keys.page_of(topic.readers - 1) + 1)]
    pages = {keys.page_of(queue) for queue in looked_at}
    return sorted(pages if known else {0, *pages})


def _reads(
    topic: Topic, name: str, known: Group | None, ask: Pop, pages: Sequence[int], is_recent: bool, strong: bool
) -> list[Read]:
    """Settings and cursors. A broadcast group may have any number of cursors: only those of one consumer are read."""
    window = [known.window_key] if known and known.rate_limit else []
    if known and known.is_broadcast:
        settings = Keys([known.key, *window], strong)
        if ask.consumer_id is None:
            return [settings]
        own = keys.cursors(topic.id, name, known.id, topic.readers, keys.consumer(ask.consumer_id))
        return [settings, *(Range(*page, strong=strong) for page in own)]
    most = None if known else UNKNOWN_ITEMS_MAX
    partitions = [keys.group_partition(topic.id, name, page) for page in pages]
    beside = [] if 0 in pages else [*([] if is_recent else [keys.group(topic.id, name)]), *window]
    whole = [Range(pk, keys.FIRST, keys.LAST, most, descending=True, strong=strong) for pk in partitions]
    return [*whole, *([Keys(beside, strong)] if beside else [])]
