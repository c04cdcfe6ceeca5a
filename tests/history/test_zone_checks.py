"""The checks of zones find violations, and nothing else."""

from __future__ import annotations

import pytest

from chalicelib.core.base.limits import TAKE_OVER_AFTER_MS, TAKEN_OVER_MS
from tests.history.examples import PLACE, broken
from tests.history.facts import Asked, Delivered, Sent, Settled
from tests.history.history import SKEW_MS, History, Rules

NEXT, THIRD = (0, 1), (0, 2)
WAITED_MS = TAKE_OVER_AFTER_MS - SKEW_MS
LEFT = "a_queue_is_left_to_its_zone"
LATE = "a_pop_leaves_nothing_that_is_ready"


def judged(*pops: Asked | Delivered, zone: str | None = None) -> set[str]:
    """Three messages in a queue of zone a, and who popped them."""
    places = [PLACE, NEXT, THIRD]
    history = History(sent=[Sent(str(place), None, 0, place, at_ms=0, zone=zone) for place in places])
    history.log, history.ends = {place: str(place) for place in places}, {0: 3}
    history.zones, history.stale_ms, history.are_all_answered = {0: "a"}, 0, True
    history.rules = {"g": Rules(1_000, 1_000)}
    history.delivered = [pop for pop in pops if isinstance(pop, Delivered)]
    history.pops = [pop for pop in pops if isinstance(pop, Asked)]
    return broken(history)


def took(place: tuple[int, int], at_ms: int, zone: str | None) -> Delivered:
    made = Delivered("g", place, str(place), str(place), 1, at_ms, at_ms, at_ms + 10**6, f"{place} {at_ms}", at_ms)
    made.first_ms, made.zone = at_ms, zone
    return made


def got_nothing(at_ms: int, zone: str | None) -> Asked:
    return Asked("g", at_ms, 1_000, at_ms, is_empty=True, is_troubled=False, zone=zone)


@pytest.mark.parametrize(
    ("pops", "wrong"),
    [
        ([took(PLACE, 100, "a"), took(NEXT, 200, None)], set()),
        ([took(PLACE, WAITED_MS, "b")], set()),
        ([took(PLACE, WAITED_MS - 1, "b")], {LEFT}),
        ([took(PLACE, 3_000, "a"), took(NEXT, WAITED_MS, "b")], {LEFT}),
        ([took(PLACE, 3_000, None), took(NEXT, WAITED_MS, "b")], set()),
        ([took(PLACE, 3_000, "a"), took(NEXT, 3_000 + WAITED_MS, "b")], set()),
        ([took(PLACE, WAITED_MS, "b"), took(NEXT, 6_000, "b")], set()),
        ([took(PLACE, WAITED_MS, "b"), took(NEXT, 6_000, "a"), took(THIRD, 6_100, "b")], {LEFT}),
    ],
)
def test_a_queue_is_left_to_its_zone_until_it_is_taken_over(pops: list[Delivered], wrong: set[str]) -> None:
    assert judged(*pops) == wrong


def test_a_takeover_ends_when_nothing_is_taken_for_a_while() -> None:
    first, late_ms = took(PLACE, WAITED_MS, "b"), WAITED_MS + TAKEN_OVER_MS + SKEW_MS
    history = History(sent=[Sent(str(PLACE), None, 0, PLACE), Sent(str(NEXT), None, late_ms - 100, NEXT)])
    history.log, history.ends = {PLACE: str(PLACE), NEXT: str(NEXT)}, {0: 2}
    history.zones, history.are_all_answered = {0: "a"}, True
    history.settled = [Settled("ack", "g", PLACE, first.receipt, 6_000, 6_000, "ok")]
    history.delivered = [first, took(NEXT, late_ms - 1, "b")]
    assert broken(history) == set()
    history.delivered = [first, took(NEXT, late_ms, "b")]
    assert broken(history) == {LEFT}


@pytest.mark.parametrize(
    ("pops", "wrong"),
    [
        ([got_nothing(SKEW_MS + 1, "a")], {LATE}),
        ([got_nothing(SKEW_MS + 1, None)], {LATE}),
        ([got_nothing(SKEW_MS + TAKE_OVER_AFTER_MS, "b")], set()),
        ([got_nothing(SKEW_MS + TAKE_OVER_AFTER_MS + 1, "b")], {LATE}),
        ([took(PLACE, 400, "a"), got_nothing(SKEW_MS + TAKE_OVER_AFTER_MS + 400, "b")], set()),
        ([took(PLACE, 400, "a"), got_nothing(SKEW_MS + TAKE_OVER_AFTER_MS + 401, "b")], {LATE}),
        ([took(PLACE, 400, None), got_nothing(SKEW_MS + TAKE_OVER_AFTER_MS + 1, "b")], {LATE}),
    ],
)
def test_a_queue_is_taken_over_when_its_zone_leaves_it_alone(pops: list[Asked | Delivered], wrong: set[str]) -> None:
    assert judged(*pops) == wrong


@pytest.mark.parametrize(("after_ms", "wrong"), [(0, set()), (1, {LATE})])
def test_a_lease_that_nobody_heard_of_puts_a_takeover_off(after_ms: int, wrong: set[str]) -> None:
    unheard = Asked("g", 2_000, 1_000, 2_100)
    later = got_nothing(SKEW_MS + unheard.at_ms + unheard.lease_ms + TAKE_OVER_AFTER_MS + after_ms, "b")
    assert judged(unheard, later) == wrong


def test_a_message_goes_to_its_zone() -> None:
    assert judged(zone="a") == set()
    assert judged(zone="b") == {"a_message_goes_to_its_zone"}
