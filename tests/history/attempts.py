"""Judges how often messages are delivered, and the first delivery that the later ones name."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from tests.history import receipt_rules
from tests.history.case import Case
from tests.history.facts import NEVER_MS


def attempts_count_up(case: Case) -> Iterator[str]:
    """Pops that overlap may be answered in any order."""
    for (group, place), leases in case.leases():
        if group in case.resets or case.redriven_after(group, 0):
            continue
        renewed = case.renewed(group, place) | case.extended_unheard.keys()
        for first, second in pairwise(sorted(leases, key=lambda lease: lease.at_ms)):
            is_later = second.began_ms > max(first.at_ms, first.answered_ms)
            is_wrong = second.attempt == first.attempt or (is_later and second.attempt < first.attempt)
            if is_wrong and second.receipt not in renewed and not receipt_rules.is_shown_again(case, first, second):
                yield f"{group} {place}: attempt {first.attempt}, then {second.attempt}"


def attempts_stay_within_the_maximum(case: Case) -> Iterator[str]:
    for (group, place), deliveries in case.delivered.items():
        rules = case.history.rules.get(group)
        most = NEVER_MS if rules is None or rules.may_outlive else rules.max_attempts
        for delivered in deliveries:
            if delivered.attempt > most:
                yield f"{group} {place} was delivered {delivered.attempt} times, and at most {most} were allowed"


def the_first_delivery_stays_the_first(case: Case) -> Iterator[str]:
    """All deliveries of a message name the same instant, of a pop that was not later than any of them; if the first of
    them is known, it was that pop. A reset or a redrive starts again."""
    for (group, place), deliveries in case.delivered.items():
        named = {delivered.told_first_ms for delivered in deliveries}
        if named == {0} or group in case.resets or case.redriven_after(group, 0):
            continue
        if len(named) > 1:
            yield f"{group} {place} was delivered first at each of {sorted(named)}"
        latest_ms = min(delivered.answered_ms for delivered in deliveries) + case.off_ms
        first = [delivered.first_ms for delivered in deliveries if delivered.attempt == 1]
        if not min(first, default=0) - case.off_ms <= max(named) <= latest_ms:
            yield f"{group} {place} was delivered first at {max(named)}, and not from {first} to {latest_ms}"
