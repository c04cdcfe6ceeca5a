"""Rights allow an operation if one of them allows it and none denies it."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chalicelib.core.access.rights import VERBS, Need, Verb, allow, allow_somewhere, parse
from chalicelib.core.base.errors import DecantError
from chalicelib.core.base.fields import Label
from chalicelib.core.base.limits import RIGHTS_MAX

WHOLE: tuple[str | None, str | None] = (None, None)


def right(verb: Verb = "read", topics: str = "*", groups: str = "*", deny: bool = False) -> dict[str, Any]:
    return {"operations": [verb], "topics": topics, "groups": groups, "deny": deny}


def allowed(verb: Verb, place: tuple[str | None, str | None], *rights: dict[str, Any]) -> bool:
    return allow(parse([*rights], Label("rights")), Need(verb, *place))


@pytest.mark.parametrize("wanted", VERBS)
@pytest.mark.parametrize("given_verb", VERBS)
def test_a_right_allows_its_own_operations(given_verb: Verb, wanted: Verb) -> None:
    for place in (("orders", "billing"), ("orders", None), WHOLE):
        assert allowed(wanted, place, right(given_verb)) is (given_verb == wanted)


@pytest.mark.parametrize(
    ("pattern", "name", "is_match"),
    [
        ("orders", "orders", True),
        ("orders", "orders2", False),
        ("orders*", "orders", True),
        ("orders*", "orders.eu", True),
        ("orders*", "old-orders", False),
        ("*.eu", "orders.eu", True),
        ("*.eu", ".eu.us", False),
        ("a*b*c", "abc", True),
        ("a*b*c", "a-b-b-c", True),
        ("a*b*c", "acb", False),
        ("ab*ba", "aba", False),
        ("a*b*b", "ab", False),
        ("*ab*ba*", "aba", False),
        ("*a*b*", "aba", True),
        ("**", "anything", True),
        ("orders.eu", "ordersxeu", False),
        ("Orders", "orders", False),
    ],
)
def test_a_star_stands_for_any_characters(pattern: str, name: str, is_match: bool) -> None:
    assert allowed("produce", (name, None), right("produce", pattern)) is is_match
    assert allowed("consume", ("t", name), right("consume", groups=pattern)) is is_match


@given(st.text("ab*.", min_size=1, max_size=12), st.text("ab.", min_size=1, max_size=12))
def test_a_pattern_matches_what_an_expression_of_it_does(pattern: str, name: str) -> None:
    expression = re.escape(pattern).replace(r"\*", ".*")
    assert allowed("produce", (name, None), right("produce", pattern)) is bool(re.fullmatch(expression, name))


def test_a_pattern_of_many_stars_takes_no_time() -> None:
    assert not allowed("produce", ("a" * 100_000, None), right("produce", "*a" * 49 + "*b"))


@pytest.mark.parametrize("place", [("orders", "billing"), ("orders", None), WHOLE])
@pytest.mark.parametrize("verb", VERBS)
def test_nothing_is_allowed_without_a_right(verb: Verb, place: tuple[str | None, str | None]) -> None:
    others = [right(other) for other in VERBS if other != verb]
    assert not allowed(verb, place, *others)
    assert not allowed(verb, place, right(verb, "refunds"))
    for groups in ("*", "billing", "shipping"):
        assert not allowed(verb, place, right(verb, groups=groups, deny=True))


@pytest.mark.parametrize("place", [("orders", "billing"), ("orders", None), WHOLE])
@pytest.mark.parametrize("verb", VERBS)
def test_a_right_that_denies_wins(verb: Verb, place: tuple[str | None, str | None]) -> None:
    assert not allowed(verb, place, right(verb), right(verb, deny=True))
    assert not allowed(verb, place, right(verb, deny=True), right(verb), right(verb, "orders", "billing"))


def test_a_denial_leaves_other_topics_and_groups_alone() -> None:
    denied = right("consume", "orders", "billing", deny=True)
    assert allowed("consume", ("orders", "shipping"), right("consume"), denied)
    assert allowed("consume", ("refunds", "billing"), right("consume"), denied)
    assert allowed("consume", ("orders", None), right("consume"), denied), "replies name no group"
    assert allowed("read", ("orders", "billing"), right("read"), denied)


@pytest.mark.parametrize("verb", ["read", "admin"])
def test_what_concerns_a_whole_topic_needs_the_right_on_all_its_groups(verb: Verb) -> None:
    assert not allowed(verb, ("orders", None), right(verb, "orders", "billing"))
    assert not allowed(verb, ("orders", None), right(verb), right(verb, "orders", "billing", deny=True))
    assert allowed(verb, ("orders", None), right(verb, "orders"))


@pytest.mark.parametrize("verb", ["produce", "consume"])
def test_groups_do_not_limit_what_names_none(verb: Verb) -> None:
    assert allowed(verb, ("orders", None), right(verb, "orders", "billing"))


@pytest.mark.parametrize("verb", VERBS)
def test_what_concerns_the_whole_service_needs_the_right_on_everything(verb: Verb) -> None:
    assert allowed(verb, WHOLE, right(verb))
    assert allowed(verb, WHOLE, right(verb, "**", "***"))
    assert not allowed(verb, WHOLE, right(verb, "orders*"))
    assert not allowed(verb, WHOLE, right(verb, "*", "billing"))
    assert not allowed(verb, WHOLE, right(verb), right(verb, "secret", deny=True))


def test_who_is_denied_anything_makes_no_tokens() -> None:
    """It could make itself one to which nothing is denied."""
    assert not allowed("admin", WHOLE, right("admin"), right("produce", "secret", deny=True))


@pytest.mark.parametrize(
    ("rights", "is_allowed"),
    [
        ([right("read", "orders", "billing")], True),
        ([right("produce")], False),
        ([right("read", deny=True)], False),
        ([right("read"), right("read", deny=True)], False),
        ([right("read"), right("produce", deny=True)], True),
        ([right("read"), right("read", "orders", deny=True)], True),
        ([right("read"), right("read", "orders", "orders", deny=True)], True),
        ([right("read"), right("read", "*", "billing", deny=True)], True),
    ],
)
def test_a_list_needs_any_right_that_is_not_denied_everywhere(rights: Any, is_allowed: bool) -> None:
    assert allow_somewhere(parse(rights, Label("rights")), "read") is is_allowed


def test_a_refusal_names_what_is_needed() -> None:
    assert [str(Need("read", *place)) for place in (WHOLE, ("orders", None), ("orders", "billing"))] == [
        "'read' for all topics",
        "'read' for topic 'orders'",
        "'read' for topic 'orders' and group 'billing'",
    ]


def test_a_token_may_have_as_many_rights_as_the_limit_says() -> None:
    assert len(parse([right()] * RIGHTS_MAX, Label("rights"))) == RIGHTS_MAX


@pytest.mark.parametrize(
    ("rights", "named"),
    [
        ([], "'rights' must be a list of 1 to 32 rights; it is 0 of them"),
        ([right()] * 33, "it is 33 of them"),
        ("all", '"all"'),
        ([{}], "rights[0].operations"),
        ([right(), {"operations": ["write"], "topics": "*"}], "rights[1].operations"),
        ([{"operations": [], "topics": "*"}], "rights[0].operations"),
        ([{"operations": "read", "topics": "*"}], "rights[0].operations"),
        ([{"operations": ["read"]}], "rights[0].topics"),
        ([{"operations": ["read"], "topics": ""}], "rights[0].topics"),
        ([{"operations": ["read"], "topics": "or?ers"}], '"or?ers"'),
        ([{"operations": ["read"], "topics": "a" * 101}], "rights[0].topics"),
        ([{"operations": ["read"], "topics": "*", "groups": "a b"}], '"a b"'),
        ([{"operations": ["read"], "topics": "*", "deny": 1}], "rights[0].deny"),
        ([{"operations": ["read"], "topics": "*", "topic": "a"}], "rights[0].topic"),
        (["read"], "rights[0]"),
    ],
)
def test_a_malformed_right_is_refused_by_its_name(rights: Any, named: str) -> None:
    with pytest.raises(DecantError) as refused:
        parse(rights, Label("rights"))
    assert named in refused.value.detail
