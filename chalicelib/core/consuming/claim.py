"""Claims messages of one queue: plans, writes, and, if the write is refused, plans again from what it found."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from itertools import chain

from chalicelib.core.base.errors import StoreUnavailable
from chalicelib.core.base.limits import PASSED_AT_ONCE_MAX, SECOND_MS, TAKEOVERS_MAX
from chalicelib.core.base.records import record
from chalicelib.core.catalogue.agenda import REVIVE
from chalicelib.core.catalogue.catalogue import Env
from chalicelib.core.consuming.claim_plan import HeldBack, LeaseTokens, Pick, pick, stretches, take
from chalicelib.core.consuming.key_plan import KeyOrder, KeyPick, overdue
from chalicelib.core.consuming.receipt_batch import NOTHING, Plan
from chalicelib.core.consuming.skip import Skipper
from chalicelib.core.consuming.view import QueueView
from chalicelib.core.cursors import Cursors, cursor_writes
from chalicelib.core.cursors.cursor import Cursor
from chalicelib.core.cursors.cursor_writes import CursorChange
from chalicelib.core.cursors.lease import SPLIT_CHARS, TOKEN_CHARS, Lease, parked, runs, set_aside
from chalicelib.core.cursors.retries import PARKED_MAX, due_page
from chalicelib.core.dead_letters.bury import Burial
from chalicelib.core.log import Log
from chalicelib.core.log.reader import Want, joined, wire_bytes, within_reach
from chalicelib.core.log.segment import Segment
from chalicelib.core.table import keys
from chalicelib.core.table.writes import Item, Refused
from chalicelib.core.telemetry.record import count

PASSED_MAX = 4 * PASSED_AT_ONCE_MAX
"""Messages that one pop skips in one queue before it returns what it has."""

UNREADABLE_MS = SECOND_MS
"""When messages that could not be read are due again: meanwhile, others of their queue can be popped."""


@record
class Claimed:
    """The result of a claim: leases, and the segments that hold their messages.

    `held_back`: what left ready messages: the cap, the space in the response, or what one write can name. `is_own`:
    this call leased them, not another one of the same attempt. `in_turn`: in a group ordered by key, their offsets in
    the order in which they were chosen; empty for an attempt, whose repeat could not know it. `was_aside`: those that
    were set aside until now."""

    leases: list[Lease]
    segments: list[Segment]
    held_back: HeldBack = HeldBack.NOTHING
    is_own: bool = True
    in_turn: Sequence[int] = ()
    was_aside: Collection[int] = ()


@record
class _ClaimPlan:
    """`riding`: the acks in the same write. `held_back`: as of the pick, and by the space in the response. `is_exact`:
    the claim takes exactly these messages, even if others have moved on."""

    picked: Pick
    segments: list[Segment]
    riding: Plan
    held_back: HeldBack
    is_exact: bool


class Claimer:
    """The view's cursor is the state of a claim: each attempt plans from it, and leaves there what the store returned.
    All methods but `give_back` raise GroupNotFound if the group is deleted meanwhile."""

    def __init__(self, env: Env, log: Log, cursors: Cursors, burial: Burial) -> None:
        self._store, self._runtime = env.store, env.runtime
        self._reader, self._skipper = log.reader, Skipper(env.runtime, env.caches, log)
        self._key_order = KeyOrder(env.caches, log.reader, self._skipper)
        self._cache, self._retries = cursors.cache, cursors.retries
        self._burial, self._agenda, self._growth = burial, env.agenda, env.growth

    def takeable_since(self, view: QueueView, now: int) -> int | None:
        """Since when the first message that the pop can take is ready. None: there is none."""
        if not view.group.is_by_key:
            return view.takeable_since(now)
        is_left = view.left_until_ms(now) > now
        return None if is_left else self._key_order.ready_since(view, now, _riding(view, now))

    def keys_of(self, view: QueueView, offsets: Iterable[int]) -> dict[int, str | None]:
        """The keys of messages that a claim of a group ordered by key has taken, as far as they are known."""
        return {offset: known.key for offset, known in self._key_order.kept(view, offsets).items()}

    def tend_and_pick(self, view: QueueView, want: int) -> Pick:
        """The messages a claim would take, before filters. Brings due retries back from their page first, since those
        in a page do not count."""
        now = self._runtime.now()
        while self._tend(view, want, now):
            now = self._runtime.now()
        picked = self._pick(view, want, now, _riding(view, now))
        if not view.group.is_by_key or picked.count or not picked.fresh:
            return picked
        self.claim(view, 0)  # it passes what nobody is to get, which needs no permits
        now = self._runtime.now()
        return self._pick(view, want, now, _riding(view, now))

    def would_act(self, view: QueueView, now: int) -> bool:
        """Whether a claim would take, pass, bury or bring back messages. Messages that the order of the queue or the
        cap on messages in flight holds back do not count."""
        is_spent = any(lease.attempt >= view.group.max_attempts for lease in view.cursor.due(now))
        if is_spent or due_page(view.cursor, now, 1):
            return True
        picked = self._pick(view, 1, now, NOTHING)
        return bool(picked.takeovers or picked.fresh)

    def claim(self, view: QueueView, want: int) -> Claimed:
        """Leases up to `want` messages of a queue, and carries out the riding acks in the same write. Without leases,
        none was ready, and the acks are still to be carried out. With 0 it only passes what nobody is to get."""
        if not view.cursor.exists:
            view.learn(Cursor.of(self._store.write(cursor_writes.create(view.cursor))))
        passed = 0
        while True:
            if _may_repeat(view) and (held := self.held(view)):
                return held
            now = self._runtime.now()  # one instant for both, or a lease could end between them
            if self._tend(view, want, now):
                continue
            plan = self._plan(view, want, now)
            if not plan.picked.takeovers and not plan.picked.fresh:
                return Claimed([], [], plan.held_back)
            change = self._change(view, plan, now)
            recognised: list[Item] = []
            try:
                item = self._store.write(cursor_writes.write(view.cursor, change, recognised.append))
            except Refused as refused:
                view.learn(Cursor.or_none(refused.before))
                continue
            self._learn(view, Cursor.of(item), NOTHING if recognised else plan.riding)
            count("expired", plan.picked.expired, view.topic.name, view.group.name)
            if plan.picked.count:
                if claimed := self._claimed(view, plan, change.tokens, is_own=not recognised):
                    return claimed
            else:
                passed += plan.picked.fresh
                if view.is_sifted and (passed >= PASSED_MAX or view.has_sifted_enough(self._runtime.uptime())):
                    return Claimed([], [], plan.picked.held_back)

    def give_back(self, view: QueueView, claimed: Claimed, offsets: Collection[int]) -> None:
        """Undoes a claim of unreadable messages, if the store allows it: their delivery does not count, and they are
        due again in a moment, so that others can be popped meanwhile. Leases of another call stay."""
        due = self._runtime.now() + UNREADABLE_MS
        change = CursorChange()
        for lease in claimed.leases if claimed.is_own else ():
            indexes = [index for index in lease.owed if lease.start + index in offsets]
            spans = [lease.offsets[run.start : run.stop] for run in runs(indexes)]
            if spans and len(change.tokens) + len(spans) <= TAKEOVERS_MAX:
                new = [parked(self._runtime, span, due, lease.attempt - 1, lease.first_at_ms) for span in spans]
                change += cursor_writes.move(lease, indexes, new) + cursor_writes.lasts_as_seen(lease)
        with suppress(Refused, StoreUnavailable):
            if change:
                view.learn(Cursor.of(self._store.write(cursor_writes.write(view.cursor, change))))
                self._cache.keep(view.cursor.key, view.cursor)

    def held(self, view: QueueView) -> Claimed | None:
        """The leases that another call of the attempt made and still holds, recorded as delivered here."""
        token = view.ask.attempt_token
        while token and (leases := view.cursor.held(token, self._runtime.now())):
            new = [lease for lease in leases if not lease.is_confirmed][:TAKEOVERS_MAX]
            if not new:
                return Claimed(leases, [], is_own=False)
            view.learn(self._changed(view.cursor, cursor_writes.confirm(new)))
            self._cache.keep(view.cursor.key, view.cursor)
        return None

    def _changed(self, cursor: Cursor, change: CursorChange) -> Cursor | None:
        """The cursor after this change, or as it is if the change was refused; None: there is none."""
        try:
            return Cursor.of(self._store.write(cursor_writes.write(cursor, change)))
        except Refused as refused:
            return Cursor.or_none(refused.before)

    def _learn(self, view: QueueView, after: Cursor, acked: Plan) -> None:
        """`acked`: by the claim. Nothing is known of that where the leases were recognised: another call of the attempt
        may have made them, without these acks."""
        view.learn(after)
        self._cache.keep(after.key, after)
        if view.riding:
            view.riding.learn(after, acked)

    def _claimed(self, view: QueueView, plan: _ClaimPlan, tokens: Sequence[str], is_own: bool) -> Claimed | None:
        """The leases of the plan, which were to have these tokens. `is_own`: this write made them; otherwise an earlier
        try of it may have, or another call of the attempt. None: plan again, since nothing is left of them, or, in an
        ordered group, not all: others have taken over what comes first."""
        leases = view.cursor.leases
        if _may_repeat(view):
            held = view.cursor.held(view.ask.attempt_token or "", self._runtime.now())
            if not is_own or {lease.token for lease in held} - set(tokens):
                return self.held(view)
        own = [lease for token in tokens if (lease := leases.get(token)) and not lease.parked]
        left = sum(len(lease.owed) for lease in own)
        if not is_own and left < (plan.picked.count if view.group.ordered else 1):
            return None
        if not isinstance(plan.picked, KeyPick):
            return Claimed(own, plan.segments, plan.held_back)
        in_turn = () if view.ask.attempt_id else plan.picked.in_turn
        was_aside = [lease.start + index for lease, run in plan.picked.takeovers if lease.is_aside for index in run]
        return Claimed(own, plan.segments, plan.held_back, in_turn=in_turn, was_aside=was_aside)

    def _tend(self, view: QueueView, want: int, now: int) -> bool:
        """Makes the write that the cursor needs before a claim, if any, and returns whether it made one."""
        before = view.cursor
        if before.needs_tending(now, view.group.max_attempts):
            view.learn(self._tended(view, want, now))
        return view.cursor is not before

    def _tended(self, view: QueueView, want: int, now: int) -> Cursor | None:
        """The cursor after a write that buries messages without attempts left, removes inert leases, brings back a due
        retry page, or moves retries into one that a crashed nack has left. The same cursor if it needs none; None:
        there is none."""
        cursor = view.cursor
        acked = view.riding.tokens if view.riding else ()
        buried, dead = self._burial.bury_exhausted(view.group, cursor, now, acked)
        count("dead", dead, view.topic.name, view.group.name)
        if buried is not cursor:
            return buried
        if len(cursor.inert) > cursor_writes.INERT_MAX:
            return self._changed(cursor, cursor_writes.prune(cursor, now, most=cursor_writes.PRUNED_ALONE_MAX))
        if page := due_page(cursor, now, want):
            return self._retries.bring_back(cursor, page)
        return cursor if view.group.ordered else self._retries.put_away(cursor, most=2 * PARKED_MAX)

    def _plan(self, view: QueueView, want: int, now: int) -> _ClaimPlan:
        """The pick, cut to the space of the response."""
        if view.is_outrun:
            self._skipper.look_on(view, want)
        if view.topic.queues_auto:
            self._growth.leased(view.topic, len(view.cursor.leases))
        riding = _riding(view, now)
        picked = self._picked(view, want, now, riding)
        segments = self._segments(view, picked) if picked.takeovers else view.chain
        if view.space.holds(wire_bytes(segments) if picked.takeovers else view.ahead.wire_bytes, want):
            is_sifted = view.group.filter is not None or view.ahead.has_purged
            return _ClaimPlan(picked, segments, riding, picked.held_back, is_exact=is_sifted or bool(picked.passed))
        held_back, fitting = HeldBack.NOTHING, self._fitting(view, picked, segments)
        while fitting < picked.count:
            held_back = HeldBack.SPACE
            picked = self._picked(view, want, now, riding, fitting)
            if view.group.is_by_key:  # which messages it takes then may depend on how many
                fitting = self._fitting(view, picked, segments)
        return _ClaimPlan(picked, segments, riding, picked.held_back | held_back, is_exact=True)

    def _change(self, view: QueueView, plan: _ClaimPlan, now: int) -> CursorChange:
        """The write of the plan. Makes the appointment that it needs, if it delivers messages for the last time."""
        picked, riding, cursor, ordered = plan.picked, plan.riding, view.cursor, bool(view.group.ordered)
        asked_ms, noted_ms = view.ask.invisible_ms, now if view.ask.notes_first else None
        deadline = now + (view.group.invisible_ms if asked_ms is None else asked_ms)
        if picked.is_last(view.group):
            self._agenda.appoint(REVIVE, keys.subject(view.topic.name, view.group.name), deadline)
        change = take(picked, cursor, view.chain, self._tokens(view), deadline, plan.is_exact, ordered, noted_ms)
        if ordered or picked.is_capped_closely:  # it counts on what these acks settle
            change += cursor_writes.unchanged(lease for lease, _ in riding.acked)
        if isinstance(picked, KeyPick):
            for lease in overdue(cursor, view.group, picked, now, riding.tokens):
                change += cursor_writes.unchanged([lease]) + cursor_writes.lasts_as_seen(lease)
            if picked.aside:
                change += cursor_writes.set_aside(set_aside(self._runtime, picked.aside))
        change += riding.change
        change += cursor_writes.note_pop(view.ask.consumer_id, now, view.zone)
        return change + cursor_writes.prune(cursor, now, riding.tokens)

    def _picked(self, view: QueueView, want: int, now: int, riding: Plan, most: int | None = None) -> Pick:
        """The messages to take, up to `most` of those wanted, and those to skip before them."""
        picked = self._pick(view, want, now, riding, most)
        is_plain = view.group.is_by_key or not picked.fresh or view.is_plain(now)
        return picked if is_plain else self._skipper.skip(view, picked)

    def _pick(self, view: QueueView, want: int, now: int, riding: Plan, most: int | None = None) -> Pick:
        """The same, before filters."""
        if view.group.is_by_key:
            return self._key_order.pick(view, want, now, riding, most)
        want = want if most is None else most
        return pick(view.cursor, view.group, view.end, want, now, riding, view.delivered)

    def _segments(self, view: QueueView, picked: Pick) -> list[Segment]:
        """The segments of all picked messages: those taken over are before the cursor and located again."""
        log = view.topic.logs[view.queue]
        wants = [Want(log, stretch.start, len(stretch), None) for stretch in stretches(picked.taken_over)]
        return joined([*self._reader.chains(wants), view.chain])

    def _fitting(self, view: QueueView, picked: Pick, segments: list[Segment]) -> int:
        """How many of the picked messages fit the response; reads them only in case of doubt."""
        offsets = sorted(picked.offsets(view.cursor))
        if view.space.holds(wire_bytes(segments, offsets), len(offsets)):
            return len(offsets)
        if isinstance(picked, KeyPick):
            each = (self._reader.stored(view.topic, view.queue, segments, [offset]) for offset in picked.in_turn)
            return view.space.fitting(chain.from_iterable(each))
        reached = within_reach(segments, offsets, view.space.json_bytes)
        return view.space.fitting(self._reader.stored(view.topic, view.queue, segments, reached))

    def _tokens(self, view: QueueView) -> LeaseTokens:
        """Tokens of an attempt begin with its name, by which a repeat finds them. New messages begin at `next` or
        later, where the attempt has taken nothing before."""
        if view.ask.attempt_id is None:
            name = fresh = self._runtime.name(TOKEN_CHARS)
        else:
            name = view.ask.attempt_token or ""
            fresh = f"{name}.{view.cursor.next:x}"
        return LeaseTokens(fresh, split=lambda: name + self._runtime.name(SPLIT_CHARS))


def _may_repeat(view: QueueView) -> bool:
    """Whether the call returns what another call of its attempt holds in the queue: not if it has leased messages there
    itself."""
    return view.ask.attempt_id is not None and not view.delivered


def _riding(view: QueueView, now: int) -> Plan:
    if view.riding is None:
        return NOTHING
    view.riding.now = now
    return view.riding.acks()
