"""The checker finds what is wrong, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from chalicelib.cursors.receipt import Receipt, sign
from tests.history.examples import PLACE, broken, delivered, history, settled
from tests.history.facts import LATE_MS, Asked, Begun, Cancelled, Delivered, Purge, Redrive, Reset, Resized, Sent, Shown
from tests.history.history import OFF_MS, SKEW_MS, History, Rules

FOUND = {"look_ups_match_the_log"}
COUNTS, TWICE = "attempts_count_up", "two_leases_never_live_at_once"
BY_DELIVERY_RULES = {"g": Rules(5, 9, settle_by="delivery")}


@pytest.mark.parametrize(
    ("shown", "wrong"),
    [(Shown(PLACE, "a", "id"), set()), (Shown((0, 1), "a", "id"), FOUND), (Shown(PLACE, "a", "other"), FOUND)],
)
def test_what_readers_are_shown_is_what_is_stored(shown: Shown, wrong: set[str]) -> None:
    assert broken(history(delivered("r", 100, 1_000), shown=[shown], ids={PLACE: "id"})) == wrong


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


def test_a_nacked_message_stays_away_for_its_delay() -> None:
    nack = settled("nack", "r", 200, until_ms=5_000)
    assert broken(history(delivered("r", 100, 900), delivered("s", 1_000, 1_500, 2), settled=[nack])) == {
        "two_leases_never_live_at_once"
    }


@pytest.mark.parametrize(("outcome", "wrong"), [("ok", {"acked_messages_stay_acked"}), ("unknown", set())])
def test_an_acked_message_does_not_come_again(outcome: str, wrong: set[str]) -> None:
    judged = history(
        delivered("r", 100, 900), delivered("s", 1_000, 1_500, 2), settled=[settled("ack", "r", 200, outcome)]
    )
    assert broken(judged) == wrong


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
    """Of seed 5 029 005: 32 leases of the queue were given up since, one of them its own. An extend that was not
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
    """Of seed 1 071 747: the claim was on its way for longer than its lease was to last, and a reset came before it."""
    late = replace(delivered("r", 403, 404), answered_ms=470)
    between = delivered("s", 441, 3_000, began_ms=409)
    judged = history(late, between, settled=[settled("extend", "r", 2_200)], resets=[Reset("g", 334, 529)])
    assert "stale_receipts_are_refused" not in broken(judged)
    late.answered_ms = 403
    assert "stale_receipts_are_refused" in broken(judged)


def test_attempts_count_up_to_the_limit() -> None:
    same = history(delivered("r", 100, 900), delivered("s", 1_000, 1_500))
    assert broken(same) == {"attempts_count_up"}
    down = history(delivered("r", 100, 900, 2), delivered("s", 1_000, 1_500, 1))
    assert "attempts_count_up" in broken(down)
    crossed = history(delivered("r", 899, 900, 1), delivered("s", 890, 1_500, 2))
    assert broken(crossed) == set()
    more = history(delivered("r", 100, 900, attempt=3), rules={"g": Rules(2, 10)})
    assert broken(more) == {"attempts_stay_within_the_maximum"}


def test_the_dead_had_their_attempts() -> None:
    rules = {"g": Rules(2, 10)}
    early = history(dead={"g": {PLACE: 1}}, drained={"g": set()}, rules=rules)
    assert broken(early) == {"dead_letters_were_tried_and_stay_dead"}
    early.settled = [settled("bury", "r", 100, "unknown")]
    assert broken(early) == set()
    early.settled = [settled("bury", "r", 100, "LeaseLost")]
    assert broken(early) == {"dead_letters_were_tried_and_stay_dead"}
    again = history(dead={"g": {PLACE: 2}}, rules=rules)
    assert broken(again) == {"dead_letters_were_tried_and_stay_dead"}


def test_the_log_holds_what_was_told() -> None:
    assert "offsets_are_dense" in broken(history(ends={0: 2}))
    assert "acknowledged_messages_are_stored" in broken(history(log={}, ends={0: 0}))
    assert "no_message_is_stored_twice_or_unsent" in broken(history(log={PLACE: "a", (0, 1): "a"}, ends={0: 2}))
    assert "deliveries_are_what_is_stored" in broken(history(delivered("r", 1, 2), log={PLACE: "b"}))


def test_a_key_lies_in_one_queue_whoever_sends_it() -> None:
    """Also what was sent with an unknown outcome; and one producer's lie in its order."""
    first, second = Sent("p0-a", "k", 0, (0, 0)), Sent("p1-a", "k", 5, is_unknown=True)
    judged = history(sent=[first, second], log={(0, 0): "p0-a", (1, 0): "p1-a"}, ends={0: 1, 1: 1}, drained={})
    assert broken(judged) == {"keys_keep_their_order"}
    judged.log, judged.ends = {(0, 0): "p0-a", (0, 1): "p1-a"}, {0: 2}
    assert broken(judged) == set()
    judged.sent = [Sent("p0-b", "k", 0, (0, 1)), first]
    judged.log = {(0, 0): "p0-a", (0, 1): "p0-b"}
    assert broken(judged) == {"keys_keep_their_order"}
    judged.begun = [Begun(["p0-a", "p0-b"], 0, 0, 0, id="t")]
    assert "keys_keep_their_order" in broken(judged)
    judged.are_reads_torn = True
    assert "keys_keep_their_order" not in broken(judged)


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


