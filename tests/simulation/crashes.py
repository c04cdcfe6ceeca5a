"""Every operation, killed after each of its requests to the store: alone, and in the middle of another.

The scene is a topic in which something of everything has happened: entries inside and outside of segments, a lease in
somebody's hands, one that ran out, one partly acked, a message at its last attempt, a retry. In a second one there are
a dead letter, messages that wait, an undecided transaction, and a dedup id besides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Self

from chalicelib.core.base.errors import DecantError, TopicNotFound
from chalicelib.core.catalogue.group_forms import ALARMS_TOPIC, Alarm
from chalicelib.core.consuming.request import Pop
from chalicelib.core.cursors.progress import QueueOffsets
from chalicelib.service import Service
from tests.history import checker
from tests.history.caller import Caller
from tests.history.facts import NEVER_MS, Delivered, Place, Purge, Redrive
from tests.history.final_state import read_dead, read_log, take_all
from tests.history.history import History, Rules
from tests.history.transactions import COMMIT, ROLLBACK, TransactionCaller, note_places
from tests.simulation.alarms import read_told, untold
from tests.support.stopping import Stage, Work, die_after, finish, stop_after

_LARGE = 3_000

QUIET_MS = 30_000
_ROLLBACK_MS = 500_000


@dataclass(slots=True)
class Held:
    """The deliveries that the scene's consumers hold."""

    live: list[Delivered]
    partly_acked: list[Delivered]
    lost: list[Delivered]
    """Others have taken these messages over."""
    ran_out: list[Delivered]
    last_attempt: list[Delivered]


