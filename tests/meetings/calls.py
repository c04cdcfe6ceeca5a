"""Calls that read, and then write: each function sets a scene, and names the call made on it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from chalicelib.core.base.limits import SECOND_MS
from chalicelib.core.base.message import parse_message_id
from chalicelib.core.catalogue.group import BROADCAST, BY_DELIVERY, BY_KEY, BY_MESSAGE
from chalicelib.core.catalogue.group_forms import Alarm, Filter, Rate
from chalicelib.core.cursors import cursor_writes
from chalicelib.core.cursors.lease import MARKS_MAX
from chalicelib.core.table import keys
from chalicelib.service import Service
from tests.history.caller import Caller
from tests.history.facts import NEVER_MS, Purge, Redrive
from tests.history.final_state import read_log
from tests.history.transactions import COMMIT, ROLLBACK
from tests.meetings.scene import LONG_MS, SHORT_MS, Act, Scene, cold
from tests.support.small import small_pages

CALLS: dict[str, Callable[[], Scene]] = {}
"""Calls of claims and of settling."""
WAITING_CALLS: dict[str, Callable[[], Scene]] = {}
"""Calls about waiting messages, and about alarms."""
HEAVY_BYTES = 3_000
"""Too much for a segment: the message has a payload of its own."""
NO_X = Filter({"expression": "key != 'x'"})


def call(scene: Callable[[], Scene]) -> Callable[[], Scene]:
    CALLS[scene.__name__] = scene
    return scene


def call_of_waiting(scene: Callable[[], Scene]) -> Callable[[], Scene]:
    WAITING_CALLS[scene.__name__] = scene
    return scene


def pop(count: int, with_mine: bool = False, **fields: Any) -> Act:
    """`with_mine`: it acks the caller's deliveries."""

    def act(scene: Scene, service: Service) -> None:
        riding = scene.mine if with_mine else []
        ask = scene.ask(count, ack=tuple(held.receipt for held in riding), **fields)
        scene.got = scene.caller(service).pop("g", ask, riding) or []

    return act


def with_fresh(count: int, act: Act, **settings: Any) -> Scene:
    scene = Scene(**settings)
    scene.send(count)
    scene.act = act
    return scene


def with_expired(count: int, act: Act, fresh: int = 2, **settings: Any) -> Scene:
    """A lease of others has expired."""
    scene = Scene(is_held=False, **settings)
    scene.send(count)
    scene.theirs = scene.lease(count, SHORT_MS)
    scene.wait(SHORT_MS)
    scene.send(fresh)
    scene.act = act
    return scene


def torn(scene: Scene) -> Scene:
    scene.is_torn = True
    return scene


# -- claims -----------------------------------------------------------------------------------------------------------


@call
def a_fresh_claim() -> Scene:
    return with_fresh(5, pop(3))


@call
def a_claim_of_all_there_is() -> Scene:
    return with_fresh(2, pop(10))


@call
def an_attempt() -> Scene:
    return with_fresh(9, pop(3, attempt_id="again"))


@call
def a_repeated_attempt() -> Scene:
    """Others may have settled the messages that it leased."""
    callers: list[Caller] = []

    def once(scene: Scene, service: Service) -> None:
        callers[:] = [scene.caller(service)]
        scene.theirs = callers[0].pop("g", scene.ask(3, attempt_id="twice")) or []

    def again(scene: Scene, _: Service) -> None:
        scene.got = callers[0].pop("g", scene.ask(3, attempt_id="twice")) or []

    scene = with_fresh(9, again, is_held=False)
    scene.warm = once
    return scene


@call
def a_takeover() -> Scene:
    return with_expired(3, pop(3))


@call
def a_takeover_of_a_part() -> Scene:
    scene = with_expired(5, pop(2))
    scene.caller(scene.instance()).ack(scene.theirs[1:2])
    return scene


@call
def a_takeover_and_a_fresh_claim() -> Scene:
    return with_expired(2, pop(10), fresh=4)


@call
def a_claim_behind_what_dies() -> Scene:
    return with_expired(2, pop(2), max_attempts=1)


