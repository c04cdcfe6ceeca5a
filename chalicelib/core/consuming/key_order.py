"""Claims of groups that are ordered by key: finds the keys of what a queue owes and of what comes next.

Keys never change, so an instance keeps them; one that is new reads them with the messages. The cursor holds none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from itertools import takewhile

from chalicelib.core.base.cache import BoundedCache, Caches
from chalicelib.core.base.limits import PASSED_AT_ONCE_MAX
from chalicelib.core.catalogue.group import BY_RECEIPT
from chalicelib.core.consuming import key_plan
from chalicelib.core.consuming.claim_plan import Pick, freed_by, stretches
from chalicelib.core.consuming.key_plan import Known, Line, Owed, Window
from chalicelib.core.consuming.receipt_batch import Plan
from chalicelib.core.consuming.skip import FILTERED_BYTES_MAX, Skipper
from chalicelib.core.consuming.view import QueueView
from chalicelib.core.log.reader import LogReader, Want, stored_at, within_reach
from chalicelib.core.log.segment import Segment
from chalicelib.core.table import keys

_KEYS_KEPT_MAX = 50_000
"""Keys cached by one instance, some 300 bytes each."""
_GROWTH = 4
"""How much further to read each time that too few messages were found."""


class KeyOrder:
    def __init__(self, caches: Caches, reader: LogReader, skipper: Skipper) -> None:
        self._reader, self._skipper = reader, skipper
        self._kept: BoundedCache[Known] = caches.bounded(lambda place, _: keys.owners(place[0]), _KEYS_KEPT_MAX)

    def ready_since(self, view: QueueView, now: int, riding: Plan) -> int | None:
        """Since when the first message that can be delivered is ready. None: a claim would find nothing to do."""
        known, owed, window = self._looked(view, view.ask.max_messages, now, riding)
        if in_turn := owed.in_turn(known, window.wanted):
            return in_turn[0].since_ms
        is_passing = window.is_cut or view.cursor.next not in window.wanted
        return stored_at(view.chain, view.cursor.next) if window.offsets and is_passing else None

    def pick(self, view: QueueView, want: int, now: int, riding: Plan, most: int | None = None) -> Pick:
        """Plans to take up to `want` messages. `most`: only so many of the same, in the same order."""
        known, owed, window = self._looked(view, max(1, want), now, riding)
        in_turn = owed.in_turn(known, window.wanted)
        freed = freed_by(riding, now)
        expired_ms = view.topic.expired_ms(now) if most is None else -1
        most = want if most is None else most
        choice = key_plan.choose(view.cursor, view.group, in_turn, most, now, freed, expired_ms)
        picked = key_plan.arrange(view.cursor, window, choice)
        if not picked.count:  # too many would be set aside: those that come first leave the fewest
            by_offset = sorted(in_turn, key=lambda ready: ready.offset)
            choice = key_plan.choose(view.cursor, view.group, by_offset, most, now, freed, expired_ms)
            picked = key_plan.arrange(view.cursor, window, choice)
        picked = replace(picked, has_witnesses=view.group.settle_by == BY_RECEIPT)
        is_gone = len(window.offsets) == PASSED_AT_ONCE_MAX and not window.wanted
        if is_gone and view.is_past_retention(now):
            return self._skipper.past_expired(view, picked)
        settled = len(picked.passed) - len(picked.aside)
        expired = self._skipper.expired(view, settled, view.cursor.next + picked.fresh)
        return replace(picked, expired=expired)

    def kept(self, view: QueueView, offsets: Iterable[int]) -> dict[int, Known]:
        """What this instance knows of these messages."""
        log = view.topic.logs[view.queue]
        found = ((offset, self._kept.get((log, offset))) for offset in offsets)
        return {offset: known for offset, known in found if known}

    def _looked(self, view: QueueView, want: int, now: int, riding: Plan) -> tuple[dict[int, Known], Owed, Window]:
        known = self._known(view, [offset for lease in view.cursor.owing for offset in lease.owed_offsets])
        owed = Owed.by(view.cursor, known, now, riding, view.delivered, view.is_ripe)
        window = self._window(view, known, owed.blocked(known), want)
        return known, owed, window

    def _window(self, view: QueueView, known: dict[int, Known], blocked: Collection[Line], want: int) -> Window:
        """Reads further ahead than the view where it has to, and leaves what it read there. Adds to `known`."""
        self._skipper.catch_up(view, want)
        ahead, start = max(want, view.end - view.cursor.next), view.cursor.next
        while True:
            offsets, wanted = self._examined(view)
            known |= self._read(view, view.chain, [offset for offset in wanted if offset not in known])
            reached = [*takewhile(known.__contains__, wanted)]
            count, is_enough = key_plan.look(known, blocked, view.cursor.aside, reached, want)
            if count < len(wanted):
                return Window(range(start, wanted[count]), wanted[:count], is_cut=not is_enough)
            target = want + key_plan.further(known, blocked, wanted) if is_enough else ahead * _GROWTH
            if (is_enough and view.end - start >= target) or offsets.stop < view.end:
                return Window(offsets, wanted, is_cut=not is_enough)
            if view.end - start < ahead or not view.chain[-1].is_sealed:
                return Window(offsets, wanted, is_cut=False)
            ahead = target
            self._skipper.look_on(view, ahead)

    def _examined(self, view: QueueView) -> tuple[range, list[int]]:
        """Fresh messages, and those of them to deliver."""
        if not view.is_plain(view.at_ms):
            return self._skipper.examined(view)
        start = view.cursor.next
        offsets = range(start, min(view.end, start + PASSED_AT_ONCE_MAX))
        return offsets, [*offsets]

    def _known(self, view: QueueView, offsets: Sequence[int]) -> dict[int, Known]:
        """What is known of these messages, which were taken before. Those that are lost, or removed since they have
        expired, have no key."""
        known = self.kept(view, offsets)
        log = view.topic.logs[view.queue]
        for strong in (False, True):  # a weak read may not see what another instance has just taken
            missing = [offset for offset in sorted(offsets) if offset not in known]
            if not missing:
                break
            wants = [Want(log, run.start, len(run), None) for run in stretches(missing)]
            by_base = {
                segment.base: segment for chain in self._reader.chains(wants, strong=strong) for segment in chain
            }
            chain = [by_base[base] for base in sorted(by_base)]
            while missing and (found := self._read(view, chain, missing)):
                known |= found
                missing = [offset for offset in missing if offset not in found]
        return known | {offset: Known(None, 0) for offset in missing}

    def _read(self, view: QueueView, chain: Sequence[Segment], offsets: Sequence[int]) -> dict[int, Known]:
        """The keys of these messages, as far as one read may go."""
        found = self.kept(view, offsets)
        log = view.topic.logs[view.queue]
        missing = [offset for offset in offsets if offset not in found]
        reached = within_reach(chain, missing, FILTERED_BYTES_MAX)
        for stored in self._reader.stored(view.topic, view.queue, chain, reached):
            found[stored.offset] = known = Known(stored.message.key, stored.stored_at_ms)
            if not stored.message.is_lost:
                self._kept.keep((log, stored.offset), known)
        return found | {offset: Known(None, stored_at(chain, offset)) for offset in reached if offset not in found}
