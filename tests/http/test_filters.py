"""A group is given what its filter wants, and passes the rest."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.core.base.limits import HOUR_MS
from chalicelib.core.consuming import claim, skip
from tests.support.client import Client, Group, Json, Topic, bodies, offsets

EU = {"expression": "tag == 'a' && properties.region == 'eu'"}


def tagged(*tags: str | None) -> list[dict[str, Any]]:
    return [{"body": f"m{place}", "tag": tag} for place, tag in enumerate(tags)]


def test_a_group_gets_the_tags_that_it_asks_for(topic: Topic) -> None:
    group = topic.group("some", filter={"tags": ["a", "c"]})
    every = topic.group("every")
    topic.produce(*tagged("a", "b", None, "c", "b", "a"))
    assert bodies(group.take(3)) == ["m0", "m3", "m5"]
    assert len(every.take(6)) == 6
    assert group.progress()["filter"] == {"tags": ["a", "c"]}
    assert every.progress()["filter"] is None


def test_an_expression_sees_tag_key_and_properties(topic: Topic) -> None:
    group = topic.group("eu", filter=EU)
    keyed = topic.group("keyed", filter={"expression": "key && length(key) > `1`"})
    topic.produce({"body": "x", "tag": "a", "properties": {"region": "eu"}}, {"body": "y", "tag": "a", "key": "k"})
    topic.produce({"body": "z", "tag": "b", "properties": {"region": "eu"}, "key": "kk"})
    assert bodies(group.take(1)) == ["x"]
    assert bodies(keyed.take(1)) == ["z"]
    assert group.pop()["messages"] == keyed.pop()["messages"] == []


def test_skipped_messages_are_settled_and_cost_no_lease(topic: Topic) -> None:
    group = topic.group("some", filter={"tags": ["a"]})
    topic.produce(*tagged("b", "b", "b"))
    assert group.totals() == (3, 0, 0, 0)
    assert group.pop()["messages"] == []
    assert group.totals() == (0, 0, 0, 0)
    assert group.queue()["committed_offset"] == 3
    topic.produce(*tagged("b", "a", "b"))
    message = group.take_one()
    assert group.totals()[1] == 1
    assert message["offset"] == 4
    group.ack(message)
    assert group.pop()["messages"] == []
    assert group.queue()["committed_offset"] == 6


def test_an_expired_lease_brings_back_only_what_was_wanted(topic: Topic) -> None:
    group = topic.group("some", filter={"tags": ["a"]}, invisible_ms=1_000)
    topic.produce(*tagged("b", "a", "b", "a", "a"))
    first = group.take(2)
    assert group.ack(first[0])["acked"] == 1
    topic.client.clock.sleep(1_000)
    again = group.take(2)
    assert offsets(again) == [3, 4]
    assert [each["attempt"] for each in again] == [2, 1]
    assert group.ack(first[1])["failed"][0]["code"] == "LeaseLost"
    assert group.ack(*again)["acked"] == 2
    assert group.totals() == (0, 0, 0, 0)


def test_another_instance_settles_what_came_through_a_filter(topic: Topic) -> None:
    group = topic.group("some", filter={"tags": ["a"]})
    topic.produce(*tagged("b", "a", "b", "a"))
    elsewhere = group.seen_by(topic.client.another())
    taken = group.take(2)
    assert elsewhere.ack(*taken)["acked"] == 2
    assert group.totals() == (0, 0, 0, 0)


@pytest.mark.parametrize(("unwanted", "found"), [(3, ["wanted"]), (4, []), (5, [])])
def test_a_pop_ends_after_as_many_as_it_may_skip(
    topic: Topic, monkeypatch: pytest.MonkeyPatch, unwanted: int, found: list[str]
) -> None:
    monkeypatch.setattr(skip, "PASSED_AT_ONCE_MAX", 2)
    monkeypatch.setattr(claim, "PASSED_MAX", 4)
    group = topic.group("g", filter={"tags": ["x"]})
    topic.produce(*["x"] * unwanted, tag="y")
    topic.produce("wanted", tag="x")
    assert bodies(group.pop()["messages"]) == found
    assert [*found, *bodies(group.pop()["messages"])] == ["wanted"]


def test_a_pop_skips_as_many_as_have_expired(topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(skip, "PASSED_AT_ONCE_MAX", 2)
    monkeypatch.setattr(claim, "PASSED_MAX", 4)
    assert topic.client.put(topic.path, retention_ms=HOUR_MS).status == 200
    group = topic.group("g")
    topic.produce(*["old"] * 5)
    topic.client.clock.sleep(HOUR_MS)
    topic.produce("new")
    assert bodies(group.pop()["messages"]) == ["new"]


def test_a_changed_filter_applies_to_what_is_not_yet_passed(topic: Topic) -> None:
    group = topic.group("some", filter={"tags": ["a"]})
    topic.produce(*tagged("b", "a", "b", "c"))
    assert offsets(group.take(1, ack=[])) == [1]
    group.change(filter={"tags": ["b", "c"]})
    assert offsets(group.take(2)) == [2, 3]
    group.change(filter={"expression": "`true`"})
    topic.produce(*tagged("x"))
    assert offsets(group.take(1)) == [4]


def test_a_message_that_the_expression_cannot_judge_is_not_wanted(topic: Topic) -> None:
    group = topic.group("long", filter={"expression": "length(key) > `2`"})
    topic.produce("no key", {"body": "key", "key": "long"})
    assert bodies(group.take(1)) == ["key"]


def test_a_repeated_attempt_through_a_filter_gets_the_same_receipts(topic: Topic) -> None:
    group = topic.group("some", filter={"tags": ["a"]})
    topic.produce(*tagged("b", "a", "b", "a"))
    first = group.take(2, attempt_id="x")
    assert group.take(2, attempt_id="x") == first


@pytest.mark.parametrize(
    "bad",
    [
        {},
        {"tags": ["a|b"]},
        {"tags": ["a"], "expression": "tag"},
        {"tags": None},
        {"tags": None, "expression": None},
        {"tags": ["a"], "nosuch": None},
        {"tag": ["a"]},
        {"expression": "nosuch(tag)"},
        {"expression": "tag == 'a' && length(tag, key)"},
        {"expression": "(" * 500 + "tag" + ")" * 500},
        {"expression": "tag[::0]"},
        {"expression": "[tag,tag]" + "|[@,@][]" * 22},
        {"expression": "||".join(["tag"] * 200)},
    ],
)
def test_a_bad_filter_is_refused_and_changes_nothing(client: Client, topic: Topic, bad: object) -> None:
    assert client.put(f"{topic.path}/groups/g", filter=bad).problem == (400, "InvalidFilter")
    assert client.get(f"{topic.path}/groups/g").problem == (404, "GroupNotFound")


@pytest.mark.parametrize(
    ("bad", "field"),
    [
        ({"tags": ["a", "\ud800"]}, "filter.tags[1]"),
        ({"expression": "tag == '\ud800'"}, "filter.expression"),
        ({"expression": 'tag == `"\ud800"`'}, "filter.expression"),
    ],
)
def test_a_lone_surrogate_in_a_filter_is_refused(client: Client, topic: Topic, bad: Json, field: str) -> None:
    answer = client.put(f"{topic.path}/groups/g", filter=bad)
    assert answer.problem == (400, "InvalidField")
    assert f"field '{field}' must be text without a lone surrogate; it is " in answer.json["detail"]
    assert client.get(f"{topic.path}/groups/g").problem == (404, "GroupNotFound")


@pytest.mark.parametrize("given", [{"tags": ["a"]}, {"expression": "tag == 'a'"}])
def test_null_in_a_filter_means_not_given(topic: Topic, given: Json) -> None:
    group = topic.group("some", filter={"tags": None, "expression": None} | given)
    assert group.progress()["filter"] == given


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        ("keys(properties)[0:1]", ["y"]),
        ("[tag, key][::-1] | [0] == 'k'", ["y"]),
        ("[properties][?contains(keys(@)[:1], 'region')] | [:1].length(region)", ["y"]),
        ("[tag, key][::-1][0] == 'k'", []),
        ("tag[0:3]", []),
        ("properties.*[1:]", []),
    ],
)
def test_an_expression_may_slice(topic: Topic, expression: str, wanted: list[str]) -> None:
    group = topic.group("some", filter={"expression": expression})
    topic.produce({"body": "x", "tag": "a"}, {"body": "y", "tag": "a", "key": "k", "properties": {"region": "eu"}})
    assert bodies(group.pop()["messages"]) == wanted


@pytest.mark.parametrize(
    ("expression", "wrong"),
    [
        ("tag ==", "position 6 "),
        ("tag == 'a", "position 7 "),
        ("a b", "position 2 "),
        ("#", "position 0 "),
        ("tag == 'foo' && foo(tag)", "foo(), which is not a JMESPath function, at position 16 "),
        ("length == 'x' && length(tag, key)", "length() with 2 arguments, where it takes 1, at position 17 "),
        ("[length(tag), length ()]", "length() with 0 arguments, where it takes 1, at position 14 "),
        ("merge()", "merge() with 0 arguments, where it takes 1 or more, at position 0 "),
        ("values(properties)[?foo(@)].length(@)", "foo(), which is not a JMESPath function, at position 20 "),
    ],
)
def test_a_bad_expression_is_refused_with_the_position(
    client: Client, topic: Topic, expression: str, wrong: str
) -> None:
    answer = client.put(f"{topic.path}/groups/g", filter={"expression": expression})
    assert answer.problem == (400, "InvalidFilter")
    assert wrong in answer.json["detail"]


def test_acks_ride_along_with_a_claim_that_passes(topic: Topic, group: Group) -> None:
    some = topic.group("some", filter={"tags": ["a"]})
    topic.produce(*tagged("a", "b", "b", "a"))
    first = some.take_one()
    answer = some.pop(max_messages=1, ack=[first["receipt"]])
    assert (answer["acked"], offsets(answer["messages"])) == (1, [3])
    assert some.totals() == (0, 1, 0, 0)


def test_nothing_is_passed_that_the_filter_was_not_asked_about(topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(skip, "FILTERED_BYTES_MAX", 1)  # one call's messages at a time
    group = topic.group("g", filter={"tags": ["paid"]})
    for number in range(12):
        topic.produce({"body": str(number), "tag": "paid" if number in (1, 2, 5, 8) else "open"})
    assert bodies(group.drained()) == ["1", "2", "5", "8"]