@call
def a_claim_behind_what_dies_by_message() -> Scene:
    """Its holder may extend it in place."""
    return with_expired(2, pop(2), max_attempts=1, settle_by=BY_MESSAGE)


@call
def a_claim_behind_what_dies_in_part() -> Scene:
    scene = with_expired(4, pop(2), max_attempts=1)
    scene.caller(scene.instance()).ack(scene.theirs[1:2])
    return scene


@call
def a_claim_of_retries() -> Scene:
    scene = with_fresh(2, pop(10))
    scene.theirs += scene.lease(2)
    scene.caller(scene.instance()).nack(scene.theirs[:3], SHORT_MS)
    scene.wait(SHORT_MS)
    scene.send(2)
    return scene


@call
def a_claim_of_a_retry_page() -> Scene:
    scene = with_fresh(4, pop(10))
    scene.around = small_pages
    scene.theirs += scene.lease(4)
    with small_pages():
        for held in scene.theirs[:5]:
            scene.caller(scene.instance()).nack([held], SHORT_MS)
    scene.wait(SHORT_MS)
    return scene


@call
def a_filtered_claim() -> Scene:
    scene = with_fresh(0, pop(3), filter=NO_X)
    scene.send(8, "x", "a", "x", "b")
    return scene


@call
def a_filtered_claim_of_the_first() -> Scene:
    """It passes nothing: the messages behind are not for the group."""
    scene = with_fresh(0, pop(1), filter=NO_X)
    scene.send(4, "a", "x")
    return scene


@call
def a_filtered_takeover() -> Scene:
    scene = with_expired(2, pop(10), filter=NO_X)
    scene.send(4, "x", "a")
    return scene


@call
def a_heavy_claim() -> Scene:
    scene = with_fresh(0, pop(10))
    scene.send(3, size=HEAVY_BYTES)
    return scene


@call
def a_claim_of_what_is_lost() -> Scene:
    scene = with_fresh(0, pop(10))
    scene.send(3, size=HEAVY_BYTES)
    read_log(scene.instance(), scene.topic, scene.history)
    place = max(scene.history.ids)
    parsed = parse_message_id(scene.history.ids[place])
    assert parsed
    assert scene.store.lose(keys.payload(scene.topic.id, parsed[0], 0))
    scene.history.lost = {place: scene.now}
    return scene


@call
def a_claim_that_fills_the_cap() -> Scene:
    return with_fresh(6, pop(10), max_in_flight=5)


@call
def a_claim_below_the_cap() -> Scene:
    return with_fresh(6, pop(2), max_in_flight=5)


@call
def a_takeover_at_the_cap() -> Scene:
    scene = Scene(max_in_flight=4)
    scene.send(2)
    scene.lease(2, SHORT_MS)
    scene.wait(SHORT_MS)
    scene.send(4)
    scene.act = pop(10)
    return scene


@call
def a_claim_at_the_cap_with_retries() -> Scene:
    scene = with_fresh(4, pop(10), max_in_flight=4)
    scene.caller(scene.instance()).nack(scene.theirs[:1], SHORT_MS)
    return scene


@call
def a_claim_at_the_cap_that_acks() -> Scene:
    scene = Scene(max_in_flight=4)
    scene.mine, scene.theirs = scene.theirs, scene.theirs[:1]
    scene.send(6)
    scene.lease(2)
    scene.act = pop(10, with_mine=True)
    return scene


@call
def a_claim_at_the_cap_that_acks_a_part() -> Scene:
    """Others may take over the messages that it acks."""
    scene = Scene(is_held=False, max_in_flight=4)
    scene.send(4)
    scene.theirs = scene.lease(4, SHORT_MS)
    scene.mine = scene.theirs[:2]
    scene.send(6)
    scene.act = pop(10, with_mine=True)
    return scene


@call
def a_claim_at_the_cap_that_acks_a_retry() -> Scene:
    """The message was not in flight."""
    scene = Scene(max_in_flight=4, settle_by=BY_MESSAGE)
    scene.mine = scene.theirs
    scene.caller(scene.instance()).nack(scene.mine, LONG_MS)
    scene.send(8)
    scene.theirs = scene.lease(2)
    scene.act = pop(10, with_mine=True)
    return scene


