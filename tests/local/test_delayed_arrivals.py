"""A server as `make run` starts it, HTTP, and the machine's clock: what waits comes once, and never early.

How late it comes is bound in virtual time by `tests/service/test_delay_lateness.py`, and measured by `benchmarks`: here
it would be a figure of the machine, and of what else runs on it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks import lateness, servers
from tests.support import emulators


@pytest.fixture(params=["memory", "dynoxide"], scope="module")
def port(request: pytest.FixtureRequest) -> Iterator[int]:
    if request.param == "memory":
        with servers.decant() as port:
            yield port
    else:
        with emulators.dynoxide() as endpoint, servers.decant(AWS_ENDPOINT_URL_DYNAMODB=endpoint) as port:
            yield port


def test_a_thousand_delayed_messages_arrive_once_each_and_never_early(port: int) -> None:
    found = lateness.arrivals(port, "delayed")
    assert (found.early, found.again, found.lost) == (0, 0, 0)


def test_a_pop_that_waits_wakes_for_what_falls_due(port: int) -> None:
    for late_ms in lateness.wakes(port, "woken", rounds=1).values():
        assert min(late_ms) >= 0