def test_no_more_are_held_than_allowed() -> None:
    others = [Delivered("g", (0, offset), "a", "id", 1, 90, 100, 9_000, f"r{offset}") for offset in range(3)]
    judged = history(*others, rules={"g": Rules(5, 2)})
    assert "no_more_are_in_flight_than_allowed" in broken(judged)
    judged.rules = {"g": Rules(5, 3)}
    assert "no_more_are_in_flight_than_allowed" not in broken(judged)
    judged.rules = {"g": Rules(5, 2)}
    judged.sent = [Sent("a", None, 0, (0, 0), ttl_ms=1, at_ms=5)]  # a repeat of its pop passes it
    assert "no_more_are_in_flight_than_allowed" not in broken(judged)


def once(body: str, began_ms: int, place: tuple[int, int], message_id: str = "id") -> Sent:
    """A message with the only dedup id."""
    return Sent(body, None, began_ms, place, dedup_id="d", message_id=message_id, at_ms=began_ms + 10)


def test_a_repeat_may_lie_where_another_message_of_its_dedup_id_lies() -> None:
    assert broken(history(sent=[once("a", 0, PLACE), once("b", 20, PLACE)])) == set()


@pytest.mark.parametrize(("later_ms", "wrong"), [(300_000, set()), (290_000, {"a_dedup_id_is_stored_once"})])
def test_a_dedup_id_is_stored_again_when_it_is_free_again(later_ms: int, wrong: set[str]) -> None:
    judged = history(sent=[once("a", 0, PLACE), once("b", later_ms, (0, 1), "other")], ends={0: 2})
    judged.log, judged.drained = {PLACE: "a", (0, 1): "b"}, {}
    assert broken(judged) - {"a_repeat_gets_the_same_answer"} == wrong


def test_repeats_get_the_same_id() -> None:
    judged = history(sent=[once("a", 0, PLACE), once("b", 20, PLACE, "other")])
    assert broken(judged) == {"a_repeat_gets_the_same_answer"}


def waits(*outcomes: str, is_there: bool) -> History:
    """A message that was to wait until 2000, and was cancelled with these outcomes."""
    sent = Sent("a", None, 0, due_ms=2_000, message_id="id", told_due_ms=2_000, at_ms=10)
    cancels = [Cancelled("id", 100, 110, outcome) for outcome in outcomes]
    if not is_there:
        return History(sent=[sent], cancels=cancels, ends={0: 0})
    return history(sent=[sent], cancels=cancels, ids={PLACE: "id"})


@pytest.mark.parametrize(
    ("judged", "is_fine"),
    [
        (waits(is_there=True), True),
        (waits(is_there=False), False),
        (waits("ok", is_there=False), True),
        (waits("ok", is_there=True), False),
        (waits("ok", "ok", is_there=False), False),
        (waits("unknown", is_there=True), True),
        (waits("unknown", is_there=False), True),
        (waits("AlreadyDelivered", is_there=True), True),
        (waits("AlreadyDelivered", is_there=False), False),
        (waits("MessageNotFound", is_there=True), False),
    ],
)
def test_a_delayed_message_comes_or_is_cancelled_as_answered(judged: History, is_fine: bool) -> None:
    assert broken(judged) == (set() if is_fine else {"a_delayed_message_comes_once_or_is_cancelled"})


@pytest.mark.parametrize(("at_ms", "is_fine"), [(3_099 - SKEW_MS, False), (3_100 - SKEW_MS, True)])
def test_a_delivered_message_that_was_removed_is_not_found(at_ms: int, is_fine: bool) -> None:
    judged = replace(waits("AlreadyDelivered", is_there=True), retention_ms=1_000, expired_kept_ms=100)
    judged.cancels.append(Cancelled("id", at_ms, at_ms, "MessageNotFound"))
    assert broken(judged) == (set() if is_fine else {"a_delayed_message_comes_once_or_is_cancelled"})


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


def test_look_ups_that_do_not_match_the_log_are_named() -> None:
    assert broken(history(look_ups=["id is not found"])) == {"look_ups_match_the_log"}


@pytest.mark.parametrize(
    ("at_ms", "wrong"), [(2_000 - OFF_MS, set()), (1_999 - OFF_MS, {"no_message_comes_before_it_is_due"})]
)
def test_nothing_comes_before_it_is_due(at_ms: int, wrong: set[str]) -> None:
    judged = waits(is_there=True)
    judged.delivered = [replace(delivered("r", at_ms, 3_000), answered_ms=at_ms)]
    assert broken(judged) == wrong


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


@pytest.mark.parametrize(("began_ms", "is_wrong"), [(700 + SKEW_MS, False), (701 + SKEW_MS, True)])
def test_a_message_is_not_delivered_when_its_ttl_is_over(began_ms: int, is_wrong: bool) -> None:
    judged = history(delivered("r", began_ms + 10, began_ms + 900), stored_ms={PLACE: 200})
    judged.sent[0].ttl_ms = 500
    assert ("no_message_outlives_its_ttl" in broken(judged)) == is_wrong


@pytest.mark.parametrize("left", [0, 1])
def test_a_group_that_is_drained_has_nothing_left(left: int) -> None:
    wrong = {"a_drained_group_has_nothing_left"} if left else set()
    assert broken(history(delivered("r", 100, 900), left={"g": left})) == wrong


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
