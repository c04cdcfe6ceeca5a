"""A filter's expression takes a bounded number of steps for each message, whatever it says."""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable

import jmespath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jmespath.exceptions import JMESPathError

from chalicelib.core.base.errors import InvalidFilter
from chalicelib.core.base.limits import EXPRESSION_CHARS_MAX, PROPERTIES_BYTES_MAX
from chalicelib.core.base.message import Message
from chalicelib.core.catalogue.filter_expressions import steps_max
from chalicelib.core.catalogue.group_forms import Filter, parse_filter


def message(properties: dict[str, str] | None = None) -> Message:
    return Message("", None, key="xy", tag="a", properties=properties or {"region": "eu", "amount": "120"})


SMALL = message()
LARGE = message({f"{number:04x}": "" for number in range(100)})
FULL = message({f"{number:04x}": "" for number in range(PROPERTIES_BYTES_MAX // 4 - 3)} | {"region": "eu"})

CALLS_PER_STEP = 12
BYTES_PER_STEP = 320
"""16 characters of 4 bytes in a step, their text as JSON, and the least cost of an evaluation."""


def as_stored(expression: str) -> Filter:
    """A filter from a table, which may have been written before there was a limit."""
    return Filter({"expression": expression})


def stages(first: str, stage: str) -> str:
    """The longest expression that may be set; each stage works on the result of the one before."""
    return "|".join([first, *[stage] * ((EXPRESSION_CHARS_MAX - 40) // (len(stage) + 1))])


def counted(run: Callable[[], object]) -> int:
    """How many functions it calls, in Python and in C: the same on every machine."""
    calls = 0

    def count(frame: object, event: str, called: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        run()
    finally:
        sys.setprofile(None)
    return calls


def allocated(run: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        run()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


GROWING = [
    "[@,@][]",
    "join('', [@,@])",
    "to_string([@,@])",
    "to_string([@])",
    "[to_string(@),to_string(@)]",
    "{a:to_string(@),b:@}",
    "to_array(@)|[@,@][]|reverse(@)",
    "sort([@,@][])",
    "sort_by([@,@][], &@)",
    "[@,@][?`true`][]",
    "map(&@,[@,@][])",
    "[@,@][0:2][]",
    "{a:@,b:@}.*[]",
    "values(merge({a:@},{b:@}))[]",
    "not_null([@,@])[]",
]
NESTING = ["[@,@]", "{a:@,b:@}", "map(&[@,@],[@])", "[[@],[@]]"]
ASKING_ALL = ["to_string(@)", "@ == @", "contains(@, @)", "[@,@]|[0] != [1]", "length(to_string(@)) > `1`"]


@pytest.mark.parametrize("stage", GROWING)
def test_an_expression_whose_result_grows_with_each_stage_is_refused(stage: str) -> None:
    with pytest.raises(InvalidFilter, match=r"takes more than \d+ steps for a message \(\d+ properties\): "):
        parse_filter({"expression": stages("tag", stage)})


@pytest.mark.parametrize("stage", GROWING)
def test_a_condition_does_not_hide_what_grows(stage: str) -> None:
    hidden = stages("tag", stage)[:-30].rpartition("|")[0]
    for expression in (f"tag == 'no' && ({hidden})", f"key || ({hidden})", f"[tag][?@ == 'no'] | [0].({hidden})"):
        with pytest.raises(InvalidFilter):
            parse_filter({"expression": expression})


@pytest.mark.parametrize("asking", ASKING_ALL)
@pytest.mark.parametrize("stage", NESTING)
def test_walking_a_value_costs_each_place_that_it_is_in(stage: str, asking: str) -> None:
    expression = f"{'|'.join(['tag', *[stage] * 40])}|{asking}"
    with pytest.raises(InvalidFilter, match=r"takes more than \d+ steps"):
        parse_filter({"expression": expression})
    assert as_stored(expression).wants(SMALL) is False


@pytest.mark.parametrize("seen", [SMALL, LARGE], ids=["small", "large"])
@pytest.mark.parametrize("stage", [*GROWING, *NESTING])
def test_a_stored_expression_that_grows_matches_nothing_and_costs_little(stage: str, seen: Message) -> None:
    stored = Filter.of(as_stored(f"{stages('tag', stage)}|to_string(@)").text)
    assert stored.wants(seen) is False
    assert counted(lambda: stored.wants(seen)) <= CALLS_PER_STEP * steps_max(seen)
    assert allocated(lambda: stored.wants(seen)) <= BYTES_PER_STEP * steps_max(seen)


def test_a_join_pays_for_each_of_its_separators() -> None:
    wide = as_stored("join(properties.long, keys(properties))")
    seen = message({f"{number:x}": "" for number in range(2_000)} | {"long": "x" * 8_000})
    assert wide.wants(seen) is False
    assert allocated(lambda: wide.wants(seen)) < 2**20


LEGIT = [
    ("tag == 'a' && properties.region == 'eu'", True),
    ("contains(['a','b'], tag)", True),
    ("starts_with(key, 'x') || ends_with(key, 'y')", True),
    ("length(keys(properties)) > `1`", True),
    ("properties.*[] | length(@) > `1`", True),
    ("to_number(properties.amount) > `100`", None),
    ("join(',', sort(keys(properties))) == 'amount,region'", None),
    ("properties | [region, zone] | contains(@, 'eu')", True),
    ("contains(to_string(properties), 'eu')", True),
    ("values(properties)[?starts_with(@, 'e') || ends_with(@, 'q')] | [0] == 'eu'", True),
    ("sort_by(keys(properties), &@)[-1] == 'region'", True),
    ("map(&length(@), keys(properties)) | max(@) == `6`", True),
    ("to_string(@) != to_string(properties) && merge(properties, {a: tag}).a == 'a'", True),
    (" || ".join(f"contains(keys(properties), '{name}')" for name in ("a", "b", "c", "d", "region")), True),
    ("contains([" + ",".join(f"'{number}'" for number in range(180)) + ",'a'], tag)", True),
    ("||".join(["tag=='no'"] * 80 + ["tag=='a'"]), True),
    ("not_null(" * 90 + "tag" + ")" * 90 + " == 'a'", True),
    ("tag | " + "map(&" * 70 + "@" + ",[@])" * 70, True),
    ("!" * 149 + "tag", False),
]


@pytest.mark.parametrize("seen", [SMALL, FULL], ids=["small", "full"])
@pytest.mark.parametrize(("expression", "wanted"), LEGIT)
def test_a_condition_is_answered_for_the_largest_message_too(
    expression: str, wanted: bool | None, seen: Message
) -> None:
    assert parse_filter({"expression": expression}).wants(seen) is (seen is SMALL if wanted is None else wanted)


@pytest.mark.parametrize("levels", ["|".join(["@"] * 151), "||".join(["tag"] * 151), "!" * 150 + "tag"])
def test_an_expression_of_more_than_150_levels_is_refused(levels: str) -> None:
    with pytest.raises(InvalidFilter, match="is nested too deep, at most 150 levels: "):
        parse_filter({"expression": levels})
    assert parse_filter({"expression": levels[4:].strip("|") or levels}).given


# -- any expression ---------------------------------------------------------------------------------------------------

_LEAVES = ["@", "tag", "key", "properties", "properties.*", "'\"\\\\'", '`[1, [2, "x"]]`', '`{"a": [0.5]}`', "`0`"]
_AROUND = [
    *("[{0},{1}]", "{{a:{0},b:{1}}}", "{0}[]", "{0}[*].{1}", "{0}.*", "{0}[?{1}]", "{0}[1:]", "{0}[::-1]", "{0}[0]"),
    *("({0})|({1})", "({0}||{1})", "({0}&&{1})", "!({0})", "({0}=={1})", "({0}<{1})", "({0}!={1})"),
    *("map(&({0}),to_array({1}))", "sort_by(to_array({0}),&({1}))", "max_by(to_array({0}),&({1}))"),
    *("join(to_string({0}),map(&to_string(@),to_array({1})))", "sort(map(&to_string(@),to_array({0})))"),
    *("to_string({0})", "not_null({0},{1})", "merge({{a:{0}}},{{b:{1}}})", "values({{a:{0},b:{1}}})", "keys({0})"),
    *("contains([{0}],{1})", "reverse(to_array({0}))", "length({0})", "type({0})", "to_number({0})", "max({0})"),
    *("sum(map(&length(@),to_array({0})))", "avg({0})", "abs({0})", "ceil(to_number({0}))", "starts_with({0},{1})"),
]


def _around(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.tuples(st.sampled_from(_AROUND), inner, inner).map(lambda drawn: drawn[0].format(*drawn[1:]))


def _expression(first: str, repeated: list[str], times: int) -> str:
    """Stages that follow one another, as often as they fit."""
    stage = "|".join(f"({each})" for each in repeated)
    return "|".join([first, *[stage] * min(times, (EXPRESSION_CHARS_MAX - len(first)) // (len(stage) + 1))])


_STAGES = st.recursive(st.just("@") | st.sampled_from(_LEAVES), _around, max_leaves=4)
_EXPRESSIONS = st.builds(
    _expression, st.sampled_from(_LEAVES), st.lists(_STAGES, min_size=1, max_size=3), st.integers(1, 60)
)


@settings(max_examples=150, deadline=None)
@given(_EXPRESSIONS, st.dictionaries(st.text('ab"\\', max_size=3), st.text("x\\\U0001f600", max_size=9), max_size=20))
def test_any_expression_takes_a_bounded_time_and_memory(expression: str, properties: dict[str, str]) -> None:
    seen, stored = message(properties), as_stored(expression)
    assert counted(lambda: stored.wants(seen)) <= CALLS_PER_STEP * steps_max(seen)
    assert allocated(lambda: stored.wants(seen)) <= BYTES_PER_STEP * steps_max(seen)


@settings(max_examples=150, deadline=None)
@given(st.recursive(st.sampled_from(_LEAVES), _around, max_leaves=5))
def test_counting_changes_no_answer(expression: str) -> None:
    seen = {"tag": SMALL.tag, "key": SMALL.key, "properties": SMALL.properties}
    try:
        found = jmespath.search(expression, seen)
        wanted = found is not None and found is not False and found not in ("", [], {})
    except (JMESPathError, TypeError, ValueError, ArithmeticError):
        wanted = False
    assert as_stored(expression).wants(SMALL) is wanted
