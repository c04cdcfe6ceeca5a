"""The checks of acks, nacks and extends find violations, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from chalicelib.core.cursors.lease import Receipt, sign
from tests.history.examples import broken, delivered, history, settled
from tests.history.facts import (
    Purge,
    Redrive,
    Reset,
    Resized,
)
from tests.history.history import OFF_MS, Rules

BY_DELIVERY_RULES = {"g": Rules(5, 9, settle_by="delivery")}


@pytest.mark.parametrize(("outcome", "wrong"), [("ok", {"acked_messages_stay_acked"}), ("unknown", set())])
def test_an_acked_message_does_not_come_again(outcome: str, wrong: set[str]) -> None:
    judged = history(
        delivered("r", 100, 900), delivered("s", 1_000, 1_500, 2), settled=[settled("ack", "r", 200, outcome)]
    )
    assert broken(judged) == wrong


@pytest.mark.parametrize("verb", ["ack", "nack", "extend", "bury"])
def test_an_old_receipt_settles_nothing(verb: str) -> None:
    stale = settled(verb, "r", 1_100, until_ms=1_100)
    judged = history(delivered("r", 100, 900), delivered("s", 1_000, 1_500, 2), settled=[stale])
    assert "stale_receipts_are_refused" in broken(judged)


def test_an_old_receipt_from_an_extend_settles_nothing() -> None:
    extend = replace(settled("extend", "r", 200, until_ms=900), new_receipt="r2")
    judged = history(
        delivered("r", 100, 500), delivered("s", 1_500, 3_000, 2), settled=[extend, settled("ack", "r2", 1_700)]
    )
    assert broken(judged) == {"stale_receipts_are_refused"}


@pytest.mark.parametrize(
    ("first_ms", "attempt", "extends_ms", "is_wrong"),
    [(90, 1, 200, False), (91, 1, 200, True), (90, 2, 200, True), (90, 1, 400, True)],
)
def test_a_repeated_attempt_may_show_the_receipt_of_an_extension(
    first_ms: int, attempt: int, extends_ms: int, is_wrong: bool
) -> None:
    """The receipt from before is good all the same: seed 654."""
    again = replace(delivered("r2", 300, 2_000, attempt), first_ms=first_ms, answered_ms=300)
    extend = replace(settled("extend", "r", extends_ms, until_ms=2_000), new_receipt="r2")
    judged = history(replace(delivered("r", 100, 900), first_ms=90), again, rules=BY_DELIVERY_RULES)
    judged.settled = [extend, settled("nack", "r", 500, until_ms=500)]
    assert ("stale_receipts_are_refused" in broken(judged)) == is_wrong


@pytest.mark.parametrize(
    ("acked_ms", "verb", "is_wrong"), [(200, "ack", False), (2_150, "ack", True), (200, "nack", True)]
)
def test_an_ack_is_confirmed_to_whoever_has_acked(acked_ms: int, verb: str, is_wrong: bool) -> None:
    """A redrive brings back what was dead before a reset, and acked after it: seed 75003787 of a run."""
    leases = [delivered("r", 100, 9_000), delivered("s", 1_000, 9_000)]
    judged = history(*leases, settled=[settled("ack", "r", acked_ms), settled(verb, "r", 2_100)])
    assert ("stale_receipts_are_refused" in broken(judged)) == is_wrong
    judged.settled[0].outcome = "unknown"
    assert "stale_receipts_are_refused" in broken(judged)
    judged.redrives = [Redrive("g", 500, 600)]
    assert ("stale_receipts_are_refused" in broken(judged)) == is_wrong


def test_a_reset_does_not_reach_a_queue_that_has_left() -> None:
    """An ack was confirmed there: seed 73013756 of a run."""
    there = (1, 0)
    acks = [replace(settled("ack", "r", at_ms), place=there) for at_ms in (200, 6_000)]
    judged = history(replace(delivered("r", 100, 900), place=there), settled=acks, resets=[Reset("g", 4_000, 5_000)])
    judged.log = {there: "a"}
    assert "a_reset_ends_every_receipt" in broken(judged)
    judged.resized = [Resized(1, 6_001)]
    assert "a_reset_ends_every_receipt" in broken(judged)
    judged.resized = [Resized(1, 6_000)]
    assert "a_reset_ends_every_receipt" not in broken(judged)
    judged.settled = acks[1:]
    assert "a_reset_ends_every_receipt" in broken(judged)


@pytest.mark.parametrize(
    ("settle_by", "is_troubled", "extended_ms", "is_lost"),
    [
        ("delivery", True, 300, False),
        ("delivery", True, 150, True),
        ("delivery", False, 300, True),
        ("receipt", True, 300, True),
    ],
)
def test_a_refused_ack_may_count_once_its_lease_was_extended(
    settle_by: str, is_troubled: bool, extended_ms: int, is_lost: bool
) -> None:
    ack = replace(settled("ack", "r", 210, "LeaseLost"), is_troubled=is_troubled)
    extend = settled("extend", "r", extended_ms, until_ms=900)
    rules = {"g": Rules(5, 9, settle_by=settle_by)}
    judged = history(delivered("r", 100, 200), settled=[ack, extend], drained={"g": set()}, rules=rules)
    assert ("no_message_is_lost" in broken(judged)) == is_lost


@pytest.mark.parametrize("settle_by", ["receipt", "delivery"])
@pytest.mark.parametrize(
    ("more", "taken_ms", "is_wrong"),
    [
        ({"is_troubled": True}, 230, False),
        ({"is_troubled": False}, 230, True),
        ({"is_troubled": True}, 261, True),
        ({"is_troubled": True, "until_ms": 900}, 230, True),
        ({"is_troubled": True, "verb": "ack"}, 230, True),
    ],
)
def test_a_nack_whose_reply_was_lost_may_be_refused_after_a_pop(
    settle_by: str, more: dict[str, Any], taken_ms: int, is_wrong: bool
) -> None:
    """It was carried out at its first try: seed 791."""
    nack = replace(settled("nack", "r", 250, "LeaseLost", until_ms=210), began_ms=210, **more)
    taken = delivered("s", taken_ms + 10, 2_000, 2, began_ms=taken_ms)
    judged = history(delivered("r", 100, 2_000), taken, settled=[nack], rules={"g": Rules(5, 9, settle_by=settle_by)})
    assert bool(broken(judged)) == is_wrong


@pytest.mark.parametrize(
    ("verb", "settled_by", "leases", "extends", "outcome", "wrong"),
    [
        ("ack", "ack", 31, 0, "ok", False),
        ("ack", "ack", 30, 0, "ok", True),
        ("ack", "ack", 1, 30, "ok", False),
        ("ack", "ack", 1, 29, "ok", True),
        ("ack", "ack", 1, 15, "unknown", False),
        ("ack", "ack", 1, 14, "unknown", True),
        ("ack", "its time to live", 31, 0, "ok", False),
        ("ack", "its time to live", 30, 0, "ok", True),
        ("ack", "", 31, 0, "ok", True),
        ("nack", "ack", 31, 0, "ok", True),
    ],
)
def test_an_ack_by_a_receipt_that_is_forgotten_may_be_confirmed(
    verb: str, settled_by: str, leases: int, extends: int, outcome: str, wrong: bool
) -> None:
    """As in seed 5 029 005: 32 leases of the queue were given up since, one of them its own. An extend that was not
    answered may have given up two: its own, and the one that it made."""
    others = [[delivered("", at, at + 9), delivered("", 990, 1_100, 2)] for at in range(200, 200 + leases)]
    shown = [
        replace(lost, place=(0, at), receipt=f"{at} {lost.at_ms}") for at, pair in enumerate(others, 1) for lost in pair
    ]
    renewed = [replace(settled("extend", f"x{at}", 990, outcome), place=(0, 1)) for at in range(extends)]
    acks = [settled("ack", "s", 1_010)] if settled_by == "ack" else []
    judged = history(
        delivered("r", 100, 900),
        delivered("s", 1_000, 1_100, 2),
        *shown,
        settled=[settled(verb, "r", 2_000), *acks, *renewed],
    )
    judged.sent[0].ttl_ms = 1_200 if settled_by == "its time to live" else None
    assert ("stale_receipts_are_refused" in broken(judged)) == wrong


@pytest.mark.parametrize(
    ("leases", "of_each", "attempt", "wrong"),
    [(31, 1, 2, False), (30, 1, 2, True), (16, 2, 2, True), (1, 1, 32, False), (1, 1, 31, True)],
)
def test_a_receipt_is_forgotten_by_the_leases_that_pops_have_given_up(
    leases: int, of_each: int, attempt: int, wrong: bool
) -> None:
    """One pop may take over many, as in seed 79 of an older mixture. Nobody heard of the attempts that are missing."""
    lost = []
    for offset in range(leases * of_each):
        token, index = f"lease{offset // of_each}", offset % of_each
        receipt = sign(Receipt("t", "gid", "", 0, 0, token, index, 1 + offset, of_each, 1, 0), b"secret")
        lost += [replace(delivered(receipt, 200, 300), place=(0, 1 + offset))]
        lost += [replace(delivered(f"{offset} later", 990, 1_100, attempt), place=(0, 1 + offset))]
    acks = [settled("ack", "s", 1_010), settled("ack", "r", 2_000)]
    judged = history(delivered("r", 100, 900), delivered("s", 1_000, 1_100, 2), *lost, settled=acks)
    assert ("stale_receipts_are_refused" in broken(judged)) == wrong


@pytest.mark.parametrize("verb", ["ack", "nack", "extend"])
def test_a_live_receipt_is_accepted(verb: str) -> None:
    refused = settled(verb, "r", 200, "LeaseLost")
    live = history(delivered("r", 100, 201 + OFF_MS), settled=[refused])
    assert broken(live) == {"live_receipts_are_accepted"}
    assert broken(history(delivered("r", 100, 200 + OFF_MS), settled=[refused])) == set()
    live.settled = [settled("nack", "r", 150, "unknown"), refused]
    assert broken(live) == set()
    live.settled, live.resets = [refused], [Reset("g", 120, 130)]
    assert broken(live) == set()


def test_a_receipt_from_an_extend_is_accepted_while_it_lives() -> None:
    extend = replace(settled("extend", "r", 200, until_ms=2_000), new_receipt="r2")
    judged = history(delivered("r", 100, 500), settled=[extend, settled("ack", "r2", 1_000, "LeaseLost")])
    assert broken(judged) == {"live_receipts_are_accepted"}


def test_a_receipt_is_of_its_group() -> None:
    assert "a_group_accepts_only_its_own_receipts" in broken(history(settled=[settled("ack", "r", 100)]))


def test_a_lease_that_ran_out_before_it_was_made_may_be_the_newest() -> None:
    """As in seed 1 071 747: the claim took longer than its lease was to last, and a reset came before it."""
    late = replace(delivered("r", 403, 404), answered_ms=470)
    between = delivered("s", 441, 3_000, began_ms=409)
    judged = history(late, between, settled=[settled("extend", "r", 2_200)], resets=[Reset("g", 334, 529)])
    assert "stale_receipts_are_refused" not in broken(judged)
    late.answered_ms = 403
    assert "stale_receipts_are_refused" in broken(judged)


@pytest.mark.parametrize(("verb", "most", "is_wrong"), [("ack", 1, False), ("nack", 1, True), ("ack", 1_000, True)])
def test_a_late_ack_of_what_was_purged_is_accepted(verb: str, most: int, is_wrong: bool) -> None:
    """The service cannot tell it from an ack of a settled message: seed 784 of a run with stalls of up to two
    minutes."""
    judged = history(delivered("r", 100, 900), settled=[settled(verb, "r", 5_000)], purges=[Purge("g", 2_000, 2_100)])
    judged.rules = {"g": Rules(most, 10, settle_by="delivery")}
    assert ("receipts_of_a_delivery_end_with_it" in broken(judged)) == is_wrong
