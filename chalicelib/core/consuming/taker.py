"""Takes messages from the queues of one look: chooses a queue, claims from it, reads the claimed messages."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import nullcontext, suppress
from dataclasses import field, replace

from chalicelib.core.base import deadline
from chalicelib.core.base.cache import BoundedCache
from chalicelib.core.base.errors import StoreUnavailable
from chalicelib.core.base.limits import SECOND_MS
from chalicelib.core.base.records import mutable
from chalicelib.core.catalogue.catalogue import Env
from chalicelib.core.catalogue.group_forms import Rate, RateWindow
from chalicelib.core.consuming.claim import Claimer
from chalicelib.core.consuming.claim_plan import HeldBack
from chalicelib.core.consuming.delivery import Deliverer, Delivery
from chalicelib.core.consuming.events import Subject
from chalicelib.core.consuming.receipt_batch import Failure, ReceiptBatch
from chalicelib.core.consuming.settle import Settler
from chalicelib.core.consuming.view import GroupView, QueueView
from chalicelib.core.consuming.view_reader import ViewReader
from chalicelib.core.table import keys
from chalicelib.core.table.writes import Refused
from chalicelib.core.telemetry.record import count

HOME_MS = SECOND_MS
"""A pop prefers the queue whose acks it carries, since they are free there, unless another queue has waited longer by
this much, or twice as long: fresh messages must not become late."""
FILL_MS = SECOND_MS
"""How long a pop with `fill` goes on to further queues: the leases that it has made run meanwhile."""


@mutable
class Popped:
    """`held_back`: why there are not more. `retry_after_ms`: when the group's rate allows more, if it held some
    back."""

    deliveries: list[Delivery] = field(default_factory=list)
    failed: list[Failure] = field(default_factory=list)
    held_back: HeldBack = HeldBack.NOTHING
    retry_after_ms: int | None = None
    trouble: StoreUnavailable | None = None
    """Why the leased messages could not be read and were given back."""

    def add(self, other: Popped) -> None:
        """Adds what another queue gave."""
        self.deliveries += other.deliveries
        self.held_back = (self.held_back & HeldBack.CAP) | other.held_back
        self.retry_after_ms = other.retry_after_ms
        self.trouble = self.trouble or other.trouble

    @property
    def is_paused(self) -> bool:
        return HeldBack.PAUSE in self.held_back

    @property
    def is_limited(self) -> bool:
        """Whether the group's cap on messages in flight left ready messages."""
        return HeldBack.CAP in self.held_back


class Throttle:
    """Holds a group to its rate across instances: counts the messages of a pop before it leases them."""

    def __init__(self, env: Env) -> None:
        self._store, self._runtime = env.store, env.runtime
        self._ahead: BoundedCache[tuple[int | None, int]] = env.caches.bounded(lambda key, _: keys.owners(key.pk))
        """Windows in the future: their begin, and since when (`Runtime.uptime`) that was seen."""

    def take(self, view: GroupView, rate: Rate, wanted: int) -> int:
        """How many of these messages can be leased now; counts them as taken."""
        while True:
            now = self._runtime.now()
            window = self._judged(self._window(view), rate, now)
            count = min(wanted, window.left(rate, now))
            if not count:
                return 0
            try:
                view.window = self._store.write(window.take(count, rate, now))
                return count
            except Refused as refused:
                view.window = refused.before

    def _window(self, view: GroupView) -> RateWindow:
        return RateWindow.of(view.group.window_key, view.window)

    def _judged(self, window: RateWindow, rate: Rate, now: int) -> RateWindow:
        """Whether a window in the future is stuck. It is not while an instance whose clock is ahead continues it."""
        if not window.is_ahead(rate, now):
            return window
        uptime_ms = self._runtime.uptime()
        began_ms, since_ms = self._ahead.get(window.key) or (None, uptime_ms)
        if began_ms != window.began_ms:
            since_ms = uptime_ms
            self._ahead.keep(window.key, (window.began_ms, since_ms))
        return replace(window, is_stuck=uptime_ms - since_ms >= rate.window_ms)

    def give_back(self, view: GroupView, count: int) -> None:
        """Returns permits that were not used, in a transaction, so that a repeat does not return them twice. A failure
        makes the group slower for a moment."""
        if count:
            with suppress(Refused, StoreUnavailable):
                self._store.write_together([self._window(view).give_back(count)])

    def next_in_ms(self, view: GroupView, rate: Rate) -> int:
        return self._window(view).next_in_ms(rate, self._runtime.now())