class Scene(Stage):
    def __init__(self, waits: bool = False) -> None:
        """`waits`: with delayed messages, and the rest of the second scene."""
        super().__init__()
        self._waits = waits
        self._producers = 0
        self.history, self.held = History(), Held([], [], [], [], [])
        service = self.instance()
        self.topic, _ = service.admin.topics.put("t", {"queues": 1})
        service.admin.topics.put(ALARMS_TOPIC, {"queues": 1})
        service.admin.groups.put(self.topic, "g", {"max_attempts": 2, "alarm": Alarm({"ready": 1})})
        service.admin.groups.put(self.topic, "spare", {"max_attempts": 2})
        self.history.rules["g"] = Rules(2, 1_000)
        caller = self.caller(service)
        for number, size in enumerate((0, _LARGE, 300, 300, 0, _LARGE)):
            caller.send([f"s-{number}.{part}" for part in range(3)], ["k"] * 3, self.noise(size))
        self.held.last_attempt = _popped(caller, 2, 1_000)
        self.now += 1_000
        self.held.last_attempt = _popped(caller, 2, 60_000)
        self.held.lost = _popped(caller, 3, 1_000)
        self.now += 1_000
        self.held.live = _popped(self.caller(self.instance()), 3, 60_000)
        self.held.partly_acked = _popped(caller, 3, 60_000)
        caller.ack(self.held.partly_acked[1:2])
        _popped(caller, 3, 1_000)
        self.now += 1_000
        _popped(caller, 3, 1_000)
        self.held.ran_out = _popped(caller, 2, 1_000)
        self.now += 1_000
        caller.nack(_popped(self.caller(self.instance()), 1, 60_000), 500)
        service.consuming.pop(self.topic, "spare", Pop(2, 1_000))
        if waits:
            self._wait(service, caller)

    def _wait(self, service: Service, caller: Caller) -> None:
        caller.send(["s-6.0", "s-6.1", "s-6.2"], ["k"] * 3, "", ["taken", None, None])
        caller.bury(_popped(caller, 1, 60_000))
        self.now += 10
        caller.send(["s-7.0"], [None], self.noise(_LARGE), (), [self.now + 5])
        caller.send(["s-8.0", "s-8.1"], [None] * 2, "", (), [self.now + ms for ms in (5, 5_000)])
        begin = self.transactor(service).begin
        self.begun = begin(["s-9.0", "s-9.1"], [None] * 2, 10, _ROLLBACK_MS, self.noise(_LARGE))
        self.now += 10

    def copy(self) -> Self:
        other = super().copy()
        other.history = self.history.copy()
        return other

    def caller(self, service: Service) -> Caller:
        return Caller(service, self.topic, self.history, lambda: self.now, asks_for_topic=self._waits)

    def transactor(self, service: Service) -> TransactionCaller:
        return TransactionCaller(service, self.topic, self.history, lambda: self.now)

    def decide(self, service: Service, verb: str) -> str:
        return self.transactor(service).decide(self.begun.id or "", verb)

    def clear(self, service: Service) -> None:
        """A check after the alarm was raised, and nothing is ready any more."""
        other = self.instance()
        other.sweeps.check()
        take_all(self.caller(other), "g")
        service.sweeps.check()

    def bodies(self, count: int) -> list[str]:
        """Each producer has a name of its own: the order in which their messages of one key mix is unknown."""
        self._producers += 1
        return [f"p{self._producers}-1.{part}" for part in range(count)]

    def redrive(self, service: Service) -> None:
        self.history.redrives.append(fact := Redrive("g", self.now, NEVER_MS))
        service.dead_letters.redrive.all(self.topic, "g")
        fact.at_ms = self.now

    def purge(self, service: Service) -> None:
        self.history.purges.append(fact := Purge("g", self.now))
        service.dead_letters.queue.purge(self.topic, "g")
        fact.at_ms = self.now

    def cancel(self, service: Service, number: int) -> None:
        """One of the three delayed messages: the large one that is due, a small one, or the last."""
        waiting = [sent for sent in self.history.sent if sent.told_due_ms]
        self.caller(service).cancel(waiting[number].message_id or "")

    def verdict(self) -> list[str]:
        """The violations after all leases have expired and the topic was drained."""
        self.now += QUIET_MS
        service = self.instance()
        try:
            current = service.env.catalogue.current_topic("t")
        except TopicNotFound:
            return list(_wrong_after_deletion(service))
        self._drain(service)
        if self._waits:
            self._ask_again(service)
        self.history.ends = {each.queue: each.end_offset for each in service.admin.topics.offsets(current)}
        read_log(service, current, self.history)
        read_told(service, self.history)
        note_places(self.history)
        return [*checker.violations(self.history), *untold(service, current, "g", self.history)]

    def _ask_again(self, service: Service) -> None:
        """Each answer has to fit all others, and what came."""
        for number in range(3):
            self.cancel(service, number)
        self.now += _ROLLBACK_MS
        for verb in (COMMIT, ROLLBACK):
            assert self.decide(service, verb) != "unknown"

    def _drain(self, service: Service) -> None:
        came: set[Place] = set()
        for _ in range(2):
            came |= take_all(self.caller(service), "g")
            self.now += 70_000  # leased by a caller that died
        self.history.drained["g"] = came
        read_dead(service, self.topic, "g", self.history)


def _popped(caller: Caller, count: int, invisible_ms: int) -> list[Delivered]:
    got = caller.pop("g", Pop(count, invisible_ms)) or []
    assert len(got) == count
    return got


def _wrong_after_deletion(service: Service) -> Iterator[str]:
    """Made again, the topic has nothing of the old one."""
    made, _ = service.admin.topics.put("t", {"queues": 1})
    groups, offsets = service.env.catalogue.groups(made), service.admin.topics.offsets(made)
    if groups or offsets != [QueueOffsets(0, 0, 0)]:
        yield f"made again it has {groups} and {offsets}"
    service.admin.groups.put(made, "g", {})
    if service.consuming.pop(made, "g", Pop(10)).deliveries:
        yield "made again it has messages"


Operation = Callable[[Scene, Service], object]

