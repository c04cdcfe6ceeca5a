"""Judges the order of deliveries."""

from __future__ import annotations

from collections.abc import Iterator

from chalicelib.core.catalogue.group import BY_KEY
from tests.history.case import Case
from tests.history.facts import Delivered, Place


def an_answer_keeps_the_order_of_a_queue(case: Case) -> Iterator[str]:
    """New messages in one answer have ascending offsets in each queue, unless there is a reset: a pop that meets lost
    messages claims once more. In a group ordered by key, all of a key do."""
    last: dict[tuple[int, str | int | None], int] = {}
    for delivered in case.history.delivered:
        if delivered.number == 0:
            last = {}
        queue, offset = delivered.place
        rules = case.history.rules.get(delivered.group)
        is_by_key = rules is not None and rules.ordered == BY_KEY
        key = case.keys.get(delivered.body) or offset
        place = (queue, key if is_by_key else None)
        if delivered.attempt == 1 or is_by_key:
            is_reset = case.reset_between(delivered.group, delivered.began_ms, delivered.answered_ms)
            if offset <= last.get(place, -1) and not is_reset:
                answer = f"the answer of {delivered.answered_ms}"
                yield f"{delivered.group} got {delivered.place} after offset {last[place]} in {answer}"
            last[place] = offset


def an_ordered_queue_waits_for_unsettled_messages(case: Case) -> Iterator[str]:
    """Nothing is delivered past a message, of its key where keys have an order each, that was neither acked, dead, nor
    in the same answer. Messages that have lost their payloads have no key. A repeated attempt shows once more what it
    holds, though others have taken a part meanwhile (seed 1578), or it was extended and the rest given back."""
    for delivered in (lease for _, leases in case.popped() for lease in leases):
        rules = case.history.rules.get(delivered.group)
        if rules is None or not rules.ordered or case.comes_back(delivered.group):
            continue
        has_keys, at_ms = rules.ordered == BY_KEY, delivered.at_ms
        if delivered.receipt in case.extended_unheard or (has_keys and case.is_lost(delivered.place, at_ms)):
            continue
        for place, body in case.history.log.items():
            is_before = place[0] == delivered.place[0] and place[1] < delivered.place[1]
            is_before = is_before and not (has_keys and case.is_lost(place, at_ms))
            is_before = is_before and case.is_behind(delivered.group, delivered.body, body)
            if is_before and case.wants(delivered.group, body) and not _is_done(case, delivered, place):
                yield f"{delivered.group} got {delivered.place} at {at_ms}, when {place} was not settled"


def _is_done(case: Case, delivered: Delivered, place: Place) -> bool:
    """Whether this message, with a lower offset, blocked no other."""
    group, answered_ms = delivered.group, max(delivered.at_ms, delivered.answered_ms)
    if place in case.history.dead.get(group, {}) or case.is_perhaps_purged(group, place):
        return True
    acks = [settled for settled in case.settled.get((group, place), ()) if settled.verb == "ack"]
    if any(ack.outcome in ("ok", "unknown") and ack.began_ms <= answered_ms for ack in acks):
        return True
    if min(case.expires_ms(place), case.spent_ms(place)) <= answered_ms + case.skew_ms or case.may_have_died_unseen(
        group, place
    ):
        return True
    same = (delivered.began_ms, delivered.answered_ms)
    return any((delivery.began_ms, delivery.answered_ms) == same for delivery in case.delivered.get((group, place), ()))


def no_more_is_set_aside_than_allowed(case: Case) -> Iterator[str]:
    yield from case.history.overlooked