@call
def a_rated_claim() -> Scene:
    return with_fresh(6, pop(10), rate_limit=Rate(4))


@call
def a_rated_claim_in_a_new_window() -> Scene:
    scene = with_fresh(10, pop(10), rate_limit=Rate(4))
    scene.wait(SECOND_MS)
    return scene


@call
def an_ordered_claim() -> Scene:
    scene = Scene(is_held=False, ordered=True)
    scene.send(4)
    scene.act = pop(2)
    return scene


@call
def an_ordered_takeover() -> Scene:
    return with_expired(2, pop(10), ordered=True)


@call
def an_ordered_claim_that_acks() -> Scene:
    scene = Scene(ordered=True)
    scene.mine, scene.theirs = scene.theirs, scene.theirs[:1]
    scene.send(4)
    scene.act = pop(2, with_mine=True)
    return scene


@call
def a_claim_ordered_by_key() -> Scene:
    """The first key has leased messages, the second one some whose lease has expired, the third one some set aside."""
    scene = Scene(is_held=False, ordered=BY_KEY)
    scene.send(6, "a", "b", "a", "c")
    scene.lease(1)
    scene.theirs = scene.lease(1, SHORT_MS)
    scene.wait(SHORT_MS)
    scene.send(4, "b", "a", None, "c")
    scene.act = pop(4)
    return scene


@call
def a_claim_ordered_by_key_that_acks() -> Scene:
    """The pop acks the message that blocks the next one of the first key. Others hold it as well."""
    scene = Scene(is_held=False, ordered=BY_KEY)
    scene.send(2, "a", "b")
    scene.theirs = scene.lease(2)
    scene.mine = scene.theirs[:1]
    scene.send(4, "a", "c")
    scene.act = pop(10, with_mine=True)
    return scene


@call
def a_broadcast_claim() -> Scene:
    return with_fresh(4, pop(3), mode=BROADCAST)


@call
def a_broadcast_takeover() -> Scene:
    return with_expired(2, pop(10), mode=BROADCAST)


@call
def a_pop_that_fills() -> Scene:
    scene = Scene(queues=2, is_held=False)
    scene.send(6, "a", "b", "c", "d")
    scene.theirs = scene.lease(1)
    scene.act = pop(10, fill=True)
    return scene


@call
def a_takeover_by_message() -> Scene:
    return with_expired(3, pop(10), settle_by=BY_MESSAGE)


@call
def a_takeover_by_delivery() -> Scene:
    return with_expired(3, pop(10), settle_by=BY_DELIVERY)


@call
def a_claim_that_acks() -> Scene:
    scene = with_fresh(4, pop(2, with_mine=True))
    scene.mine = scene.theirs
    return scene


@call
def a_claim_that_acks_what_ran_out() -> Scene:
    scene = with_expired(2, pop(3, with_mine=True))
    scene.mine = scene.theirs
    return scene


@call
def a_claim_after_a_purge() -> Scene:
    return purged(pop(3))


@call
def a_claim_before_what_was_purged() -> Scene:
    return purged(pop(2))


def purged(act: Act) -> Scene:
    """After two messages come two that waited when the group was purged, and may not come."""
    scene = Scene()
    service = scene.instance()
    scene.caller(service).send(scene.bodies(2), [None] * 2, "", (), [scene.now + SHORT_MS] * 2)
    scene.wait(1)
    scene.caller(service).reset("g", "now")
    scene.theirs = []
    scene.send(2)
    scene.wait(SHORT_MS)
    service.sweeps.forward()
    scene.send(2)
    scene.act = act
    return scene


@call
def a_claim_of_a_group_with_a_delay() -> Scene:
    scene = Scene(is_held=False, delay_ms=SHORT_MS)
    scene.send(3)
    scene.wait(SHORT_MS)
    scene.send(2)
    scene.theirs = scene.lease(1)
    scene.act = pop(10)
    return scene


@call_of_waiting
def a_promotion_in_a_pop() -> Scene:
    scene = with_fresh(0, pop(10))
    scene.caller(scene.instance()).send(scene.bodies(3), [None] * 3, "", (), [scene.now + SHORT_MS] * 3)
    scene.warm = cold  # a look promotes
    scene.wait(SHORT_MS)
    return scene


