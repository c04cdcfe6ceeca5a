"""Sizes and units, by DynamoDB's own examples and at their steps. `tests/budgets/test_meter.py` compares them with an
emulator."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from local.memory.sizes import item_bytes, read_units, value_bytes, write_units

VALUES: st.SearchStrategy[Any] = st.recursive(
    st.text(max_size=9) | st.binary(max_size=9) | st.booleans() | st.integers(-(10**15), 10**15),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("", 0),
        ("é", 2),
        ("\U0001f600", 4),
        (b"", 0),
        (b"\x00\xff", 2),
        (True, 1),
        (False, 1),
        (0, 1),
        (1, 2),
        (27, 2),
        (100, 2),
        (123, 3),
        (-27, 3),
        (10**15, 2),
        (10**15 - 1, 9),
        ([], 3),
        ({}, 3),
        (["a", 1], 3 + 2 + 3),
        ({"ab": "c"}, 3 + 1 + 2 + 1),
        ([[]], 3 + 1 + 3),
    ],
)
def test_a_value_is_as_big_as_documented(value: Any, expected: int) -> None:
    assert value_bytes(value) == expected


def test_names_of_attributes_count() -> None:
    assert item_bytes({}) == 0
    assert item_bytes({"pk": "12", "sk": "345", "é": 7}) == 2 + 2 + 2 + 3 + 2 + 2


@given(st.dictionaries(st.text(max_size=4), VALUES, max_size=4), st.text("x", max_size=50))
def test_an_item_is_the_sum_of_its_attributes(item: dict[str, Any], more: str) -> None:
    assert item_bytes(item) == sum(item_bytes({name: value}) for name, value in item.items())
    assert item_bytes({"a": more}) == 1 + len(more)


@given(st.lists(VALUES, max_size=4), VALUES)
def test_an_appended_element_adds_its_size_and_a_byte(elements: list[Any], element: Any) -> None:
    assert value_bytes([*elements, element]) == value_bytes(elements) + 1 + value_bytes(element)


@pytest.mark.parametrize(("size", "units"), [(0, 1), (1, 1), (1_024, 1), (1_025, 2), (2_048, 2), (400 * 1_024, 400)])
def test_a_write_costs_one_unit_for_each_started_kilobyte(size: int, units: int) -> None:
    item = {"a": b"x" * (size - 1)} if size else {}
    assert write_units(None, item) == units
    assert write_units(item, None) == units
    assert write_units(item, {"b": 1}) == units
    assert write_units({"b": 1}, item) == units


@pytest.mark.parametrize(("size", "units"), [(0, 1), (1, 1), (4_096, 1), (4_097, 2), (8_192, 2), (8_193, 3)])
def test_a_read_costs_a_unit_per_started_4_kib_and_half_if_it_may_be_stale(size: int, units: int) -> None:
    assert read_units(size, strong=True) == units
    assert read_units(size, strong=False) == units / 2
