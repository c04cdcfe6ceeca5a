"""Calls the consumers of pushed groups: pops a batch, makes the call, settles by the response.

Each caller holds a slot of the group, so at most `concurrency` calls are under way; see `slots`. A message's lease
keeps it from being in two calls, as in any pop. `docs/push.md` goes through the failures.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import field
from functools import partial
from threading import Lock

from chalicelib.core.base.errors import DecantError, GroupNotFound, StoreUnavailable, TopicNotFound
from chalicelib.core.base.limits import SECOND_MS
from chalicelib.core.base.records import mutable
from chalicelib.core.catalogue.catalogue import Env
from chalicelib.core.catalogue.group import Group, change
from chalicelib.core.catalogue.push import Push
from chalicelib.core.catalogue.signing_key import SigningKey
from chalicelib.core.catalogue.topic import Topic
from chalicelib.core.consuming import Consuming
from chalicelib.core.consuming.delivery import Delivery
from chalicelib.core.consuming.request import Pop
from chalicelib.core.consuming.view import GroupView
from chalicelib.core.table.writes import Refused
from chalicelib.core.telemetry.telemetry import PUSH
from chalicelib.push import webhooks
from chalicelib.push.courier import CallOutcome, Courier, judge, secret_text
from chalicelib.push.outside import WAKE_EVERY_MS, ConsumerResponse, Crew, Outside
from chalicelib.push.secrets import Keyring, Secrets
from chalicelib.push.slots import LEASE_SPARE_MS, PushPause, PushSlot, Slots

RUN_MS = 50 * SECOND_MS
"""How long a run starts calls: the schedule starts a run every minute."""
LOOKING_MS = WAKE_EVERY_MS + SECOND_MS // 2
"""How long a run woken by a send looks for messages: long enough to find those sent while wakes were held back."""
LOOK_EVERY_MS = SECOND_MS // 4
GUARD_MS = SECOND_MS // 2
"""A call is made only if its messages and its slot are held for this much longer than it may take, since clocks
differ."""
CONSUMER_ID = "push"
"""The consumer in the progress of a pushed group."""

_log = logging.getLogger("decant")


@mutable
class _Run:
    """One run for a group, as last read. `began_ms`: by `Runtime.uptime`. `looking_ms`: how long it looks for messages.
    `is_staying`: it waits for messages that are due before it ends. `helpers`: the number of further callers that it
    has started. `limited_until_ms`: when the group's rate allows more."""

    topic: Topic
    group: Group
    crew: Crew
    began_ms: int
    looking_ms: int
    is_staying: bool
    helpers: int = 0
    limited_until_ms: int = 0
    lock: Lock = field(default_factory=Lock)
    """Guards `helpers`, which the callers change."""


