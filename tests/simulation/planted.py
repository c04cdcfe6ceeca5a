"""Finds planted bugs: the seed of a history in which the bug's check fails."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from tests.simulation.bugs import BUGS
from tests.simulation.plans import Plan
from tests.simulation.world import play

SEEDS = 300
"""A bug that none of the first histories shows counts as missed."""

FOUND_AT = {
    "alarms_that_race": 13,
    "answers_that_are_kept_for_repeats": 78,
    "appointments_that_end_at_their_time": 10,
    "burials_that_miss_extensions": 40,
    "checks_that_are_given_twice": 53,
    "claims_past_the_end": 6,
    "claims_that_what_is_redriven_passes": 5,
    "dedup_ids_for_a_minute": 5,
    "fills_that_stop_at_the_first_queue": 16,
    "firsts_that_each_takeover_begins": 5,
    "keyed_claims_over_acks_that_come_too_late": 52,
    "moves_into_what_is_gone": 6,
    "repeated_appends_that_land_twice": 9,
    "repeats_that_take_more": 35,
    "tasks_that_move_in_two_writes": 17,
    "time_outs_that_do_not_last": 17,
}
"""The first seed that shows a bug, if it is not one of the first five. It changes with the service's requests to its
store: then the search finds the next one, and `python -m tests.simulation --planted` prints all of them again."""


def finding(name: str) -> int | None:
    """The first seed from 0 on whose history shows this bug. None: there is none."""
    return _first(name, range(SEEDS))


def is_found(name: str) -> bool:
    """Tries the known seed first."""
    return _first(name, dict.fromkeys((FOUND_AT.get(name, 0), *range(SEEDS)))) is not None


def _first(name: str, seeds: Iterable[int]) -> int | None:
    return next((seed for seed in seeds if _shows(name, seed) and _is_clean(seed, BUGS[name].plan)), None)


def _shows(name: str, seed: int) -> bool:
    bug = BUGS[name]
    with bug.plant():
        return any(violation.partition(":")[0] == bug.check for violation in play(seed, bug.plan))


@cache
def _is_clean(seed: int, plan: Plan | None) -> bool:
    """Whether this history is clean without any bug; otherwise its violations would be no sign of one."""
    return not play(seed, plan)
