"""Backoff after a nack: a list of waits, or a growing one."""

from __future__ import annotations

from dataclasses import asdict

from chalicelib.core.base.fields import Label, array, check, integer, number, one_of, required
from chalicelib.core.base.limits import BACKOFF_MS, BACKOFF_STEPS_MAX, MULTIPLIER_MAX, NACK_DELAY_MS_MAX
from chalicelib.core.base.records import record
from chalicelib.core.catalogue.settings import AsGiven


@record
class Growing:
    """A growing wait.

    initial_ms: The first wait.
    multiplier: The factor from each wait to the next.
    max_ms: The longest wait. At least `initial_ms`."""

    initial_ms: int = required(integer(1, NACK_DELAY_MS_MAX))
    multiplier: float = required(number(1, MULTIPLIER_MAX))
    max_ms: int = required(integer(1, NACK_DELAY_MS_MAX))


_WAITS = array(integer(most=NACK_DELAY_MS_MAX), minItems=1, maxItems=BACKOFF_STEPS_MAX)
BACKOFF = one_of(_WAITS, Growing, default=list(BACKOFF_MS))


class Backoff(AsGiven):
    """`given`: a list or an object."""

    def wait_ms(self, attempt: int) -> int:
        """The wait before the retry that follows this attempt, counted from 1. The last wait of a list repeats. A
        redriven message that was not delivered since waits as after its first attempt."""
        attempt = max(attempt, 1)
        if isinstance(self.given, list):
            return int(self.given[min(attempt, len(self.given)) - 1])
        most = int(self.given["max_ms"])
        try:
            grown = float(self.given["multiplier"]) ** (attempt - 1)
        except OverflowError:
            return most
        return int(min(self.given["initial_ms"] * grown, most))


def parse(data: object, label: Label) -> Backoff:
    """Raises InvalidField, UnknownField."""
    given = check(BACKOFF, data, label)
    if not isinstance(given, Growing):
        return Backoff(given)
    if given.max_ms < given.initial_ms:
        raise label.inside("max_ms").wrong(f"an integer from {given.initial_ms} to {NACK_DELAY_MS_MAX}", given.max_ms)
    return Backoff(asdict(given))
