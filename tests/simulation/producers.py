"""Producers of a simulated world: of keyed and unkeyed batches, with dedup ids, and of delayed messages. And callers
that cancel these."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import TYPE_CHECKING
from unittest.mock import patch

from chalicelib.core.delays import decision, delayed_messages
from chalicelib.core.producing import dedup
from chalicelib.service import Service
from tests.simulation.expiry import PRODUCERS_LULL
from tests.simulation.zones import ZONES

if TYPE_CHECKING:
    from tests.simulation.world import World

LATE_WRITE_MS = 3_200
"""In place of a minute: longer than any late write of the simulation lives where nobody stalls. The difference of the
clocks comes on top: a minute has room for it. Messages that wait longer are stored plainly."""

PAUSES_MS = (150, 150, 150, 3_000)
"""Pauses between messages with the same dedup id, which may be free again by then, or not."""

TTLS_MS = (100, 700, 3_000)
DELAYS_MS = (1, 400, 2_000, 4_500)


UNTIL_QUEUES_RETURN = 4
"""How much longer producers pause where queues leave and return, to send when that is done."""
_RETURNED_MS = 12_000
"""Queues that left have returned by then, and dedup ids are free again."""


@contextmanager
def short_times(dedup_ms: int, late_write_ms: int) -> Iterator[None]:
    """Late messages count as late at once: no history lasts as long as the product's limit."""
    with (
        patch.object(dedup, "DEDUP_MS", dedup_ms),
        patch.object(delayed_messages, "LATE_WRITE_MS_MAX", late_write_ms),
        patch.object(decision, "STORED_LATE_MS_MAX", 0),
    ):
        yield


class Producer:
    def __init__(self, world: World, name: str, messages: int, random: Random) -> None:
        self._world, self._name, self._left, self._random = world, name, messages, random

    def work(self, service: Service) -> None:
        random, plan, caller = self._random, self._world.plan, self._world.caller(service)
        while self._left:
            count = min(self._left, random.choice((1, 2, 4, 7)))
            bodies = [f"{self._name}-{self._left}.{part}" for part in range(count)]
            self._left -= count
            pause_ms = random.randrange(random.choice(PAUSES_MS) if plan.dedup_ids else 150)
            lull_ms = random.randrange(150) * PRODUCERS_LULL if plan.retention_ms else pause_ms * plan.pace
            lull_ms = min(lull_ms * UNTIL_QUEUES_RETURN, _RETURNED_MS) if plan.resizes else lull_ms
            self._world.sleep(lull_ms)
            padding = random.choice(plan.sizes)
            keys = [random.choice(plan.keys) for _ in bodies]
            noise = random.randbytes(padding // 2).hex()
            ids = [self._dedup_id() for _ in bodies] if plan.dedup_ids else ()
            due = [self._due_ms() for _ in bodies] if plan.delayed else ()
            ttls = [self._ttl_ms() for _ in bodies] if plan.ttls else ()
            zone = random.choice((None, *ZONES)) if plan.zones else None
            caller.send(bodies, keys, noise, ids, due, ttls, zone)

    def _dedup_id(self) -> str | None:
        return f"d{self._random.randrange(self._world.plan.dedup_ids)}" if self._random.random() < 0.5 else None

    def _due_ms(self) -> int:
        is_delayed = self._random.random() < self._world.plan.delayed
        return self._world.now + self._random.choice(DELAYS_MS) if is_delayed else 0

    def _ttl_ms(self) -> int | None:
        return self._random.choice(TTLS_MS) if self._random.random() < self._world.plan.ttls else None


class Canceller:
    """Cancels, now and then, a message that is or was delayed."""

    def __init__(self, world: World, count: int, random: Random) -> None:
        self._world, self._left, self._random = world, count, random

    def work(self, service: Service) -> None:
        caller = self._world.caller(service)
        while self._left:
            self._left -= 1
            self._world.sleep(self._random.randrange(self._world.plan.cancels_pause_ms))
            if waiting := [sent for sent in self._world.history.sent if sent.told_due_ms and sent.message_id]:
                caller.cancel(self._random.choice(waiting).message_id or "")
