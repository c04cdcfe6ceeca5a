"""Delayed messages in a simulated world: senders, consumers, cancellers and sweeps over a faulty store, killed now and
then. At the end everything is due, and each message is in the log once, or cancelled, as its callers were told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from random import Random

from chalicelib.base.errors import AlreadyDelivered, MessageNotFound, StoreUnavailable
from chalicelib.base.limits import LATE_WRITE_MS_MAX
from chalicelib.base.message import Message
from chalicelib.base.runtime import Runtime
from chalicelib.consuming.claim import Pop
from chalicelib.service import Service, build
from tests.history.checker import SKEW_MS
from tests.simulation.faulty_store import ALL, NONE, Faults, FaultyStore, PastStore
from tests.simulation.scheduler import Endless, Killed, Scheduler

_KEY = b"0123456789abcdef"
_STEPS_MAX = 200_000
_SENDERS, _CONSUMERS, _ACTS = 3, 3, 12
_LARGE = 3_000


class DelayedWorld:
    def __init__(self, seed: int, faults: Faults = ALL) -> None:
        self._random = Random(seed)
        self._faults = faults
        self._scheduler = Scheduler(self._random)
        self._store = PastStore(self._scheduler)
        self._sent: dict[str, int] = {}
        """Message id -> when it is due, of those that were acknowledged."""
        self._answers: dict[str, list[str]] = {}
        self._wrong: list[str] = []

    def run(self) -> list[str]:
        """Plays the history; returns what is wrong with it."""
        self._play(self._prepare)
        for number in range(_SENDERS):
            self._spawn(lambda service, number=number: self._send(service, number))  # type: ignore[misc]
        for _ in range(_CONSUMERS):
            self._spawn(self._consume)
        self._spawn(self._cancel)
        self._spawn(self._sweep)
        try:
            self._scheduler.run(_STEPS_MAX)
            self._play(self._judge)
        except Endless as endless:
            self._wrong.append(str(endless))
        return self._wrong

    # -- actors -------------------------------------------------------------------------------------------------------

    def _prepare(self, service: Service) -> None:
        topic, _ = service.topics.put("t", {"queues": self._random.choice((1, 2))})
        service.groups.put(topic, "g", {"max_attempts": 1_000})

    def _send(self, service: Service, number: int) -> None:
        for act in self._acts():
            messages = [self._message(service, f"{number}.{act}.{part}") for part in range(self._random.choice((1, 3)))]
            with suppress(StoreUnavailable):
                for each in service.producer.produce(service.catalogue.topic("t"), [(one, None) for one in messages]):
                    if each.error is None and each.message_id and each.deliver_at_ms:
                        self._sent[each.message_id] = each.deliver_at_ms

    def _message(self, service: Service, body: str) -> Message:
        """Soon due, or so late that a plain write stores it; some for now, which move the log's end."""
        late_ms = LATE_WRITE_MS_MAX + 1_000
        delay_ms = self._random.choice((0, self._random.randint(1, 500), self._random.randint(late_ms, late_ms + 500)))
        text = body.ljust(_LARGE if self._random.random() < 0.2 else 1, ".").encode()
        due = service.runtime.now() + delay_ms if delay_ms else None
        return Message(text, True, None, None, {}, due)

    def _consume(self, service: Service) -> None:
        for _ in self._acts():
            with suppress(StoreUnavailable):
                popped = service.consumer.pop(service.catalogue.topic("t"), "g", Pop(10, 60_000, wait_ms=200))
                for each in popped.deliveries:
                    due = self._sent.get(each.stored.message_id, 0)
                    if self._scheduler.now < due - SKEW_MS:
                        self._wrong.append(f"{each.stored.message_id} came {due - self._scheduler.now} ms early")

    def _cancel(self, service: Service) -> None:
        for _ in self._acts():
            if self._sent:
                message_id = self._random.choice(list(self._sent))
                told = self._answers.setdefault(message_id, [])
                told.append("unknown")
                with suppress(StoreUnavailable):
                    told[-1] = self._told(service, message_id)

    def _told(self, service: Service, message_id: str) -> str:
        try:
            service.delayed.cancel(service.catalogue.topic("t"), message_id)
        except (AlreadyDelivered, MessageNotFound) as error:
            return error.code
        return "cancelled"

    def _sweep(self, service: Service) -> None:
        for _ in self._acts():
            with suppress(StoreUnavailable):
                service.sweeps.forward()

    # -- how it goes --------------------------------------------------------------------------------------------------

    def _acts(self) -> Iterator[int]:
        """Some now, some when what was sent with a long delay is due."""
        for act in range(_ACTS):
            if act == _ACTS // 2:
                self._scheduler.sleep(LATE_WRITE_MS_MAX)
            self._scheduler.sleep(self._random.randint(0, 400))
            yield act

    def _spawn(self, act: Callable[[Service], None]) -> None:
        """An actor whose process is started anew when it dies."""

        def live() -> None:
            try:
                act(self._instance(self._faults))
            except Killed:
                self._scheduler.spawn(live, 100)

        self._scheduler.spawn(live, self._random.randint(0, 300))

    def _play(self, act: Callable[[Service], None]) -> None:
        self._scheduler.spawn(lambda: act(self._instance(NONE)))
        self._scheduler.run(_STEPS_MAX)

    def _instance(self, faults: Faults) -> Service:
        skew = 0 if faults is NONE else self._random.randrange(-SKEW_MS // 2, SKEW_MS // 2 + 1)
        runtime = Runtime(
            lambda: self._scheduler.now + skew,
            self._scheduler.sleep,
            self._random.randbytes,
            lambda: self._scheduler.now,
        )
        return build(FaultyStore(self._store, self._scheduler, self._random, faults), runtime, _KEY)

    def _judge(self, service: Service) -> None:
        self._scheduler.sleep(2 * LATE_WRITE_MS_MAX)
        topic = service.catalogue.current_topic("t")
        service.sweeps.forward()
        log = service.lookup.read(topic, dict.fromkeys(range(topic.queues), 0), 1_000).messages
        count = Counter(each.message_id for each in log)
        self._wrong += [f"{message_id} is in the log {times} times" for message_id, times in count.items() if times > 1]
        for message_id in self._sent:
            told = self._answers.get(message_id, [])
            self._wrong += _untrue(message_id, count[message_id], told)
            final = "AlreadyDelivered" if count[message_id] else "MessageNotFound"
            if self._told(service, message_id) != final:
                self._wrong.append(f"{message_id} is in the log {count[message_id]} times, but that is not {final}")
        for each in log:
            try:
                found = service.lookup.by_id(topic, each.message_id)
            except MessageNotFound:
                found = None
            if found != each:
                self._wrong.append(f"{each.message_id} is found at {found}, and not where it is")
        if waiting := service.delayed.page(topic, 100, None)[0]:
            self._wrong.append(f"{len(waiting)} messages still wait")


def _untrue(message_id: str, count: int, told: list[str]) -> Iterator[str]:
    """A message is in the log unless somebody cancelled it, and who asked heard which."""
    if count and set(told) & {"cancelled", "MessageNotFound"}:
        yield f"{message_id} was delivered, and cancelling it was answered {told}"
    if not count and "AlreadyDelivered" in told:
        yield f"{message_id} was not delivered, and cancelling it was answered {told}"
    if not count and not set(told) & {"cancelled", "unknown"}:
        yield f"{message_id} was lost; cancelling it was answered {told}"
    if told.count("cancelled") > 1:
        yield f"{message_id} was cancelled twice"
