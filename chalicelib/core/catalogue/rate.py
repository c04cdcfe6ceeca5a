"""Limits a group's messages a second: windows of about a second, each with a number of permits.

One item holds the current window of a group. Taking permits needs no compare-and-swap; starting the next window does.
"""

from __future__ import annotations

import math

from chalicelib.core.base.fields import Label, check, number
from chalicelib.core.base.limits import RATE_MAX, RATE_MIN, SECOND_MS
from chalicelib.core.base.records import record
from chalicelib.core.catalogue.settings import AsGiven
from chalicelib.core.table.writes import Absent, Add, AtMost, Equals, Guard, Item, Key, Set, Write


class Rate(AsGiven):
    """`given`: messages a second, an integer or not."""

    given: float

    @property
    def count(self) -> int:
        """Messages in a window: those of a second, but at least one."""
        return max(1, math.floor(self.given))

    @property
    def window_ms(self) -> int:
        """The length of a window that gives exactly the rate: a second for whole rates."""
        return max(1, round(self.count * SECOND_MS / self.given))


RATE = number(RATE_MIN, RATE_MAX, default=None)


def parse(data: object, label: Label) -> Rate:
    return Rate(check(RATE, data, label))


@record
class RateWindow:
    """The messages taken since `began_ms`, or None before the first."""

    key: Key
    began_ms: int | None = None
    taken: int = 0
    is_stuck: bool = False
    """Whether it begins in this instance's future and has not changed for a window: a clock was set back."""

    @classmethod
    def of(cls, key: Key, item: Item | None) -> RateWindow:
        return cls(key, item["w"], item["n"]) if item else cls(key)

    def is_over(self, rate: Rate, now: int) -> bool:
        return self.began_ms is None or self.is_stuck or now >= self.began_ms + rate.window_ms

    def is_ahead(self, rate: Rate, now: int) -> bool:
        return self.began_ms is not None and now < self.began_ms - rate.window_ms

    def left(self, rate: Rate, now: int) -> int:
        """Messages that can be taken now."""
        return rate.count if self.is_over(rate, now) else max(0, rate.count - self.taken)

    def next_in_ms(self, rate: Rate, now: int) -> int:
        """The wait until more can be taken."""
        return 0 if self.began_ms is None else min(max(0, self.began_ms + rate.window_ms - now), rate.window_ms)

    def take(self, count: int, rate: Rate, now: int) -> Write:
        """Takes up to this many of the messages left. If a repeat lands as well, it takes them twice: the group is then
        slower for a moment, never faster."""
        if not self.is_over(rate, now):
            return Write(self.key, (*self._same(), AtMost(("n",), rate.count - count)), (Add(("n",), count),))
        return Write(self.key, self._same(), (Set(("w",), self._next(rate, now)), Set(("n",), count)))

    def give_back(self, count: int) -> Write:
        """Returns unused messages while their window runs. Send it as a transaction: if a repeat landed as well, the
        group would exceed its rate."""
        return Write(self.key, self._same(), (Add(("n",), -count),))

    def _same(self) -> tuple[Guard, ...]:
        return (Absent(("w",)),) if self.began_ms is None else (Equals(("w",), self.began_ms),)

    def _next(self, rate: Rate, now: int) -> int:
        """The next window starts at the end of this one, which keeps the rate exact; after a pause, or when a clock was
        set back, it starts now."""
        if self.began_ms is not None and rate.window_ms <= now - self.began_ms < 2 * rate.window_ms:
            return self.began_ms + rate.window_ms
        return now
