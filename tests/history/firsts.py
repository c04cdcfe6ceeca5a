"""Judges what deliveries say of the first one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.history.checker import Case


def the_first_delivery_stays_the_first(case: Case, skew_ms: int) -> Iterator[str]:
    """All deliveries of a message name the same instant, of a pop that was not later than any of them; if the first of
    them is known, it was that pop. A reset or a redrive begins anew."""
    for (group, place), deliveries in case.delivered.items():
        named = {delivered.told_first_ms for delivered in deliveries}
        if named == {0} or group in case.resets or case.redriven_after(group, 0):
            continue
        if len(named) > 1:
            yield f"{group} {place} was delivered first at each of {sorted(named)}"
        latest_ms = min(delivered.answered_ms for delivered in deliveries) + skew_ms
        first = [delivered.first_ms for delivered in deliveries if delivered.attempt == 1]
        if not min(first, default=0) - skew_ms <= max(named) <= latest_ms:
            yield f"{group} {place} was delivered first at {max(named)}, and not from {first} to {latest_ms}"