class Taker:
    def __init__(self, env: Env, views: ViewReader, claimer: Claimer, deliverer: Deliverer, settler: Settler) -> None:
        self._runtime, self._views = env.runtime, views
        self._claimer, self._deliverer, self._settler = claimer, deliverer, settler
        self._throttle = Throttle(env)

    def repeated(self, group_view: GroupView) -> Popped | None:
        """The messages that an earlier call with this `attempt_id` leased and still holds."""
        space = group_view.ask.space
        deliveries: list[Delivery] = []
        for view in group_view.queues.values():  # concurrent calls may have leased from two queues
            if held := self._claimer.held(view):
                held_here, _ = self._deliverer.deliver(view, held)
                fitting = held_here[: space.fitting(delivery.stored for delivery in held_here)]
                deliveries += _in_order(view, fitting, ())
                space = space.after(delivery.stored for delivery in fitting)
        return Popped(deliveries) if deliveries else None

    def has_ready(self, group_view: GroupView) -> bool:
        """Whether `take` has anything to do, as far as the view shows."""
        now = self._runtime.now()
        return any(self._claimer.would_act(view, now) for view in group_view.queues.values())

    def take(self, group_view: GroupView, acks: Sequence[ReceiptBatch], is_patient: bool = False) -> Popped:
        """Claims from the queues as they were read, one after another until one has something to take; with `fill`,
        until there are `max_messages`, or something keeps the rest back. A queue that fails notes why, and the others
        are tried; `is_patient`: it has all the time of the call, and raises StoreUnavailable."""
        if group_view.group.paused:
            return Popped(held_back=HeldBack.PAUSE)
        now, until_ms = self._runtime.now(), self._runtime.uptime() + FILL_MS
        waiting = self._waiting(group_view, acks, now, is_patient)
        got, space = Popped(), group_view.ask.space
        while waiting:
            queue = self._choose(waiting, acks, now)
            del waiting[queue]
            view = group_view.queues[queue]
            view.space = space
            popped = self._tried(group_view, view, acks, got, is_patient)
            if view.trouble and got.deliveries:
                return got
            if popped.deliveries and not view.ask.fill:
                return popped
            got.add(popped)
            if HeldBack.RATE in got.held_back or self._is_filled(view, got, until_ms):
                return got
            space = space.after(delivery.stored for delivery in popped.deliveries)
            if view.has_sifted_enough(self._runtime.uptime()):
                break
        return got

    def _waiting(
        self, group_view: GroupView, acks: Sequence[ReceiptBatch], now: int, is_patient: bool
    ) -> dict[int, int]:
        """The queues with something to take, and since when."""
        if acks and group_view.group.is_by_key:  # what an ack settles may be all that the next message waits for
            for view in group_view.queues.values():
                self._carry(view, acks)
        waiting: dict[int, int] = {}
        by_age = group_view.group.is_by_key and group_view.group.filter is not None
        for view in _in_order_of_age(group_view, now) if by_age else group_view.queues.values():
            if view.trouble or not (view.is_read or view.waiting_since(now) is not None):
                continue
            try:
                since = self._claimer.takeable_since(view, now)
            except StoreUnavailable as unread:  # keys of one queue; others can go on
                if is_patient or group_view.is_alone:
                    raise
                view.trouble = unread
            else:
                waiting |= {} if since is None else {view.queue: since}
        return waiting

    def _tried(
        self, group_view: GroupView, view: QueueView, acks: Sequence[ReceiptBatch], got: Popped, is_patient: bool
    ) -> Popped:
        """Adds what one queue has. If that fails, the queue notes why, and the others can be tried."""
        is_patient = is_patient or group_view.is_alone
        hurry = nullcontext() if is_patient else deadline.part_until(deadline.hop_until_ms(self._runtime.uptime()))
        try:
            with hurry:
                if not view.is_read:  # its cursor has shown what is due
                    self._views.read_log(view)
                return self._taken(group_view, view, acks, got)
        except StoreUnavailable as failure:
            if self._may_have_leased(view, failure):
                raise
            if not got.deliveries and (is_patient or failure.outcome_unknown):
                raise
            view.trouble = failure
            return Popped()

    def _taken(self, group_view: GroupView, view: QueueView, acks: Sequence[ReceiptBatch], got: Popped) -> Popped:
        """Adds what one queue has."""
        if acks and not view.group.is_by_key:
            self._carry(view, acks)
        want, space = view.ask.max_messages - len(got.deliveries), view.space
        popped = self._throttled(group_view, view, want)
        if view.ask.attempt_id and got.deliveries:  # another call of the attempt may hold more here than fits
            fitting = space.fitting(delivery.stored for delivery in popped.deliveries)
            del popped.deliveries[min(want, fitting) :]
        if popped.deliveries:
            self._tell(view, popped.deliveries)
        return popped

    def _may_have_leased(self, view: QueueView, trouble: StoreUnavailable) -> bool:
        """Whether a repeat of the attempt would also return messages of this queue, where there was trouble."""
        token = view.ask.attempt_token
        return token is not None and (trouble.outcome_unknown or bool(view.cursor.held(token, self._runtime.now())))

    def _is_filled(self, view: QueueView, got: Popped, until_ms: int) -> bool:
        is_late = bool(got.deliveries) and self._runtime.uptime() > until_ms
        return HeldBack.SPACE in got.held_back or is_late or len(got.deliveries) >= view.ask.max_messages

    def _tell(self, view: QueueView, deliveries: Sequence[Delivery]) -> None:
        topic, group, whose = view.topic, view.group, view.cursor.consumer
        count("popped", len(deliveries), topic.name, group.name)
        count("redelivered", sum(delivery.attempt > 1 for delivery in deliveries), topic.name, group.name)
        if not topic.trace:
            return
        by_end: dict[int, list[Subject]] = {}  # a pop that leases in several writes makes several leases
        for delivery in deliveries:
            subject = Subject(group.name, group.id, whose, view.queue, delivery.stored.offset, delivery.attempt)
            by_end.setdefault(delivery.invisible_until_ms, []).append(subject)
        for until_ms, subjects in by_end.items():
            self._settler.events.popped(topic, subjects, view.ask.consumer_id, until_ms)

    def _carry(self, view: QueueView, acks: Sequence[ReceiptBatch]) -> None:
        """Lets the claim of a queue carry its acks. Those of an expired lease come first: its other messages can be
        taken over. So do those of a lease that may be gone, where it would hold up an ordered queue, or be all that a
        cap leaves room for."""
        own = next((batch for batch in acks if batch.cursor.key == view.cursor.key), None)
        if own:
            seen = view.cursor
            view.carry(own)
            now = self._runtime.now()
            is_held_up = view.group.ordered and own.leaves_a_rest(seen)
            if is_held_up or own.is_late(seen, now) or (own.is_unseen(seen) and _is_close_to_cap(view, now)):
                self._settler.acknowledge(view.topic, view.group.name, [own])
                view.riding = None
                view.learn(own.cursor)

    def _throttled(self, group_view: GroupView, view: QueueView, want: int) -> Popped:
        """Claims as many messages as the group's rate allows. The rate is that of the whole group, so if it allows
        none, other queues need not be tried."""
        rate = view.group.rate_limit
        if rate is None:
            return self._claim(view, want)
        picked = self._claimer.tend_and_pick(view, want)
        allowed = self._throttle.take(group_view, rate, picked.count)
        by_cap = picked.held_back & HeldBack.CAP
        popped = Popped(held_back=by_cap)
        try:
            if allowed:
                popped = self._claim(view, min(allowed, want))
                popped.held_back |= by_cap
        except StoreUnavailable:
            allowed = 0 if view.ask.attempt_id else allowed  # keeps the permits of what it may have leased
            raise
        finally:
            self._throttle.give_back(group_view, allowed - len(popped.deliveries))
        if allowed < picked.count:
            popped.held_back |= HeldBack.RATE
            popped.retry_after_ms = self._throttle.next_in_ms(group_view, rate)
        return popped

    def _claim(self, view: QueueView, want: int) -> Popped:
        """Claims from one queue: in one write, unless more leases have expired than one write can name, or some of the
        messages are missing."""
        self._deliverer.demand_key(view)
        deliveries: list[Delivery] = []
        in_turn: list[int] = []
        while True:
            try:
                claimed = self._claimer.claim(view, want - len(deliveries))
            except StoreUnavailable as trouble:
                if not deliveries or (view.ask.attempt_id and trouble.outcome_unknown):
                    raise  # a repeat would also return what this claim may have leased
                return Popped(_in_order(view, deliveries, in_turn))
            try:
                delivered, has_missing = self._deliverer.deliver(view, claimed) if claimed.leases else ([], False)
            except StoreUnavailable as trouble:
                if view.ask.attempt_id:  # a repeat would also return the messages that could not be given back
                    raise
                return Popped(_in_order(view, deliveries, in_turn), trouble=trouble)
            deliveries += delivered
            in_turn += claimed.in_turn
            view.delivered |= {delivery.stored.offset for delivery in delivered}
            has_more = HeldBack.ONE_WRITE in claimed.held_back and bool(claimed.leases)
            is_enough = len(deliveries) == want or view.is_over(self._runtime.uptime())
            if is_enough or not (has_more or has_missing):
                return Popped(_in_order(view, deliveries, in_turn), held_back=claimed.held_back)
            view.space, view.riding = view.space.after(delivery.stored for delivery in delivered), None

    def _choose(self, waiting: dict[int, int], acks: Sequence[ReceiptBatch], now: int) -> int:
        """The queue whose first message has waited longest. One that the same call acks, where the ack is free, may be
        a little behind."""
        oldest = min(waiting.values())
        until = oldest + min(HOME_MS, (now - oldest) // 2)
        for batch in acks:
            if batch.cursor.queue in waiting and waiting[batch.cursor.queue] <= until:
                return batch.cursor.queue
        return self._runtime.choice([queue for queue, since in waiting.items() if since == oldest])


def _in_order_of_age(group_view: GroupView, now: int) -> Collection[QueueView]:
    """The queues, those whose first message has waited longest first: the steps of a filter may not suffice for all."""
    return sorted(group_view.queues.values(), key=lambda view: view.waiting_since(now) or now)


def _is_close_to_cap(view: QueueView, now: int) -> bool:
    """Whether the cap may leave fewer messages than the pop asks for. Due messages count against it until they are
    taken."""
    counted = view.cursor.live(now) + sum(len(lease.owed) for lease in view.cursor.due(now))
    return view.group.max_in_flight - counted < view.ask.max_messages


def _in_order(view: QueueView, deliveries: Sequence[Delivery], in_turn: Sequence[int]) -> list[Delivery]:
    """By offset: a later claim of the call may have met an older message that came back meanwhile. In a group ordered
    by key, those of one key together, and the keys in the order in which they were chosen, where that is known."""
    by_offset = sorted(deliveries, key=lambda delivery: delivery.stored.offset)
    if not view.group.is_by_key:
        return by_offset
    turns = {offset: turn for turn, offset in enumerate(in_turn)}
    by_key: dict[str | int, list[Delivery]] = {}
    for delivery in by_offset:
        key = delivery.stored.message.key
        by_key.setdefault(delivery.stored.offset if key is None else key, []).append(delivery)
    keys = sorted(by_key.values(), key=lambda own: min(turns.get(each.stored.offset, 0) for each in own))
    return [delivery for own in keys for delivery in own]
