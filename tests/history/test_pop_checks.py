"""The checks of the answers of pops find violations, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from chalicelib.core.base.limits import STORE_DEADLINE_MS
from tests.history.examples import PLACE, broken, delivered, history, settled
from tests.history.facts import (
    Asked,
    Delivered,
    Purge,
    Redrive,
    Reset,
    Sent,
)
from tests.history.history import SKEW_MS, Rules
from tests.history.pops import REQUESTS_MS_MAX


def _asked(began_ms: int, **more: object) -> Asked:
    return replace(Asked("g", began_ms, 0, began_ms + 10, is_empty=True, is_troubled=False), **more)  # type: ignore[arg-type]


def _short(began_ms: int, **more: object) -> Asked:
    """One with `fill` that was answered with some, but not with as many as it asked for."""
    return _asked(began_ms, is_empty=False, is_short=True, **more)


DUE_MS = 1_000 + SKEW_MS + 100
"""By every clock, and for every read, the lease until 1000 is over."""


@pytest.mark.parametrize(
    ("pop", "more", "is_wrong"),
    [
        (_asked(DUE_MS), {}, True),
        (_asked(DUE_MS - 100), {}, False),
        (_asked(DUE_MS, is_empty=False), {}, False),
        (_asked(DUE_MS, is_troubled=True), {}, False),
        (_asked(DUE_MS, group="h"), {}, True),
        (_asked(DUE_MS), {"settled": [settled("ack", "r", 200)]}, False),
        (_asked(DUE_MS), {"settled": [settled("ack", "r", 200, "LeaseLost")]}, True),
        (_asked(DUE_MS), {"settled": [settled("nack", "r", 200, until_ms=900)]}, True),
        (_asked(DUE_MS), {"settled": [settled("nack", "r", 200, until_ms=1_200)]}, False),
        (_asked(DUE_MS), {"settled": [settled("nack", "r", 200, "unknown")]}, False),
        (_asked(DUE_MS), {"resets": [Reset("g", 300, 400)]}, True),
        (_asked(DUE_MS), {"resets": [Reset("g", 300, 400, "latest")]}, False),
        (_asked(DUE_MS), {"redrives": [Redrive("g", 300, 400)], "rules": {"g": Rules(2, 10)}}, True),
        (_asked(DUE_MS), {"redrives": [Redrive("g", 300, 400)], "rules": {"g": Rules(1, 10)}}, False),
        (_asked(DUE_MS), {"purges": [Purge("g", 300)], "settled": [settled("bury", "r", 200)]}, False),
        (_asked(DUE_MS), {"pops": [_asked(100, at_ms=120, is_troubled=True, lease_ms=3_000)]}, False),
        (_asked(DUE_MS), {"stale_ms": None}, False),
        (_asked(DUE_MS), {"appended_ms": {PLACE: DUE_MS - SKEW_MS - 51}}, True),
        (_asked(DUE_MS), {"appended_ms": {PLACE: DUE_MS - SKEW_MS - 50}}, False),
        (_short(DUE_MS), {"appended_ms": {PLACE: DUE_MS - SKEW_MS - 51}}, True),
        (_short(DUE_MS), {"appended_ms": {PLACE: DUE_MS - SKEW_MS - 50}}, False),
        (_short(DUE_MS), {}, False),
        (_short(DUE_MS, is_troubled=True), {"appended_ms": {PLACE: 0}}, False),
    ],
)
def test_a_pop_that_gets_nothing_has_met_nothing_ready(pop: Asked, more: dict[str, Any], is_wrong: bool) -> None:
    """The message was stored at 0 and leased once, until 1000."""
    judged = history(delivered("r", 100, 1_000), **{"stale_ms": 50, **more})
    judged.sent[0].at_ms = 20
    judged.pops = [*judged.pops, pop]
    assert ("a_pop_leaves_nothing_that_is_ready" in broken(judged)) == is_wrong


@pytest.mark.parametrize("surplus", [0, 1])
def test_an_answer_has_no_more_messages_than_asked_for(surplus: int) -> None:
    judged = history()
    judged.pops = [_asked(100, is_empty=False, surplus=surplus)]
    assert ("an_answer_has_no_more_than_was_asked_for" in broken(judged)) == bool(surplus)


@pytest.mark.parametrize(("took_ms", "wrong"), [(0, set()), (1, {"a_pop_waits_no_longer_than_asked"})])
def test_a_pop_waits_as_long_as_it_was_asked_to(took_ms: int, wrong: set[str]) -> None:
    until_ms = 100 + 1_000 + REQUESTS_MS_MAX + took_ms
    judged = history(pops=[Asked("g", 100, 0, until_ms, wait_ms=1_000)], are_all_answered=True)
    assert broken(judged) == wrong
    judged.are_all_answered = False
    assert broken(judged) == set()
    judged.well_from_ms, judged.pops[0].at_ms = 60_000, until_ms + STORE_DEADLINE_MS
    assert broken(judged) == wrong


@pytest.mark.parametrize(
    ("attempt", "number", "wrong"), [(1, 1, {"an_answer_keeps_the_order_of_a_queue"}), (2, 1, set()), (1, 0, set())]
)
def test_an_answer_brings_new_messages_in_the_order_of_their_queue(attempt: int, number: int, wrong: set[str]) -> None:
    later = Delivered("g", (0, 1), "b", "id1", 1, 90, 100, 900, "s")
    earlier = Delivered("g", PLACE, "a", "id", attempt, 90, 100, 900, "r", number=number)
    sent = [Sent("a", None, 0, PLACE), Sent("b", None, 0, (0, 1))]
    judged = history(later, earlier, sent=sent, log={PLACE: "a", (0, 1): "b"}, ends={0: 2}, drained={})
    assert broken(judged) == wrong


def test_a_group_gets_no_message_that_its_filter_excludes() -> None:
    rules = {"g": Rules(5, 2, unwanted_key="b")}
    keyed = [Sent("a", "b", 0, PLACE)]
    assert broken(history(sent=keyed, drained={"g": set()}, rules=rules)) == set()
    got = history(delivered("r", 1, 2), sent=keyed, rules=rules)
    assert broken(got) == {"a_filter_holds_back_unwanted_messages"}
    assert [broken(replace(got, lost={PLACE: ms})) for ms in (1, 2)] == [set(), broken(got)]
    assert broken(history(drained={"g": set()}, rules=rules)) == {"no_message_is_lost"}


@pytest.mark.parametrize(
    ("ordered", "place", "lost_ms", "is_wrong"),
    [
        ("key", PLACE, 500, False),
        ("key", (0, 1), 500, False),
        ("key", PLACE, 501, True),
        ("key", (0, 1), 501, True),
        (True, (0, 1), 500, True),
    ],
)
def test_a_message_has_its_place_behind_its_key_until_its_payload_is_lost(
    ordered: bool | str, place: tuple[int, int], lost_ms: int, is_wrong: bool
) -> None:
    """A pop that finds no payload knows no key; a late read then shows the message (seed 73,006,042)."""
    second = Delivered("g", (0, 1), "b", "id1", 1, 490, 500, 9_000, "s", 500)
    sent = [Sent("a", "k", 0, PLACE), Sent("b", "k", 0, (0, 1))]
    judged = history(delivered("r", 100, 9_000), second, sent=sent, log={PLACE: "a", (0, 1): "b"}, ends={0: 2})
    judged.rules, judged.lost = {"g": Rules(5, 2, ordered=ordered)}, {place: lost_ms}
    assert ("an_ordered_queue_waits_for_unsettled_messages" in broken(judged)) is is_wrong


def test_in_an_ordered_group_nothing_is_delivered_past_what_is_not_settled() -> None:
    rules = {"g": Rules(5, 2, ordered=True)}
    log = {PLACE: "a", (0, 1): "b"}
    second = Delivered("g", (0, 1), "b", "id1", 1, 490, 500, 9_000, "s", 500)
    judged = history(delivered("r", 100, 9_000), second, log=log, ends={0: 2}, rules=rules)
    assert "an_ordered_queue_waits_for_unsettled_messages" in broken(judged)
    judged.settled = [settled("ack", "r", 300)]
    assert "an_ordered_queue_waits_for_unsettled_messages" not in broken(judged)
    together = replace(delivered("r", 500, 9_000), began_ms=490, answered_ms=500)
    judged = history(together, second, log=log, ends={0: 2}, rules=rules)
    assert "an_ordered_queue_waits_for_unsettled_messages" not in broken(judged)
    again = replace(second, receipt="t", began_ms=600, at_ms=700, answered_ms=700)  # the first is given back meanwhile
    judged = history(together, second, again, log=log, ends={0: 2}, rules=rules)
    assert "an_ordered_queue_waits_for_unsettled_messages" in broken(judged)
    judged.settled = [replace(settled("extend", "s", 550), place=(0, 1), new_receipt="t")]
    assert "an_ordered_queue_waits_for_unsettled_messages" not in broken(judged)
    judged.settled = [replace(settled("extend", "s", 550, "unknown"), place=(0, 1))]
    assert "an_ordered_queue_waits_for_unsettled_messages" not in broken(judged)


@pytest.mark.parametrize(
    ("skew_ms", "last_ms", "is_wrong"),
    [(0, 999, True), (0, 1_000, False), (500, 499, True), (500, 500, False), (2_000, 0, False)],
)
def test_a_group_takes_two_windows_and_more_where_clocks_differ(skew_ms: int, last_ms: int, is_wrong: bool) -> None:
    leases = [
        replace(delivered(f"r{offset}", 2_000, 9_000), place=(0, offset), first_ms=ms, answered_ms=ms)
        for offset, ms in enumerate((0, 0, last_ms))
    ]
    assert ("a_group_keeps_to_its_rate" in broken(history(*leases, rate=1, skew_ms=skew_ms))) == is_wrong


@pytest.mark.parametrize(
    ("first_ms", "extends_ms", "is_wrong"), [(100, 200, False), (101, 200, True), (100, 311, True)]
)
@pytest.mark.parametrize("settle_by", ["receipt", "delivery"])
def test_a_repeat_that_shows_an_extension_has_taken_nothing_more(
    settle_by: str, first_ms: int, extends_ms: int, is_wrong: bool
) -> None:
    """One message was taken in each of two windows."""
    times = [("r", 0, 100), ("other", 1, 101), ("r2", 0, first_ms)]
    leases = [
        replace(delivered(receipt, 300, 2_000), place=(0, offset), first_ms=ms, answered_ms=300)
        for receipt, offset, ms in times
    ]
    rules = {"g": Rules(5, 9, settle_by=settle_by)}
    judged = history(*leases, rate=1, rated_until_ms={"g": 5_000}, rules=rules)
    judged.settled = [replace(settled("extend", "r", extends_ms, until_ms=2_000), new_receipt="r2")]
    assert ("a_group_keeps_to_its_rate" in broken(judged)) == is_wrong
