"""Judges leases: how long they last, and how many there are at once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

from tests.history import receipt_rules, settle_by
from tests.history.case import Case
from tests.history.facts import Delivered, Place


def two_leases_never_live_at_once(case: Case) -> Iterator[str]:
    """A message comes again only after its lease has run out, after the delay of a nack, or after a reset."""
    for (group, place), leases in case.popped():
        for first, second in pairwise(leases):
            if receipt_rules.is_shown_again(case, first, second):
                continue
            end = _end_of_lease(case, first, second)
            is_early = second.at_ms + case.off_ms < end and not _may_be_reversed(case, first, second)
            is_early = is_early and not _may_be_redriven_beside(case, first, second)
            began_ms = min(first.began_ms, second.began_ms)  # the pop that answered last may have been the first
            if is_early and not case.reset_between(group, began_ms, second.at_ms + case.skew_ms):
                yield f"{group} {place}: away until {end}, and delivered in {second.began_ms}..{second.at_ms}"


def _may_be_reversed(case: Case, first: Delivered, second: Delivered) -> bool:
    """Where attempts start over, the pop that answered last of two overlapping ones may have been the first."""
    made_by_ms = case.made_by_ms(first)
    is_overlapping = second.began_ms <= made_by_ms and second.attempt < first.attempt
    return is_overlapping and _end_of_lease(case, second, first) <= made_by_ms + case.off_ms


def _may_be_redriven_beside(case: Case, first: Delivered, second: Delivered) -> bool:
    """A reset makes a message ready whose dead letter stays, so that it can be redriven while the message is leased."""
    is_reset = any(reset.began_ms <= second.at_ms for reset in case.resets.get(second.group, ()))
    return is_reset and any(
        redrive.group == second.group and redrive.began_ms <= second.at_ms and redrive.at_ms >= first.began_ms
        for redrive in case.history.redrives
    )


def a_lease_lasts_as_long_as_asked(case: Case) -> Iterator[str]:
    renewed = {settled.new_receipt for settled in case.history.settled}  # by a holder that asked for another length
    for delivered in case.history.delivered:
        if receipt_rules.is_extended(case, delivered):
            continue
        asked_ms = case.extended_unheard.get(delivered.receipt, delivered.asked_ms)
        if delivered.group in case.resets:  # it may be a new lease of the same pop
            asked_ms = min(asked_ms, delivered.asked_ms)
        if delivered.until_ms + case.off_ms < asked_ms and delivered.receipt not in renewed:
            asked = f"asked for it until {asked_ms}"
            yield f"{delivered.group} got {delivered.place} until {delivered.until_ms}, and {asked}"
    for extend in case.history.settled:
        if extend.outcome == "ok" and extend.until_ms + case.off_ms < extend.asked_ms:
            yield f"{extend.group} extended {extend.place} to {extend.until_ms}, and asked for {extend.asked_ms}"


def _end_of_lease(case: Case, delivered: Delivered, next_lease: Delivered) -> int:
    """The earliest time the message may return by the clock of its holder: its deadline, that of an extension, or the
    delay of a nack."""
    if settle_by.names_more(case.history, delivered.group):
        return receipt_rules.away_until(case, delivered, next_lease)
    end, receipts = delivered.until_ms, {delivered.receipt}
    for settled in case.settled.get((delivered.group, delivered.place), ()):
        if settled.receipt not in receipts or settled.verb == "ack":
            continue
        if not settle_by.may_have_counted(case.history, settled):
            continue
        if settled.outcome == "unknown":
            return 0
        if settled.verb in ("bury", "nack") and case.redriven_after(delivered.group, settled.began_ms):
            return 0  # a nack may have been its last
        moved_ms = settled.until_ms - case.off_ms * (settled.verb == "nack")
        end = moved_ms if settled.outcome == "ok" else min(end, moved_ms)
        receipts |= {settled.new_receipt}
    return end


def no_more_are_in_flight_than_allowed(case: Case) -> Iterator[str]:
    """Counts what was surely held: from the answer that brought a message to its deadline, or to when its holder, a
    reset, or a repeat of its pop after its `ttl_ms` may have ended that. Where the store remembers its past, every
    claim is judged besides."""
    yield from case.history.crowded
    for group, rules in case.history.rules.items():
        events: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for (of, place), leases in case.leases():
            if of == group:
                for first, end in _surely_held(case, group, place, leases):
                    events[place[0]] += [(first, 1), (end, -1)]
        for queue, changes in events.items():
            held = 0
            for at_ms, change in sorted(changes):
                held += change
                if held > rules.max_in_flight:
                    yield f"{group} had {held} in flight in queue {queue} at {at_ms}, over {rules.max_in_flight}"
                    break


def _surely_held(case: Case, group: str, place: Place, leases: list[Delivered]) -> Iterator[tuple[int, int]]:
    for delivered in leases:
        others = case.settled.get((group, place), ())
        ends = [other.began_ms for other in others if other.receipt == delivered.receipt]
        if settle_by.names_more(case.history, group):
            ends = [other.began_ms for other in others if other.at_ms >= delivered.began_ms]
        ends += [reset.began_ms for reset in case.resets.get(group, ()) if reset.at_ms >= delivered.began_ms]
        end = min([delivered.until_ms - case.off_ms, case.spent_ms(place) - case.skew_ms, *ends])
        if end > delivered.at_ms:
            yield delivered.at_ms, end
