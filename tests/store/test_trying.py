"""The requests of one call run side by side, in its own thread."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from chalicelib.core.store.dynamodb.requests import SIDE_BY_SIDE_MAX, Trying, run
from tests.support.clock import Clock

Step = int | Exception
"""Ms until it goes on, or how it ends."""


class Requests:
    """Records the steps of requests, and their times."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began_ms = clock.uptime()
        self.log: list[tuple[int, str]] = []

    def request(self, name: str, steps: Sequence[Step]) -> Trying[str]:
        try:
            for step in steps:
                self._write(f"{name} sent")
                if isinstance(step, Exception):
                    raise step
                yield step
            self._write(f"{name} read")
            return name
        finally:
            self._write(f"{name} over")

    def _write(self, what: str) -> None:
        self.log.append((self._clock.uptime() - self._began_ms, what))


@pytest.fixture
def requests() -> Requests:
    return Requests(Clock())


def ran(requests: Requests, **steps: Sequence[Step]) -> list[str]:
    return run([requests.request(name, each) for name, each in steps.items()], requests._clock.runtime())


def test_all_requests_are_sent_before_the_first_answer_is_read(requests: Requests) -> None:
    assert ran(requests, a=[0], b=[0], c=[0]) == ["a", "b", "c"]
    assert [what for _, what in requests.log if not what.endswith("over")] == (
        ["a sent", "b sent", "c sent", "a read", "b read", "c read"]
    )


def test_of_more_requests_than_may_be_under_way_some_wait(requests: Requests) -> None:
    many = {f"r{number}": [0] for number in range(2 * SIDE_BY_SIDE_MAX + 1)}
    assert ran(requests, **many) == [*many]
    under_way = most = 0
    for _, what in requests.log:
        under_way += what.endswith("sent") - what.endswith("read")
        most = max(most, under_way)
    assert most == SIDE_BY_SIDE_MAX


def test_a_request_that_is_sent_again_holds_up_no_other(requests: Requests) -> None:
    assert ran(requests, a=[100, 200], b=[0], c=[150]) == ["a", "b", "c"]
    assert [(at, what) for at, what in requests.log if what.endswith("read")] == (
        [(0, "b read"), (150, "c read"), (300, "a read")]
    )


def test_the_first_error_ends_the_other_requests(requests: Requests) -> None:
    with pytest.raises(ValueError, match="bad"):
        ran(requests, a=[0, 0], b=[ValueError("bad")], c=[0])
    assert {what for _, what in requests.log if what.endswith("over")} == {"a over", "b over"}
    assert (0, "a read") not in requests.log
