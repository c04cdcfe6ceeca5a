"""Bugs planted into the answers of pops."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest.mock import patch

from chalicelib.core.base.runtime import Runtime
from chalicelib.core.consuming.pop import Popper
from tests.history import idle_pops, leases, log, order, pops, zones
from tests.simulation import world
from tests.simulation.bugs.lies import Plant, calling
from tests.simulation.bugs.registry import shown_by
from tests.simulation.plans import FILLED, SET_BACK, ZONED


def _asking(**change: Any) -> Plant:
    """Changes the requests of pops."""
    return _popping(lambda ask: replace(ask, **change))


def _popping(change: Any) -> Plant:
    return calling(
        Popper, "pop", lambda true, self, topic, group, ask, *more: true(self, topic, group, change(ask), *more)
    )


def _answering(change: Any) -> Plant:
    """`change`: of the deliveries of each pop."""

    def pop(true: Any, *args: Any) -> Any:
        popped = true(*args)
        popped.deliveries = change(popped.deliveries)
        return popped

    return calling(Popper, "pop", pop)


@shown_by(order.an_answer_keeps_the_order_of_a_queue)
def answers_that_are_reversed() -> Plant:
    return _answering(lambda deliveries: deliveries[::-1])


@shown_by(log.deliveries_are_what_is_stored)
def answers_with_the_bodies_of_others() -> Plant:
    def mixed(deliveries: Any) -> Any:
        last = deliveries[-1].stored.message if deliveries else None
        return [replace(each, stored=replace(each.stored, message=last)) for each in deliveries]

    return _answering(mixed)


@shown_by(leases.two_leases_never_live_at_once)
def answers_that_promise_more_time() -> Plant:
    """A lease ends a while before the time in its answer."""

    def longer(deliveries: Any) -> Any:
        return [replace(each, invisible_until_ms=each.invisible_until_ms + 900) for each in deliveries]

    return _answering(longer)


@shown_by(pops.an_answer_has_no_more_than_was_asked_for)
def answers_with_one_too_many() -> Plant:
    return _popping(lambda ask: replace(ask, max_messages=ask.max_messages + 1))


@shown_by(idle_pops.a_pop_leaves_nothing_that_is_ready, FILLED)
def fills_that_stop_at_the_first_queue() -> Plant:
    return _asking(fill=False)


@shown_by(zones.a_queue_is_left_to_its_zone, ZONED)
def zones_that_consumers_ignore() -> Plant:
    return _asking(zone=None)


@shown_by(pops.a_repeated_attempt_gets_the_same_messages)
def repeats_that_take_more() -> Plant:
    """A pop that is called again by its attempt id leases once more."""
    return _asking(attempt_id=None)


@shown_by(pops.no_answer_shows_a_lease_that_was_over)
def answers_that_are_kept_for_repeats() -> Plant:
    """A repeat gets the first answer again, however old it is."""
    kept: dict[Any, Any] = {}

    def pop(true: Any, self: Any, topic: Any, group: Any, ask: Any, *more: Any) -> Any:
        if ask.attempt_id is None:
            return true(self, topic, group, ask, *more)
        if (topic.id, group, ask.attempt_id) not in kept:
            kept[topic.id, group, ask.attempt_id] = true(self, topic, group, ask, *more)
        return replace(kept[topic.id, group, ask.attempt_id], failed=[])

    return calling(Popper, "pop", pop)


@shown_by(pops.a_pop_waits_no_longer_than_asked, SET_BACK)
def waits_by_a_clock_that_is_set() -> Plant:
    """A pop whose clock is set back while it waits waits for as much longer."""
    return patch.object(
        world, "Runtime", lambda now, sleep, entropy, _uptime, bell: Runtime(now, sleep, entropy, now, bell)
    )
