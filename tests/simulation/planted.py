"""Bugs planted into the protocol: which plan shows each of them, and in the history of which seed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cache

from chalicelib.core.catalogue.group import BY_KEY
from tests.simulation import (  # noqa: F401 - they plant themselves
    mutants_afterlife,
    mutants_agenda,
    mutants_alarms,
    mutants_breaker,
    mutants_expiry,
    mutants_filling,
    mutants_firsts,
    mutants_keys,
    mutants_looks,
    mutants_moves,
    mutants_naming,
    mutants_outage,
    mutants_pops,
    mutants_producing,
    mutants_purges,
    mutants_push,
    mutants_queues,
    mutants_reading,
    mutants_requests,
    mutants_skew,
    mutants_sqs_queues,
    mutants_throttling,
    mutants_transactions,
    mutants_twins,
    mutants_zones,
)
from tests.simulation.faulty_store import ALL, NONE, Faults
from tests.simulation.mutants import MUTANTS
from tests.simulation.plans import (
    AFTERLIFE,
    CALLS,
    CROWD,
    EMPTIED,
    EXPIRING,
    FILLED,
    FULL,
    GRAVES,
    GROWING,
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
    PUSHED,
    RATED,
    RATED_APART,
    REMOVED,
    RETURNED,
    RISEN,
    SET_BACK,
    SHUT,
    SIFTED,
    STALLED,
    SWEPT,
    TORN,
    TWINS,
    UNREADABLE,
    WAITING,
    ZONED,
    Plan,
)
from tests.simulation.world import play

SEEDS = 300
"""A bug that none of this many histories shows counts as missed."""

DYING = replace(NAMED, settle_by="delivery", max_attempts=2, messages=30, pop_sizes=(1, 4), leases_ms=(200, 1_000))
HEARTBEATS = replace(NAMED, settle_by="message", pop_sizes=(1,), faults=replace(ALL, zombie=0.2))
PLANS = {
    "claims_that_pass_what_others_sifted": SIFTED,
    "ordered_claims_that_race": Plan(queues=1, consumers=5, pops=8, ordered=True, faults=CROWD.faults),
    "promotions_before_they_are_due": Plan(queues=1, consumers=4, pops=8, delayed=0.8, skew_ms=0),
    "trims_of_the_last_segment": Plan(queues=3, **EXPIRING),
    "heads_that_are_gone_unseen": replace(SIFTED, resets=6),
    "claims_that_what_is_redriven_passes": RISEN,
    "late_acks_that_are_judged_once": DYING,
    "late_acks_that_read_the_cursor_once": TORN,
    "redrives_that_come_late": replace(AFTERLIFE, max_attempts=1_000, burials=0.2, resets=0, faults=NONE),
    "claims_that_a_reset_ends": replace(CROWD, resets=6),
    "windows_of_each_clock": RATED_APART,
    "pops_that_outlast_their_call": OUTAGE,
    "instances_that_remember_a_failure": OUTAGE,
    **dict.fromkeys(("messages_that_stay_where_they_are_throttled", "pops_that_fail_with_one_log"), SHUT),
    "waits_by_a_clock_that_is_set": SET_BACK,
    "leases_that_nobody_gives_back": UNREADABLE,
    "leases_given_back_without_a_fence": HASTY,
    "repeats_that_confirm_nothing": HASTY,
    "repeats_that_give_back": HASTY,
    "losses_that_are_settled_silently": LOSSES,
    "losses_that_a_filter_passes": LOSSES,
    "losses_that_take_others_along": LOSSES,
    **dict.fromkeys(("burials_without_a_fence", "purges_that_do_not_count"), GRAVES),
    "purges_of_what_is_gone": replace(GRAVES, redrives=6, faults=replace(ALL, latency_ms_max=200)),
    "cancels_that_leave_no_mark": replace(WAITING, messages=40, sizes=(0,), faults=replace(ALL, zombie=0.4, kill=0.02)),
    **dict.fromkeys(("delays_in_plain_writes", "promotions_that_leave_no_way_to_late_ones"), WAITING),
    "promotions_that_begin_at_the_end": replace(
        WAITING, messages=60, delayed=0.5, sizes=(150, 1_000), faults=replace(ALL, zombie=0.2, kill=0.05)
    ),
    "redrives_of_what_is_alive": replace(
        AFTERLIFE,
        resets=4,
        burials=0.25,
        redrives=12,
        redrives_pause_ms=800,
        leases_ms=(3_000, 10_000),
        max_attempts=1_000,
        small_pages=False,
        faults=replace(NONE, latency_ms_max=50),
    ),
    "deaths_that_count_twice": replace(AFTERLIFE, resets=4, burials=0.25),
    **dict.fromkeys(
        (
            "queues_that_leave_unsettled",
            "queues_that_leave_open",
            "queues_that_never_leave",
            "queues_that_are_read_no_more",
        ),
        MOVING,
    ),
    **dict.fromkeys(
        (
            "calls_longer_than_their_leases",
            "slots_that_anybody_takes",
            "slots_without_end",
            "successes_that_come_again",
            "failures_that_are_acked",
        ),
        PUSHED,
    ),
    "breakers_that_forget_their_own_appends": FULL,
    "breakers_that_stay_open": replace(FULL, messages=160),
    "breakers_for_one_group": FULL,
    **dict.fromkeys(
        (
            "zones_that_producers_ignore",
            "zones_that_consumers_ignore",
            "queues_that_are_never_taken_over",
            "queues_that_are_never_given_back",
        ),
        ZONED,
    ),
    **dict.fromkeys(
        (
            "appointments_that_end_at_their_time",
            "appointments_that_do_not_move",
            "appointments_that_are_relied_on_for_ever",
        ),
        SWEPT,
    ),
    **dict.fromkeys(("fills_that_stop_at_the_first_queue", "fills_that_ask_each_queue_for_all"), FILLED),
    "fills_that_forget_claims_without_answer": replace(
        FILLED, pops=16, leases_ms=(5_000,), faults=replace(NONE, lose_reply=0.3)
    ),
    **dict.fromkeys(
        (
            "purges_that_forget_what_waits",
            "pointers_that_forget_what_waited",
            "times_of_delivery_for_times_of_sending",
            "claims_that_pass_over_a_purge",
        ),
        EMPTIED,
    ),
    "purges_that_answer_too_soon": replace(EMPTIED, messages=80, wipes=1),
    "purges_that_reach_ahead": replace(EMPTIED, messages=80, wipes=1, skew_ms=0),
    **dict.fromkeys(
        (
            "messages_set_aside_for_good",
            "messages_set_aside_that_nobody_takes",
            "extended_leases_that_hold_no_key",
            "retries_that_hold_no_key",
            "takeovers_by_offset_only",
            "more_set_aside_than_allowed",
            "messages_of_a_key_in_any_order",
        ),
        KEYED,
    ),
    "keyed_claims_that_forget_the_cap": replace(
        KEYED, aside_max=100, max_in_flight=3, pop_sizes=(1, 2), faults=replace(NONE, stale=0.3, latency_ms_max=100)
    ),
    "keys_that_a_weak_read_lacks": replace(
        KEYED, keys=("a", "b"), pops=20, faults=replace(NONE, stale=0.7, stale_ms_max=1_500, latency_ms_max=20)
    ),
    **dict.fromkeys(("keyed_claims_over_acks_that_come_too_late", "keys_held_up_by_their_last_message"), MEDDLED),
    "keys_of_another_queue": replace(KEYED, queues=3),
    "keys_known_by_the_number_of_their_queue": replace(TWINS, ordered=BY_KEY),
    "permits_that_others_have_taken": replace(RATED, faults=replace(NONE, latency_ms_max=60)),
    "dedup_ids_for_a_minute": STALLED,
    "searches_past_an_open_segment": Plan(
        producers=6,
        consumers=1,
        messages=120,
        queues=1,
        sizes=(600,),
        dedup_ids=8,
        faults=replace(NONE, torn=0.9, lose_reply=0.2, latency_ms_max=300),
    ),
    "delays_of_a_group_that_nobody_keeps": replace(KEYED, delay_ms=2_000),
    "messages_named_across_resets": replace(NAMED, settle_by="message", resets=2),
    "extensions_that_overwrite_newer_ones": HEARTBEATS,
    "takeovers_that_miss_extensions": HEARTBEATS,
    "nacks_that_miss_extensions": HEARTBEATS,
    **dict.fromkeys(
        (
            "deliveries_that_outlast_their_leases",
            "deliveries_that_any_receipt_names",
            "settlements_that_do_not_know_themselves",
        ),
        replace(NAMED, settle_by="delivery"),
    ),
    "deliveries_that_end_with_an_extension": replace(NAMED, settle_by="delivery", pop_sizes=(4,), meddlers=2),
    "firsts_that_move_with_the_deadline": replace(HEARTBEATS, notes_first=True),
    "firsts_that_pages_forget": replace(CROWD, notes_first=True),
    "pages_that_no_old_receipt_reaches": replace(NAMED, settle_by="message", small_pages=True),
    **dict.fromkeys(
        (
            "topics_that_the_last_two_queues_leave",
            "topics_that_go_with_others_groups",
            "changes_that_overwrite_others",
        ),
        OWNED,
    ),
    **dict.fromkeys(
        ("queues_made_again_that_begin_at_the_beginning", "queues_made_again_that_get_what_waited"),
        replace(OWNED, faults=replace(NONE, stale=0.2, latency_ms_max=20)),
    ),
    "records_removed_by_their_name": replace(OWNED, over_json=True, faults=replace(ALL, zombie=0.2, latency_ms_max=60)),
    "queues_made_again_that_know_old_ids": replace(OWNED, is_fifo=True),
    "topics_that_grow_under_ordered_groups": GROWING,
    **dict.fromkeys(("moves_in_two_writes", "moves_that_leave_a_letter"), MOVED),
    **dict.fromkeys(
        (
            "tasks_that_move_in_two_writes",
            "tasks_that_go_on_when_they_are_cancelled",
            "returns_that_nobody_owes",
            "tasks_without_appointments",
        ),
        RETURNED,
    ),
    "messages_that_are_dropped_without_a_topic": REMOVED,
    "late_replies_that_are_taken": CALLS,
    "time_outs_that_do_not_last": CALLS,
    "commits_after_their_time": HALVES,
    "decisions_that_are_made_twice": HALVES,
    "checks_that_are_given_twice": HALVES,
    "pages_that_come_back_late": CROWD,
    "pages_that_come_back_twice": CROWD,
    "verdicts_from_the_past": Plan(pops=8, messages=24, faults=Faults(stale=0.7, stale_ms_max=1_500)),
    "beliefs_taken_for_truth": Plan(
        pops=10, queues=1, resets=2, max_attempts=2, faults=Faults(stale=0.6, stale_ms_max=1_500, lose_reply=0.08)
    ),
}
"""Other bugs are looked for in the plans of the seeds."""

FOUND_AT = {
    "a_missing_head_taken_for_the_end": 42,
    "acks_of_a_whole_lease_without_its_size": 8,
    "alarms_in_two_writes": 47,
    "alarms_that_race": 69,
    "appointments_that_do_not_move": 20,
    "appointments_that_end_at_their_time": 5,
    "beliefs_taken_for_truth": 89,
    "burials_in_two_writes": 6,
    "burials_without_a_fence": 14,
    "cancels_that_leave_no_mark": 32,
    "changes_that_overwrite_others": 7,
    "checks_that_are_given_twice": 6,
    "checks_that_come_at_once": 16,
    "claims_that_forget_the_cap": 144,
    "claims_that_pass_over_a_purge": 46,
    "commits_after_their_time": 16,
    "deliveries_that_outlast_their_leases": 38,
    "fills_that_forget_claims_without_answer": 12,
    "fills_that_stop_at_the_first_queue": 24,
    "firsts_that_each_takeover_begins": 5,
    "firsts_that_retries_forget": 5,
    "groups_whose_first_message_is_everybodys": 16,
    "heads_that_are_gone_unseen": 29,
    "instances_that_remember_a_failure": 6,
    "jumps_over_an_open_question": 10,
    "jumps_over_what_another_appended": 29,
    "keyed_claims_over_acks_that_come_too_late": 54,
    "keys_held_up_by_their_last_message": 17,
    "keys_known_by_the_number_of_their_queue": 10,
    "late_acks_that_are_judged_once": 591,
    "late_acks_that_read_the_cursor_once": 15,
    "leases_that_come_back_late": 9,
    "leases_that_nobody_gives_back": 5,
    "losses_that_take_others_along": 17,
    "nacks_that_come_back_late": 9,
    "nacks_that_miss_extensions": 83,
    "no_end_of_attempts_taken_for_no_attempt_left": 7,
    "nothing_though_queues_are_left": 7,
    "ordered_queues_that_do_not_wait": 30,
    "pages_that_nobody_notes": 15,
    "pauses_that_nobody_looks_at": 7,
    "permits_that_others_have_taken": 12,
    "promotions_that_leave_no_way_to_late_ones": 29,
    "pruning_of_what_has_run_out": 15,
    "purges_that_do_nothing": 37,
    "queues_made_again_that_know_old_ids": 10,
    "queues_that_leave_open": 160,
    "receipts_without_a_group": 5,
    "records_removed_by_their_name": 30,
    "records_that_come_and_go_apart": 9,
    "repeats_that_confirm_nothing": 41,
    "replies_that_are_not_stored": 8,
    "replies_that_overwrite": 8,
    "replies_to_somebody_else": 7,
    "requests_that_are_delivered_late": 7,
    "resets_that_forget_a_page": 6,
    "resets_that_keep_leases": 11,
    "searches_past_an_open_segment": 168,
    "settlements_that_do_not_know_themselves": 55,
    "spent_messages_that_stay": 47,
    "takeovers_that_miss_extensions": 32,
    "takeovers_without_a_fence": 5,
    "tasks_that_go_on_when_they_are_cancelled": 17,
    "tasks_that_move_in_two_writes": 44,
    "time_outs_that_do_not_last": 7,
    "topics_that_go_with_others_groups": 27,
    "topics_that_the_last_two_queues_leave": 169,
    "traces_that_forget_the_dead": 11,
    "transactions_that_nobody_checks": 25,
    "trims_of_what_can_be_read": 30,
    "ttls_that_nobody_looks_at": 7,
    "verdicts_from_the_past": 12,
    "waits_that_end_early": 95,
    "windows_of_each_clock": 14,
}
"""The first seed that shows a bug, if it is 5 or more. It changes when the service makes other requests to its store:
then the search finds the next one, and `python -m tests.simulation --planted` prints all of them anew."""


def finding(name: str) -> int | None:
    """The first seed from 0 on whose history shows this bug. None: there is none."""
    return _first(name, range(SEEDS))


def is_found(name: str) -> bool:
    """Tries the seed that is known to find it first."""
    return _first(name, dict.fromkeys((FOUND_AT.get(name, 0), *range(SEEDS)))) is not None


def _first(name: str, seeds: Iterable[int]) -> int | None:
    plan = PLANS.get(name)
    return next((seed for seed in seeds if _shows(name, seed, plan) and _is_clean(seed, plan)), None)


def _shows(name: str, seed: int, plan: Plan | None) -> bool:
    with MUTANTS[name]():
        return _is_seen(play(seed, plan))


@cache
def _is_clean(seed: int, plan: Plan | None) -> bool:
    """Whether this history is, without any bug: its violations would be no sign of one."""
    return not play(seed, plan)


def _is_seen(violations: list[str]) -> bool:
    """A defect alone may be of the plant itself, which no longer fits what it replaces."""
    return any(not violation.startswith("no_caller_meets_a_defect") for violation in violations)
