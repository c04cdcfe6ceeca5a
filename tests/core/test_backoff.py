"""A wait for each attempt, from a list or growing, never over its bound."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chalicelib.core.base.errors import DecantError
from chalicelib.core.base.fields import Label
from chalicelib.core.base.limits import BACKOFF_MS, NACK_DELAY_MS_MAX
from chalicelib.core.catalogue.group import DEFAULTS
from chalicelib.core.catalogue.group_forms import Backoff, parse_backoff

LABEL = Label("backoff_ms")

WAITS = st.integers(0, NACK_DELAY_MS_MAX)
GROWING = st.builds(
    lambda initial, more, multiplier: {"initial_ms": initial, "multiplier": multiplier, "max_ms": initial + more},
    st.integers(1, 10**6),
    st.integers(0, 10**6),
    st.integers(1, 100) | st.floats(1, 100),
)


@given(st.lists(WAITS, min_size=1, max_size=100), st.integers(1, 1_000))
def test_the_last_wait_of_a_list_repeats(waits: list[int], attempt: int) -> None:
    assert parse_backoff(waits, LABEL).wait_ms(attempt) == (waits[attempt - 1] if attempt <= len(waits) else waits[-1])


@given(GROWING, st.integers(1, 1_000))
def test_a_wait_grows_up_to_its_bound(given_: dict[str, Any], attempt: int) -> None:
    made = parse_backoff(given_, LABEL)
    assert made.wait_ms(1) == given_["initial_ms"]
    assert made.wait_ms(attempt) <= made.wait_ms(attempt + 1) <= given_["max_ms"]
    assert Backoff.of(made.text) == made


@pytest.mark.parametrize(("multiplier", "wait_ms"), [(1, 100), (1.0, 100), (1.5, 1_000), (2, 1_000), (100, 1_000)])
def test_the_millionth_wait_is_known_at_once(multiplier: float, wait_ms: int) -> None:
    made = parse_backoff({"initial_ms": 100, "multiplier": multiplier, "max_ms": 1_000}, LABEL)
    assert made.wait_ms(10**6) == made.wait_ms(10**9) == wait_ms


def test_a_wait_doubles() -> None:
    made = parse_backoff({"initial_ms": 100, "multiplier": 2, "max_ms": 1_000}, LABEL)
    assert [made.wait_ms(attempt) for attempt in range(1, 7)] == [100, 200, 400, 800, 1_000, 1_000]


def test_the_default_is_that_of_the_contract() -> None:
    assert [DEFAULTS["backoff_ms"].wait_ms(attempt) for attempt in range(1, 18)] == [*BACKOFF_MS, 7_200_000]


@pytest.mark.parametrize(
    ("data", "named"),
    [
        ([], "backoff_ms"),
        ([1] * 101, "backoff_ms"),
        ([-1], "backoff_ms"),
        ([1, True], "backoff_ms"),
        ([1.5], "backoff_ms"),
        ("10", "backoff_ms"),
        (5, "backoff_ms"),
        ([NACK_DELAY_MS_MAX + 1], "backoff_ms"),
        ({}, "backoff_ms.initial_ms"),
        ({"initial_ms": 5, "multiplier": 2, "max_ms": 4}, "backoff_ms.max_ms"),
        ({"initial_ms": 5, "multiplier": 0.5, "max_ms": 9}, "backoff_ms.multiplier"),
        ({"initial_ms": 5, "multiplier": True, "max_ms": 9}, "backoff_ms.multiplier"),
        ({"initial_ms": 5, "multiplier": 2}, "backoff_ms.max_ms"),
        ({"initial_ms": 5, "multiplier": 2, "max_ms": 9, "jitter": 1}, "backoff_ms.jitter"),
    ],
)
def test_an_invalid_backoff_is_refused_by_name(data: object, named: str) -> None:
    with pytest.raises(DecantError, match=named):
        parse_backoff(data, LABEL)
