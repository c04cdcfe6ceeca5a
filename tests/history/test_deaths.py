"""The checks of deaths, and of how long pops wait, find what is wrong, and nothing else."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from chalicelib.base.limits import STORE_DEADLINE_MS
from tests.history.examples import PLACE, broken, delivered, history, settled
from tests.history.facts import LATE_MS, NEVER_MS, Asked, Moved, Purge, Redrive, Reset, Sent, Settled, Tasks
from tests.history.history import OFF_MS, SKEW_MS, History, Rules
from tests.history.pops import REQUESTS_MS_MAX

GONE = "the message was lost: its payload is gone from the store"
NOBODY_GOT_IT = "undelivered_messages_do_not_die"
LASTS = "a_lease_lasts_as_long_as_asked"
SAME = "a_repeated_attempt_gets_the_same_messages"
COUNTS = "attempts_count_up"


@pytest.mark.parametrize(
    ("more", "wrong"),
    [
        ({}, {NOBODY_GOT_IT}),
        ({"are_all_answered": False}, set()),
        ({"settled": [settled("bury", "r", 100)]}, set()),
        ({"delivered": [delivered("r", 100, 900)]}, set()),
        ({"lost": {PLACE: 0}}, {NOBODY_GOT_IT}),
        ({"lost": {PLACE: 0}, "reasons": {"g": {PLACE: GONE}}}, set()),
        ({"reasons": {"g": {PLACE: GONE}}}, {NOBODY_GOT_IT, "only_lost_messages_die_as_lost"}),
    ],
)
def test_an_undelivered_message_dies_only_when_its_payload_is_lost(more: dict[str, object], wrong: set[str]) -> None:
    died = {"dead": {"g": {PLACE: 1}}, "reasons": {"g": {PLACE: "the lease expired"}}, "drained": {"g": set()}}
    judged = history(**{**died, "are_all_answered": True, "rules": {"g": Rules(1, 10)}, **more})
    assert broken(judged) - {"a_group_accepts_only_its_own_receipts"} == wrong


@pytest.mark.parametrize(
    ("moves", "is_wrong"),
    [
        ([settled("extend", "r", 100, until_ms=5_000)], True),
        ([settled("extend", "r", 100, until_ms=2_000)], False),
        ([settled("extend", "r", 100, until_ms=5_000, outcome="unknown")], False),
        ([settled("extend", "r", 100, until_ms=5_000), settled("nack", "r", 200)], False),
    ],
)
def test_an_extended_message_does_not_die_before_that_is_over(moves: list[Settled], is_wrong: bool) -> None:
    judged = history(dead={"g": {PLACE: 1}}, reasons={"g": {PLACE: "the lease expired"}}, drained={"g": set()})
    judged.dead_ms, judged.settled = {"g": {PLACE: 2_000}}, moves
    assert ("extended_messages_do_not_expire" in broken(judged)) == is_wrong


def test_the_lost_die_whatever_their_attempts() -> None:
    judged = history(dead={"g": {PLACE: 1}}, reasons={"g": {PLACE: GONE}}, drained={"g": set()}, lost={PLACE: 0})
    judged.rules = {"g": Rules(5, 10)}
    assert broken(judged) == set()
    judged.reasons = {"g": {PLACE: "the lease expired"}}
    assert broken(judged) == {"dead_letters_were_tried_and_stay_dead"}


@pytest.mark.parametrize(("took_ms", "wrong"), [(0, set()), (1, {"a_pop_waits_no_longer_than_asked"})])
def test_a_pop_waits_as_long_as_it_was_asked_to(took_ms: int, wrong: set[str]) -> None:
    until_ms = 100 + 1_000 + REQUESTS_MS_MAX + took_ms
    judged = history(pops=[Asked("g", 100, 0, until_ms, wait_ms=1_000)], are_all_answered=True)
    assert broken(judged) == wrong
    judged.are_all_answered = False
    assert broken(judged) == set()
    judged.well_from_ms, judged.pops[0].at_ms = 60_000, until_ms + STORE_DEADLINE_MS
    assert broken(judged) == wrong


def test_a_late_answer_may_be_of_the_first_of_two_leases() -> None:
    """Where attempts begin anew, they do not tell which was first: a pop on its way for long, of a plan with stalls."""
    first, second = delivered("r", 1_196, 1_197, began_ms=172), delivered("s", 1_104, 31_236, 2, began_ms=1_018)
    judged = history(first, second, redrives=[Redrive("g", 0, 10)])
    assert broken(judged) == set()
    first.attempt = 2
    assert "two_leases_never_live_at_once" in broken(judged)


def attempt(began_ms: int, at_ms: int, receipts: list[str] | None) -> Asked:
    return Asked("g", began_ms, 0, at_ms, attempt_id="a", receipts=receipts)


@pytest.mark.parametrize(("ttl_ms", "is_wrong"), [(None, True), (200 + SKEW_MS + 1, True), (200 + SKEW_MS, False)])
def test_a_repeat_brings_more_only_of_what_may_have_expired(ttl_ms: int | None, is_wrong: bool) -> None:
    """By the clock of the first call its time to live was over, by that of the second not: seed 20035366 of a run."""
    kept, spent = delivered("r", 200, 5_000), replace(delivered("s", 400, 5_000), place=(0, 1))
    pops = [attempt(100, 200, ["r"]), attempt(300, 400, ["r", "s"])]
    judged = History(delivered=[kept, spent], pops=pops, log={spent.place: "b"})
    judged.sent = [Sent("b", None, 0, spent.place, ttl_ms=ttl_ms)]
    assert (SAME in broken(judged)) == is_wrong


@pytest.mark.parametrize(("expired_kept_ms", "is_wrong"), [(100, False), (10_000, True)])
def test_a_repeat_need_not_bring_what_was_removed(expired_kept_ms: int, is_wrong: bool) -> None:
    """It was a retry, which is delivered though it has expired, until it is removed: seed 23001068 of a run."""
    pops = [attempt(100, 200, ["r"]), attempt(300, 400, [])]
    judged = history(delivered("r", 200, 5_000 + 2 * SKEW_MS), pops=pops)
    judged.retention_ms, judged.expired_kept_ms = 150, expired_kept_ms
    assert ("a_repeated_attempt_gets_the_same_messages" in broken(judged)) == is_wrong


@pytest.mark.parametrize(
    ("ordered", "ttl_ms", "lost_ms", "is_wrong"),
    [(True, 150, NEVER_MS, False), (False, 150, NEVER_MS, True), (True, None, 200, False), (True, None, 201, True)],
)
def test_a_repeat_of_an_ordered_group_brings_what_a_gone_one_held_up(
    ordered: bool, ttl_ms: int | None, lost_ms: int, is_wrong: bool
) -> None:
    """The first call could not settle it, or did not hear that it had: seeds 20046231 and 84027572 of runs."""
    held_up = replace(delivered("s", 400, 5_000), place=(0, 1))
    pops = [attempt(100, 200, ["r"]), attempt(300, 400, ["r", "s"])]
    judged = History(delivered=[replace(delivered("r", 200, 5_000), place=(1, 0)), held_up], pops=pops)
    judged.rules = {"g": Rules(5, 10, ordered=ordered)}
    judged.log = {(0, 0): "gone", (0, 1): "b", (1, 0): "a"}
    judged.sent, judged.lost = [Sent("gone", None, 0, (0, 0), ttl_ms=ttl_ms)], {(0, 0): lost_ms}
    assert (SAME in broken(judged)) == is_wrong


@pytest.mark.parametrize(
    ("extends", "shown", "wrong"),
    [
        ([(250, 800, "unknown")], ["s"], set()),
        ([(250, 801, "unknown")], ["s"], {LASTS}),  # its own holder asked for more
        ([(401, 800, "unknown")], ["s"], {LASTS, SAME, COUNTS}),  # later than the answer
        ([(250, 800, "LeaseLost")], ["s"], {LASTS, SAME, COUNTS}),
        ([], ["s"], {LASTS, SAME, COUNTS}),
        ([(250, 800, "unknown")], ["s", "t"], {LASTS, SAME, COUNTS}),  # it gave one receipt
        ([(250, 800, "unknown"), (450, 800, "unknown")], ["s", "t"], set()),
    ],
)
def test_a_repeat_may_show_an_extension_that_nobody_heard_of(
    extends: list[tuple[int, int, str]], shown: list[str], wrong: set[str]
) -> None:
    """It was extended to less than its pop had asked for, and the reply was lost: seed 73003262 of a run."""
    times = [(receipt, 200 * number, 1_000 if number == 1 else 800) for number, receipt in enumerate(["r", *shown], 1)]
    leases = [
        replace(delivered(receipt, at_ms, until_ms), answered_ms=at_ms, asked_ms=1_000 + OFF_MS, first_ms=100)
        for receipt, at_ms, until_ms in times
    ]
    kept = replace(delivered("kept", 200, 5_000), place=(0, 1), answered_ms=200)
    pops = [attempt(at_ms - 10, at_ms, ["kept", receipt]) for receipt, at_ms, _ in times]
    facts = [
        Settled("extend", "g", PLACE, receipt, began_ms, began_ms + 10, outcome, asked_ms=asked_ms + OFF_MS)
        for receipt, (began_ms, asked_ms, outcome) in zip(["r", *shown], extends, strict=False)
    ]
    judged = history(kept, *leases, pops=pops, settled=facts)
    assert broken(judged) & {LASTS, SAME, COUNTS} == wrong


@pytest.mark.parametrize(("resets", "is_wrong"), [([], True), ([Reset("g", 260, 350)], False)])
def test_a_pop_may_take_anew_after_a_reset_what_was_extended(resets: list[Reset], is_wrong: bool) -> None:
    """Not for as long as the extend asked for: seed 74201978 of a run."""
    leases = [
        replace(delivered(receipt, at_ms, 900), answered_ms=at_ms, asked_ms=900 + OFF_MS, first_ms=100)
        for receipt, at_ms in (("r", 200), ("s", 400))
    ]
    extend = Settled("extend", "g", PLACE, "r", 250, 255, "unknown", asked_ms=901 + OFF_MS)
    assert (LASTS in broken(history(*leases, settled=[extend], resets=resets))) == is_wrong


@pytest.mark.parametrize(
    ("settle_by", "receipt", "acked_ms", "is_wrong"),
    [
        ("receipt", "r", 310, False),
        ("receipt", "r", 411, True),
        ("receipt", "old", 310, True),
        ("message", "old", 310, False),
        ("message", "old", 411, True),
    ],
)
def test_a_repeat_takes_others_only_where_its_messages_are_settled(
    settle_by: str, receipt: str, acked_ms: int, is_wrong: bool
) -> None:
    """By any receipt that names them: seed 73015652 of a run."""
    pops = [attempt(100, 200, ["r"]), attempt(300, 400, ["s"])]
    judged = history(delivered("r", 200, 5_000), replace(delivered("s", 400, 5_000), place=(0, 1)), pops=pops)
    judged.rules, judged.settled = {"g": Rules(5, 10, settle_by=settle_by)}, [settled("ack", receipt, acked_ms)]
    assert (SAME in broken(judged)) == is_wrong
    judged.lost = {PLACE: 200}
    assert SAME not in broken(judged)


@pytest.mark.parametrize(
    ("extended_ms", "outcome", "is_wrong"),
    [
        (310, "unknown", False),
        (411, "unknown", True),
        (100 - LATE_MS, "unknown", False),
        (99 - LATE_MS, "unknown", True),
        (100, "ok", False),
        (99, "ok", True),
    ],
)
def test_a_repeat_shows_what_an_older_receipt_has_extended_since_its_pop(
    extended_ms: int, outcome: str, is_wrong: bool
) -> None:
    """Under a receipt that nobody heard of."""
    pops = [attempt(100, 200, ["r", "kept"]), attempt(300, 400, ["s", "kept"])]
    kept = replace(delivered("kept", 200, 5_000), place=(0, 1))
    leases = [replace(lease, first_ms=100) for lease in (delivered("r", 200, 5_000), delivered("s", 400, 5_000))]
    judged = history(*leases, kept, pops=pops, rules={"g": Rules(5, 10, settle_by="message")})
    judged.settled = [settled("extend", "old", extended_ms, outcome)]
    assert (SAME in broken(judged)) == is_wrong


@pytest.mark.parametrize(
    ("beside", "is_wrong"),
    [
        (attempt(199, 250, None), False),
        (attempt(200, 250, None), True),
        (attempt(-LATE_MS, 100 - LATE_MS, None), False),
        (attempt(-LATE_MS, 99 - LATE_MS, None), True),
        (attempt(199, 401, ["r"]), False),
        (attempt(110, 150, ["s"]), False),
        (attempt(110, 150, ["r"]), True),
    ],
)
def test_a_repeat_brings_more_only_of_what_another_call_may_have_taken(beside: Asked, is_wrong: bool) -> None:
    """Two were under way at once, and nobody heard of one: seed 73015954 of a run."""
    pops = [beside, attempt(100, 200, ["r"]), attempt(300, 400, ["r", "s"])]
    judged = history(delivered("r", 200, 5_000), replace(delivered("s", 400, 5_000), place=(0, 1)), pops=pops)
    assert (SAME in broken(judged)) == is_wrong


@pytest.mark.parametrize(("verb", "most", "is_wrong"), [("ack", 1, False), ("nack", 1, True), ("ack", 1_000, True)])
def test_a_late_ack_of_what_was_purged_is_accepted(verb: str, most: int, is_wrong: bool) -> None:
    """Nothing tells it from an ack of what is settled: seed 784 of a run with stalls of up to two minutes."""
    judged = history(delivered("r", 100, 900), settled=[settled(verb, "r", 5_000)], purges=[Purge("g", 2_000, 2_100)])
    judged.rules = {"g": Rules(most, 10, settle_by="delivery")}
    assert ("receipts_of_a_delivery_end_with_it" in broken(judged)) == is_wrong


@pytest.mark.parametrize(
    ("redriven_ms", "leases", "failed_ms", "verb", "is_wrong"),
    [
        (2_000, 2, NEVER_MS, "nack", False),
        (None, 2, NEVER_MS, "nack", True),
        (800, 0, 700, "nack", True),  # it was not sent yet
        (6_001, 2, NEVER_MS, "nack", True),
        (2_000, 1, NEVER_MS, "nack", True),
        (2_000, 1, NEVER_MS, "bury", False),
        (2_000, 0, 1_999, "nack", False),  # its claim may have been repeated
        (2_000, 0, 2_000, "nack", True),
    ],
)
def test_an_expired_message_comes_only_by_a_redrive(
    redriven_ms: int | None, leases: int, failed_ms: int, verb: str, is_wrong: bool
) -> None:
    """After two attempts, or a bury. Nobody may have seen these: seed 73035858 of a run."""
    seen = [delivered(f"r{number}", 1_000 + 600 * number, 1_500 + 600 * number) for number in range(leases)]
    judged = history(*seen, delivered("s", 6_000, 6_500), retention_ms=3_000, rules={"g": Rules(2, 10)})
    judged.sent[0].began_ms, judged.sent[0].at_ms = 800, 900
    judged.redrives = [Redrive("g", redriven_ms, redriven_ms)] if redriven_ms is not None else []
    judged.pops, judged.settled = [Asked("g", failed_ms, 100)], [settled(verb, "r0", 1_100)]
    assert ("expired_messages_are_not_delivered" in broken(judged)) == is_wrong


@pytest.mark.parametrize(
    ("ttl_ms", "seen", "is_wrong"),
    [
        (None, 1, True),
        (None, 2, False),
        (5_000 + SKEW_MS, 1, False),
        (5_000 + SKEW_MS + 1, 1, True),
        (5_000, 3, True),
    ],
)
def test_what_a_task_brings_back_comes_again_unless_its_ttl_is_over(
    ttl_ms: int | None, seen: int, is_wrong: bool
) -> None:
    """The group had it before it died, and was drained long after it was back: seed 73005601 of a run."""
    judged = history(graves={"dead": NEVER_MS}, moved=[Moved("h", PLACE, "dead", "id", 200, 1, "no use")])
    judged.sent[0].ttl_ms = ttl_ms
    judged.tasks = Tasks(dead=Counter("a"), seen=Counter(a=seen), drained_ms={"a": 100}, last_drain_ms=5_000)
    judged.tasks.moved = {"task": ("seen", 1)}
    assert ("what_tasks_move_comes_once" in broken(judged)) == is_wrong
