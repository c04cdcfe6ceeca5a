"""Dataclasses that share their methods act as those of the standard library do."""

from __future__ import annotations

from dataclasses import KW_ONLY, asdict, field, replace
from functools import cached_property

import pytest

from chalicelib.core.base.records import mutable, record


@record
class Priced:
    _: KW_ONLY
    price: int = 5


@record
class Order(Priced):
    name: str
    tags: list[str] = field(default_factory=list)

    @cached_property
    def title(self) -> str:
        return self.name.title()


@record
class Empty:
    pass


@mutable
class Count:
    value: int = 0


def test_fields_are_given_by_place_by_name_or_by_default() -> None:
    assert asdict(Order("pen", price=3)) == {"price": 3, "name": "pen", "tags": []}
    assert replace(Order(name="pen", tags=["a"]), price=4) == Order("pen", ["a"], price=4)
    assert Order("pen").tags is not Order("pen").tags


def test_what_no_field_is_named_is_refused_at_first_and_later() -> None:
    for _ in range(2):
        with pytest.raises(TypeError, match="colour"):
            Count(colour="red")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="name"):
        Order(price=3)  # type: ignore[call-arg]


def test_records_are_equal_by_type_and_fields_others_by_identity() -> None:
    assert Order("pen") == Order("pen") != Order("ink")
    assert Empty() == Empty() != Priced() != Count(5)  # type: ignore[comparison-overlap]
    assert len({Priced(price=1), Priced(price=1), Priced(price=2), Empty()}) == 3
    assert Count() != Count()


def test_fields_are_slots_unless_a_property_is_cached() -> None:
    count = Count()
    count.value += 1
    with pytest.raises(AttributeError):
        count.other = 1  # type: ignore[attr-defined]
    assert Order("pen").title == "Pen"


def test_a_record_is_shown_with_its_fields_and_matched_by_them() -> None:
    assert repr(Order("pen")) == "Order(price=5, name='pen', tags=[])"
    match Order("pen", ["a"]):
        case Order(name, tags):
            assert (name, tags) == ("pen", ["a"])
