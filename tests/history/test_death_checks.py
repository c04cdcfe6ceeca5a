"""The checks of dead and expired messages find violations, and nothing else."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.history.examples import PLACE, broken, delivered, history, settled
from tests.history.facts import (
    NEVER_MS,
    Asked,
    Moved,
    Redrive,
    Settled,
    Tasks,
)
from tests.history.history import SKEW_MS, Rules

GONE = "the message was lost: its payload is gone from the store"
NOBODY_GOT_IT = "undelivered_messages_do_not_die"


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


@pytest.mark.parametrize(("began_ms", "is_wrong"), [(700 + SKEW_MS, False), (701 + SKEW_MS, True)])
def test_a_message_is_not_delivered_when_its_ttl_is_over(began_ms: int, is_wrong: bool) -> None:
    judged = history(delivered("r", began_ms + 10, began_ms + 900), stored_ms={PLACE: 200})
    judged.sent[0].ttl_ms = 500
    assert ("no_message_outlives_its_ttl" in broken(judged)) == is_wrong


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
