"""Pop: looks at some queues, puts their due delayed messages into the log, takes from one of them, and waits.

A look costs half a read unit for each queue, and each queue serves so many looks a second. A pop therefore looks at a
few queues, whose cursors are in one page, then at four times as many others, and so on until it has looked at all of
them: only then nothing is there. While it waits, its next looks begin again with a few."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import nullcontext
from dataclasses import field

from chalicelib.core.base import deadline
from chalicelib.core.base.cache import BoundedCache
from chalicelib.core.base.errors import GroupIsPushed, GroupNotFound, StoreUnavailable
from chalicelib.core.base.fields import Label
from chalicelib.core.base.limits import PASSED_AT_ONCE_MAX
from chalicelib.core.base.records import mutable
from chalicelib.core.base.runtime import Runtime
from chalicelib.core.catalogue.catalogue import Env
from chalicelib.core.catalogue.group import Group
from chalicelib.core.catalogue.topic import Topic
from chalicelib.core.consuming.claim import Claimer
from chalicelib.core.consuming.claim_plan import HeldBack
from chalicelib.core.consuming.delivery import Deliverer
from chalicelib.core.consuming.receipt_batch import Failure, ReceiptBatch
from chalicelib.core.consuming.request import Pop
from chalicelib.core.consuming.settle import Settler
from chalicelib.core.consuming.taker import Popped, Taker
from chalicelib.core.consuming.view import GroupView
from chalicelib.core.consuming.view_reader import HURRY_MS, ViewReader
from chalicelib.core.consuming.waiters import Waiter, Waiters
from chalicelib.core.delays.decision import PROMOTED_MAX
from chalicelib.core.table import keys

LOOKED_AT = 4
"""Queues at which the first look is. One of so many, chosen at random, has more ready than most have; with two, fresh
messages would wait longer where many consumers meet."""
WIDENED = 4
"""How many times as many the next look is at: a pop finds out that nothing is there in four looks at most."""
AWAY_ONE_IN = 8
"""A pop with a home goes into another page so often, lest a page whose queues are never empty keeps its consumers."""


def compares_all(topic: Topic, ask: Pop) -> bool:
    """Whether a pop must compare all queues before it takes from one: it leaves some to other zones, or is to be
    filled from as many as it needs."""
    return ask.fill or (ask.zone is not None and bool(topic.known_zones.given))


@mutable
class Tour:
    """`home`: the queue that the consumer took from last, if more is likely to be there. `seen`: the queues that were
    looked at in this round. `width`: at how many the last look was to be. `ready_at`: when something more may be ready
    in a queue, as the last look at it showed. `is_held`, `is_limited`: whether something was ready, or capped, in this
    round. `failed`: the queues whose logs could not be read in this round, or that the claim failed in. `trouble`: why
    messages were given back in this round, which could not be read."""

    runtime: Runtime
    home: int | None = None
    seen: set[int] = field(default_factory=set)
    width: int = 0
    ready_at: dict[int, int] = field(default_factory=dict)
    is_held: bool = False
    is_limited: bool = False
    failed: set[int] = field(default_factory=set)
    trouble: StoreUnavailable | None = None

    def next(self, topic: Topic, ask: Pop, is_told: bool) -> list[int]:
        """The queues of the next look. `is_told`: something was stored, in whichever queue."""
        if self.is_over(topic):
            self.seen, self.failed, self.trouble = set(), set(), None
            self.is_held = self.is_limited = False
        readers = topic.readers
        self.ready_at = {queue: ms for queue, ms in self.ready_at.items() if queue < readers}  # others have left
        self.width = self.width * WIDENED if self.seen else LOOKED_AT
        if is_told or readers <= LOOKED_AT or compares_all(topic, ask):
            chosen = [*range(readers)]
        else:
            chosen = sorted(self._chosen(readers))
        self.seen.update(chosen)
        self.home = None
        return chosen

    def is_over(self, topic: Topic) -> bool:
        """Whether all queues were looked at."""
        return self.seen.issuperset(range(topic.readers))

    def met(self, view: GroupView, popped: Popped) -> None:
        """Takes note of what a look has shown, and what was taken then."""
        for queue, each in view.queues.items():
            if each.is_read or each.trouble:  # of the others, what was known before may still come
                self.ready_at.pop(queue, None)
        for queue, ms in view.ready_at().items():
            self.ready_at[queue] = min(ms, self.ready_at.get(queue, ms))
        self.is_held = self.is_held or view.is_held(self.runtime.now())
        self.is_limited = self.is_limited or popped.is_limited
        self.trouble = self.trouble or popped.trouble
        self.failed |= {queue for queue, each in view.queues.items() if each.trouble}

    def next_ready_at_ms(self) -> int | None:
        return min(self.ready_at.values(), default=None)

    def _chosen(self, readers: int) -> Collection[int]:
        chosen = self._due() or self._at_home(readers)
        left = [queue for queue in range(readers) if queue not in self.seen and queue not in chosen]
        if len(left) <= self.width - len(chosen):
            return [*chosen, *left]
        pages = {keys.page_of(queue) for queue in chosen}
        old_pages = {keys.page_of(queue) for queue in self.seen}
        while len(chosen) < self.width:
            near = [queue for queue in left if keys.page_of(queue) in pages]
            new = [queue for queue in left if keys.page_of(queue) not in old_pages]
            queue = self.runtime.choice(near or new or left)
            chosen.append(queue)
            left.remove(queue)
            pages.add(keys.page_of(queue))
        return chosen

    def _due(self) -> list[int]:
        """Queues of one page in which something is known to be ready now."""
        now = self.runtime.now()
        due = sorted((ms, queue) for queue, ms in self.ready_at.items() if ms <= now)
        page = [queue for _, queue in due if keys.page_of(queue) == keys.page_of(due[0][1])]
        for queue in page[:LOOKED_AT]:
            del self.ready_at[queue]
        return page[:LOOKED_AT]

    def _at_home(self, readers: int) -> list[int]:
        if self.home is None or self.home >= readers:
            return []
        is_away = readers > keys.CURSORS_IN_PAGE and self.runtime.choice(range(AWAY_ONE_IN)) == 0
        return [] if is_away else [self.home]


PROMOTED_QUEUES_MAX = 4
"""In how many queues a pop promotes, one after another, while it finds nothing to take."""

Suits = Callable[[Group], bool]
"""Judges the group that a pop finds, before it takes anything."""


class Unsuitable(Exception):
    """The group, read strongly, is not as the caller of a pop demands; nothing was taken."""

    def __init__(self, group: Group) -> None:
        super().__init__(f"group '{group.name}' is not as demanded")
        self.group = group


@mutable
class PopCall:
    """One pop under way. `waiter`: None if it does not wait. `acks`: receipts of the same request that no write has
    carried yet, by cursor; `failed`: those that did not count. `queues`: those of the next look; empty: the tour
    chooses. `promoted`: where it has promoted delayed messages, `promotions`: in how many looks. `is_patient`: this is
    the last look, at queues that failed before."""

    topic: Topic
    group_name: str
    ask: Pop
    suits: Suits
    waiter: Waiter | None
    tour: Tour
    strong: bool
    acks: list[ReceiptBatch]
    failed: list[Failure]
    queues: Sequence[int] = ()
    promoted: set[int] = field(default_factory=set)
    promotions: int = 0
    is_patient: bool = False

    def choose_queues(self) -> None:
        is_told = self.waiter is not None and self.waiter.listen()
        self.queues = self.queues or self.tour.next(self.topic, self.ask, is_told)

    def ended(self, popped: Popped) -> Popped:
        """The answer of the whole call."""
        popped.failed = self.failed
        if self.tour.is_limited and not popped.deliveries:
            popped.held_back |= HeldBack.CAP
        return popped


class Popper:
    def __init__(
        self,
        env: Env,
        views: ViewReader,
        claimer: Claimer,
        deliverer: Deliverer,
        settler: Settler,
        waiters: Waiters,
    ) -> None:
        self._runtime, self._catalogue = env.runtime, env.catalogue
        self._views, self._settler, self._waiters = views, settler, waiters
        self._taker = Taker(env, views, claimer, deliverer, settler)
        self._homes: BoundedCache[int] = env.caches.bounded(lambda place, _: [place[0]])
        """The queue that gave a consumer a full batch last."""

    def pop(self, topic: Topic, group_name: str, ask: Pop, suits: Suits = lambda _: True) -> Popped:
        """Leases up to `max_messages` ready messages of one queue, or with `fill` of several. Returns none only if it
        has looked at all queues since it began, and none had a ready one; it looks again for `wait_ms`, or as long as
        the call may wait. Queues aside that are left to another zone.

        Raises GroupNotFound, GroupIsPushed, Unsuitable, InvalidField for an unknown zone, and StoreUnavailable: leases
        made by then expire by themselves."""
        if ask.zone is not None:
            topic = self._with_zone(topic, ask.zone)
        if not ask.wait_ms:
            return self._pop(topic, group_name, ask, suits)
        with self._waiters.waiting(self._views.wait_key(topic, group_name, ask), ask.wait_ms) as waiter:
            return self._pop(topic, group_name, ask, suits, waiter)

    def _pop(self, topic: Topic, group_name: str, ask: Pop, suits: Suits, waiter: Waiter | None = None) -> Popped:
        acks, failed = self._settler.open(topic, group_name, ask.ack) if ask.ack else ([], [])
        consumer = topic.id, group_name, ask.consumer_id
        tour = Tour(self._runtime, self._home(topic, consumer, ask, acks))
        is_attempt = ask.attempt_id is not None
        call = PopCall(topic, group_name, ask, suits, waiter, tour, is_attempt, acks, failed)
        while True:
            call.choose_queues()
            view = self._look(call)
            try:
                popped = self._taker.repeated(view) if is_attempt else None
                popped = popped or self._taker.take(view, call.acks, call.is_patient)
            except GroupNotFound:
                call.strong = True  # the group was deleted, or forgot the consumer just now: the next look shows which
                continue
            if call.acks:
                self._settle(call, topic)
            if popped.deliveries or popped.is_paused or not self._looks_again(call, view, popped):
                self._note_home(consumer, ask, popped)
                return call.ended(popped)

    def _settle(self, call: PopCall, topic: Topic) -> None:
        """Acks what no claim has carried. `topic`: as it was when the call began."""
        call.failed = self._settler.ack_opened(topic, call.group_name, call.acks, call.failed)
        call.acks = []

    def _looks_again(self, call: PopCall, view: GroupView, popped: Popped) -> bool:
        """Whether a pop that found nothing goes on: while it may wait, and then until it has looked at all queues, and
        once more at those that have failed. Raises StoreUnavailable if it had to give messages back."""
        call.tour.met(view, popped)
        is_slowed = HeldBack.RATE in popped.held_back
        if not is_slowed and _promotes_on(view, call.promoted, call.promotions):
            return True
        call.queues = []
        if call.tour.trouble and call.tour.is_over(call.topic):
            raise call.tour.trouble
        if call.waiter and not call.waiter.is_over():
            return self._rests(call, call.waiter)
        if is_slowed or call.is_patient:
            return False
        if call.tour.is_over(call.topic):
            call.queues, call.is_patient = sorted(call.tour.failed.intersection(range(call.topic.readers))), True
        return bool(call.queues) or not call.is_patient

    def _rests(self, call: PopCall, waiter: Waiter) -> bool:
        """Waits until something may be ready. Returns whether anybody still wants it."""
        waiter.rest(call.tour.next_ready_at_ms(), call.tour.is_held)
        if deadline.is_abandoned():
            return False
        # another instance may just have stored the first delayed message, or the topic has more queues
        look_up = self._catalogue.refreshed if call.topic.delays else self._catalogue.glanced_at
        call.topic = look_up(call.topic)
        return True

    def _home(
        self, topic: Topic, consumer: tuple[str, str, str | None], ask: Pop, acks: Sequence[ReceiptBatch]
    ) -> int | None:
        """Where the pop looks first: where it settles a full batch, or any if that is in the only page, since acks ride
        on a claim of their queue for nothing; or where the consumer got a full batch last."""
        if not acks:
            return self._homes.get(consumer)
        is_full = sum(len(batch.receipts) for batch in acks) >= ask.max_messages
        return acks[0].cursor.queue if is_full or topic.readers <= keys.CURSORS_IN_PAGE else None

    def _note_home(self, consumer: tuple[str, str, str | None], ask: Pop, popped: Popped) -> None:
        """The consumer begins next where it got all that it asked for: more is likely to be there."""
        if len(popped.deliveries) < ask.max_messages:
            self._homes.forget(consumer)
        else:
            self._homes.keep(consumer, popped.deliveries[-1].stored.queue)

    def _with_zone(self, topic: Topic, zone: str) -> Topic:
        """The topic, read again if its zones may be newer than the cache. Raises InvalidField."""
        if not topic.known_zones.queues(zone):
            topic = self._catalogue.current_topic(topic.name)
            topic.known_zones.demand(zone, Label("zone"))
        return topic

    def _look(self, call: PopCall) -> GroupView:
        """The group now, for its consumers. A group that does not suit is read again: it may have changed."""
        about = call.topic, call.group_name, call.ask, call.promoted
        view = self.look_and_promote(*about, call.strong, call.queues, call.is_patient)
        if not call.suits(view.group):
            view = self.look_and_promote(*about, True, call.queues, call.is_patient)
            if not call.suits(view.group):
                raise Unsuitable(view.group)
        if view.group.is_pushed:
            raise GroupIsPushed(f"group '{call.group_name}' has a push: its messages cannot be popped")
        if call.topic.delays:
            call.promotions += bool(view.due())
        return view

    def look_and_promote(
        self,
        topic: Topic,
        group_name: str,
        ask: Pop,
        promoted: set[int],
        strong: bool = False,
        queues: Sequence[int] = (),
        is_patient: bool = False,
    ) -> GroupView:
        """The group now, with these queues; by default with all. Promotes the first due messages of one queue, since a
        pop takes from one. Prefers a queue not in `promoted`, and starts over when all have had their turn. Raises
        GroupNotFound."""
        queues = queues or range(topic.readers)
        view = self._views.read(topic, group_name, ask, queues, strong, is_patient)
        if not (topic.delays and view.due()):
            return view
        if not view.due(promoted):
            promoted.clear()
        queue = view.due(promoted)[0]
        promoted.add(queue)
        self._promote(view, queue, is_patient=is_patient or len(queues) == 1)
        return view

    def _promote(self, view: GroupView, queue: int, is_patient: bool) -> None:
        """A queue where that fails leaves the others to be taken from."""
        try:
            with nullcontext() if is_patient else deadline.part_until(self._runtime.uptime() + HURRY_MS):
                self._views.promote(view.queues[queue])
        except StoreUnavailable as trouble:
            if is_patient:
                raise
            view.queues[queue].trouble = trouble

    def has_ready(self, view: GroupView) -> bool:
        """Whether `pop_once` has anything to do, as far as the view shows."""
        return self._taker.has_ready(view)

    def pop_once(self, group_view: GroupView, acks: Sequence[ReceiptBatch]) -> Popped:
        """Returns what one pop would from the queues as they were read. Raises StoreUnavailable if there is nothing,
        and some could not be read."""
        popped = self._taker.take(group_view, acks)
        troubles = [popped.trouble, *(view.trouble for view in group_view.queues.values())]
        if not popped.deliveries and (trouble := next(filter(None, troubles), None)):
            raise trouble
        return popped


def _promotes_on(view: GroupView, promoted: Collection[int], promotions: int) -> bool:
    """Whether a pop that found nothing looks again at once, since more delayed messages were due: in another queue, or,
    if the group has a filter, in any, up to the number of messages that it skips."""
    if not view.topic.delays:
        return False
    if view.group.filter is None:
        due, most = view.due(promoted), PROMOTED_QUEUES_MAX
    else:
        due, most = view.due(), PASSED_AT_ONCE_MAX // PROMOTED_MAX
    return bool(due) and promotions % most != 0
