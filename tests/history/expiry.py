"""Judges messages that expire."""

from __future__ import annotations

from collections.abc import Iterator

from tests.history.case import Case
from tests.history.facts import Delivered, Place
from tests.history.history import History


def unexpired_messages_stay(case: Case) -> Iterator[str]:
    """A read may pass messages that stand before an entry that came late and has expired: it begins where a search by
    time says."""
    known: dict[Place, int] = {}

    def is_passed(place: Place, at_ms: int) -> bool:
        return any(
            other[0] == place[0] and other > place and case.expires_ms(other) <= at_ms + case.skew_ms for other in known
        )

    for look in case.history.looks:
        for place, seen_ms in known.items():
            is_missing = place not in look.places and case.expires_ms(place) > look.at_ms + case.skew_ms
            if is_missing and not is_passed(place, look.at_ms):
                yield f"{place} was there at {seen_ms} and not at {look.at_ms}; it lasts until {case.expires_ms(place)}"
        known |= dict.fromkeys(look.places, look.at_ms)


def expired_messages_are_not_delivered(case: Case) -> Iterator[str]:
    """Checks messages that were stored by the time their produce ended. A message that a pop leased in time but could
    not read may be delivered for the first time after it has expired; so may a dead one that a redrive brings back."""
    history = case.history
    sent_ms = {sent.body: sent.began_ms for sent in history.sent}
    ended = {sent.body: sent.at_ms for sent in history.sent if not sent.due_ms and sent.dedup_id is None}
    for delivered in history.delivered if history.retention_ms else ():
        if (
            delivered.attempt == 1
            and (delivered.group, delivered.place) not in history.given_back
            and delivered.body in ended
            and ended[delivered.body] + history.retention_ms + case.skew_ms < delivered.began_ms
            and not _may_be_redriven(history, delivered, sent_ms[delivered.body])
        ):
            yield f"{delivered.group} got {delivered.place} at {delivered.began_ms}, stored by {ended[delivered.body]}"


def _may_be_redriven(history: History, delivered: Delivered, sent_ms: int) -> bool:
    """Whether the message may have been dead before a redrive."""
    redrives = (redrive for redrive in history.redrives if redrive.group == delivered.group)
    ends = (min(redrive.at_ms, delivered.began_ms) for redrive in redrives if redrive.began_ms <= delivered.at_ms)
    return any(sent_ms < by_ms and _may_have_died(history, delivered, sent_ms, by_ms) for by_ms in ends)


def _may_have_died(history: History, delivered: Delivered, sent_ms: int, by_ms: int) -> bool:
    """Whether it may have been buried by then, or have had all its attempts. Pops that failed may have leased it, and a
    repeat of their claim once more."""
    message, rules = (delivered.group, delivered.place), history.rules.get(delivered.group)
    settled = (fact for fact in history.settled if (fact.group, fact.place) == message)
    if rules is None or any(fact.verb == "bury" and fact.began_ms <= by_ms for fact in settled):
        return True
    leases = (lease for lease in history.delivered if (lease.group, lease.place) == message)
    seen = {lease.receipt for lease in leases if lease.began_ms < by_ms}
    pops = (pop for pop in history.pops if pop.group == delivered.group and pop.is_troubled)
    unseen = 2 * sum(sent_ms <= pop.at_ms and pop.began_ms < by_ms for pop in pops)
    return len(seen) + unseen >= (rules.least_attempts or rules.max_attempts)


def no_message_outlives_its_ttl(case: Case) -> Iterator[str]:
    """Counted from when it was stored, for a delayed message from when it came into the log."""
    for delivered in case.history.delivered:
        sent, stored_ms = case.sent.get(delivered.body), case.history.stored_ms.get(delivered.place)
        if sent and sent.ttl_ms is not None and stored_ms is not None:
            until_ms = (stored_ms if sent.due_ms else min(stored_ms, sent.at_ms)) + sent.ttl_ms
            if until_ms + case.skew_ms < delivered.began_ms:
                yield f"{delivered.group} got {delivered.place} at {delivered.began_ms}, which lived until {until_ms}"
