"""The checks of repeated pops find violations, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.history.examples import PLACE, broken, delivered, history, settled
from tests.history.facts import (
    LATE_MS,
    NEVER_MS,
    Asked,
    Sent,
    Settled,
)
from tests.history.history import OFF_MS, SKEW_MS, History, Rules

LASTS = "a_lease_lasts_as_long_as_asked"
SAME = "a_repeated_attempt_gets_the_same_messages"
COUNTS = "attempts_count_up"


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
