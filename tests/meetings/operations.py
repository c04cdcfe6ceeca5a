"""Operations of others between the read of a call and its write: one function each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from chalicelib.core.catalogue.group_forms import Filter
from chalicelib.service import Service
from tests.history.facts import NEVER_MS, Delivered, Paused, Reset
from tests.history.history import History
from tests.history.transactions import COMMIT, ROLLBACK
from tests.meetings.calls import cancel_first, purge_dead, redrive
from tests.meetings.scene import LONG_MS, SHORT_MS, Act, Scene

MOMENT_MS = 5


def take(count: int, invisible_ms: int = LONG_MS, **fields: Any) -> Act:
    """Another caller pops, and holds the messages."""

    def act(scene: Scene, service: Service) -> None:
        scene.taken = scene.caller(service).pop("g", scene.ask(count, invisible_ms, **fields)) or []

    return act


def settled(settle: Callable[[Any, Sequence[Delivered]], object], count: int = 100) -> Act:
    """Others settle this many of the messages that they hold."""

    def act(scene: Scene, service: Service) -> None:
        if scene.theirs:
            settle(scene.caller(service), scene.theirs[:count])

    return act


def reset(to: str | tuple[int, int]) -> Act:
    return lambda scene, service: scene.caller(service).reset("g", to)


def time_passes(ms: int) -> Act:
    return lambda scene, _: scene.wait(ms)


def both(*acts: Act) -> Act:
    def act(scene: Scene, service: Service) -> None:
        for each in acts:
            each(scene, service)

    return act


def taken_and_acked(scene: Scene, service: Service) -> None:
    caller = scene.caller(service)
    if got := caller.pop("g", scene.ask(10)):
        caller.ack(got)


def acked_in_a_pop(scene: Scene, service: Service) -> None:
    ask = scene.ask(2, ack=tuple(held.receipt for held in scene.theirs))
    scene.caller(service).pop("g", ask, scene.theirs)


def produced(count: int, size: int = 0) -> Act:
    return lambda scene, service: scene.caller(service).send(scene.bodies(count), [None] * count, scene.noise(size))


def log_grown(scene: Scene, service: Service) -> None:
    """Grows the log into another segment."""
    for _ in range(33):
        scene.caller(service).send(scene.bodies(1), [None], "x" * 40)


def decided(verb: str) -> Act:
    return lambda scene, service: scene.transactor(service).decide(scene.begun.id or "", verb)


def changed(**settings: Any) -> Act:
    return lambda scene, service: service.admin.groups.put(scene.topic, "g", settings)


def more_attempts(scene: Scene, service: Service) -> None:
    rules = scene.history.rules["g"]
    most = rules.max_attempts + 2
    scene.history.rules["g"] = replace(rules, max_attempts=most, least_attempts=rules.max_attempts)
    service.admin.groups.put(scene.topic, "g", {"max_attempts": most})


def fewer_attempts(scene: Scene, service: Service) -> None:
    scene.history.rules["g"] = replace(scene.history.rules["g"], least_attempts=1)
    service.admin.groups.put(scene.topic, "g", {"max_attempts": 1})


def paused(scene: Scene, service: Service) -> None:
    scene.history.pauses.append(fact := Paused("g", True, scene.now))
    service.admin.groups.put(scene.topic, "g", {"paused": True})
    fact.at_ms, fact.is_answered = scene.now, True


def more_queues(scene: Scene, service: Service) -> None:
    service.admin.topics.put("t", {"queues": scene.queues + 2})


def group_made_again(scene: Scene, service: Service) -> None:
    """For the history, this is a reset."""
    scene.is_made_again = True
    scene.history.resets.append(fact := Reset("g", scene.now, NEVER_MS))
    service.admin.groups.delete(scene.topic, "g")
    scene.make_group(service)
    fact.at_ms = scene.now


def topic_made_again(scene: Scene, service: Service) -> None:
    """Nothing of the old topic counts, but a reset under way may find the new one."""
    scene.is_made_again = scene.is_new_topic = True
    scene.taken = []
    service.admin.topics.delete(service.env.catalogue.current_topic("t"))
    scene.history = History(resets=[each for each in scene.history.resets if each.at_ms == NEVER_MS])
    scene.make(service)
    scene.send(1)


def swept(name: str) -> Act:
    return lambda _, service: getattr(service.sweeps, name)()


def promoted_twice(scene: Scene, service: Service) -> None:
    """Promotes due messages, and a moment later those that are due by then."""
    service.sweeps.forward()
    scene.caller(service).send(scene.bodies(1), [None], "", (), [scene.now + MOMENT_MS])
    scene.wait(MOMENT_MS)
    service.sweeps.forward()


def transactions_checked(scene: Scene, service: Service) -> None:
    """A check gives undecided transactions to a caller, when they are due."""
    scene.wait(LONG_MS)
    scene.transactor(service).check(10)


ack_theirs = settled(lambda caller, held: caller.ack(held))
nack_theirs = settled(lambda caller, held: caller.nack(held, 0))
bury_theirs = settled(lambda caller, held: caller.bury(held))

OF_CURSORS: dict[str, Act] = {
    "one is taken": take(1),
    "all is taken": take(10),
    "the attempt is made elsewhere": take(3, attempt_id="again"),
    "theirs is acked": ack_theirs,
    "theirs is acked in a pop": acked_in_a_pop,
    "theirs is nacked": nack_theirs,
    "theirs is nacked for long": settled(lambda caller, held: caller.nack(held, LONG_MS)),
    "theirs is nacked, and all is taken": both(nack_theirs, take(10)),
    "theirs is extended": settled(lambda caller, held: caller.extend(held, LONG_MS + SHORT_MS)),
    "theirs is buried": bury_theirs,
    "theirs is buried and redriven": both(bury_theirs, redrive),
    "dead letters are purged": purge_dead,
    "the dead are redriven, and one is taken": both(redrive, take(1)),
    "the group is reset to earliest": reset("earliest"),
    "the group is reset, and all is taken": both(reset("earliest"), take(10)),
    "a moment passes, and one is taken": both(time_passes(SHORT_MS), take(1)),
}
"""Changes of cursors, each in a way of its own."""

OF_WAITING: dict[str, Act] = {
    "all is taken": take(10),
    "what is due is promoted": swept("forward"),
    "what is due is promoted twice": promoted_twice,
    "all that waits is due, and is promoted": both(time_passes(LONG_MS), swept("forward")),
    "a message is cancelled": cancel_first,
    "a transaction is committed": decided(COMMIT),
    "a transaction is rolled back": decided(ROLLBACK),
    "transactions are checked": transactions_checked,
    "alarms are checked": swept("check"),
    "an alarm changes twice": both(swept("check"), taken_and_acked, swept("check")),
    "the topic is made again": topic_made_again,
}
"""Changes of waiting messages."""

OTHERS: dict[str, Act] = {
    **OF_WAITING,
    "all is taken for a moment": both(take(10, MOMENT_MS), time_passes(MOMENT_MS)),
    "all is taken and acked": taken_and_acked,
    "one of theirs is acked": settled(lambda caller, held: caller.ack(held), count=1),
    "one of theirs is nacked": settled(lambda caller, held: caller.nack(held, 0), count=1),
    "one of theirs is extended": settled(lambda caller, held: caller.extend(held, LONG_MS + SHORT_MS), count=1),
    "theirs is extended to its end": settled(lambda caller, held: caller.extend(held, MOMENT_MS)),
    "the group is reset to now": reset("now"),
    "the group is made again, and all is taken": both(group_made_again, take(10)),
    "a moment passes, and all is taken": both(time_passes(SHORT_MS), take(10)),
    "leases run out, and all is taken": both(time_passes(LONG_MS + SHORT_MS), take(10)),
    "there are more attempts": more_attempts,
    "there are fewer attempts": fewer_attempts,
    "all is taken, and the group is reset": both(take(10), reset("earliest")),
    "the group is reset to latest": reset("latest"),
    "the queue is reset to an offset": reset((0, 1)),
    "the group is made again": group_made_again,
    "there are more queues": more_queues,
    "one is produced": produced(1),
    "much is produced": produced(3, size=3_000),
    "the log grows": log_grown,
    "there is another filter": changed(filter=Filter({"expression": "key != 'x' && key != 'none'"})),
    "the cap is lower": changed(max_in_flight=1),
    "leases are shorter": changed(invisible_ms=SHORT_MS),
    "the group is paused": paused,
    "what ran out is revived": swept("revive"),
    "what expired is swept": swept("expire"),
}
"""Operations that seldom meet a cursor, or resemble another one here."""
