"""Skips the messages ahead that a group is not to be given: those that its filter does not match, those that have
expired, and those that waited while the group was purged."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from chalicelib.core.base.cache import BoundedCache, Caches
from chalicelib.core.base.limits import ENTRY_LATE_MS, MIB, PASSED_AT_ONCE_MAX
from chalicelib.core.base.message import Stored
from chalicelib.core.base.runtime import Runtime
from chalicelib.core.consuming.claim_plan import HeldBack, Pick
from chalicelib.core.consuming.view import QueueView
from chalicelib.core.log import Log
from chalicelib.core.log.reader import entries, within_reach
from chalicelib.core.table import keys

FILTERED_BYTES_MAX = 8 * MIB
"""Bytes read at once to apply a group's filter."""
VERDICTS_KEPT_MAX = 10_000
"""How many filter verdicts an instance keeps, some 300 bytes each. A second look at messages that may not be taken yet
takes no steps, and so reaches the messages behind them."""

AnyPick = TypeVar("AnyPick", bound=Pick)

GROWTH = 4
"""How much further to read each time that too few messages were found."""


class Skipper:
    def __init__(self, runtime: Runtime, caches: Caches, log: Log) -> None:
        self._runtime = runtime
        self._reader, self._log_offsets = log.reader, log.offsets
        self._verdicts: BoundedCache[bool] = caches.bounded(lambda place, _: keys.owners(place[2]), VERDICTS_KEPT_MAX)
        """Verdicts of filters, by the group, its version, the log and the offset: a message never changes."""

    def skip(self, view: QueueView, picked: Pick) -> Pick:
        """Returns the pick with as many fresh messages that the group wants as are found among the next
        `PASSED_AT_ONCE_MAX`, and with those to pass between and behind them.

        Reads further ahead than the view where it has to, and leaves what it read there. Where the view `is_plain`,
        there is nothing to pass."""
        ahead = max(picked.fresh, view.end - view.cursor.next)
        while True:
            offsets, wanted = self.examined(view)
            is_all = view.end - view.cursor.next < ahead or len(offsets) >= PASSED_AT_ONCE_MAX
            if len(wanted) >= picked.fresh or is_all or len(offsets) < view.end - view.cursor.next:
                return self._passing(view, picked, offsets, wanted)
            ahead = min(GROWTH * ahead, PASSED_AT_ONCE_MAX)
            self.look_on(view, ahead)

    def look_on(self, view: QueueView, count: int) -> None:
        """Reads on in the log from the cursor."""
        view.saw(self._reader.chains([view.want(count)])[0])

    def examined(self, view: QueueView) -> tuple[range, list[int]]:
        """The offsets examined, and those to deliver."""
        chain, start, now = view.chain, view.cursor.next, self._runtime.now()
        expired_ms = view.topic.expired_ms(now)
        offsets = range(start, min(view.end, start + PASSED_AT_ONCE_MAX))
        wanted: list[int] = []
        doubtful: list[int] = []
        for first, entry in entries(chain):
            if entry.stored_at_ms > expired_ms:
                ahead = range(max(first, start), min(first + entry.count, offsets.stop))
                (doubtful if view.is_doubtful(entry, now) else wanted).extend(ahead)
        judged, stop = self._judged(view, doubtful, now)
        stop = min(offsets.stop, stop)
        return range(start, stop), sorted(judged + [offset for offset in wanted if offset < stop])

    def _judged(self, view: QueueView, doubtful: list[int], now: int) -> tuple[list[int], int]:
        """Those of these messages to deliver, by their content, and the offset before which all were examined."""
        reached = within_reach(view.chain, doubtful, FILTERED_BYTES_MAX)
        stop = view.end if len(reached) == len(doubtful) else reached[-1] + 1
        judged: list[int] = []
        for stored in self._reader.stored(view.topic, view.queue, view.chain, reached):
            is_gone = stored.has_expired(now) or stored.is_purged(view.cursor.purged_at_ms)
            is_wanted = stored.message.is_lost or (not is_gone and self._is_wanted(view, stored))
            if is_wanted is None:
                return judged, stored.offset
            if is_wanted:
                judged.append(stored.offset)
            if not view.takes_steps and view.has_sifted_enough(self._runtime.uptime()):
                return judged, stored.offset + 1
        return judged, stop

    def _is_wanted(self, view: QueueView, stored: Stored) -> bool | None:
        """Whether the group's filter selects the message. None: that is for the next look to find out, since this one
        has judged others for as long as it may. Its verdicts stay, however often a claim is planned."""
        if view.group.filter is None or not view.takes_steps:
            return view.group.filter is None or view.group.filter.wants(stored.message)
        place = view.group.id, view.group.version, view.topic.logs[view.queue], stored.offset
        is_wanted = view.verdicts.get(stored.offset, self._verdicts.get(place))
        if is_wanted is None:
            if view.steps.taken and view.is_over(self._runtime.uptime()):
                return None
            is_wanted = view.group.filter.counted(view.steps).wants(stored.message)
            self._verdicts.keep(place, is_wanted)
        view.verdicts[stored.offset] = is_wanted
        return is_wanted

    def _passing(self, view: QueueView, picked: Pick, offsets: range, wanted: list[int]) -> Pick:
        """Offsets up to the last message taken; if there are not enough, all examined: then no cap left any."""
        taken = wanted[: picked.fresh]
        if not taken and len(offsets) == PASSED_AT_ONCE_MAX and view.is_past_retention(self._runtime.now()):
            return self.past_expired(view, picked)
        stop = taken[-1] + 1 if len(taken) == picked.fresh else offsets.stop
        kept = set(taken)
        passed = [offset - offsets.start for offset in range(offsets.start, stop) if offset not in kept]
        held_back = picked.held_back if len(taken) == picked.fresh else picked.held_back & ~HeldBack.CAP
        expired = self.expired(view, len(passed), stop)
        return replace(picked, fresh=stop - offsets.start, passed=passed, held_back=held_back, expired=expired)

    def expired(self, view: QueueView, passed: int, stop: int) -> int:
        """How many of the passed messages before this offset have expired. None counts
        that a filter was asked about, or that may be purged."""
        if view.group.filter is None and not view.ahead.has_purged:
            return passed
        start, expired_ms = view.cursor.next, view.topic.expired_ms(self._runtime.now())
        judged = (
            range(max(first, start), min(first + entry.count, stop))
            for first, entry in entries(view.chain)
            if entry.stored_at_ms > expired_ms
        )
        return stop - start - sum(map(len, judged))

    def past_expired(self, view: QueueView, picked: AnyPick) -> AnyPick:
        """The offset before which everything has expired, however far that is; at least the examined ones. A late entry
        may be older than those before it, and mislead the search about their age."""
        unexpired_ms = view.topic.expired_ms(self._runtime.now()) + 1
        first = self._log_offsets.surely_older(view.topic, view.queue, unexpired_ms - ENTRY_LATE_MS)
        count = max(PASSED_AT_ONCE_MAX, first - view.cursor.next)
        expired = self.expired(view, count, view.cursor.next + count)
        return replace(picked, fresh=count, passed=range(count), expired=expired)
