"""A table that refuses requests for a while: every client retries until its call has no more time, and then fails."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from chalicelib.core.base import deadline
from chalicelib.core.base.errors import StoreUnavailable
from tests.support.scheduler import Scheduler

BOOTED_MS = 900_000
"""The uptime when a history begins: far from any wall time, so that checks notice when code confuses the two."""
BEGINS_MS = 5_000
"""It begins within the first seconds of a history."""


@dataclass(frozen=True, slots=True)
class Outage:
    from_ms: int
    until_ms: int
    is_of_reads: bool = True
    """Whether reads are refused as well as writes."""
    is_in_doubt: bool = False
    """Whether a refusal leaves the outcome of a write open: it is a 500, not a throttle."""

    @classmethod
    def of(cls, ms: int, now: int, random: Random) -> Outage:
        from_ms = now + random.randrange(BEGINS_MS)
        return cls(from_ms, from_ms + ms, random.random() < 0.7, random.random() < 0.5)

    def refuses(self, now: int, is_write: bool) -> bool:
        return self.from_ms <= now < self.until_ms and (is_write or self.is_of_reads)

    def sit_out(self, scheduler: Scheduler, is_write: bool) -> None:
        """Retries until the table answers again. Raises StoreUnavailable when the call has no more time."""
        may_have_landed = is_write and self.is_in_doubt
        uptime_ms = scheduler.now - BOOTED_MS
        left_ms = max(0, deadline.give_up_at_ms(uptime_ms, may_have_landed) - uptime_ms)
        if scheduler.now + left_ms < self.until_ms:
            scheduler.sleep(left_ms)
            raise StoreUnavailable("the table refuses", **({"outcome": "unknown"} if may_have_landed else {}))
        scheduler.sleep(self.until_ms - scheduler.now)


NEVER = Outage(0, 0)