# -- settling ---------------------------------------------------------------------------------------------------------


def settling(ran_out: bool, settle: Act, **settings: Any) -> Scene:
    """The caller holds messages that others settle as well; others can take them over if the lease `ran_out`."""
    scene = with_expired(3, settle, **settings) if ran_out else with_fresh(2, settle, **settings)
    scene.mine = scene.theirs
    return scene


def ack(scene: Scene, service: Service) -> None:
    scene.caller(service).ack(scene.mine)


def nack(scene: Scene, service: Service) -> None:
    scene.caller(service).nack(scene.mine, SHORT_MS)


def extend(scene: Scene, service: Service) -> None:
    scene.got = scene.caller(service).extend(scene.mine[:2], LONG_MS)


def bury(scene: Scene, service: Service) -> None:
    scene.caller(service).bury(scene.mine)


def warm_pop(scene: Scene, service: Service) -> None:
    """The instance has popped the messages that it settles, and knows the cursor."""
    scene.mine = scene.theirs = scene.caller(service).pop("g", scene.ask(2, SHORT_MS)) or []
    scene.wait(SHORT_MS - 50)


@call
def an_ack() -> Scene:
    return settling(False, ack)


@call
def an_ack_of_what_ran_out() -> Scene:
    return settling(True, ack)


@call
def an_ack_from_the_cache() -> Scene:
    scene = with_fresh(2, ack)
    scene.warm = warm_pop
    return scene


@call
def a_late_ack() -> Scene:
    """Acks messages that are dead, or settled, when nothing is left of their lease."""
    scene = with_fresh(2, ack)
    scene.mine = scene.theirs
    caller = scene.caller(scene.instance())
    caller.bury(scene.mine[:1])
    caller.ack(scene.mine[1:])
    scene.wait(cursor_writes.WITNESS_MS + LONG_MS)
    scene.lease(1)
    return torn(scene)


@call
def an_ack_that_merges_marks() -> Scene:
    """The caller acked so many of a lease's messages one by one that the next ack rewrites all of its marks."""
    scene = with_fresh(MARKS_MAX + 2, ack)
    held, caller = scene.lease(MARKS_MAX + 2), scene.caller(scene.instance())
    for each in held[2:]:
        caller.ack([each])
    scene.mine, scene.theirs = held[:1], held[1:2]
    return scene


@call
def an_ack_by_delivery() -> Scene:
    return settling(False, ack, settle_by=BY_DELIVERY)


@call
def an_ack_by_message() -> Scene:
    return settling(True, ack, settle_by=BY_MESSAGE)


@call
def a_nack_of_what_ran_out() -> Scene:
    return settling(True, nack)


@call
def a_nack_from_the_cache() -> Scene:
    scene = with_fresh(2, nack)
    scene.warm = warm_pop
    return scene


@call
def a_nack_that_fills_a_retry_page() -> Scene:
    """Any receipt can extend a waiting message: then the page would have it too soon."""
    scene = with_fresh(1, nack, settle_by=BY_MESSAGE)
    scene.around, scene.mine = small_pages, scene.lease(1)
    for held in scene.theirs[::-1]:
        scene.caller(scene.instance()).nack([held], SHORT_MS)
    return scene


@call
def a_last_nack() -> Scene:
    return settling(True, nack, max_attempts=1)


@call
def a_nack_by_delivery() -> Scene:
    return settling(False, nack, settle_by=BY_DELIVERY)


@call
def a_nack_by_message() -> Scene:
    return settling(True, nack, settle_by=BY_MESSAGE)


@call
def an_extension_of_what_ran_out() -> Scene:
    return settling(True, extend)


@call
def an_extension_from_the_cache() -> Scene:
    scene = with_fresh(2, extend)
    scene.warm = warm_pop
    return scene


@call
def an_extension_in_place() -> Scene:
    return settling(False, extend, settle_by=BY_DELIVERY)


@call
def an_extension_by_message() -> Scene:
    return settling(True, extend, settle_by=BY_MESSAGE)


