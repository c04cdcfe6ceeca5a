"""Judges the end of a history, when every group was drained."""

from __future__ import annotations

from collections.abc import Iterator

from tests.history import receipt_rules
from tests.history.case import Case
from tests.history.facts import NEVER_MS, Place, Reset


def no_message_is_lost(case: Case) -> Iterator[str]:
    """Every message in the log that a group wants was acked, became a dead letter, or is delivered in the final drain.
    A message that a reset makes ready again counts as new: no earlier ack settles it."""
    for group, drained in case.history.drained.items():
        wanted = {place for place, body in case.history.log.items() if case.wants(group, body)}
        for place in sorted(wanted - drained - case.history.dead.get(group, {}).keys()):
            resets = case.resets.get(group, ())
            since = max((reset.began_ms for reset in resets if _surely_returns(case, reset, place)), default=0)
            acks = [settled for settled in case.settled.get((group, place), ()) if settled.verb == "ack"]
            is_settled = any(receipt_rules.may_have_acked(case, ack) and ack.at_ms >= since for ack in acks)
            if is_settled or case.is_perhaps_purged(group, place) or case.may_be_expired(group, place):
                continue
            if not any(reset.at_ms >= since and case.may_skip(reset, place) for reset in resets):
                yield f"{group} never gets {place}; its acks were {[ack.outcome for ack in acks]}, new from {since}"


def _surely_returns(case: Case, reset: Reset, place: Place) -> bool:
    """An answered one, to before the message."""
    is_elsewhere = isinstance(reset.to, tuple) and reset.to[0] != place[0]
    is_done = reset.at_ms < NEVER_MS and reset.to not in ("latest", "now") and not is_elsewhere
    return is_done and not case.may_skip(reset, place)


def a_drained_group_has_nothing_left(case: Case) -> Iterator[str]:
    """A group also settles messages that it was not given: they have expired, or its filter passes them."""
    for group, left in case.history.left.items():
        if left:
            yield f"{group} is drained, and counts {left} messages that it has still to get"


def settled_queues_leave(case: Case) -> Iterator[str]:
    if case.history.draining:
        yield f"the queues {case.history.draining} are settled, and drain still"
