"""Instances of the service for tests: on any store, with a clock that stands still and chance from a seed."""

from __future__ import annotations

from chalicelib.api import Api
from chalicelib.service import build
from chalicelib.store import Store
from tests.support.clock import Clock

SIGNING_KEY = b"0123456789abcdef"


def instance(store: Store, clock: Clock, seed: int = 0) -> Api:
    """A fresh process: its caches are empty."""
    return Api(build(store, clock.runtime(seed), SIGNING_KEY))
