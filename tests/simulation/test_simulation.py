"""Histories with all faults run clean."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import weakref
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest

from chalicelib.core.catalogue.group import BY_KEY
from chalicelib.doors.sqs.registry import moves_of, queues_of
from tests.history.facts import NEVER_MS
from tests.history.history import History
from tests.history.requests import ALREADY, EXPIRED, REPLY, TIMEOUT
from tests.history.transactions import ENDED
from tests.simulation import __main__
from tests.simulation.faulty_store import ALL, NONE, PastStore
from tests.simulation.plans import (
    AFTERLIFE,
    BROADCAST,
    CALLS,
    CROWD,
    EMPTIED,
    FULL,
    GRAVES,
    HALVES,
    HASTY,
    KEYED,
    LOSSES,
    MEDDLED,
    MOVED,
    MOVING,
    NAMED,
    OUTAGE,
    OWNED,
    PUNCTUAL,
    PUSHED,
    RATED,
    RATED_APART,
    REMOVED,
    RISEN,
    SET_BACK,
    SHUT,
    SKEWED,
    STALLED,
    THROTTLED,
    TORN,
    TWINS,
    UNREADABLE,
    WAITING,
    ZONED,
    Plan,
)
from tests.simulation.world import World, play
from tests.support.emulators import ROOT

LOOKED_THROUGH = range(60)
SEEDS_MAX = 240
"""Four times as many as the planted bugs need. `make soak` plays others."""
SEEDS_A_TEST = 60
"""So that no process has much to do when the others have nothing left."""
SEEDS_A_PLAN = 5
"""Most planted bugs show in these already."""


@pytest.mark.parametrize("first", range(LOOKED_THROUGH.stop, SEEDS_MAX, SEEDS_A_TEST))
def test_histories_with_all_faults_run_clean(first: int) -> None:
    bad = {seed: violations for seed in range(first, first + SEEDS_A_TEST) if (violations := play(seed))}
    assert bad == {}, f"python -m tests.simulation --history --seed {min(bad)}"


def test_a_seed_plays_the_same_history_again() -> None:
    first, second = World(7), World(7)
    first.run()
    second.run()
    assert first.history == second.history


def test_a_history_without_an_end_is_judged_too() -> None:
    """Also if its topic has more queues than at first, as in seed 73011860 of a run."""
    with patch("tests.simulation.world._STEPS_MAX", 600):
        violations = play(0, MOVING)
    assert violations[0] == "no_caller_meets_a_defect: 600 steps, and no end, so other checks may be wrong"


@pytest.mark.parametrize(("missing", "is_shown"), [("_verdict", True), ("_prepared", False)])
def test_seeds_that_cannot_be_played_are_named_and_end_no_others(
    missing: str, is_shown: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    arguments = ["tests.simulation", "--seeds", "2", "--processes", "1"]
    with patch.object(sys, "argv", arguments), patch.object(World, missing, None):
        assert __main__.main() == 1
    told = capfd.readouterr().out
    assert "2 histories from seed 0 on, 2 with violations" in told
    for seed in range(2):
        assert f"seed {seed}: could not be played and judged\nTraceback" in told
    assert "TypeError: 'NoneType' object is not callable" in told
    assert ("Sent(" in told) == is_shown  # the history of the first


def test_a_history_is_shown_with_its_pops_and_its_verdict(capfd: pytest.CaptureFixture[str]) -> None:
    with patch.object(sys, "argv", ["tests.simulation", "--history", "--seed", "17"]):
        assert __main__.main() == 0
    told = capfd.readouterr().out
    assert "Sent(" in told
    assert "Asked(" in told
    assert f"={NEVER_MS}" not in told
    assert told.endswith("\nseed 17: clean\n")


def test_a_process_that_dies_is_freed_without_a_collection_of_garbage() -> None:
    """Histories run without any, and leave dozens of processes."""
    service = World(7).instance(NONE)  # one that the world does not keep
    rooms = [service.admin.draining, service.reading, queues_of(service), moves_of(service), service.requests]
    rooms += [service.pushing, service.sweeps]
    store = weakref.ref(service.env.store)  # which all rooms know
    gc.disable()
    del service, rooms
    is_gone = store() is None
    gc.enable()
    assert is_gone


def test_a_history_does_not_depend_on_how_python_hashes() -> None:
    """Sets and dictionaries of strings have another order in every process."""
    program = "from tests.history.history import LISTS; from tests.simulation.world import World; world = World(17);"
    program += " world.run(); print([getattr(world.history, name) for name in LISTS.values()])"
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
        violations = world.run()
    assert any("in the store, which had some" in violation for violation in violations)


def test_a_history_has_something_of_everything() -> None:
    histories = [_played(World(seed)) for seed in LOOKED_THROUGH]
    assert {settled.verb for history in histories for settled in history.settled} == {"ack", "nack", "bury", "extend"}
    assert {settled.outcome for history in histories for settled in history.settled} == {
        "ok",
        "unknown",
        "LeaseLost",
        "ReceiptInvalid",
        "not asked",
    }
    assert any(history.resets for history in histories)
    assert any(dead for history in histories for dead in history.dead.values())
    assert any(sent.is_unknown for history in histories for sent in history.sent)
    assert any(delivered.attempt > 2 for history in histories for delivered in history.delivered)
    assert any("late0" in history.drained for history in histories)
    shared = [{sent.message_id for sent in history.sent if sent.dedup_id == "d0"} for history in histories]
    assert any(None in ids and len(ids) > 1 for ids in shared)
    assert {cancel.outcome for history in histories for cancel in history.cancels} == {
        "ok",
        "unknown",
        "AlreadyDelivered",
        "MessageNotFound",
    }


def test_calls_and_transactions_end_in_every_way() -> None:
    calls = [_played(World(seed, CALLS)) for seed in range(12)]
    assert {fact.outcome for history in calls for fact in history.fetched} >= {REPLY, TIMEOUT}
    assert {fact.outcome for history in calls for fact in history.replied} >= {"ok", ALREADY, EXPIRED}
    halves = [_played(World(seed, HALVES)) for seed in range(6)]
    assert {fact.outcome for history in halves for fact in history.decisions} >= {"ok", ENDED}


def _played(world: World) -> History:
    assert world.run() == []
    return world.history


PLANS = [
    AFTERLIFE,
    BROADCAST,
    CROWD,
    EMPTIED,
    replace(EMPTIED, faults=ALL),
    WAITING,
    GRAVES,
    HALVES,
    CALLS,
    MOVING,
    PUSHED,
    FULL,
    ZONED,
    KEYED,
    replace(KEYED, queues=3, fills=0.5, max_in_flight=5, max_attempts=2),
    replace(ZONED, faults=ALL),
    RATED,
    RATED_APART,
    SKEWED,
    TWINS,
    replace(TWINS, ordered=BY_KEY, max_in_flight=5),
    STALLED,
    OUTAGE,
    THROTTLED,
    replace(THROTTLED, queues=2, ordered=BY_KEY, settle_by="message", faults=ALL),
    SHUT,
    TORN,
    replace(OUTAGE, ordered=BY_KEY, settle_by="message", faults=ALL),
    MEDDLED,
    OWNED,
    replace(OWNED, is_fifo=True, over_json=True),
    *(PUNCTUAL, SET_BACK, UNREADABLE, LOSSES, HASTY, RISEN, MOVED, REMOVED),
]
SETTINGS: list[dict[str, Any]] = [{"ordered": True}, {"small_pages": True, "resets": 1}, {"pop_sizes": (1,)}]


@pytest.mark.parametrize("plan", PLANS)
def test_where_much_happens_at_once_histories_run_clean(plan: Plan) -> None:
    assert _bad(plan) == {}


@pytest.mark.parametrize("rule", ["receipt", "delivery", "message"])
@pytest.mark.parametrize("settings", SETTINGS)
def test_whatever_receipts_name_histories_run_clean(rule: str, settings: dict[str, Any]) -> None:
    assert _bad(replace(NAMED, settle_by=rule, leases_ms=(0, 200, 1_000, 3_000), redrives=2, **settings)) == {}


def _bad(plan: Plan) -> dict[int, list[str]]:
    return {seed: violations for seed in range(SEEDS_A_PLAN) if (violations := play(seed, plan))}


def test_without_faults_nothing_is_unknown() -> None:
    world = World(1, Plan(faults=NONE))
    assert world.run() == []
    assert {settled.outcome for settled in world.history.settled} <= {"ok", "LeaseLost"}
