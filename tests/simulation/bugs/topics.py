"""Bugs planted into topics and groups: their settings, alarms, zones and queues, and calls while the store fails."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from chalicelib.core.admin.draining import Draining
from chalicelib.core.admin.groups import Groups
from chalicelib.core.base.errors import StoreUnavailable
from chalicelib.core.catalogue.catalogue import Catalogue
from chalicelib.core.catalogue.group_forms import RateWindow
from chalicelib.core.producing.new_message import Sending
from chalicelib.core.producing.produce import Producer, QueueChoice
from chalicelib.core.table.writes import AtMost
from tests.history import alarms, attempts, deaths, drains, log, outages, pops, zones
from tests.simulation.bugs.lies import Plant, calling, kept_apart, sending, setting, unguarded
from tests.simulation.bugs.registry import shown_by
from tests.simulation.faulty_store import ALL, NONE
from tests.simulation.plans import AFTERLIFE, FULL, GROWING, MOVING, OUTAGE, RATED, RATED_APART, SHUT, ZONED, Plan

_DYING = Plan(alarm_ready=1, groups=4, queues=1, faults=replace(ALL, kill=0.05))


def _of_alarms(write: Any) -> bool:
    return bool(write.key.sk.startswith("alarm#"))


@shown_by(pops.a_paused_group_delivers_nothing, Plan(chores=6, pops=10))
def pauses_that_nobody_looks_at() -> Plant:
    return setting("group", "paused", lambda _: False)


@shown_by(attempts.attempts_stay_within_the_maximum, AFTERLIFE)
def one_attempt_too_many() -> Plant:
    return setting("group", "max_attempts", lambda most: most + 1)


@shown_by(deaths.dead_letters_were_tried_and_stay_dead, replace(AFTERLIFE, max_attempts=3))
def one_attempt_too_few() -> Plant:
    return setting("group", "max_attempts", lambda most: most - 1)


@shown_by(pops.a_full_queue_takes_nothing, FULL)
def queues_that_are_never_full() -> Plant:
    return setting("topic", "max_depth", lambda most: 2 * most)


@shown_by(pops.a_group_keeps_to_its_rate, replace(RATED, faults=replace(NONE, latency_ms_max=60)))
def permits_that_others_have_taken() -> Plant:
    """A pop takes as many permits as it saw, even if others have taken some since."""
    return unguarded(lambda write: write.key.sk.startswith("rate#"), lambda guard: isinstance(guard, AtMost))


@shown_by(pops.a_group_keeps_to_its_rate, RATED_APART)
def windows_of_each_clock() -> Plant:
    """A window that begins in an instance's future is over."""
    return calling(
        RateWindow, "is_over", lambda true, self, rate, now: self.is_ahead(rate, now) or true(self, rate, now)
    )


# -- alarms -----------------------------------------------------------------------------------------------------------


@shown_by(alarms.an_alarm_fits_the_backlog, Plan(alarm_ready=1))
def alarms_of_a_larger_backlog() -> Plant:
    return setting("group", "alarm", lambda _: '{"ready":9}')


@shown_by(
    alarms.every_change_of_an_alarm_is_sent_once,
    Plan(alarm_ready=1, groups=4, queues=1, faults=replace(ALL, kill=0.05)),
)
def alarms_in_two_writes() -> Plant:
    """The state changes, and the message that tells of it comes after: not, if its caller dies."""
    return kept_apart(_of_alarms, lambda writes: sorted(writes, key=_of_alarms, reverse=True))


@shown_by(alarms.alarms_are_raised_and_cleared_in_turn, Plan(alarm_ready=1))
def alarms_that_race() -> Plant:
    """Two checks that see one crossing both tell of it."""
    return unguarded(_of_alarms)


# -- queues and zones -------------------------------------------------------------------------------------------------


@shown_by(zones.a_message_goes_to_its_zone, ZONED)
def zones_that_producers_ignore() -> Plant:
    return sending(lambda each: Sending(each.message, each.queue))


@shown_by(drains.settled_queues_leave, MOVING)
def queues_that_never_leave() -> Plant:
    return calling(Draining, "step", lambda *_: 0)


@shown_by(log.keys_keep_their_order, GROWING)
def topics_that_grow_under_ordered_groups() -> Plant:
    """Keys move although groups count on their order: the list of groups hides that."""
    return calling(Catalogue, "groups", lambda true, *args: [replace(group, ordered=False) for group in true(*args)])


@shown_by(drains.a_drained_group_has_nothing_left)
def progress_that_counts_what_is_settled() -> Plant:
    def details(true: Any, *args: Any) -> Any:
        found = true(*args)
        return replace(found, queues=[replace(queue, in_flight=queue.in_flight + 1) for queue in found.queues])

    return calling(Groups, "details", details)


# -- stores that fail -------------------------------------------------------------------------------------------------


@shown_by(outages.all_is_answered_where_the_store_answers, OUTAGE)
def instances_that_remember_a_failure() -> Plant:
    """An instance whose produce the store has refused refuses the next ten itself."""
    left: dict[int, int] = {}

    def send(true: Any, self: Any, *args: Any) -> Any:
        if left.get(id(self), 0):
            left[id(self)] -= 1
            raise StoreUnavailable("the store was away a moment ago")
        try:
            return true(self, *args)
        except StoreUnavailable:
            left[id(self)] = 10
            raise

    return calling(Producer, "send", send)


@shown_by(outages.one_log_that_throttles_fails_no_call, SHUT)
def messages_that_stay_where_they_are_throttled() -> Plant:
    """A produce goes to no other queue."""
    return calling(QueueChoice, "others", lambda *_: [])
