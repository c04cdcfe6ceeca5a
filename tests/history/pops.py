"""Judges pops: pauses, rates, filters, sizes and waits, and repeated attempts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
from itertools import pairwise
from math import ceil

from chalicelib.core.base.limits import SECOND_MS, STORE_DEADLINE_MS
from tests.history import receipt_rules, settle_by
from tests.history.case import Case
from tests.history.facts import LATE_MS, NEVER_MS, Asked, Delivered, Paused, Place, Taken
from tests.history.history import History

PAUSE_LATE_MS = 500
"""A pop may read settings of its group that are this old."""
REQUESTS_MS_MAX = 5_000
"""The most that all requests of a pop take together."""


def a_paused_group_delivers_nothing(case: Case) -> Iterator[str]:
    """Checks pops that begin after a pause was acknowledged, unless a caller has asked for its end. Repeats of an
    attempt that began before show what that attempt took."""
    history = case.history
    ends: dict[str, list[Paused]] = defaultdict(list)
    for end in history.pauses:
        if not end.is_paused:
            ends[end.group].append(end)
    for pause in history.pauses:
        if not (pause.is_paused and pause.is_answered):
            continue
        later = [end.began_ms for end in ends[pause.group] if end.at_ms >= pause.began_ms]
        until_ms = min(later, default=0)
        for got in history.delivered:
            is_within = pause.at_ms + PAUSE_LATE_MS < got.first_ms and got.answered_ms < until_ms
            if got.group == pause.group and is_within:
                yield f"{got.group} was paused from {pause.at_ms} to {until_ms}, and got {got.place} at {got.began_ms}"


def an_answer_has_no_more_than_was_asked_for(case: Case) -> Iterator[str]:
    for pop in case.history.pops:
        if pop.surplus:
            yield f"{pop.group} answered {pop.surplus} more at {pop.at_ms} than it was asked for"


def no_answer_shows_a_lease_that_was_over(case: Case) -> Iterator[str]:
    """A repeat of an attempt returns what is still leased: with any other, its caller would have no time."""
    for got in case.history.delivered:
        if got.until_ms + case.off_ms < got.began_ms:
            yield f"{got.group} asked at {got.began_ms}, and got {got.place} until {got.until_ms}"


def a_pop_waits_no_longer_than_asked(case: Case) -> Iterator[str]:
    """Even if its clock is set meanwhile; if the store answers, a pop needs no more than seconds besides, and if it
    does not, no more than a call may try."""
    history = case.history
    tried_ms = 0 if history.are_all_answered else STORE_DEADLINE_MS
    for pop in history.pops if history.are_all_answered or history.well_from_ms < NEVER_MS else ():
        if pop.at_ms - pop.began_ms > pop.wait_ms + tried_ms + REQUESTS_MS_MAX:
            yield f"{pop.group} was to wait {pop.wait_ms} ms, from {pop.began_ms} to {pop.at_ms}"


def a_repeated_attempt_gets_the_same_messages(case: Case) -> Iterator[str]:
    """A repeat with an `attempt_id` gets all messages that the call before it got and that are still leased, and no
    others; where none is, it is a new pop. Calls at once may have taken different ones. Messages that have lost their
    payloads, whose own time to live is over, or that are removed, do not return."""
    history = case.history
    attempts: dict[tuple[str, str], list[Asked]] = defaultdict(list)
    for pop in history.pops:
        if pop.attempt_id:
            attempts[pop.group, pop.attempt_id].append(pop)
    places = {delivered.receipt: delivered.place for delivered in history.delivered}
    renewed = {settled.new_receipt for settled in history.settled} | case.extended_unheard.keys()
    touched_ms = settle_by.touched_ms(history)
    held_until = _held_until(case, touched_ms)
    for (group, name), calls in attempts.items():
        answered = sorted((call for call in calls if call.receipts is not None), key=lambda call: call.at_ms)
        for first, second in pairwise(answered):
            got, again = {*(first.receipts or ())}, {*(second.receipts or ())}
            held = {receipt for receipt in got if held_until[receipt] > second.at_ms}
            if not held or second.began_ms < first.at_ms or _is_reset_between(history, first, second):
                continue
            over = {
                place for place in {*history.log, *places.values()} if case.gone_ms(place) <= first.at_ms + case.skew_ms
            }
            over |= {place for place, lost_ms in history.lost.items() if lost_ms <= first.at_ms}
            others = {
                receipt
                for receipt in again - got - renewed
                if touched_ms[receipt] > second.at_ms
                and not _may_be_unseen(history, group, places[receipt], over)
                and not any(_may_have_taken(call, receipt, first, second) for call in calls)
            }
            if others or held - again:
                yield f"{group} {name} took {len(held)} at {first.at_ms}, and got others at {second.at_ms}"


def _held_until(case: Case, touched_ms: dict[str, int]) -> dict[str, int]:
    """By receipt, until when its message is surely leased, and will be returned; 0: it may be lost."""
    history = case.history
    shown_ms = {fact.receipt: fact.began_ms for fact in sorted(history.settled, key=lambda fact: -fact.began_ms)}
    until: dict[str, int] = {}
    for lease in history.delivered:
        moved_ms = min(shown_ms.get(lease.receipt, NEVER_MS), touched_ms[lease.receipt])
        over_ms = min(lease.until_ms, case.gone_ms(lease.place)) - case.skew_ms
        until[lease.receipt] = 0 if lease.place in history.lost else min(moved_ms, over_ms)
    return until


def _is_reset_between(history: History, first: Asked, second: Asked) -> bool:
    own = (reset for reset in history.resets if reset.group == first.group)
    return any(reset.began_ms <= second.at_ms and reset.at_ms >= first.began_ms for reset in own)


def _may_have_taken(call: Asked, receipt: str, first: Asked, second: Asked) -> bool:
    """Whether this call may have leased the message, having looked before the first was answered: its own answer says
    so, or was not there yet when the second call began, or never came, and the first may have looked before its
    write."""
    is_unheard = call.receipts is None and call.at_ms + LATE_MS >= first.began_ms
    may_have = is_unheard or call.at_ms > second.began_ms or receipt in (call.receipts or ())
    return call.began_ms < first.at_ms and may_have


def _may_be_unseen(history: History, group: str, place: Place, over: Collection[Place]) -> bool:
    """Whether a call may have taken the message and not answered it. `over`: messages whose own time to live may be
    over by then, or whose payload is lost. By the clock of the call, that of this message may be; and in an ordered
    group the message waits for an earlier one that is over and could not be settled."""
    rules = history.rules.get(group)
    is_ordered = rules is not None and rules.ordered
    return place in over or (bool(is_ordered) and any(other[0] == place[0] and other < place for other in over))


def a_group_keeps_to_its_rate(case: Case) -> Iterator[str]:
    """Windows begin a second apart, by the clocks of all. So what is taken within n seconds, less the difference of the
    clocks, is of n + 1 windows at most."""
    taken: dict[str, list[Delivered]] = defaultdict(list)
    for (group, _), leases in case.leases():
        until_ms = case.history.rated_until_ms.get(group, NEVER_MS)
        own = _taken(case, leases) if case.history.rate else ()
        taken[group] += [lease for lease in own if lease.answered_ms < until_ms]
    for group, leases in taken.items():
        for first in leases:
            later = [lease.answered_ms for lease in leases if first.first_ms <= lease.first_ms]
            for windows in range(2, 3 + ceil(case.skew_ms / SECOND_MS)):
                within_ms = (windows - 1) * SECOND_MS - case.skew_ms
                count = sum(ms < first.first_ms + within_ms for ms in later)
                if count > windows * case.history.rate:
                    yield f"{group} took {count} messages within {within_ms} ms from {first.first_ms} on"


def _taken(case: Case, leases: list[Delivered]) -> Iterator[Delivered]:
    """Those of a message that pops took: a repeat of one that shows an extension takes nothing more."""
    known: set[Taken] = set()
    for lease in leases:
        if lease.taken not in known or not receipt_rules.may_be_extended(case, lease):
            yield lease
        known.add(lease.taken)


def a_filter_holds_back_unwanted_messages(case: Case) -> Iterator[str]:
    """A message that has lost its payload cannot be filtered."""
    for delivered in case.history.delivered:
        is_wanted = case.wants(delivered.group, delivered.body)
        if not is_wanted and not case.is_lost(delivered.place, delivered.at_ms):
            yield f"{delivered.group} got {delivered.body} at {delivered.place}, which it does not want"


def a_full_queue_takes_nothing(case: Case) -> Iterator[str]:
    """A caller that knows of it adds nothing; others may each overshoot by one call. Once it is drained it takes
    messages again."""
    yield from case.history.overfull