OPERATIONS: dict[str, Operation] = {
    "make a topic": lambda _, service: service.admin.topics.put("u", {"queues": 2}),
    "make a group": lambda scene, service: service.admin.groups.put(scene.topic, "h", {}),
    "change a group": lambda scene, service: service.admin.groups.put(scene.topic, "g", {"invisible_ms": 5_000}),
    "remove a group": lambda scene, service: service.admin.groups.delete(scene.topic, "spare"),
    "remove the topic": lambda _, service: service.admin.topics.delete(service.env.catalogue.current_topic("t")),
    "produce small": lambda scene, service: scene.caller(service).send(scene.bodies(2), ["k", "k"], ""),
    "produce large": lambda scene, service: scene.caller(service).send(scene.bodies(1), ["k"], scene.noise(_LARGE)),
    "pop": lambda scene, service: scene.caller(service).pop("g", Pop(10, 5_000)),
    "pop by attempt": lambda scene, service: scene.caller(service).pop("g", Pop(2, 5_000, attempt_id="a")),
    "pop and ack": lambda scene, service: scene.caller(service).pop(
        "g", Pop(10, 5_000, ack=tuple(message.receipt for message in scene.held.live)), scene.held.live
    ),
    "ack all": lambda scene, service: scene.caller(service).ack(scene.held.live),
    "ack too late": lambda scene, service: scene.caller(service).ack(scene.held.lost),
    "ack late": lambda scene, service: scene.caller(service).ack(scene.held.ran_out),
    "ack the rest": lambda scene, service: scene.caller(service).ack(scene.held.partly_acked),
    "nack": lambda scene, service: scene.caller(service).nack(scene.held.live[:2], 300),
    "nack for the last time": lambda scene, service: scene.caller(service).nack(scene.held.last_attempt, 300),
    "bury": lambda scene, service: scene.caller(service).bury(scene.held.partly_acked),
    "extend": lambda scene, service: scene.caller(service).extend(scene.held.live[1:], 20_000),
    "reset": lambda scene, service: scene.caller(service).reset("g", "earliest"),
    "forward": lambda _, service: service.sweeps.forward(),
    "revive": lambda _, service: service.sweeps.revive(),
    "expire": lambda _, service: service.sweeps.expire(),
}


LATER: dict[str, Operation] = {
    "produce once": lambda scene, service: scene.caller(service).send(
        scene.bodies(2), ["k", "k"], "", ["new", "newer"]
    ),
    "produce again": lambda scene, service: scene.caller(service).send(
        scene.bodies(2), [None] * 2, "", ["taken", None]
    ),
    "produce for later": lambda scene, service: scene.caller(service).send(
        scene.bodies(2), [None] * 2, "", ["late", None], [scene.now + 1_000] * 2
    ),
    "cancel": lambda scene, service: scene.cancel(service, 2),
    "cancel what is due": lambda scene, service: scene.cancel(service, 1),
    "cancel a large one": lambda scene, service: scene.cancel(service, 0),
    "begin": lambda scene, service: scene.transactor(service).begin(scene.bodies(2), [None] * 2, 10, _ROLLBACK_MS),
    "commit": lambda scene, service: scene.decide(service, COMMIT),
    "roll back": lambda scene, service: scene.decide(service, ROLLBACK),
    "check transactions": lambda scene, service: scene.transactor(service).check(10),
    "redrive": lambda scene, service: scene.redrive(service),
    "purge": lambda scene, service: scene.purge(service),
    "reset to now": lambda scene, service: scene.caller(service).reset("g", "now"),
    "check": lambda _, service: service.sweeps.check(),
    "check what is settled": lambda scene, service: scene.clear(service),
}
"""Operations that need the second scene."""

MEETING = ("pop", "forward")
"""Operations that these may disturb, or be disturbed by."""

EVERY = OPERATIONS | LATER


def work(scene: Scene, name: str) -> Work:
    return lambda stop: EVERY[name](scene, scene.instance(stop))


def after_a_crash(scene: Scene, name: str, request: int) -> list[str]:
    """The violations after the caller dies after this request and another caller repeats the operation."""
    fresh = scene.copy()
    die_after(work(fresh, name), request)
    with suppress(DecantError):  # it may be done, or gone
        EVERY[name](fresh, fresh.instance())
    return fresh.verdict()


def after_two_crashes(scene: Scene, names: tuple[str, str], requests: tuple[int, int], goes_on: bool) -> list[str]:
    """The first caller stops after its request, the second runs to its own and dies. Then the first dies too, or
    continues."""
    fresh = scene.copy()
    running = stop_after(work(fresh, names[0]), requests[0])
    die_after(work(fresh, names[1]), requests[1])
    finish(running, goes_on)
    return fresh.verdict()
