"""Histories with all faults run clean; planted bugs are found."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from itertools import chain
from unittest.mock import patch

import pytest

from tests.emulators import ROOT
from tests.simulation import (  # noqa: F401 - they plant themselves
    mutants_afterlife,
    mutants_alarms,
    mutants_expiry,
    mutants_pops,
    mutants_producing,
    mutants_reading,
)
from tests.simulation.faulty_store import ALL, NONE, Faults, PastStore
from tests.simulation.mutants import MUTANTS
from tests.simulation.plans import EXPIRING, Plan
from tests.simulation.world import World, play

SEEDS = 2_000
SEEDS_A_TEST = 250
"""So that no process has much to do when the others have nothing left."""

ONCE_FAILED = (4_004_524,)
"""Seeds of histories in which a bug was found that is so rare that no plan finds it at will."""
MUTANT_SEEDS = 300
"""A planted bug is found within so many histories, or within those."""

AFTERLIFE = Plan(queues=1, consumers=4, pops=6, messages=12, resets=2, redrives=6, max_attempts=2, small_pages=True)
"""For bugs that show where much dies and comes back, which is rare in the plans of all seeds."""
CROWD = Plan(
    queues=1,
    consumers=6,
    pops=10,
    messages=16,
    small_pages=True,
    faults=replace(NONE, stale=0.3, stale_ms_max=500, latency_ms_max=200),
)
"""For bugs that show where many are at one cursor at once, and nothing else happens."""
WAITING = Plan(queues=1, delayed=0.8, sweepers=2, consumers=4, pops=6, faults=replace(ALL, zombie=0.2, kill=0.02))
"""For bugs that show where most messages wait, and many writes come late."""
GRAVES = Plan(queues=1, consumers=4, pops=6, burials=0.25, purges=6)
"""For bugs that show where much is buried."""
RISEN = Plan(
    queues=1,
    consumers=4,
    pops=14,
    messages=40,
    burials=0.25,
    redrives=60,
    redrives_pause_ms=200,
    pop_sizes=(1, 1, 10),
    max_in_flight=3,
    leases_ms=(3_000, 10_000),
    faults=replace(NONE, latency_ms_max=20, stall=0.2, stall_ms=(100, 1_500)),
)
"""For bugs that show where much comes back from the dead while claims are on their way."""
PUNCTUAL = Plan(queues=1, consumers=4, pops=6, skew_ms=0)
"""For bugs that clocks which differ would hide."""
SET_BACK = Plan(
    queues=1,
    pops=8,
    messages=12,
    waits_ms=(0, 1_000, 3_000),
    set_back_ms=20_000,
    faults=replace(NONE, latency_ms_max=20),
)
"""For bugs that show where clocks are set back."""
UNREADABLE = Plan(
    queues=1,
    consumers=5,
    pops=6,
    sizes=(2_000, 3_000),
    max_attempts=2,
    faults=replace(NONE, unreadable=0.3, latency_ms_max=10),
)
"""For bugs that show where all is answered but for reads of payloads."""
HASTY = replace(UNREADABLE, hasty=0.5)
"""The same, and consumers that lose patience call another instance beside the first."""
LOSSES = Plan(consumers=4, pops=6, sizes=(0, 2_000, 3_000), losses=4, unwanted_key="b")
"""For bugs that show where payloads are gone."""
SIFTED = Plan(
    queues=1,
    consumers=6,
    pops=8,
    messages=30,
    unwanted_key="b",
    faults=replace(NONE, stale=0.5, stale_ms_max=500, latency_ms_max=100),
)
"""For bugs that show where many sift one queue at once."""
TRIMMED = replace(
    Plan(queues=1, resets=4, consumers=5, **{**EXPIRING, "messages": 60, "pops": 8}),
    faults=replace(ALL, stale=0.5, latency_ms_max=300),
)
"""For bugs that show where resets meet logs that lose their beginning."""
FIRST_SEEDS = {"heads_that_are_gone_unseen": 217}
"""Where the search begins for what is found by two of 300 seeds."""
PLANS = {
    "claims_that_pass_what_others_sifted": SIFTED,
    "heads_that_are_gone_unseen": TRIMMED,
    "claims_that_what_is_redriven_passes": RISEN,
    "takeovers_that_are_a_little_early": PUNCTUAL,
    "waits_by_a_clock_that_is_set": SET_BACK,
    "leases_that_nobody_gives_back": UNREADABLE,
    "leases_given_back_without_a_fence": HASTY,
    "repeats_that_confirm_nothing": HASTY,
    "repeats_that_give_back": HASTY,
    "losses_that_are_settled_silently": LOSSES,
    "losses_that_a_filter_passes": LOSSES,
    "losses_that_take_others_along": LOSSES,
    "burials_without_a_fence": GRAVES,
    "purges_that_do_nothing": GRAVES,
    "purges_of_what_is_gone": replace(GRAVES, redrives=6, faults=replace(ALL, latency_ms_max=200)),
    "cancels_that_leave_no_mark": WAITING,
    "delays_in_plain_writes": WAITING,
    "promotions_that_begin_at_the_end": WAITING,
    "redrives_of_what_is_alive": AFTERLIFE,
    "pages_that_come_back_twice": CROWD,
    "verdicts_from_the_past": Plan(pops=8, messages=24, faults=Faults(stale=0.7, stale_ms_max=1_500)),
    "beliefs_taken_for_truth": Plan(
        pops=10, queues=1, resets=2, max_attempts=2, faults=Faults(stale=0.6, stale_ms_max=1_500, lose_reply=0.08)
    ),
}


@pytest.mark.parametrize("seed", ONCE_FAILED)
def test_a_history_that_once_failed_runs_clean(seed: int) -> None:
    assert play(seed) == []


@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_A_TEST))
def test_histories_with_all_faults_run_clean(first: int) -> None:
    bad = {seed: found for seed in range(first, first + SEEDS_A_TEST) if (found := play(seed))}
    assert bad == {}, f"python -m tests.simulation --history --seed {min(bad)}"


def test_a_seed_plays_the_same_history_again() -> None:
    first, second = World(7), World(7)
    first.run()
    second.run()
    assert first.history == second.history


def test_a_history_does_not_depend_on_how_python_hashes() -> None:
    """Sets and dictionaries of strings have another order in every process."""
    program = "from tests.simulation.world import World; world = World(17); world.run(); print(world.history)"
    printed = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            cwd=ROOT,
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(printed) == 1


@pytest.mark.parametrize("attribute", ["entries", "leases"])
def test_a_store_whose_attributes_are_named_otherwise_does_not_pass(attribute: str) -> None:
    world = World(1)
    true = PastStore.versions
    with patch.object(PastStore, "versions", lambda self, name: () if name == attribute else true(self, name)):
        found = world.run()
    assert any("in the store, which had some" in each for each in found)


def test_a_history_has_something_of_everything() -> None:
    histories = [world.history for world in map(World, range(60)) if world.run() == []]
    assert {each.verb for history in histories for each in history.settled} == {"ack", "nack", "bury", "extend"}
    assert {each.outcome for history in histories for each in history.settled} == {
        "ok",
        "unknown",
        "LeaseLost",
        "ReceiptInvalid",
    }
    assert any(history.resets for history in histories)
    assert any(dead for history in histories for dead in history.dead.values())
    assert any(each.is_unknown for history in histories for each in history.sent)
    assert any(each.attempt > 2 for history in histories for each in history.delivered)
    assert any("late0" in history.drained for history in histories)
    shared = [{each.message_id for each in history.sent if each.dedup_id == "d0"} for history in histories]
    assert any(None in ids and len(ids) > 1 for ids in shared)
    assert {each.outcome for history in histories for each in history.cancels} == {
        "ok",
        "unknown",
        "AlreadyDelivered",
        "MessageNotFound",
    }


@pytest.mark.parametrize("name", MUTANTS)
def test_a_planted_bug_is_found(name: str) -> None:
    first = FIRST_SEEDS.get(name, 0)
    with MUTANTS[name]():
        plays = chain(
            map(play, ONCE_FAILED), (play(seed, PLANS.get(name)) for seed in range(first, first + MUTANT_SEEDS))
        )
        assert any(map(_is_found, plays))


def _is_found(violations: list[str]) -> bool:
    """A defect alone may be of the plant itself, which no longer fits what it replaces."""
    return any(not each.startswith("no_caller_meets_a_defect") for each in violations)


@pytest.mark.parametrize("plan", [AFTERLIFE, CROWD, WAITING, GRAVES])
def test_where_much_happens_at_once_histories_run_clean(plan: Plan) -> None:
    assert _bad(100, plan) == {}


@pytest.mark.parametrize("plan", [PUNCTUAL, SET_BACK, UNREADABLE, LOSSES])
def test_with_faults_of_other_kinds_histories_run_clean(plan: Plan) -> None:
    assert _bad(60, plan) == {}


def test_where_the_dead_come_back_histories_run_clean() -> None:
    """Fewer, since each of them is long."""
    assert _bad(25, RISEN) == {}


def test_histories_whose_callers_stall_run_clean() -> None:
    assert {seed: found for seed in range(60) if (found := play(seed, _stalling(seed)))} == {}


def test_where_consumers_lose_patience_histories_run_clean() -> None:
    assert _bad(30, HASTY) == {}


def _stalling(seed: int) -> Plan:
    """The plan of this seed, but that nothing expires: here that takes no longer than callers stall."""
    plan = replace(Plan.of(seed), retention_ms=0, messages=20, pops=3)
    return replace(plan, faults=replace(ALL, stall=0.03))


def _bad(seeds: int, plan: Plan) -> dict[int, list[str]]:
    return {seed: found for seed in range(seeds) if (found := play(seed, plan))}


def test_without_faults_nothing_is_unknown() -> None:
    world = World(1, Plan(faults=NONE))
    assert world.run() == []
    assert {each.outcome for each in world.history.settled} <= {"ok", "LeaseLost"}