class Dispatcher:
    def __init__(self, env: Env, keyring: Keyring, consuming: Consuming, outside: Outside) -> None:
        self._store, self._runtime, self._catalogue = env.store, env.runtime, env.catalogue
        self._popper, self._settler = consuming.popper, consuming.settler
        self._telemetry = env.telemetry
        self._slots, self._courier, self._crew = Slots(env), Courier(env.runtime, outside, keyring), outside.crew

    def run(self, topic_name: str, is_staying: bool = False) -> None:
        """Calls the consumers of a topic's pushed groups until no message is ready; for a send, until none has come for
        a moment. `is_staying`: for the schedule, including messages due within `RUN_MS`."""
        with self._telemetry.call(PUSH, topic_name):
            self._run(topic_name, is_staying)

    def _run(self, topic_name: str, is_staying: bool) -> None:
        try:
            topic = self._catalogue.current_topic(topic_name)
            groups = self._catalogue.groups(topic)
        except (TopicNotFound, StoreUnavailable) as trouble:
            _log.warning("no push in topic %s: %s", topic_name, trouble.detail)
            return
        crew = self._crew()
        for group in groups:
            if group.is_pushed:
                looking_ms = 0 if is_staying else LOOKING_MS
                run = _Run(topic, group, crew, self._runtime.uptime(), looking_ms, is_staying)
                crew.start(partial(self._guarded, self._attend, run))
        crew.join()

    def _guarded(self, task: Callable[[_Run], object], run: _Run) -> None:
        """A task that fails ends alone: others serve other groups."""
        try:
            task(run)
        except (GroupNotFound, TopicNotFound):
            pass  # deleted meanwhile
        except StoreUnavailable as trouble:
            _log.warning("the push to group %s stops for now: %s", run.group.name, trouble.detail)
        except Exception:  # noqa: BLE001 - a defect must not end the pushes of other groups
            _log.exception("the push to group %s has failed", run.group.name)

    def _attend(self, run: _Run) -> None:
        """Serves the group until no message is worth waiting for."""
        while (wait_ms := self._wait_ms(run, self._serve(run))) is not None:
            self._runtime.sleep(wait_ms)

    def _wait_ms(self, run: _Run, next_ms: int | None) -> int | None:
        """How long to wait before the next look; None: the run is over. `next_ms`: the next known due time."""
        ran_ms = self._runtime.uptime() - run.began_ms
        until_due_ms = RUN_MS if next_ms is None else max(1, next_ms - self._runtime.now())
        if ran_ms < run.looking_ms:
            return min(LOOK_EVERY_MS, until_due_ms)
        return until_due_ms if run.is_staying and ran_ms + until_due_ms < RUN_MS else None

    def _serve(self, run: _Run) -> int | None:
        """Makes calls until no message is ready or no slot is free. Returns when more are due, if known. The look after
        each release finds messages that came while other runs found no free slot."""
        while self._is_on(run):
            if run.limited_until_ms > self._runtime.now():
                return run.limited_until_ms
            view = self._look(run)
            push = _push_of(view)
            if push is None:
                return None
            if not self._popper.has_ready(view):
                return view.at_ms + LOOK_EVERY_MS if view.due() else view.next_ready_at_ms()
            self._courier.demand_keys(view.group, push)
            slot, pause = self._slots.take(view.group, push)
            if slot is None:
                return pause.until_ms if pause.holds(self._runtime.now()) else None
            seen = [queue.cursor for queue in view.queues.values()]
            if not self._work(run, slot, pause, view):
                if seen == [queue.cursor for queue in view.queues.values()]:
                    return view.next_ready_at_ms()  # the due messages wait for something else
                self._runtime.sleep(LOOK_EVERY_MS)  # another run was faster, or a filter has rejected many
        return None

    def _is_on(self, run: _Run) -> bool:
        return self._runtime.uptime() - run.began_ms < RUN_MS

    def _look(self, run: _Run) -> GroupView:
        """Reads the group with the batch size and lease time of its own `push` setting. Repeats if that setting has
        just changed."""
        while True:
            push = run.group.push or Push({})
            ask = Pop(max_messages=push.batch, invisible_ms=push.timeout_ms + LEASE_SPARE_MS, consumer_id=CONSUMER_ID)
            view = self._popper.look_and_promote(self._catalogue.refreshed(run.topic), run.group.name, ask, set())
            run.group = view.group
            if (view.group.push or push) == push:
                return view

    def _work(self, run: _Run, slot: PushSlot, pause: PushPause, view: GroupView) -> bool:
        """Makes calls with the slot, and releases it. Returns whether it made any. Messages that the store fails to
        settle come back when their lease ends."""
        receipts: list[str] = []
        try:
            has_called = self._make_calls(run, slot, pause, view, receipts)
        except Exception:  # not errors that end the process, which releases nothing
            self._close(view, slot, receipts)
            raise
        self._close(view, slot, receipts)
        return has_called

    def _close(self, view: GroupView, slot: PushSlot, receipts: Sequence[str]) -> None:
        try:
            if receipts:
                self._settler.ack(view.topic, view.group.name, receipts)
        except StoreUnavailable:
            pass  # they come back when their lease ends
        finally:
            with suppress(StoreUnavailable):
                self._slots.release(slot)

    def _make_calls(self, run: _Run, slot: PushSlot, pause: PushPause, view: GroupView, receipts: list[str]) -> bool:
        """Makes calls while messages are ready. The pop of the next call carries the acks of the last; `receipts` holds
        the remaining ones."""
        held, has_called = slot, False
        while (push := _push_of(view)) and (kept := self._slots.kept(held, push)):
            held = kept
            deliveries = self._popped(run, view, receipts)
            if not deliveries:
                break
            has_called = True
            self._grow(run, view, push)
            outcome = self._called(held, view, push, deliveries)
            if outcome is None:
                break
            self._settle(view, deliveries, outcome, receipts)
            if not (self._goes_on(run, pause, outcome) and self._is_on(run)):
                break
            pause, view = PushPause(pause.key), self._look(run)
        return has_called

    def _popped(self, run: _Run, view: GroupView, receipts: list[str]) -> Sequence[Delivery]:
        """Leases a batch and settles these receipts in the same call."""
        acks, _ = self._settler.open(view.topic, view.group.name, receipts) if receipts else ([], [])
        popped = self._popper.pop_once(view, acks)
        self._settler.ack_opened(view.topic, view.group.name, acks, [])
        receipts.clear()
        if popped.retry_after_ms is not None:
            run.limited_until_ms, run.is_staying = self._runtime.now() + popped.retry_after_ms, True
        return popped.deliveries

    def _grow(self, run: _Run, view: GroupView, push: Push) -> None:
        """Starts another caller if more is ready, as many as there are slots."""
        if run.helpers >= push.concurrency - 1 or not self._popper.has_ready(view):
            return
        with run.lock:  # another caller may have started one meanwhile
            is_one_more = run.helpers < push.concurrency - 1
            run.helpers += is_one_more
        if not is_one_more:
            return
        try:
            run.crew.start(partial(self._guarded, self._help, run))
        except RuntimeError:  # there are too many threads: this caller continues alone
            with run.lock:
                run.helpers -= 1

    def _help(self, run: _Run) -> None:
        try:
            self._serve(run)
        finally:
            with run.lock:
                run.helpers -= 1

    def _called(
        self, slot: PushSlot, view: GroupView, push: Push, deliveries: Sequence[Delivery]
    ) -> CallOutcome | None:
        """Makes the call. An internal error counts as a failed call: its messages come back after the backoff. None:
        there was no call, and the messages are given back."""
        try:
            return self._call(slot, view, push, deliveries)
        except DecantError:
            self._give_back(view, deliveries)
            raise
        except Exception as defect:  # noqa: BLE001 - the messages must not wait for their lease to end
            _log.exception("a call to group %s has failed", view.group.name)
            return self._judged(ConsumerResponse.missing(f"no answer: {type(defect).__name__}: {defect}"), deliveries)

    def _call(self, slot: PushSlot, view: GroupView, push: Push, deliveries: Sequence[Delivery]) -> CallOutcome | None:
        """Makes the call and judges the response. None: the leases or the slot would end before the call may, so the
        messages are given back."""
        ends_ms = min(slot.until_ms, *(delivery.invisible_until_ms for delivery in deliveries))
        if ends_ms - self._runtime.now() < push.timeout_ms + GUARD_MS:
            self._give_back(view, deliveries)
            return None
        return self._judged(self._courier.send(view.topic.name, view.group, push, deliveries), deliveries)

    def _judged(self, answer: ConsumerResponse, deliveries: Sequence[Delivery]) -> CallOutcome:
        return judge(answer, [delivery.stored.message_id for delivery in deliveries], self._runtime.now())

    def _settle(
        self, view: GroupView, deliveries: Sequence[Delivery], outcome: CallOutcome, receipts: list[str]
    ) -> None:
        """Nacks the failed messages. Adds the others to the receipts that the next pop acks."""
        if outcome.is_gone:
            self._pause_group(view.topic, view.group)
            self._give_back(view, deliveries)
            return
        receipts += [each.receipt for each in deliveries if each.stored.message_id not in outcome.failed]
        together: dict[tuple[int | None, str], list[str]] = {}
        for delivery in deliveries:
            if failed := outcome.failed.get(delivery.stored.message_id):
                is_last = delivery.attempt >= view.group.max_attempts
                reason = failed.reason if is_last else ""  # only a dead letter keeps it
                together.setdefault((failed.delay_ms, reason), []).append(delivery.receipt)
        for (delay_ms, reason), texts in together.items():
            self._settler.nack(view.topic, view.group.name, texts, delay_ms, reason)

    def _goes_on(self, run: _Run, pause: PushPause, outcome: CallOutcome) -> bool:
        """Whether the consumer can be called again at once. After a failed call, all instances pause, and this run
        waits for the end of the pause."""
        if outcome.has_failed:
            wait_ms = run.group.backoff_ms.wait_ms(pause.failures + 1)
            if outcome.retry_after_ms is not None:
                wait_ms = max(outcome.retry_after_ms, SECOND_MS)
            self._slots.pause(pause, wait_ms)
            run.is_staying = True
        elif pause.failures:
            self._slots.resume(pause)
        return not outcome.has_failed

    def _give_back(self, view: GroupView, deliveries: Sequence[Delivery]) -> None:
        receipts = [delivery.receipt for delivery in deliveries]
        self._settler.give_back(view.topic, view.group.name, receipts)

    def _pause_group(self, topic: Topic, pushed: Group) -> None:
        """Pauses the group, unless its push has changed meanwhile."""
        group = pushed
        while group.id == pushed.id and group.push == pushed.push:
            try:
                self._store.write(change(group, {"paused": True}))
                return
            except Refused:
                group = self._catalogue.group(topic, group.name)


def _push_of(view: GroupView) -> Push | None:
    """The group's push, unless it is off or paused."""
    return view.group.push if view.group.is_pushed and not view.group.paused else None


class Pushing:
    def __init__(self, env: Env, signing_key: SigningKey, consuming: Consuming, outside: Outside) -> None:
        self._outside, keyring = outside, Keyring(signing_key)
        self.run = Dispatcher(env, keyring, consuming, outside).run
        self.secrets, self.secret_text = Secrets(env, keyring), secret_text

    def demand_reachable(self, push: Push) -> None:
        """Raises InvalidField for a URL that would be refused at each call."""
        webhooks.demand_reachable(push, self._outside.allows_loopback)
