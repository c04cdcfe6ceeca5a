"""A caller may die after any request: acknowledged messages stay, settled ones do not return, none is lost,
and the operation can be repeated."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice, product

import pytest

from tests.simulation.crashes import (
    EVERY,
    LATER,
    MEETING,
    OPERATIONS,
    Scene,
    after_a_crash,
    after_two_crashes,
    work,
)
from tests.support.stopping import requests_of


@pytest.fixture(scope="module")
def scene() -> Scene:
    return Scene()


@pytest.fixture(scope="module")
def later() -> Scene:
    return Scene(waits=True)


def test_the_scenes_themselves_are_clean(scene: Scene, later: Scene) -> None:
    assert scene.copy().verdict() == []
    assert later.copy().verdict() == []


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_caller_that_dies_after_any_request_leaves_nothing_wrong(scene: Scene, name: str) -> None:
    for request in range(1, requests_of(work(scene.copy(), name)) + 1):
        assert after_a_crash(scene, name, request) == [], f"{name}, dead after request {request}"


@pytest.mark.parametrize("name", EVERY)
def test_a_caller_that_dies_where_messages_wait_leaves_nothing_wrong(later: Scene, name: str) -> None:
    for request in range(1, requests_of(work(later.copy(), name)) + 1):
        assert after_a_crash(later, name, request) == [], f"{name}, dead after request {request}"


@pytest.mark.parametrize("first", OPERATIONS)
def test_two_callers_may_each_die_after_any_request(scene: Scene, first: str) -> None:
    _try_pairs(scene, first, OPERATIONS, every=23)


@pytest.mark.parametrize("first", [*LATER, *MEETING])
def test_two_callers_may_each_die_where_messages_wait(later: Scene, first: str) -> None:
    _try_pairs(later, first, [*LATER, *MEETING], every=127)


def _try_pairs(scene: Scene, first: str, others: Iterable[str], every: int) -> None:
    """`every`: only one in so many pairs of points, other ones for other operations; all take ten minutes."""
    for at, second in enumerate(others):
        points = product(
            range(1, requests_of(work(scene.copy(), first)) + 1), range(1, requests_of(work(scene.copy(), second)) + 1)
        )
        for requests, goes_on in islice(product(points, (False, True)), at % every, None, every):
            wrong = after_two_crashes(scene, (first, second), requests, goes_on)
            assert wrong == [], f"{first} and {second}, at requests {requests}; the first goes on: {goes_on}"
