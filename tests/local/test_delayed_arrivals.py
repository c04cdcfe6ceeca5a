"""A server as `make run` starts it, HTTP, and the machine's clock: what waits comes once, and never early.

How late it comes is bound in virtual time by `tests/service/test_delay_lateness.py`, and measured by `benchmarks`: here
it would be a figure of the machine, and of what else runs on it."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from benchmarks import lateness, servers
from tests.support import emulators


@pytest.fixture(scope="module")
def ports() -> Iterator[tuple[int, int]]:
    """A server over a store in memory, and one over an emulator. Tests ask both at once, and mostly wait."""
    with (
        emulators.dynoxide() as endpoint,
        servers.decant() as in_memory,
        servers.decant(AWS_ENDPOINT_URL_DYNAMODB=endpoint) as on_emulator,
    ):
        yield in_memory, on_emulator


def test_a_thousand_delayed_messages_arrive_once_each_and_never_early(ports: tuple[int, int]) -> None:
    with ThreadPoolExecutor() as pool:
        for found in pool.map(lambda port: lateness.arrivals(port, "delayed"), ports):
            assert (found.early, found.again, found.lost) == (0, 0, 0)


def test_a_pop_that_waits_wakes_for_what_falls_due(ports: tuple[int, int]) -> None:
    with ThreadPoolExecutor() as pool:
        for found in pool.map(lambda port: lateness.wakes(port, "woken", rounds=1), ports):
            for late_ms in found.values():
                assert min(late_ms) >= 0
