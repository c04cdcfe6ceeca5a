"""Instances of the service for tests: on any store, with a clock that stands still and chance from a seed."""

from __future__ import annotations

from random import Random

from chalicelib.api import Api
from chalicelib.base.runtime import Runtime
from chalicelib.service import build
from chalicelib.store import Store

BOOTED_MS = 1_699_999_000_000
"""Instants of the two clocks must not be taken for each other."""

SIGNING_KEY = b"0123456789abcdef"


class Clock:
    """Time in ms; sleeping only moves it on."""

    def __init__(self) -> None:
        self.ms = 1_700_000_000_000
        self.set_back_ms = 0
        """By how much somebody has set back the clock on the wall."""

    def now(self) -> int:
        return self.ms - self.set_back_ms

    def uptime(self) -> int:
        return self.ms - BOOTED_MS

    def sleep(self, ms: int) -> None:
        self.ms += ms


def instance(store: Store, clock: Clock, seed: int = 0) -> Api:
    """A fresh process: its caches are empty."""
    return Api(build(store, Runtime(clock.now, clock.sleep, Random(seed).randbytes, clock.uptime), SIGNING_KEY))
