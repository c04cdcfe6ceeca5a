"""Runs engines until a signal, `stop`, or an error that no repeat would mend."""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any

from decant import operations
from decant.consumer import Consumer
from decant.engine import Engine, warn_of_failures, watching
from decant.errors import DecantError, SettingError
from decant.hands import hands_of
from decant.messages import Message
from decant.settling import RELEASE, Settlements, Verdict

if TYPE_CHECKING:
    from decant.client import Decant

LOOK_S = 0.5
"""How long one wait lasts: a signal that comes just before it does not end it."""

_log = logging.getLogger("decant.consumer")


class Event(Enum):
    STOP = "stop"
    SIGNAL = "signal"
    LOOK = "look"
    """At the clock, or at the engines."""


class Run:
    """One `run` of a client. `stop` may be called by any thread, and by signal handlers."""

    def __init__(self, clock: Callable[[], float], grace_s: float) -> None:
        self._clock, self._grace_s = clock, grace_s
        self._events: queue.SimpleQueue[Event | DecantError] = queue.SimpleQueue()
        self._ends: float | None = None
        self._is_hurried = False
        self._error: DecantError | None = None

    def stop(self) -> None:
        self._events.put(Event.STOP)

    @property
    def is_stopping(self) -> bool:
        return self._ends is not None

    def signalled(self, *_: object) -> None:
        """The second signal ends the run at once."""
        self._events.put(Event.SIGNAL)

    def report(self, error: DecantError | None) -> None:
        self._events.put(error or Event.LOOK)

    def carry_out(self, engines: Sequence[Engine]) -> None:
        """Returns when all engines have ended. Raises the first error."""
        with contextlib.ExitStack() as stack:
            stack.enter_context(watching(self._clock, lambda: self._events.put(Event.LOOK)))
            for engine in engines:
                stack.enter_context(watching(self._clock, engine.wake))
                engine.start()
            while not self._is_over(engines):
                self._take(self._next(), engines)
        left = {engine: engine.end(at_once=self._is_hurried) for engine in engines}
        for engine, count in left.items():
            if count:
                _log.warning("%s: %d messages are still at work, until their leases end", engine.consumer, count)
        if self._error:
            raise self._error

    def _is_over(self, engines: Sequence[Engine]) -> bool:
        if self._ends is None:
            return False
        return self._is_hurried or self._clock() >= self._ends or all(engine.is_idle for engine in engines)

    def _next(self) -> Event | DecantError:
        """Waits for an event. In the main thread, signal handlers run meanwhile."""
        left_s = LOOK_S if self._ends is None else min(max(self._ends - self._clock(), 0.001), LOOK_S)
        try:
            return self._events.get(timeout=left_s)
        except queue.Empty:
            return Event.LOOK

    def _take(self, event: Event | DecantError, engines: Sequence[Engine]) -> None:
        if event is Event.LOOK:
            return
        if event is Event.SIGNAL and self._ends is not None:
            self._is_hurried = True
        if isinstance(event, DecantError):
            self._error = self._error or event
        if self._ends is None:
            self._ends = self._clock() + self._grace_s
            if event is Event.SIGNAL:
                _log.warning(
                    "stopping within %s s, when the poll under way ends; another signal ends at once", self._grace_s
                )
            for engine in engines:
                engine.stop()


@contextlib.contextmanager
def signals(signalled: Callable[..., None]) -> Iterator[None]:
    """Has SIGTERM and SIGINT call this, if this is the main thread: only there that can be."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, signalled) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)


def demand_main() -> None:
    """Raises SettingError in a process that imports the program to run a handler."""
    import multiprocessing.process

    if getattr(multiprocessing.process.current_process(), "_inheriting", False):
        raise SettingError("mq.run() must be under `if __name__ == '__main__':`, or each process would run it")


class Crew:
    """The consumers of a client."""

    def __init__(self, mq: Decant) -> None:
        self._mq = mq
        self.consumers: list[Consumer[Any]] = []
        self._runs: list[Run] = []

    def run(self, consumers: Sequence[Consumer[Any]], grace_s: float) -> None:
        demand_main()
        settings = self._mq.settings
        run = Run(settings.clock, grace_s)
        engines = [
            Engine(
                consumer,
                self._mq.call,
                hands_of(consumer),
                settings.clock,
                settings.random,
                run.report,
            )
            for consumer in chosen(consumers, self.consumers)
        ]
        self._runs.append(run)
        try:
            with signals(run.signalled):
                run.carry_out(engines)
        finally:
            self._runs.remove(run)

    def stop(self) -> None:
        for run in list(self._runs):
            run.stop()

    def work(self, consumers: Sequence[Consumer[Any]]) -> int:
        those = chosen(consumers, self.consumers)
        total = 0
        while count := sum(self._worked(consumer) for consumer in those):
            total += count
        return total

    def _worked(self, consumer: Consumer[Any]) -> int:
        """Handles the messages of one pop."""
        messages = consumer.messages(self._mq.call(one_pop(consumer))["messages"])
        if not messages:
            return 0
        verdicts = [RELEASE] * len(messages)
        try:
            verdicts = consumer.attend_and_reply(messages)
        finally:
            for call in calls_of(consumer, messages, verdicts):
                warn_of_failures(consumer, self._mq.call(call))
        return len(messages)


def chosen(consumers: Sequence[Any], known: Sequence[Any]) -> Sequence[Any]:
    """Those that are named, or else all. Raises SettingError."""
    if strangers := [each for each in consumers if each not in known]:
        raise SettingError(f"{strangers[0]!r} is no consumer of this client")
    if not (consumers or known):
        raise SettingError("the client has no consumer: make one with @mq.consumer(topic, group=...)")
    return consumers or known


def one_pop(consumer: Any) -> Any:
    """A pop for one task, which does not wait."""
    options = consumer.options
    return operations.pop(
        consumer.topic.name,
        options.group,
        max_messages=options.batch,
        invisible_ms=None if options.lease_s is None else round(options.lease_s * 1_000),
        consumer_id=options.consumer_id,
        attempt_id=os.urandom(12).hex(),
        zone=options.zone,
    )


def calls_of(consumer: Any, messages: Sequence[Message[Any]], verdicts: Sequence[Verdict]) -> Iterator[Any]:
    """The calls that settle messages."""
    settlements = Settlements(consumer.topic.name, consumer.options.group)
    for message, verdict in zip(messages, verdicts, strict=True):
        settlements.add(message.receipt, verdict, 0.0)
    while len(settlements):
        yield settlements.take().call
