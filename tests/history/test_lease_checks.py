"""The checks of leases and attempts find violations, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.history.examples import PLACE, broken, delivered, history, settled
from tests.history.facts import (
    LATE_MS,
    Delivered,
    Redrive,
    Reset,
    Sent,
    Settled,
)
from tests.history.history import OFF_MS, Rules

LASTS = "a_lease_lasts_as_long_as_asked"
COUNTS, TWICE = "attempts_count_up", "two_leases_never_live_at_once"
BY_DELIVERY_RULES = {"g": Rules(5, 9, settle_by="delivery")}


def test_leases_that_follow_each_other_are_fine() -> None:
    assert broken(history(delivered("r", 100, 1_000), delivered("s", 1_010, 2_000, 2))) == set()


def test_two_live_leases_of_one_message_are_found() -> None:
    late = 2_000 - OFF_MS - 10
    judged = history(delivered("r", 100, 2_000), delivered("s", late, 3_000, 2))
    assert broken(judged) == {"two_leases_never_live_at_once"}


@pytest.mark.parametrize(("asked_ms", "wrong"), [(900, set()), (901, {"a_lease_lasts_as_long_as_asked"})])
def test_a_lease_lasts_as_long_as_it_was_asked_to(asked_ms: int, wrong: set[str]) -> None:
    asked = asked_ms + OFF_MS
    assert broken(history(replace(delivered("r", 100, 900), asked_ms=asked))) == wrong
    extend = replace(settled("extend", "r", 200, until_ms=900), new_receipt="s", asked_ms=asked)
    assert broken(history(delivered("r", 100, 900), settled=[extend])) == wrong


def test_a_repeated_attempt_shows_its_lease_once_more() -> None:
    """It was answered while the lease was taken over: seeds 119057, 125846, 150884 and 197102 of a run."""
    first, again = delivered("r", 505, 594), delivered("r", 547, 594)
    taken_over = delivered("s", 533, 1_658, 2)
    assert broken(history(first, taken_over, again, resets=[Reset("g", 10, 20)])) == set()


def test_a_repeated_attempt_does_not_show_a_lease_that_was_over() -> None:
    first, again = delivered("r", 505, 594), delivered("r", 2_000, 594)
    assert "no_answer_shows_a_lease_that_was_over" in broken(history(first, again))


def test_a_reset_ends_a_lease_on_clocks_that_differ() -> None:
    """The lease after it had run out by its own clock before the reset began by ours: seed 185832 of a run."""
    judged = history(delivered("r", 412, 2_519), delivered("s", 1_057, 1_058), resets=[Reset("g", 1_075, 10**15)])
    assert broken(judged) == set()


def test_a_reset_may_end_the_lease_of_the_pop_that_answers_last() -> None:
    """It stalled after its claim; the reset came before another pop: seed 20024079 of a run."""
    stalled = replace(delivered("s", 100, 3_658), at_ms=3_657)
    taken = replace(delivered("r", 900, 5_000), began_ms=857, at_ms=1_105)
    assert broken(history(taken, stalled, resets=[Reset("g", 125, 244)])) == set()
    assert "two_leases_never_live_at_once" in broken(history(taken, stalled))


def test_a_pop_by_another_clock_takes_over_what_another_nacked_meanwhile() -> None:
    """Its lease ran out by our clock before it was made, and was extended: seed 80013167 of a run."""
    late = replace(delivered("s", 501, 426, 3), answered_ms=770)
    nacked = replace(delivered("r", 709, 1_705, 2), began_ms=699)
    settlements = [
        replace(settled("nack", "r", 709), until_ms=709),
        replace(settled("extend", "s", 770), until_ms=1_770, new_receipt="t"),
    ]
    judged = history(late, nacked, settled=settlements, redrives=[Redrive("g", 10, 20)])
    assert "two_leases_never_live_at_once" not in broken(judged)
    judged.delivered[0].attempt = 2
    assert "two_leases_never_live_at_once" in broken(judged)


def test_a_dead_letter_may_be_redriven_beside_what_a_reset_made_ready() -> None:
    """It died before the reset: seed 22006056 of a run."""
    leases = (delivered("r", 1_263, 4_245), replace(delivered("s", 1_730, 1_856), began_ms=1_632))
    resets, redrives = [Reset("g", 523, 651)], [Redrive("g", 1_311, 10**15)]
    assert broken(history(*leases, resets=resets, redrives=redrives)) == set()
    assert "two_leases_never_live_at_once" in broken(history(*leases, resets=resets))
    assert "two_leases_never_live_at_once" in broken(history(*leases, redrives=redrives))


def test_a_late_answer_may_be_of_the_first_of_two_leases() -> None:
    """Where attempts begin anew, they do not tell which was first: a pop on its way for long, of a plan with stalls."""
    first, second = delivered("r", 1_196, 1_197, began_ms=172), delivered("s", 1_104, 31_236, 2, began_ms=1_018)
    judged = history(first, second, redrives=[Redrive("g", 0, 10)])
    assert broken(judged) == set()
    first.attempt = 2
    assert "two_leases_never_live_at_once" in broken(judged)


def test_a_nacked_message_stays_away_for_its_delay() -> None:
    nack = settled("nack", "r", 200, until_ms=5_000)
    assert broken(history(delivered("r", 100, 900), delivered("s", 1_000, 1_500, 2), settled=[nack])) == {
        "two_leases_never_live_at_once"
    }


@pytest.mark.parametrize(
    ("extends_ms", "outcome", "is_wrong"),
    [
        (310, "ok", False),
        (311, "ok", True),
        (310, "unknown", False),
        (310, "LeaseLost", True),
        (290, "ok", False),
        (289, "ok", True),
        (290 - LATE_MS, "unknown", False),
        (289 - LATE_MS, "unknown", True),
    ],
)
def test_only_an_extension_since_its_pop_ends_a_delivery_earlier(extends_ms: int, outcome: str, is_wrong: bool) -> None:
    lease = replace(delivered("r", 300, 900), asked_ms=901 + OFF_MS, first_ms=290)
    extend = settled("extend", "older", extends_ms, outcome, until_ms=900)
    judged = history(lease, settled=[extend], rules=BY_DELIVERY_RULES)
    assert ("a_lease_lasts_as_long_as_asked" in broken(judged)) == is_wrong


@pytest.mark.parametrize(("first_ms", "wrong"), [(90, set()), (91, {COUNTS, TWICE})])
def test_an_extension_excuses_no_other_pop_at_the_same_attempt(first_ms: int, wrong: set[str]) -> None:
    again = replace(delivered("r2", 300, 2_000), first_ms=first_ms, answered_ms=300)
    judged = history(replace(delivered("r", 100, 900), first_ms=90), again, rules=BY_DELIVERY_RULES)
    judged.settled = [settled("extend", "r", 200, until_ms=2_000)]
    assert broken(judged) & {COUNTS, TWICE} == wrong


@pytest.mark.parametrize(("resets", "is_wrong"), [([], True), ([Reset("g", 260, 350)], False)])
def test_a_pop_may_take_anew_after_a_reset_what_was_extended(resets: list[Reset], is_wrong: bool) -> None:
    """Not for as long as the extend asked for: seed 74201978 of a run."""
    leases = [
        replace(delivered(receipt, at_ms, 900), answered_ms=at_ms, asked_ms=900 + OFF_MS, first_ms=100)
        for receipt, at_ms in (("r", 200), ("s", 400))
    ]
    extend = Settled("extend", "g", PLACE, "r", 250, 255, "unknown", asked_ms=901 + OFF_MS)
    assert (LASTS in broken(history(*leases, settled=[extend], resets=resets))) == is_wrong


def test_no_more_are_held_than_allowed() -> None:
    others = [Delivered("g", (0, offset), "a", "id", 1, 90, 100, 9_000, f"r{offset}") for offset in range(3)]
    judged = history(*others, rules={"g": Rules(5, 2)})
    assert "no_more_are_in_flight_than_allowed" in broken(judged)
    judged.rules = {"g": Rules(5, 3)}
    assert "no_more_are_in_flight_than_allowed" not in broken(judged)
    judged.rules = {"g": Rules(5, 2)}
    judged.sent = [Sent("a", None, 0, (0, 0), ttl_ms=1, at_ms=5)]  # a repeat of its pop passes it
    assert "no_more_are_in_flight_than_allowed" not in broken(judged)


def test_attempts_count_up_to_the_limit() -> None:
    same = history(delivered("r", 100, 900), delivered("s", 1_000, 1_500))
    assert broken(same) == {"attempts_count_up"}
    down = history(delivered("r", 100, 900, 2), delivered("s", 1_000, 1_500, 1))
    assert "attempts_count_up" in broken(down)
    crossed = history(delivered("r", 899, 900, 1), delivered("s", 890, 1_500, 2))
    assert broken(crossed) == set()
    more = history(delivered("r", 100, 900, attempt=3), rules={"g": Rules(2, 10)})
    assert broken(more) == {"attempts_stay_within_the_maximum"}


@pytest.mark.parametrize(
    ("told", "is_wrong"),
    [((100, 100), False), ((90, 90), False), ((100, 800), True), ((800, 800), True), ((-600, -600), True)],
)
def test_the_first_delivery_stays_the_first(told: tuple[int, int], is_wrong: bool) -> None:
    leases = [delivered("r1", 100, 200), delivered("r2", 900, 2_000, attempt=2)]
    for lease, first_ms in zip(leases, told, strict=True):
        lease.first_ms = lease.answered_ms = lease.at_ms
        lease.told_first_ms = first_ms
    assert ("the_first_delivery_stays_the_first" in broken(history(*leases))) == is_wrong
