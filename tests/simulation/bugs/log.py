"""Bugs planted into the log, and into messages before it: repeated, delayed, of transactions and of requests."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import Any
from unittest.mock import patch

from chalicelib.core.base.message import Message
from chalicelib.core.delays.promoter import DecisionChain
from chalicelib.core.producing.new_message import Sending
from chalicelib.core.producing.produce import Producer
from chalicelib.core.requests.asking import ReplyWaiter
from chalicelib.core.table import keys
from chalicelib.core.table.writes import Add, Effect, Key, Lacks, Set
from chalicelib.core.transactions.decisions import Checks, Decisions
from tests.history import dedup, delays, expiry, log, requests, transactions
from tests.simulation import world
from tests.simulation.bugs.lies import (
    Plant,
    about,
    calling,
    changes,
    forgetting,
    kept_apart,
    of_kind,
    sending,
    setting,
    unguarded,
    with_effects,
    within,
)
from tests.simulation.bugs.registry import shown_by
from tests.simulation.faulty_store import FaultyStore
from tests.simulation.plans import CALLS, EXPIRING, HALVES, STALLED, SWEPT, TWINS, WAITING, Plan
from tests.simulation.producers import short_times

# -- what lies in the log ---------------------------------------------------------------------------------------------


@shown_by(log.no_message_is_stored_twice_or_unsent)
def repeated_appends_that_land_twice() -> Plant:
    return unguarded(within("log"), of_kind(Lacks), landed=False)


@shown_by(log.offsets_are_dense)
def segments_that_begin_too_late() -> Plant:
    """Each segment but the first leaves an offset out."""

    def later(effect: Effect) -> Effect:
        if isinstance(effect, Add) and effect.path == ("end",) and effect.start:
            return replace(effect, start=effect.start + 1)
        return effect

    return with_effects(within("log"), later)


@shown_by(log.look_ups_match_the_log, Plan(looks=6))
def messages_that_no_key_finds() -> Plant:
    """One in six gets no entry in the index of keys."""
    turns = count(1)

    def put_all(true: Any, self: Any, items: Any) -> None:
        true(self, [each for each in items if not each["pk"].startswith("index#") or next(turns) % 6])

    return calling(FaultyStore, "put_all", put_all)


# -- dedup ids --------------------------------------------------------------------------------------------------------


@shown_by(dedup.a_dedup_id_is_stored_once, STALLED)
def dedup_ids_for_a_minute() -> Plant:
    """A message is stored again when that with its dedup id is older than a minute."""
    return patch.object(world, "short_times", lambda dedup_ms, late_ms: short_times(min(dedup_ms, 60_000), late_ms))


@shown_by(dedup.a_repeat_gets_the_same_answer, Plan(dedup_ids=3, delayed=0.7))
def repeats_that_are_told_when_they_are_due() -> Plant:
    """And not when the message with their dedup id is."""

    def send(true: Any, self: Any, topic: Any, sendings: Any) -> Any:
        results = true(self, topic, sendings)
        dues = [sending.message.deliver_at_ms for sending in sendings]
        return [
            replace(result, deliver_at_ms=due) if due and result.deliver_at_ms else result
            for result, due in zip(results, dues, strict=True)
        ]

    return calling(Producer, "send", send)


@shown_by(log.acknowledged_messages_are_stored, TWINS)
def dedup_ids_of_all_topics() -> Plant:
    """A message is not stored when another topic has one with this dedup id."""
    return patch.object(keys, "dedup", lambda _, dedup_id: Key(f"dedup##{dedup_id}", "record"))


# -- messages that wait -----------------------------------------------------------------------------------------------


@shown_by(delays.a_delayed_message_comes_once_or_is_cancelled, WAITING)
def cancels_that_leave_no_mark() -> Plant:
    """A cancel is decided, and the message waits as before."""
    return forgetting(lambda write: within("delay")(write) and changes(write, "x"))


@shown_by(delays.no_message_comes_before_it_is_due, Plan(queues=1, consumers=4, pops=8, delayed=0.8, skew_ms=0))
def promotions_before_they_are_due() -> Plant:
    """Messages are delivered 600 ms before they are due."""
    return calling(
        DecisionChain,
        "complete",
        lambda true, self, topic, queue, until_ms: true(self, topic, queue, until_ms + 600),
    )


@shown_by(delays.a_group_takes_nothing_before_its_delay_is_over, Plan(delay_ms=2_000))
def delays_of_groups_that_nobody_keeps() -> Plant:
    return setting("group", "delay_ms")


@shown_by(delays.what_waits_has_an_appointment, SWEPT)
def appointments_that_end_at_their_time() -> Plant:
    """The write of an appointment may still be on its way."""

    def shorter(effect: Effect) -> Effect:
        return replace(effect, value=effect.value - 4_000) if isinstance(effect, Set) else effect

    return with_effects(within("agenda"), shorter)


# -- messages that expire ---------------------------------------------------------------------------------------------


@shown_by(expiry.unexpired_messages_stay, Plan(**EXPIRING))
def retentions_that_are_cut_short() -> Plant:
    return setting("topic", "retention_ms", lambda ms: ms // 2)


@shown_by(expiry.expired_messages_are_not_delivered, Plan(**EXPIRING | {"pops": 2}, delayed=0.1))
def retentions_that_are_drawn_out() -> Plant:
    return setting("topic", "retention_ms", lambda ms: 10 * ms)


@shown_by(expiry.no_message_outlives_its_ttl, Plan(ttls=0.6))
def messages_without_their_ttl() -> Plant:
    return sending(lambda each: Sending(replace(each.message, ttl_ms=None), each.queue, each.zone))


# -- transactions -----------------------------------------------------------------------------------------------------


@shown_by(transactions.a_transaction_is_all_or_none, HALVES)
def commits_in_many_writes() -> Plant:
    """A transaction is decided, and its messages come one by one: not all, if the caller dies."""
    return kept_apart(within("decided"))


@shown_by(transactions.a_decision_stands, HALVES)
def decisions_that_are_made_twice() -> Plant:
    """A transaction that was rolled back can be committed, and one that was committed rolled back."""
    return unguarded(within("transactions", "decided"), landed=False)


@shown_by(transactions.half_messages_stay_hidden, HALVES)
def transactions_that_commit_themselves() -> Plant:
    def begin(true: Any, self: Any, topic: Any, *ask: Any) -> Any:
        begun = true(self, topic, *ask)
        self.commit(topic, str(begun.id))
        return begun

    return calling(Decisions, "begin", begin)


@shown_by(transactions.a_check_is_given_to_one_caller_at_a_time, HALVES)
def checks_that_are_given_twice() -> Plant:
    """Two callers that ask at once both get a transaction."""
    return unguarded(within("transactions"), about("checks"))


@shown_by(transactions.undecided_transactions_are_checked, HALVES)
def transactions_that_nobody_checks() -> Plant:
    return calling(Checks, "check", lambda *_: [])


# -- requests ---------------------------------------------------------------------------------------------------------


@shown_by(requests.a_request_has_one_reply_for_ever, CALLS)
def replies_that_overwrite() -> Plant:
    """A later reply replaces an earlier one."""
    return unguarded(lambda write: within("reply")(write) and changes(write, "entry"))


@shown_by(requests.a_time_out_is_final, CALLS)
def time_outs_that_do_not_last() -> Plant:
    """A caller gets a time-out, and a reply may still come."""
    return forgetting(lambda write: within("reply")(write) and not changes(write, "entry"))


@shown_by(requests.an_accepted_reply_is_there, CALLS)
def replies_that_nobody_can_fetch() -> Plant:
    return calling(ReplyWaiter, "fetch", lambda *_: None)


@shown_by(requests.a_reply_comes_in_time_or_never, CALLS)
def requests_that_are_delivered_late() -> Plant:
    """A request is delivered though nobody may answer it any more."""
    return patch.object(Message, "lives_ms", lambda message, _: message.ttl_ms)
