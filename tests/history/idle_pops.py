"""Judges how late messages come: a pop that answers none has met none that was ready, and one with `fill` that answers
fewer than it may, no others."""

from __future__ import annotations

from collections.abc import Iterator

from chalicelib.core.base.limits import TAKE_OVER_AFTER_MS
from tests.history import receipt_rules, settle_by
from tests.history.case import Case
from tests.history.facts import NEVER_MS, Asked, Delivered, Place

DELAYS_UNSEEN_MS = 5_000
"""For so long an instance may not know that its topic has delayed messages."""
GIVEN_BACK_MS = 1_000
"""Messages that a pop could not read are due again after this."""
FILTERED_MS = 1_000
"""A pop that takes longer may have left messages that a filter had to examine."""


def a_pop_leaves_nothing_that_is_ready(case: Case) -> Iterator[str]:
    """A message that was stored, and whose lease, or delay, was over when a pop began, by every clock and for every
    read, is taken by this pop or by another.

    Judges only pops that were answered at once by the store, where no other pop may hold messages unknown to us. One
    with `fill` that answers some promotes no delayed ones in other queues."""
    history = case.history
    for pop in history.pops:
        is_judged = (pop.is_empty or pop.is_short) and not pop.is_troubled
        if history.stale_ms is None or not is_judged or pop.at_ms - pop.began_ms > FILTERED_MS:
            continue
        by_ms = pop.began_ms - case.skew_ms - history.stale_ms
        if _is_unsure(case, pop, by_ms):
            continue
        for place, stored_ms in _stored_by(case).items():
            if place in history.dead.get(pop.group, {}) or place in history.lost or not _is_wanted(case, pop, place):
                continue
            if _may_be_passed(case, pop, place):
                continue
            promoted_ms = 0 if pop.is_empty else history.appended_ms.get(place, NEVER_MS)
            rules = history.rules.get(pop.group)
            taken_ms = stored_ms
            if rules and rules.delay_ms:  # counted from when it came into the log
                taken_ms = max(stored_ms, history.appended_ms.get(place, 0)) + rules.delay_ms
            ready_ms = max(taken_ms, promoted_ms, _alive_ms(case, pop, place), _free_ms(case, pop, place))
            over_ms = min(case.expires_ms(place), case.spent_ms(place))
            is_met = ready_ms < by_ms and over_ms > pop.at_ms + case.skew_ms and not _waits(case, pop, place, by_ms)
            if is_met and not _is_moving(case, pop, place, by_ms) and not _is_left(case, pop, place, ready_ms, by_ms):
                yield f"{pop.group} {place} was ready at {ready_ms}, and a pop from {pop.began_ms} on left it"


def _is_unsure(case: Case, pop: Asked, by_ms: int) -> bool:
    """Whether messages may be dead, or another pop may hold some, without anybody knowing."""
    rules = case.history.rules.get(pop.group)
    if case.history.retention_ms and rules and rules.max_attempts <= len(case.history.delivered):
        return True  # dead letters are removed when their messages have expired
    others = (other for other in case.history.pops if other.group == pop.group and other.began_ms <= pop.at_ms)
    return any(other.is_troubled and other.at_ms + max(other.lease_ms, GIVEN_BACK_MS) >= by_ms for other in others)


def _stored_by(case: Case) -> dict[Place, int]:
    """When each message was surely in the log, or would be promoted by a pop."""
    by: dict[Place, int] = {}
    places = {message_id: place for place, message_id in case.history.ids.items()}
    for delivered in case.history.delivered:
        by[delivered.place] = min(delivered.answered_ms, by.get(delivered.place, NEVER_MS))
    for sent in case.history.sent:
        place = sent.place or places.get(sent.message_id or "")
        if place is not None:
            promoted_ms = max(sent.told_due_ms, sent.at_ms + DELAYS_UNSEEN_MS if sent.told_due_ms else 0)
            by[place] = min(max(sent.at_ms, promoted_ms), by.get(place, NEVER_MS))
    return {place: ms for place, ms in by.items() if place in case.history.log}


def _is_wanted(case: Case, pop: Asked, place: Place) -> bool:
    settled = case.settled.get((pop.group, place), ())
    is_settled = any(
        fact.verb == "ack" and fact.outcome in ("ok", "unknown") and fact.began_ms <= pop.at_ms for fact in settled
    )
    return not is_settled and case.wants(pop.group, case.history.log[place])


def _may_be_passed(case: Case, pop: Asked, place: Place) -> bool:
    """Whether the group may have been moved past it. Another reset only makes it ready."""
    resets = case.resets.get(pop.group, ())
    return any(reset.began_ms <= pop.at_ms and case.may_skip(reset, place) for reset in resets)


