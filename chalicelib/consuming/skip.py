"""Tells of the messages ahead which ones a group is to be given: those that it wants, and that have not expired."""

from __future__ import annotations

from dataclasses import replace

from chalicelib.base.limits import ENTRY_LATE_MS, MIB, PASSED_AT_ONCE_MAX
from chalicelib.base.runtime import Runtime
from chalicelib.consuming.claim_plan import Pick
from chalicelib.consuming.view import View, want
from chalicelib.cursors.cursor import Cursor
from chalicelib.log import Log
from chalicelib.log.reader import entries, within_reach

SIFTED_BYTES_MAX = 8 * MIB
"""Bytes read at once to apply a group's filter."""

_GROWTH = 4
"""How much further the skipper looks each time that it has not found enough."""


class Skipper:
    def __init__(self, runtime: Runtime, log: Log) -> None:
        self._runtime = runtime
        self._reader, self._log_offsets = log.reader, log.offsets

    def sift(self, view: View, queue: int, cursor: Cursor, picked: Pick) -> Pick:
        """The same, with as many fresh messages that the group is to be given, as far as they are found among the next
        `PASSED_AT_ONCE_MAX`, and with those between them and behind them, which are passed.

        Looks further ahead than the view did where it has to, and leaves what it read there."""
        self._look_back(view, queue, cursor, picked.fresh)
        if not picked.fresh or not (view.group.filter or self._expired(view, queue, cursor)):
            return picked
        ahead = max(picked.fresh, view.end(queue) - cursor.next)
        while True:
            offsets, wanted = self._sifted(view, queue, cursor)
            is_all = view.end(queue) - cursor.next < ahead or len(offsets) >= PASSED_AT_ONCE_MAX
            if len(wanted) >= picked.fresh or is_all or len(offsets) < view.end(queue) - cursor.next:
                return self._passing(view, queue, cursor, picked, offsets, wanted)
            ahead = min(_GROWTH * ahead, PASSED_AT_ONCE_MAX)
            self.look_on(view, queue, cursor, ahead)

    def look_on(self, view: View, queue: int, cursor: Cursor, count: int) -> None:
        """Reads the log from where the cursor is now."""
        view.cursors[queue] = cursor
        view.chains[queue] = self._reader.chains([want(view.topic, queue, cursor, count)])[0]

    def _look_back(self, view: View, queue: int, cursor: Cursor, count: int) -> None:
        """A log that begins behind the cursor has lost what lies between, or was read for the cursor before a reset."""
        if count and _begins_behind(view, queue, cursor):
            self.look_on(view, queue, cursor, count)

    def _expired(self, view: View, queue: int, cursor: Cursor) -> bool:
        """Whether something ahead has expired, or is gone already."""
        expired_ms = view.topic.expired_ms(self._runtime.now())
        return _begins_behind(view, queue, cursor) or any(
            entry.stored_at_ms <= expired_ms and first + entry.count > cursor.next
            for first, entry in entries(view.chains[queue])
        )

    def _sifted(self, view: View, queue: int, cursor: Cursor) -> tuple[range, list[int]]:
        """The offsets looked at, and those of them that the group is to be given."""
        chain = view.chains[queue]
        expired_ms = view.topic.expired_ms(self._runtime.now())
        offsets = range(cursor.next, min(view.end(queue), cursor.next + PASSED_AT_ONCE_MAX))
        fresh = [
            offset
            for first, entry in entries(chain)
            for offset in range(max(first, offsets.start), min(first + entry.count, offsets.stop))
            if entry.stored_at_ms > expired_ms
        ]
        if view.group.filter is None:
            return offsets, fresh
        reached = within_reach(chain, fresh, SIFTED_BYTES_MAX)
        if len(reached) < len(fresh):
            offsets = range(offsets.start, reached[-1] + 1)
        stored = self._reader.stored(view.topic, queue, chain, reached)
        wanted: list[int] = []
        for each in stored:
            if each.message.is_lost or view.group.filter.wants(each.message):
                wanted.append(each.offset)
            if view.is_sifted_enough(self._runtime.uptime()):
                return range(offsets.start, each.offset + 1), wanted
        return offsets, wanted

    def _passing(self, view: View, queue: int, cursor: Cursor, picked: Pick, offsets: range, wanted: list[int]) -> Pick:
        """Up to the last message taken; or, when there are not enough, everything looked at."""
        taken = wanted[: picked.fresh]
        if not taken and len(offsets) == PASSED_AT_ONCE_MAX and self._expired(view, queue, cursor):
            return self._past_expired(view, queue, cursor, picked)
        stop = taken[-1] + 1 if len(taken) == picked.fresh else offsets.stop
        kept = set(taken)
        passed = [offset - cursor.next for offset in range(cursor.next, stop) if offset not in kept]
        return replace(picked, fresh=stop - cursor.next, passed=passed)

    def _past_expired(self, view: View, queue: int, cursor: Cursor, picked: Pick) -> Pick:
        """To where nothing before can be unexpired, however far that is; at least what was looked at. An entry may have
        come late, and be older than those before it: the search could take it for their age too."""
        unexpired_ms = view.topic.expired_ms(self._runtime.now()) + 1
        first = self._log_offsets.surely_older(view.topic, queue, unexpired_ms - ENTRY_LATE_MS)
        count = max(PASSED_AT_ONCE_MAX, first - cursor.next)
        return replace(picked, fresh=count, passed=range(count))


def _begins_behind(view: View, queue: int, cursor: Cursor) -> bool:
    """Whether what was read of the log begins behind the cursor's next message."""
    chain = view.chains[queue]
    return bool(chain) and chain[0].base > cursor.next
