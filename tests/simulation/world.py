"""One simulated history: callers of several instances of the service, faults, then quiet, a drain, and the verdict."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from random import Random

from chalicelib.errors import DecantError, StoreUnavailable
from chalicelib.message import Message
from chalicelib.runtime import Runtime
from chalicelib.service.claimer import Pop
from chalicelib.service.service import Service, build
from chalicelib.topic import Topic
from tests.simulation import checker
from tests.simulation.faulty_store import ALL, NONE, Faults, FaultyStore, PastStore
from tests.simulation.history import Delivered, History, Reset, Sent, Settled
from tests.simulation.scheduler import Scheduler

_KEY = b"0123456789abcdef"

_STEPS_MAX = 5_000
"""A history takes some hundred."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How big a history is."""

    producers: int = 3
    consumers: int = 3
    messages: int = 20
    queues: int = 2
    groups: int = 1
    faults: Faults = ALL
    resets: int = 0


class World:
    def __init__(self, seed: int, plan: Plan) -> None:
        self._random = Random(seed)
        self._plan = plan
        self._scheduler = Scheduler(self._random)
        self._store = PastStore(self._scheduler)
        self.history = History()
        self._topic, self._groups = self._prepared()

    def run(self) -> list[str]:
        """Plays the history; returns what is wrong with it."""
        for number in range(self._plan.producers):
            self._spawn(partial(self._produce, f"p{number}"))
        for number in range(self._plan.consumers):
            group = self._groups[number % len(self._groups)]
            self._spawn(partial(self._consume, f"c{number}", group))
        for _ in range(self._plan.resets):
            self._spawn(self._reset)
        self._scheduler.run(_STEPS_MAX)
        self._drain()
        self.history.passed = list(self._passed())
        return checker.violations(self.history)

    def _prepared(self) -> tuple[Topic, list[str]]:
        service = self._instance(NONE)[0]
        groups = [f"g{number}" for number in range(self._plan.groups)]
        made: list[Topic] = []

        def prepare() -> None:
            topic, _ = service.topics.put("t", self._plan.queues)
            for group in groups:
                service.groups.put(topic, group, {"max_attempts": 1000, "invisible_ms": 1_000})
            made.append(topic)

        self._scheduler.spawn(prepare)
        self._scheduler.run(_STEPS_MAX)
        return made[0], groups

    def _instance(self, faults: Faults) -> tuple[Service, FaultyStore]:
        """A fresh process: cold caches, a clock of its own."""
        skew = self._random.randrange(-checker.SKEW_MS // 2, checker.SKEW_MS // 2 + 1) if faults is not NONE else 0
        runtime = Runtime(lambda: self._scheduler.now + skew, self._scheduler.sleep, self._random.randbytes)
        store = FaultyStore(self._store, self._scheduler, self._random, faults)
        return build(store, runtime, _KEY), store

    def _spawn(self, act: Callable[[], None]) -> None:
        """An actor; when its process dies, it goes on in a fresh one."""
        self._scheduler.spawn(act, self._random.randrange(200))

    def _produce(self, name: str) -> None:
        service, _ = self._instance(self._plan.faults)
        share = -(-self._plan.messages // self._plan.producers)
        for number in range(share):
            self._scheduler.sleep(self._random.randrange(100))
            key = self._random.choice([None, "a", "b"])
            count = self._random.choice((1, 1, 3))
            batch = [Sent(f"{name}-{number}.{part}", key, self._scheduler.now) for part in range(count)]
            self.history.sent += batch
            self._send(service, batch)

    def _send(self, service: Service, batch: list[Sent]) -> None:
        padding = _noise(self._random, self._random.choice((0, 0, 150, 2_000)))
        messages = [(Message(f"{each.body}|{padding}".encode(), True, each.key, None, {}), None) for each in batch]
        for each in batch:
            each.is_unknown = True
        try:
            results = service.producer.produce(self._topic, messages)
        except StoreUnavailable as trouble:
            for each in batch:
                each.is_unknown = trouble.outcome_unknown
            return
        for each, result in zip(batch, results, strict=True):
            each.is_unknown = result.error is not None and result.error.outcome_unknown
            if result.offset is not None:
                each.place = (result.queue, result.offset)

    def _consume(self, name: str, group: str) -> None:
        service, _ = self._instance(self._plan.faults)
        acks: list[Delivered] = []
        for number in range(12):
            self._scheduler.sleep(self._random.randrange(300))
            attempt_id = f"{name}{number}" if self._random.random() < 0.3 else None
            riding, acks = acks, []
            got = self._pop(service, group, riding, attempt_id, self._random.choice((1, 3, 10)))
            for each in got:
                fate = self._random.random()
                if fate < 0.2:
                    acks.append(each)
                elif fate < 0.6:
                    self._settle(service, "ack", [each])
                elif fate < 0.7:
                    self._settle(service, "nack", [each])
                elif fate < 0.8:
                    self._settle(service, "extend", [each])
                elif fate < 0.9:
                    self._settle(service, "ack", [other for other in got if other.place[1] % 2 == 0] or [each])
                if self._random.random() < 0.2:
                    self._scheduler.sleep(self._random.randrange(2_500))

    def _pop(
        self, service: Service, group: str, riding: list[Delivered], attempt_id: str | None, count: int
    ) -> list[Delivered]:
        began = self._scheduler.now
        invisible_ms = self._random.choice((200, 1_000, 3_000))
        ask = Pop(count, invisible_ms, 0, None, attempt_id, tuple(each.receipt for each in riding))
        acks = [Settled("ack", group, each.place, each.receipt, began, began, "unknown") for each in riding]
        self.history.settled += acks
        try:
            popped = service.consumer.pop(self._topic, group, ask)
        except StoreUnavailable:
            return []
        failed = {each.receipt: each.code for each in popped.failed}
        for ack in acks:
            ack.outcome, ack.at_ms = failed.get(ack.receipt, "ok"), self._scheduler.now
        got = [
            Delivered(
                group,
                (each.stored.queue, each.stored.offset),
                each.stored.message.body.decode().split("|")[0],
                each.stored.message_id,
                each.attempt,
                began,
                self._scheduler.now,
                each.invisible_until_ms,
                each.receipt,
            )
            for each in popped.deliveries
        ]
        self.history.delivered += got
        return got

    def _settle(self, service: Service, verb: str, messages: list[Delivered]) -> None:
        began = self._scheduler.now
        facts = [Settled(verb, each.group, each.place, each.receipt, began, began, "unknown") for each in messages]
        self.history.settled += facts
        group, receipts = messages[0].group, [each.receipt for each in messages]
        try:
            if verb == "ack":
                failed = service.settler.ack(self._topic, group, receipts)
            elif verb == "nack":
                failed = service.settler.nack(self._topic, group, receipts, self._random.randrange(500), "because")
            else:
                extended, failed = service.settler.extend(self._topic, group, receipts, 2_000)
                renewed = {each.receipt: each for each in extended}
                for fact in facts:
                    if fact.receipt in renewed:
                        fact.new_receipt = renewed[fact.receipt].new_receipt
                        fact.until_ms = renewed[fact.receipt].invisible_until_ms
        except StoreUnavailable:
            return
        codes = {each.receipt: each.code for each in failed}
        for fact in facts:
            fact.outcome, fact.at_ms = codes.get(fact.receipt, "ok"), self._scheduler.now

    def _reset(self) -> None:
        service, _ = self._instance(self._plan.faults)
        self._scheduler.sleep(self._random.randrange(2_000))
        fact = Reset(self._random.choice(self._groups), self._scheduler.now, 10**15)
        self.history.resets.append(fact)
        try:
            service.groups.reset(self._topic, fact.group, "earliest")
            fact.at_ms = self._scheduler.now
        except DecantError:
            return

    def _drain(self) -> None:
        """No more faults: whatever is not settled comes within the longest lease and backoff."""
        for group in self._groups:
            self.history.drained[group] = set()
            self._scheduler.spawn(partial(self._drain_group, group), 20_000)
        self._scheduler.spawn(self._read_log, 30_000)
        self._scheduler.run(_STEPS_MAX)

    def _drain_group(self, group: str) -> None:
        service, _ = self._instance(NONE)
        while got := self._pop(service, group, [], None, 256):
            self.history.drained[group] |= {each.place for each in got}
            self._settle(service, "ack", got)

    def _read_log(self) -> None:
        service, _ = self._instance(NONE)
        details = service.topics.details("t")
        self.history.ends = dict(enumerate(details.queue_ends))
        found = service.lookup.read(self._topic, dict.fromkeys(range(self._plan.queues), 0), 1_000)
        self.history.log = {
            (each.queue, each.offset): each.message.body.decode().split("|")[0] for each in found.messages
        }

    def _passed(self) -> Iterator[str]:
        ends = [(key.pk, since, item["end"]) for key, since, item in self._store.versions("entries")]
        for key, at, cursor in self._store.versions("leases"):
            log = self._topic.log(int(key.sk.rsplit("#", 1)[1]))
            end = max((end for pk, since, end in ends if pk == log and since <= at), default=0)
            if cursor["next"][0] > end:
                yield f"{key.sk} stood at {cursor['next'][0]} at {at}, the log ended at {end}"


def _noise(random: Random, length: int) -> str:
    return "".join(random.choices("abcdefghijklmnopqrstuvwxyz0123456789", k=length))


def play(seed: int, plan: Plan) -> list[str]:
    return World(seed, plan).run()