def _alive_ms(case: Case, pop: Asked, place: Place) -> int:
    """Since when the message was surely not dead; never, if it may be: a redrive or a purge leaves no trace of that. It
    may be dead once buried, or after its last delivery. Pops that failed may have delivered it, and a repeat of their
    claim once more. A redrive of all messages revives buried ones."""
    history, rules, since_ms, alive_ms = case.history, case.history.rules.get(pop.group), 0, 0
    burials = [fact for fact in case.settled.get((pop.group, place), ()) if fact.verb == "bury"]
    burials = [fact for fact in burials if fact.outcome in ("ok", "unknown") and fact.began_ms <= pop.at_ms]
    redrives = [redrive for redrive in history.redrives if redrive.group == pop.group]
    is_purged = any(purge.group == pop.group for purge in history.purges)
    if burials:
        buried_ms = max(fact.at_ms if fact.outcome == "ok" else NEVER_MS for fact in burials)
        whole = [redrive for redrive in redrives if redrive.is_whole and redrive.began_ms > buried_ms]
        if not whole or is_purged or history.graves:
            return NEVER_MS
        since_ms, alive_ms = min((redrive.began_ms, redrive.at_ms) for redrive in whole)
    if not redrives and not is_purged:
        return alive_ms
    receipts = {lease.receipt for lease in case.delivered.get((pop.group, place), ()) if lease.answered_ms >= since_ms}
    failed = [other for other in history.pops if other.group == pop.group and other.is_troubled]
    tries = len(receipts) + 2 * sum(other.at_ms >= since_ms for other in failed)
    return NEVER_MS if rules is None or rules.max_attempts <= tries else alive_ms


def _free_ms(case: Case, pop: Asked, place: Place) -> int:
    """When the last lease of the message, or the delay of its last nack, was surely over."""
    leases = (lease for lease in case.delivered.get((pop.group, place), ()) if lease.began_ms <= pop.at_ms)
    return max((_end_ms(case, lease, pop.at_ms) for lease in leases), default=0)


def _end_ms(case: Case, lease: Delivered, until_ms: int) -> int:
    if settle_by.names_more(case.history, lease.group):
        return receipt_rules.away_at_most_until(case, lease, until_ms)
    end_ms, receipts = lease.until_ms, {lease.receipt}
    for settled in case.settled.get((lease.group, lease.place), ()):
        is_held = settled.receipt in receipts and settled.began_ms <= until_ms
        if not is_held or settled.verb not in ("nack", "extend") or settled.outcome not in ("ok", "unknown"):
            continue
        if settled.outcome == "unknown":
            return NEVER_MS
        end_ms = max(settled.at_ms, settled.until_ms + (settled.at_ms - settled.began_ms))
        receipts = receipts | {settled.new_receipt}
    return end_ms


def _is_moving(case: Case, pop: Asked, place: Place, by_ms: int) -> bool:
    """Whether the message came into the log just then. One of two weak reads may show that it waits no more, while the
    other does not show it in the log yet."""
    return by_ms <= case.history.appended_ms.get(place, 0) <= pop.at_ms


def _is_left(case: Case, pop: Asked, place: Place, ready_ms: int, by_ms: int) -> bool:
    """Whether the pop may leave the queue to another zone: its first message has not waited long enough, or that zone
    took some. If the answer of a pop was lost, its messages wait from the end of their lease on."""
    near, history = case.history.zones.get(place[0]), case.history
    if pop.zone is None or near in (None, pop.zone):
        return False
    of_zone = (pop.group, near)
    took = [got for got in history.delivered if (got.group, got.zone) == of_zone and got.place[0] == place[0]]
    may_have = [other for other in history.pops if other.group == pop.group and other.is_troubled]
    instants = [got.answered_ms for got in took if got.began_ms <= pop.at_ms]
    instants += [other.at_ms + other.lease_ms for other in may_have if other.began_ms <= pop.at_ms]
    return max([ready_ms, *instants]) + TAKE_OVER_AFTER_MS >= by_ms


def _waits(case: Case, pop: Asked, place: Place, by_ms: int) -> bool:
    """Whether another message of an ordered queue, or of its key, may hold it up; or of others, when so
    many are set aside that a pop looks no further."""
    log = case.history.log
    others = [other for of, other in case.delivered if of == pop.group and other[0] == place[0] and other in log]
    rules = case.history.rules.get(pop.group)
    if rules and rules.ordered and case.history.aside_max < len(log):  # the pop may not have looked so far
        return any(_free_ms(case, pop, other) >= by_ms for other in others)
    before = [other for other in others if case.is_behind(pop.group, log[place], log[other])]
    return any(_free_ms(case, pop, other) >= by_ms for other in before)
