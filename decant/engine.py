"""A consumer at work. One thread pops, one keeps the leases, one settles; the hands run the handler. They share
`leases`, `lanes` and `settling`, which decide without I/O, under one lock."""

from __future__ import annotations

import itertools
import logging
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from decant import operations
from decant.calls import Backoff, Call
from decant.consumer import DEFAULT_LEASE_S, Declared
from decant.errors import DecantError, Forbidden, NotDecant, Problem, SettingError
from decant.lanes import Lanes, Task
from decant.leases import TOGETHER, Lease, Leases
from decant.messages import Message
from decant.settling import RELEASE, Kind, Settlement, Settlements, Verdict, failures_of

POP_MAX = 256
PAUSED_S = 1.0
"""Before a paused group is popped again: it answers at once, however long a pop may wait."""
HOLD_S, LAST_CALL_S = 1.0, 5.0
"""At the end: how long the hands may take to let go, and the last calls that settle."""

_log = logging.getLogger("decant.consumer")


class Caller(Protocol):
    """The client, as far as an engine needs it."""

    def __call__(self, call: Call[Any], *, timeout: float | None = None) -> Any: ...


class Hands(Protocol):
    """Runs a handler. `begin` returns at once; `Engine.finished` is called at the end of each task."""

    def begin(self, task: Task) -> None: ...

    def cancel(self, task: Task) -> None:
        """Ends a task whose lease is lost, if that can be done."""

    def abandon(self) -> bool:
        """Ends all tasks, if that can be done; returns whether it can."""

    def close(self) -> None:
        """No task follows."""


def is_final(error: DecantError, has_worked: bool) -> bool:
    """Whether a call that failed so would fail again. Another service may answer for a while at a known address."""
    if isinstance(error, Problem):
        return 400 <= error.status < 500 and error.status not in (408, 429)
    return isinstance(error, SettingError) or (isinstance(error, NotDecant) and not has_worked)


