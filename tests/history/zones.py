"""Judges in which queues messages with a zone lie, and which pops take from queues with a zone."""

from __future__ import annotations

from collections.abc import Iterator

from chalicelib.core.base.limits import TAKE_OVER_AFTER_MS, TAKEN_OVER_MS
from tests.history.case import Case
from tests.history.facts import Delivered
from tests.history.history import History


def a_message_goes_to_its_zone(case: Case) -> Iterator[str]:
    """Where every request is answered: no queue fails."""
    history = case.history
    for sent in history.sent if history.are_all_answered else ():
        if sent.zone and sent.key is None and sent.place and history.zones.get(sent.place[0]) != sent.zone:
            yield f"{sent.body} of zone {sent.zone} went to {sent.place}"


def a_queue_is_left_to_its_zone(case: Case) -> Iterator[str]:
    """A pop of another zone takes messages only if another zone took the last ones, a while ago at most, or if the
    first ready one has waited, and no pop of the queue's zone has taken any meanwhile. Judges histories in which every
    request is answered, since others have claims that nobody knows of."""
    history = case.history
    for got in history.delivered if history.are_all_answered else ():
        near = history.zones.get(got.place[0])
        is_repeat = got.first_ms < got.began_ms
        if got.number or is_repeat or got.zone is None or near in (None, got.zone):
            continue
        seen_ms = got.began_ms - (history.stale_ms or 0)
        own, others = _claims(history, got, near)
        known = [claim for claim in own if claim.answered_ms < seen_ms]
        is_taken_over = any(
            claim.answered_ms + TAKEN_OVER_MS + case.skew_ms > got.began_ms
            and not any(back.first_ms > claim.answered_ms for back in known)
            for claim in others
        )
        since_ms = max([_ready_ms(case, got, seen_ms), *(claim.first_ms for claim in known)])
        if not is_taken_over and got.answered_ms + case.skew_ms < since_ms + TAKE_OVER_AFTER_MS:
            took = f"a pop of zone {got.zone} took it at {got.answered_ms}"
            yield f"{got.group} {got.place} was left to zone {near} from {since_ms} on, and {took}"


def _claims(history: History, got: Delivered, near: str | None) -> tuple[list[Delivered], list[Delivered]]:
    """The earlier claims by pops of the queue's zone, and by those of other zones."""
    claims = [
        claim
        for claim in history.delivered
        if (claim.group, claim.place[0]) == (got.group, got.place[0])
        and claim.zone is not None
        and claim.began_ms <= got.answered_ms
        and (claim.began_ms, claim.answered_ms, claim.zone) != (got.began_ms, got.answered_ms, got.zone)
    ]
    own = [claim for claim in claims if claim.zone == near]
    return own, [claim for claim in claims if claim.zone != near]


def _ready_ms(case: Case, got: Delivered, seen_ms: int) -> int:
    """The earliest time since which the queue's first ready message was ready: it was stored, or leased, before."""
    ready_ms = []
    for place in case.history.log:
        message = (got.group, place)
        settled = (fact for fact in case.settled.get(message, ()) if fact.verb in ("ack", "bury"))
        if place[0] == got.place[0] and not any(fact.outcome == "ok" and fact.at_ms < seen_ms for fact in settled):
            leases = (lease for lease in case.delivered.get(message, ()) if lease.answered_ms < seen_ms)
            ready_ms.append(max([case.sent_ms(place), *(lease.first_ms for lease in leases)]))
    return min(ready_ms)
