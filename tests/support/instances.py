"""Instances of the service for tests: on any store, with a clock that only sleeping moves and seeded chance."""

from __future__ import annotations

from chalicelib.api import Api
from chalicelib.core.base.limits import BATCH_MESSAGES_MAX
from chalicelib.core.store import Store
from chalicelib.service import Service
from tests.support.clock import Clock

SIGNING_KEY = b"0123456789abcdef"


def instance(store: Store, clock: Clock, seed: int = 0) -> Api:
    """A fresh process: its caches are empty."""
    return Api(Service(store, clock.runtime(seed), SIGNING_KEY))


def with_messages(store: Store, clock: Clock, messages: int, **group: int | str) -> Api:
    """An instance that has created a topic `t` with one queue, its group `g`, and this number of messages."""
    api = instance(store, clock)
    api.put_topic("t", {"queues": 1})
    api.put_group("t", "g", group)
    for first in range(0, messages, BATCH_MESSAGES_MAX):
        count = min(BATCH_MESSAGES_MAX, messages - first)
        api.produce("t", {"messages": [{"body": str(first + number)} for number in range(count)]})
    return api