class Engine:
    """Pops and settles for one consumer, from `start` to `end`."""

    def __init__(
        self,
        consumer: Declared[Any],
        call: Caller,
        make_hands: Callable[[Engine], Hands],
        clock: Callable[[], float],
        random: Callable[[], float],
        report: Callable[[DecantError | None], None],
    ) -> None:
        """`report`: called with the error that ends it, and with None when a stopped engine has nothing left."""
        self.consumer, self._options = consumer, consumer.options
        self._place = consumer.topic.name, consumer.options.group
        self._call, self._clock, self._random, self._report = call, clock, random, report
        self._polling_backoff, self._keeping_backoff = Backoff(random), Backoff(random)
        self._settling_backoff = Backoff(random)
        self._lock = threading.RLock()
        self._room, self._due, self._unsettled, self._idle = (threading.Condition(self._lock) for _ in range(4))
        self._leases = Leases(DEFAULT_LEASE_S, self._options.max_lease_s)
        self._lanes = Lanes(False, self._options.batch)
        self._settlements = Settlements(*self._place)
        self._at_work: dict[Task, None] = {}
        self._warned: dict[str, Backoff] = {}
        self._attempts = (f"{os.urandom(9).hex()}-{number}" for number in itertools.count())
        self._is_stopping = self._is_over = self._is_polled = self._has_worked = False
        self._is_settling = False
        self._threads = [
            threading.Thread(target=self._guarded, args=(work,), name=f"decant-{work.__name__}", daemon=True)
            for work in (self._poll, self._keep, self._settle)
        ]
        self._hands = make_hands(self)

    # -- from outside --------------------------------------------------------------------------------------------------

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Pops no more, and gives back what has not begun."""
        with self._lock:
            self._is_stopping = True
            self._give_back(self._lanes.clear())
            self._wake()
            self._tell_if_idle()

    def wake(self) -> None:
        """Has all threads look at the clock."""
        with self._lock:
            self._wake()

    @property
    def is_idle(self) -> bool:
        """It is stopped, and nothing is left."""
        with self._lock:
            is_settled = not (len(self._settlements) or self._is_settling or self._leases.is_any_judged)
            return self._is_polled and not self._at_work and is_settled

    def end(self, *, at_once: bool = False) -> int:
        """Ends all threads. Returns how many messages are still at work: their leases end by themselves."""
        if not at_once:
            with self._lock:
                if self._at_work and self._hands.abandon():
                    self._idle.wait_for(lambda: not self._at_work, HOLD_S)
        with self._lock:
            self._is_over = True
            self._wake()
        self._hands.close()
        if not at_once:
            self._threads[-1].join(LAST_CALL_S + HOLD_S)
        with self._lock:
            return sum(len(task.leases) for task in self._at_work)

    # -- for the hands -------------------------------------------------------------------------------------------------

    def finished(self, task: Task, verdicts: Sequence[Verdict]) -> None:
        """The handler has returned, or its end is certain."""
        with self._lock:
            now = self._clock()
            del self._at_work[task]
            for lease, verdict in zip(task.leases, verdicts, strict=True):
                if not lease.is_lost and self._leases.judge(lease, verdict):
                    self._leases.drop(lease)
                    self._settlements.add(lease.message.receipt, verdict, now)
            is_kept = all(verdict.kind in (Kind.ACK, Kind.BURY) for verdict in verdicts)
            is_kept = is_kept and not any(lease.is_lost for lease in task.leases)
            self._give_back(self._lanes.done(task, is_kept=is_kept, now=now))
            self._go()
            self._room.notify()
            self._unsettled.notify()
            self._tell_if_idle()

    def failed(self, error: DecantError) -> None:
        """The hands cannot work at all."""
        self._report(error)

    # -- the poller ----------------------------------------------------------------------------------------------------

    def _poll(self) -> None:
        try:
            if self._prepare():
                while self._wait_for_room():
                    self._pop()
        except DecantError as error:
            self._report(error)
        finally:
            with self._lock:
                self._is_polled = True
                self._tell_if_idle()

    def _prepare(self) -> bool:
        """Reads the group's settings. Returns False if it is stopped before. Raises DecantError."""
        group: Mapping[str, Any] = {}
        while not self._is_stopping:
            try:
                group = self._call(operations.get_group(*self._place))
            except Forbidden:  # it may consume, but not read the group, which may be ordered
                group = {"ordered": True}
            except DecantError as error:
                self._retry(error)
                continue
            break
        if group.get("mode") == "broadcast" and self._options.consumer_id is None:
            raise SettingError(f"the group {self._options.group} is broadcast: its consumers need a consumer_id")
        lease_s = self._options.lease_s or (group.get("invisible_ms") or 0) / 1_000 or DEFAULT_LEASE_S
        ordered = group.get("ordered", False) if self._options.ordered is None else self._options.ordered
        with self._lock:
            self._leases = Leases(max(lease_s, 0.05), self._options.max_lease_s)
            self._lanes = Lanes(ordered, self._options.batch)
        return not self._is_stopping

    def _wait_for_room(self) -> int:
        """Waits until messages can be taken, and returns how many; 0 when it is stopped."""
        with self._lock:
            while not self._is_stopping and not self._free():
                self._room.wait()
            return 0 if self._is_stopping else self._free()

    def _free(self) -> int:
        slots = self._options.slots
        free = slots - self._lanes.busy
        if len(self._leases) >= max(POP_MAX, 2 * slots * self._options.batch):  # one lane may hold them all
            return 0
        if free < max(1, (slots - self._options.concurrency) // 2):
            return 0
        return 1 if self._lanes.is_careful(self._clock()) else min(free * self._options.batch, POP_MAX)

    def _pop(self) -> None:
        """One pop, repeated with the same `attempt_id` until it is answered. Raises DecantError."""
        attempt_id = next(self._attempts)
        with self._lock:
            acks = self._settlements.acks()
            pop = self._pop_call(self._free() or 1, attempt_id, acks, wait_ms=round(self._options.wait_s * 1_000))
        is_answered = False
        try:
            asked = self._clock()
            while not is_answered and not self._is_stopping:
                asked = self._clock()
                try:
                    answer = self._call(pop)
                    is_answered = True
                except DecantError as error:
                    self._retry(error)
        finally:
            if not is_answered:
                with self._lock:
                    self._settlements.put_back(acks, Verdict(Kind.ACK), 0.0)
        if is_answered:
            self._took(answer, attempt_id, asked)

    def _pop_call(
        self, count: int, attempt_id: str, acks: list[str] | None = None, wait_ms: int | None = None
    ) -> Call[Any]:
        return operations.pop(
            *self._place,
            max_messages=count,
            invisible_ms=round(self._leases.lease_s * 1_000),
            wait_ms=wait_ms,
            consumer_id=self._options.consumer_id,
            attempt_id=attempt_id,
            ack=acks or None,
            zone=self._options.zone,
            fill=True,
        )

    def _retry(self, error: DecantError) -> None:
        """Pauses before a repeat. Raises the error if that is in vain."""
        if is_final(error, self._has_worked):
            raise error
        self._warn(self._polling_backoff, "%s: %s; trying again", error)
        self._pause(self._polling_backoff.next_s(getattr(error, "retry_after_s", None) or 0.0))

    def _took(self, answer: Mapping[str, Any], attempt_id: str, asked: float) -> None:
        if not isinstance(answer.get("messages"), list):
            raise NotDecant(f"{self.consumer}: the answer to a pop has no messages: {answer!r:.80}")
        warn_of_failures(self.consumer, answer)
        messages: list[Message[Any]] = self.consumer.messages(answer["messages"])
        with self._lock:
            self._has_worked = True
            self._arrived(messages, attempt_id, asked)
        now = self._clock()
        is_long = now - asked > self._options.wait_s / 2
        if messages or is_long:
            self._polling_backoff = Backoff(self._random)
        if answer.get("paused"):
            self._pause(PAUSED_S)
        elif not (messages or is_long):
            self._pause(self._polling_backoff.next_s(answer.get("retry_after_ms", 0) / 1_000))

    def _arrived(self, messages: Sequence[Message[Any]], attempt_id: str, asked: float) -> None:
        """Under the lock."""
        leases = self._leases.add(messages, attempt_id, asked, self._clock())
        if self._is_stopping:
            self._give_back(leases)
        else:
            self._lanes.add(leases)
            self._go()
        if leases:
            self._due.notify()

    def _pause(self, pause_s: float) -> None:
        until = self._clock() + pause_s
        with self._lock:
            while not self._is_stopping and (left_s := until - self._clock()) > 0:
                self._room.wait(left_s)

    # -- the keeper ----------------------------------------------------------------------------------------------------

    def _keep(self) -> None:
        while taken := self._wait_for_leases():
            try:
                asked = self._clock()
                answer = self._call(self._extend(taken), timeout=self._extend_timeout_s())
                with self._lock:
                    doubtful = self._leases.extended(taken, answer, asked)
                self._recover(doubtful)
                self._keeping_backoff = Backoff(self._random)
            except DecantError as error:
                self._warn(self._keeping_backoff, "%s: leases are not extended: %s", error)
                pause_s = min(self._keeping_backoff.next_s(), self._leases.lease_s * TOGETHER)
                with self._lock:
                    those = [lease for lease in taken if lease.is_asked]
                    self._leases.failed(those, self._clock(), pause_s, is_final=is_final(error, True))
            with self._lock:
                self._let_go()
                self._settle_those(self._leases.judged(taken))
                self._tell_if_idle()

    def _wait_for_leases(self) -> list[Lease]:
        """Waits until leases are to be extended. None at the end."""
        with self._lock:
            while not (taken := self._leases.take(self._clock())):
                self._let_go()
                if self._is_over:
                    return []
                self._due.wait(self._leases.next_s(self._clock()))
            return [] if self._is_over else taken

    def _extend(self, taken: Sequence[Lease]) -> Call[Any]:
        receipts = [lease.message.receipt for lease in taken]
        return operations.extend(*self._place, receipts=receipts, invisible_ms=round(self._leases.lease_s * 1_000))

    def _extend_timeout_s(self) -> float:
        return max(self._leases.lease_s * 0.3, 1.0)

    def _recover(self, doubtful: Sequence[Lease]) -> None:
        """Repeats the pops of leases in doubt. If none of a pop's messages is leased any more, it returns others."""
        for attempt in dict.fromkeys(lease.attempt for lease in doubtful):
            asked = self._clock()
            answer = self._call(self._pop_call(1, attempt.id), timeout=self._extend_timeout_s())
            messages: list[Message[Any]] = self.consumer.messages(answer["messages"])
            with self._lock:
                self._leases.found([lease for lease in doubtful if lease.attempt is attempt], messages, asked)
                self._arrived([each for each in messages if each.id not in attempt.message_ids], attempt.id, asked)

    def _let_go(self) -> None:
        """Ends the tasks whose leases are lost."""
        lost = self._leases.lapsed(self._clock())
        if not lost:
            return
        for lease in lost:
            if lease.verdict is None:
                _log.warning("%s: the lease of message %s is lost", self.consumer, lease.message.id)
            self._lanes.drop(lease)
        self._room.notify()
        for task in [task for task in self._at_work if any(lease.is_lost for lease in task.leases)]:
            self._hands.cancel(task)

    def _settle_those(self, leases: Iterable[Lease]) -> None:
        for lease in leases:
            self._leases.drop(lease)
            self._settlements.add(lease.message.receipt, lease.verdict or RELEASE, self._clock())
        self._room.notify()
        self._unsettled.notify()

    # -- the settler ---------------------------------------------------------------------------------------------------

    def _settle(self) -> None:
        while settlement := self._wait_for_settlement():
            try:
                answer = self._call(settlement.call, timeout=LAST_CALL_S if self._is_stopping else None)
            except DecantError as error:
                self._not_settled(settlement.receipts, settlement.verdict, error)
            else:
                self._settling_backoff = Backoff(self._random)
                warn_of_failures(self.consumer, answer)
            with self._lock:
                self._is_settling = False
                self._tell_if_idle()

    def _wait_for_settlement(self) -> Settlement | None:
        """Waits until there is something to settle, and takes it. None at the end."""
        with self._lock:
            while (due_s := self._settlements.due_s(self._clock(), is_hurried=self._is_stopping)) != 0:
                if self._is_over:
                    return None
                self._unsettled.wait(due_s)
            self._is_settling = True
            return self._settlements.take()

    def _not_settled(self, receipts: list[str], verdict: Verdict, error: DecantError) -> None:
        is_lost = self._is_over or is_final(error, True)
        level = logging.ERROR if is_lost else logging.WARNING
        _log.log(level, "%s: %d messages are not settled: %s", self.consumer, len(receipts), error)
        if not is_lost:
            with self._lock:
                self._settlements.put_back(receipts, verdict, self._clock() + self._settling_backoff.next_s())

    # -- under the lock ------------------------------------------------------------------------------------------------

    def _go(self) -> None:
        """Begins what can begin."""
        while len(self._at_work) < self._options.concurrency and (task := self._lanes.take()):
            self._at_work[task] = None
            self._hands.begin(task)

    def _give_back(self, leases: Iterable[Lease]) -> None:
        for lease in leases:
            if self._leases.judge(lease, RELEASE):
                self._leases.drop(lease)
                self._settlements.add(lease.message.receipt, RELEASE, self._clock())
        self._unsettled.notify()

    def _wake(self) -> None:
        for condition in (self._room, self._due, self._unsettled, self._idle):
            condition.notify_all()

    def _warn(self, backoff: Backoff, text: str, error: DecantError) -> None:
        """Warns of the first failure of a row."""
        is_first = backoff is not self._warned.get(text)
        self._warned[text] = backoff
        _log.log(logging.WARNING if is_first else logging.DEBUG, text, self.consumer, error)

    def _tell_if_idle(self) -> None:
        self._idle.notify_all()
        if self._is_stopping and self.is_idle:
            self._report(None)

    def _guarded(self, work: Callable[[], None]) -> None:
        """A defect ends the run: nobody would notice a thread that is missing."""
        try:
            work()
        except Exception as error:  # noqa: BLE001
            _log.exception("%s: defect", self.consumer)
            self._report(DecantError(f"{self.consumer}: {type(error).__name__}: {error}"))


def warn_of_failures(consumer: Declared[Any], answer: Mapping[str, Any]) -> None:
    for failure in failures_of(answer):
        _log.warning("%s: a message was not settled: %s", consumer, failure["code"])


# -- clocks that are moved ---------------------------------------------------------------------------------------------


@contextmanager
def watching(clock: Callable[[], float], wake: Callable[[], None]) -> Iterator[None]:
    """Has `wake` called when the clock is moved, if it is one that tests move."""
    watch = getattr(clock, "watch", None)
    if watch is None:
        yield
        return
    with watch(wake):
        yield