@call
def an_extension_in_place_of_what_ran_out() -> Scene:
    """Others may take it over, or settle a part of it."""

    def extend_all(scene: Scene, service: Service) -> None:
        scene.got = scene.caller(service).extend(scene.mine, LONG_MS)

    return settling(True, extend_all, settle_by=BY_MESSAGE)


@call
def a_burial_of_what_ran_out() -> Scene:
    return settling(True, bury)


# -- what is dead, what waits, and what sweeps do ---------------------------------------------------------------------


def redrive(scene: Scene, service: Service) -> None:
    scene.history.redrives.append(fact := Redrive("g", scene.now, NEVER_MS))
    service.dead_letters.redrive.all(scene.topic, "g")
    fact.at_ms = scene.now


def purge_dead(scene: Scene, service: Service) -> None:
    scene.history.purges.append(fact := Purge("g", scene.now))
    service.dead_letters.queue.purge(scene.topic, "g")
    fact.at_ms = scene.now


@call
def a_redrive() -> Scene:
    scene = with_fresh(2, redrive)
    scene.caller(scene.instance()).bury(scene.theirs[:1])
    return torn(scene)


@call
def a_redrive_after_a_reset() -> Scene:
    """The letter's message is ready as well."""
    scene = with_fresh(2, redrive)
    scene.caller(scene.instance()).reset("g", "earliest")
    scene.theirs = scene.lease(2, SHORT_MS)
    scene.wait(SHORT_MS)
    return scene


@call
def a_purge_of_dead_letters() -> Scene:
    return with_fresh(2, purge_dead)


@call
def a_reset() -> Scene:
    return with_expired(2, lambda scene, service: scene.caller(service).reset("g", "earliest"))


@call
def a_reset_to_now() -> Scene:
    return with_expired(2, lambda scene, service: scene.caller(service).reset("g", "now"))


@call_of_waiting
def a_promotion() -> Scene:
    scene = with_fresh(0, lambda _, service: service.sweeps.forward())
    scene.caller(scene.instance()).send(scene.bodies(3), [None] * 3, "", (), [scene.now + SHORT_MS] * 3)
    scene.warm = cold  # a look promotes
    scene.wait(SHORT_MS)
    return torn(scene)


@call_of_waiting
def a_cancel() -> Scene:
    scene = with_fresh(1, cancel_first)
    scene.warm = cold
    scene.wait(LONG_MS)
    return torn(scene)


def cancel_first(scene: Scene, service: Service) -> None:
    """The message that waited first: it may be due."""
    waiting = [sent for sent in scene.history.sent if sent.told_due_ms]
    if waiting:
        scene.caller(service).cancel(waiting[0].message_id or "")


@call_of_waiting
def a_cancel_of_what_is_not_due() -> Scene:
    scene = with_fresh(1, cancel_first)
    scene.warm = cold
    return torn(scene)


@call_of_waiting
def a_commit() -> Scene:
    return torn(with_fresh(1, lambda scene, service: scene.transactor(service).decide(scene.begun.id or "", COMMIT)))


@call_of_waiting
def a_rollback() -> Scene:
    return torn(with_fresh(1, lambda scene, service: scene.transactor(service).decide(scene.begun.id or "", ROLLBACK)))


@call_of_waiting
def a_check_of_transactions() -> Scene:
    scene = with_fresh(1, lambda scene, service: scene.transactor(service).check(10))
    scene.wait(LONG_MS)
    return torn(scene)


@call
def a_revival() -> Scene:
    return with_expired(2, lambda _, service: service.sweeps.revive(), max_attempts=1)


@call_of_waiting
def a_check_that_raises_an_alarm() -> Scene:
    return torn(with_fresh(4, lambda _, service: service.sweeps.check(), alarm=Alarm({"ready": 3})))


@call_of_waiting
def a_check_that_clears_an_alarm() -> Scene:
    scene = with_fresh(4, lambda _, service: service.sweeps.check(), alarm=Alarm({"ready": 3}))
    scene.instance().sweeps.check()
    scene.theirs += scene.lease(3)
    return scene


@call
def a_produce() -> Scene:
    def act(scene: Scene, service: Service) -> None:
        scene.caller(service).send(scene.bodies(2), [None] * 2, "")

    return with_fresh(3, act)
