"""The checks of losses, resets and purges find violations, and nothing else."""

from __future__ import annotations

import pytest

from tests.history.examples import PLACE, broken, delivered, history, settled
from tests.history.facts import (
    Begun,
    Reset,
)


def test_an_ack_that_lost_does_not_settle() -> None:
    judged = history(delivered("r", 100, 450), settled=[settled("ack", "r", 200, "LeaseLost")], drained={"g": set()})
    assert broken(judged) == {"no_message_is_lost"}


@pytest.mark.parametrize(
    ("ack_at_ms", "reset", "wrong"),
    [
        (200, Reset("g", 300, 400), {"no_message_is_lost"}),
        (200, Reset("g", 300, 400, PLACE), {"no_message_is_lost"}),
        (200, Reset("g", 1_300, 1_400, 700), set()),
        (200, Reset("g", 300, 400, -600), {"no_message_is_lost"}),
        (200, Reset("g", 300, 10**15), set()),
        (200, Reset("g", 300, 400, "latest"), set()),
        (200, Reset("g", 300, 400, (0, 1)), set()),
        (200, Reset("g", 300, 400, (1, 0)), set()),
        (350, Reset("g", 300, 400), set()),
    ],
)
def test_an_ack_from_before_a_reset_settles_nothing_after_it(ack_at_ms: int, reset: Reset, wrong: set[str]) -> None:
    ack = settled("ack", "r", ack_at_ms)
    assert broken(history(delivered("r", 100, 900), settled=[ack], resets=[reset], drained={"g": set()})) == wrong


def test_messages_that_a_reset_skips_are_not_lost() -> None:
    """Unless one that began later brings it back."""
    skipped = history(resets=[Reset("g", 300, 400, "latest")], drained={"g": set()})
    assert broken(skipped) == set()
    skipped.resets += [Reset("g", 500, 600)]
    assert broken(skipped) == {"no_message_is_lost"}


@pytest.mark.parametrize("left", [0, 1])
def test_a_group_that_is_drained_has_nothing_left(left: int) -> None:
    wrong = {"a_drained_group_has_nothing_left"} if left else set()
    assert broken(history(delivered("r", 100, 900), left={"g": left})) == wrong


@pytest.mark.parametrize(("before_ms", "is_wrong"), [(1_501, True), (1_500, False)])
def test_a_purge_allows_for_clocks_that_are_a_little_apart(before_ms: int, is_wrong: bool) -> None:
    """By one that is two seconds ahead, a message may have been sent later than the purge."""
    judged = history(delivered("r", 5_000, 9_000), resets=[Reset("g", 3_000, 4_000, "now")])
    judged.sent[0].at_ms = judged.resets[0].began_ms - before_ms
    judged.skew_ms = 2_000
    assert ("nothing_sent_before_a_purge_comes_after_it" in broken(judged)) == is_wrong


@pytest.mark.parametrize(("due_ms", "is_begun"), [(0, False), (1, False), (0, True)])
@pytest.mark.parametrize("after_ms", [1_500, 1_501])
def test_only_what_waits_may_miss_a_purge_by_a_clock_that_is_ahead(due_ms: int, is_begun: bool, after_ms: int) -> None:
    """It waits for its time, or for the decision about its transaction."""
    judged = history(skew_ms=2_000, resets=[Reset("g", 100, 200, "now")], drained={"g": set()})
    judged.sent[0].began_ms, judged.sent[0].due_ms = 200 + after_ms, due_ms
    if is_begun:
        judged.begun = [Begun(["a"], 500, 5_000, 200 + after_ms, 300 + after_ms, "t")]
    may_miss = after_ms == 1_500 and (due_ms > 0 or is_begun)
    assert ("no_message_is_lost" in broken(judged)) != may_miss
