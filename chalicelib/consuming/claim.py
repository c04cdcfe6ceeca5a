"""Claims messages of one queue: plans, writes, and, if the write is refused, plans again from what it found."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, replace

from chalicelib.base.errors import GroupNotFound, StoreUnavailable
from chalicelib.base.limits import PASSED_AT_ONCE_MAX, SECOND_MS, TAKEOVERS_MAX
from chalicelib.base.response_size import Space
from chalicelib.catalogue.env import Env
from chalicelib.consuming.claim_plan import NO_ACKS, Pick, Riding, Tokens, pick, take
from chalicelib.consuming.receipt_batch import ReceiptBatch, assume
from chalicelib.consuming.request import Pop
from chalicelib.consuming.skip import Skipper
from chalicelib.consuming.view import QueueView
from chalicelib.cursors import Cursors
from chalicelib.cursors.cursor import Cursor
from chalicelib.cursors.cursor_writes import (
    INERT_MAX,
    PRUNED_ALONE_MAX,
    Change,
    confirm,
    create,
    move,
    popped,
    prune,
    write,
)
from chalicelib.cursors.lease import SPLIT_CHARS, TOKEN_CHARS, Lease, parked, runs
from chalicelib.cursors.retries import PARKED_MAX, due_page
from chalicelib.dead_letters.bury import Burial
from chalicelib.log import Log
from chalicelib.log.reader import Want, wire_bytes, within_reach
from chalicelib.log.segment import Segment
from chalicelib.table.writes import Item, Refused

PASSED_MAX = 4 * PASSED_AT_ONCE_MAX
"""Messages that one pop skips in one queue before it returns what it has."""

UNREADABLE_MS = SECOND_MS
"""When messages that could not be read are due again: meanwhile, others of their queue can be popped."""


@dataclass(frozen=True, slots=True)
class Claimed:
    """The result of a claim: leases, and the segments that hold their messages.

    `is_limited`: the group's cap on messages in flight left ready messages. `is_partial`: one write could not name all
    due leases. `is_own`: this call leased them, not another one of the same attempt."""

    cursor: Cursor
    leases: list[Lease]
    segments: list[Segment]
    is_limited: bool = False
    is_partial: bool = False
    is_own: bool = True


@dataclass(frozen=True, slots=True)
class _Plan:
    picked: Pick
    segments: list[Segment]
    change: Change
    tokens: tuple[str, ...]


class Claimer:
    def __init__(self, env: Env, log: Log, cursors: Cursors, burial: Burial) -> None:
        self._store, self._runtime = env.store, env.runtime
        self._reader, self._skipper = log.reader, Skipper(env.runtime, log)
        self._cache, self._retries = cursors.cache, cursors.retries
        self._burial = burial

    def within_reach(self, view: QueueView, ask: Pop, riding: ReceiptBatch | None) -> Pick:
        """The messages a claim would take, before filters. Brings due retries back from their page first, since those
        in a page do not count."""
        cursor, now = view.cursor, self._runtime.now()
        while (tended := self._tended(view, cursor, ask, riding, now)) is not cursor:
            cursor, now = tended, self._runtime.now()
        view.cursor = cursor
        if riding:
            cursor = riding.cursor = assume(cursor, riding.receipts)
        return self._picked(view, cursor, ask, riding, now)

    def claim(self, view: QueueView, ask: Pop, riding: ReceiptBatch | None, space: Space) -> Claimed:
        """Leases up to `max_messages` of a queue and acks `riding` in the same write. Without leases, none was ready
        and `riding` is still to be acked. `space`: the whole response, if this is the call's first claim."""
        cursor = self._standing(view.cursor)
        cursor = assume(cursor, riding.receipts) if riding else cursor
        passed = 0
        while True:
            if riding:
                riding.cursor = cursor
            if space.is_whole and (held := self.held(view, cursor, ask)):
                return held
            now = self._runtime.now()  # one instant for both, or a lease could end between them
            tended = self._tended(view, cursor, ask, riding, now)
            if tended is not cursor:
                cursor = tended
                continue
            plan = self._plan(view, cursor, ask, riding, space, now)
            if not plan.tokens and not plan.picked.fresh:
                return Claimed(cursor, [], [], plan.picked.is_limited)
            recognised: list[Item] = []
            try:
                after = Cursor.of(self._store.write(write(cursor, plan.change, recognised.append)))
            except Refused as refused:
                cursor = self._found(view, refused)
                continue
            self._learn(after, riding)
            cursor = after
            if plan.tokens:
                claimed = self._claimed(view, after, plan, ask, space, is_own=not recognised)
            else:
                passed += plan.picked.fresh
                self._skipper.look_on(view, cursor, ask.max_messages)
                claimed = self._given_up(view, cursor, plan, passed)
            if claimed:
                return claimed

    def _given_up(self, view: QueueView, cursor: Cursor, plan: _Plan, passed: int) -> Claimed | None:
        """A claim without messages, if enough were skipped for now; expired messages are skipped to their end."""
        is_long = passed >= PASSED_MAX or self._runtime.uptime() > view.sift_until_ms
        is_enough = is_long and view.group.filter is not None
        return Claimed(cursor, [], [], plan.picked.is_limited) if is_enough else None

    def give_back(self, claimed: Claimed, offsets: Collection[int]) -> None:
        """Undoes a claim of unreadable messages, if the store allows it: their delivery does not count, and they are
        due again in a moment, so that others can be popped meanwhile. Leases of another call stay."""
        due = self._runtime.now() + UNREADABLE_MS
        change = Change()
        for lease in claimed.leases if claimed.is_own else ():
            indexes = [index for index in lease.owed if lease.start + index in offsets]
            spans = [range(lease.start + run.start, lease.start + run.stop) for run in runs(indexes)]
            if spans and len(change.tokens) + len(spans) <= TAKEOVERS_MAX:
                new = [parked(self._runtime, span, due, lease.attempt - 1) for span in spans]
                change += move(lease, indexes, new)
        with suppress(Refused, StoreUnavailable):
            if change:
                after = Cursor.of(self._store.write(write(claimed.cursor, change)))
                self._cache.keep(after.key, after)

    def _learn(self, after: Cursor, riding: ReceiptBatch | None) -> None:
        self._cache.keep(after.key, after)
        if riding:
            riding.learn(after, riding.acks())

    def _claimed(
        self, view: QueueView, after: Cursor, plan: _Plan, ask: Pop, space: Space, is_own: bool
    ) -> Claimed | None:
        """The leases of the plan. `is_own`: this call made them; otherwise a concurrent call of the same attempt may
        have. None: that one holds none any more."""
        if space.is_whole and ask.attempt_token:
            others = {lease.token for lease in after.held(ask.attempt_token, self._runtime.now())} - set(plan.tokens)
            if others or not is_own:
                return self.held(view, after, ask)
        leases = [after.leases[token] for token in plan.tokens if token in after.leases]
        return Claimed(after, leases, plan.segments, plan.picked.is_limited, plan.picked.is_partial)

    def _tended(self, view: QueueView, cursor: Cursor, ask: Pop, riding: ReceiptBatch | None, now: int) -> Cursor:
        """The cursor after a write that a claim needs first: one that buries messages without attempts left, removes
        inert leases, brings back a due retry page, or moves retries into one that a crashed nack has left. The same
        cursor if it needs none."""
        if not cursor.needs_tending(now, view.group.max_attempts):
            return cursor
        tended = self._without_exhausted(view, cursor, riding, now)
        if tended is not cursor:
            return tended
        if len(cursor.inert) > INERT_MAX:
            return self._pruned(view, cursor)
        if page := due_page(cursor, now, ask.max_messages):
            found = self._retries.bring_back(cursor, page)
        elif view.group.ordered:
            return cursor
        else:
            found = self._retries.put_away(cursor, most=2 * PARKED_MAX)
        if found is None:
            raise self._gone(view)
        return found

    def _pruned(self, view: QueueView, cursor: Cursor) -> Cursor:
        """The cursor after a write that only removes inert leases."""
        change = prune(cursor, self._runtime.now(), most=PRUNED_ALONE_MAX)
        try:
            return Cursor.of(self._store.write(write(cursor, change)))
        except Refused as refused:
            return self._found(view, refused)

    def held(self, view: QueueView, cursor: Cursor, ask: Pop) -> Claimed | None:
        """The leases that another call of the attempt made and still holds, recorded as delivered here."""
        while ask.attempt_token and (leases := cursor.held(ask.attempt_token, self._runtime.now())):
            new = [lease for lease in leases if not lease.is_confirmed][:TAKEOVERS_MAX]
            if not new:
                return Claimed(cursor, leases, [], is_own=False)
            try:
                cursor = Cursor.of(self._store.write(write(cursor, confirm(new))))
            except Refused as refused:
                cursor = self._found(view, refused)
            self._cache.keep(cursor.key, cursor)
        return None

    def _standing(self, cursor: Cursor) -> Cursor:
        return cursor if cursor.stands else Cursor.of(self._store.write(create(cursor)))

    def _found(self, view: QueueView, refused: Refused) -> Cursor:
        if refused.before is None:
            raise self._gone(view)
        return Cursor.of(refused.before)

    def _gone(self, view: QueueView) -> GroupNotFound:
        return GroupNotFound(f"topic '{view.topic.name}' has no group '{view.group.name}' any more")

    def _without_exhausted(self, view: QueueView, cursor: Cursor, riding: ReceiptBatch | None, now: int) -> Cursor:
        """Buries messages whose last attempt expired."""
        found, _ = self._burial.bury_exhausted(view.group, cursor, now, riding.tokens if riding else ())
        if found is None:
            raise self._gone(view)
        return found

    def _plan(
        self, view: QueueView, cursor: Cursor, ask: Pop, riding: ReceiptBatch | None, space: Space, now: int
    ) -> _Plan:
        picked = self._sifted(view, cursor, self._picked(view, cursor, ask, riding, now))
        segments = self._segments(view, picked)
        fitting = self._fitting(view, picked.offsets(cursor), segments, space)
        is_sifted = view.group.filter is not None or bool(picked.passed)
        is_exact = is_sifted or not space.holds(wire_bytes(view.chain), ask.max_messages)
        if fitting < picked.count:
            fewer = replace(ask, max_messages=fitting)
            picked = self._sifted(view, cursor, self._picked(view, cursor, fewer, riding, now))
        deadline = now + (ask.invisible_ms or view.group.invisible_ms)
        taken = take(picked, cursor, view.chain, self._tokens(cursor, ask), deadline, is_exact, view.group.ordered)
        settled = riding.acks().change if riding else Change()
        return _Plan(
            picked,
            segments,
            taken + settled + popped(ask.consumer_id, now) + prune(cursor, now, riding.tokens if riding else ()),
            taken.tokens,
        )

    def _sifted(self, view: QueueView, cursor: Cursor, picked: Pick) -> Pick:
        is_plain = view.group.filter is None and not view.has_expired(cursor, self._runtime.now())
        return picked if is_plain or not picked.fresh else self._skipper.sift(view, cursor, picked)

    def _picked(self, view: QueueView, cursor: Cursor, ask: Pop, riding: ReceiptBatch | None, now: int) -> Pick:
        plan = riding.acks() if riding else None
        acked = Riding(riding.tokens, plan.freed(now), plan.emptied()) if riding and plan else NO_ACKS
        return pick(cursor, view.group, view.end, ask.max_messages, now, acked)

    def _segments(self, view: QueueView, picked: Pick) -> list[Segment]:
        """The segments of all picked messages: those taken over are before the cursor and located again."""
        log = view.topic.logs[view.queue]
        wants = [Want(log, stretch.start, len(stretch), None) for stretch in picked.stretches()]
        chains = [*self._reader.chains(wants), view.chain]
        by_base = {segment.base: segment for chain in chains for segment in chain}
        return [by_base[base] for base in sorted(by_base)]

    def _fitting(self, view: QueueView, offsets: list[int], segments: list[Segment], space: Space) -> int:
        """How many of these messages fit the response; reads them only in case of doubt."""
        if space.holds(wire_bytes(segments, offsets), len(offsets)):
            return len(offsets)
        reached = within_reach(segments, offsets, space.json_bytes)
        return space.fitting(self._reader.stored(view.topic, view.queue, segments, reached))

    def _tokens(self, cursor: Cursor, ask: Pop) -> Tokens:
        """Tokens of an attempt begin with its name, by which a repeat finds them. New messages begin at `next` or
        later, where the attempt has taken nothing before."""
        name = ask.attempt_token or self._runtime.name(TOKEN_CHARS)
        fresh = f"{name}.{cursor.next:x}" if ask.attempt_token else name
        return Tokens(fresh, split=lambda: name + self._runtime.name(SPLIT_CHARS))
