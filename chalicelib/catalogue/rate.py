"""How many messages a second a group may be given: windows of about a second, each with so many messages.

The windows of a group are counted in one item. Taking more in a window needs no compare-and-swap; beginning the next
one does.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import orjson

from chalicelib.base.fields import Label, check, number
from chalicelib.base.limits import RATE_MAX, RATE_MIN, SECOND_MS
from chalicelib.table.writes import Absent, Add, AtMost, Equals, Guard, Item, Key, Set, Write


@dataclass(frozen=True, slots=True)
class Rate:
    """`given`: messages a second, an integer or not."""

    given: float

    @classmethod
    def of(cls, text: str) -> Rate:
        return cls(orjson.loads(text))

    @property
    def text(self) -> str:
        return orjson.dumps(self.given).decode()

    @property
    def count(self) -> int:
        """Messages in a window: what fits a second, but one at the least."""
        return max(1, math.floor(self.given))

    @property
    def window_ms(self) -> int:
        """As long as makes the rate just right: a second where that is whole."""
        return max(1, round(self.count * SECOND_MS / self.given))


RATE = number(
    "How many messages a second the group receives at most, over all queues and consumers; redeliveries count too. The"
    " messages of one second may come at once. Once set, it can be changed but not removed.",
    RATE_MIN,
    RATE_MAX,
    default=None,
)


def parse(data: object, label: Label) -> Rate:
    return Rate(check(RATE, data, label))


@dataclass(frozen=True, slots=True)
class Window:
    """What was taken since `began_ms`. None: nobody has taken anything yet."""

    key: Key
    began_ms: int | None = None
    taken: int = 0
    is_stuck: bool = False
    """It begins in the future of this instance, and has not changed for a window: a clock was set back."""

    @classmethod
    def of(cls, key: Key, item: Item | None) -> Window:
        return cls(key, item["w"], item["n"]) if item else cls(key)

    def is_over(self, rate: Rate, now: int) -> bool:
        return self.began_ms is None or self.is_stuck or now >= self.began_ms + rate.window_ms

    def is_ahead(self, rate: Rate, now: int) -> bool:
        return self.began_ms is not None and now < self.began_ms - rate.window_ms

    def left(self, rate: Rate, now: int) -> int:
        """Messages that may be taken now."""
        return rate.count if self.is_over(rate, now) else max(0, rate.count - self.taken)

    def next_in_ms(self, rate: Rate, now: int) -> int:
        """Until more may be taken."""
        return 0 if self.began_ms is None else min(max(0, self.began_ms + rate.window_ms - now), rate.window_ms)

    def take(self, count: int, rate: Rate, now: int) -> Write:
        """Takes so many messages, as many as are left at most. A repeat of it that lands too takes them twice: then the
        group is slower for a moment, and never faster."""
        if not self.is_over(rate, now):
            return Write(self.key, (*self._same(), AtMost(("n",), rate.count - count)), (Add(("n",), count),))
        return Write(self.key, self._same(), (Set(("w",), self._next(rate, now)), Set(("n",), count)))

    def give_back(self, count: int) -> Write:
        """What was taken and not used, if that window still runs. To be sent as a transaction: a repeat that lands too
        would make the group faster."""
        return Write(self.key, self._same(), (Add(("n",), -count),))

    def _same(self) -> tuple[Guard, ...]:
        return (Absent(("w",)),) if self.began_ms is None else (Equals(("w",), self.began_ms),)

    def _next(self, rate: Rate, now: int) -> int:
        """One window follows the other, so that they keep the rate whenever they are asked for; after a pause, or when
        a clock was set back, they begin anew."""
        if self.began_ms is not None and rate.window_ms <= now - self.began_ms < 2 * rate.window_ms:
            return self.began_ms + rate.window_ms
        return now
