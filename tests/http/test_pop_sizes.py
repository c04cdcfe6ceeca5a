"""One pop returns no more than a response holds, and the next one the rest."""

from __future__ import annotations

import base64
import random

import pytest

from chalicelib.core.base.limits import MIB, RESPONSE_JSON_BYTES_MAX
from tests.support.client import Group, Topic, bodies, offsets
from tests.support.clock import Clock


@pytest.mark.parametrize("is_one_by_one", [True, False])
def test_a_pop_gives_at_most_4_mib_of_bodies_and_the_rest_later(
    topic: Topic, group: Group, is_one_by_one: bool
) -> None:
    texts = [str(number) * MIB for number in range(7)]
    for batch in [[each] for each in texts] if is_one_by_one else [texts[:4], texts[4:]]:
        topic.produce(*batch)
    taken = [group.pop(max_messages=256)["messages"] for _ in range(2)]
    assert [offsets(messages) for messages in taken] == [[0, 1, 2, 3], [4, 5, 6]]
    assert [body for messages in taken for body in bodies(messages)] == texts
    assert group.totals() == (0, 7, 0, 0)


def test_expired_messages_too_large_for_one_response_come_back_too(topic: Topic, group: Group, clock: Clock) -> None:
    for number in range(6):
        topic.produce(str(number) * (MIB + MIB // 2))
    first = [offsets(group.pop(max_messages=256)["messages"]) for _ in range(3)]
    assert first == [[0, 1], [2, 3], [4, 5]]
    clock.sleep(30_000)
    again = [group.pop(max_messages=256)["messages"] for _ in range(3)]
    assert [offsets(messages) for messages in again] == first
    assert {each["attempt"] for messages in again for each in messages} == {2}


def test_expired_leases_of_large_messages_come_back_as_far_as_they_fit(
    topic: Topic, group: Group, clock: Clock
) -> None:
    for number in range(60):
        topic.produce(chr(33 + number) * 100_000)
    for _ in range(60):
        group.take_one()
    clock.sleep(30_000)
    first, second = (group.pop(max_messages=256)["messages"] for _ in range(2))
    assert (offsets(first), offsets(second)) == (list(range(41)), list(range(41, 60)))
    assert group.totals() == (0, 60, 0, 0)


def test_a_response_never_exceeds_what_json_makes_of_the_bodies(topic: Topic, group: Group) -> None:
    text = "\x01" * 300_000
    for _ in range(5):
        topic.produce(text)
    path, taken = f"{group.path}/pop", []
    for _ in range(3):
        answer = group.client.post(path, max_messages=256)
        assert len(answer.raw) <= RESPONSE_JSON_BYTES_MAX
        taken += offsets(answer.json["messages"])
    assert taken == [0, 1, 2, 3, 4]


def test_many_small_messages_of_many_properties_stay_within_a_response(topic: Topic, group: Group) -> None:
    properties = {f"{number:02}": "\x01" * 300 for number in range(50)}
    for _ in range(8):
        topic.produce(*[{"body": "x", "properties": properties}] * 32)
    taken: list[int] = []
    while len(taken) < 256:
        answer = group.client.post(f"{group.path}/pop", max_messages=256)
        assert len(answer.raw) <= RESPONSE_JSON_BYTES_MAX
        assert answer.json["messages"]
        taken += offsets(answer.json["messages"])
    assert taken == list(range(256))


@pytest.mark.parametrize("ordered", [False, "key"])
def test_a_small_message_behind_a_large_one_waits_for_the_next_pop(topic: Topic, ordered: bool | str) -> None:
    group = topic.group("sized", ordered=ordered)
    topic.produce("x" * 4 * MIB)
    topic.produce("small")
    assert offsets(group.pop()["messages"]) == [0]
    assert offsets(group.pop()["messages"]) == [1]


def test_large_bytes_stay_within_a_response(topic: Topic, group: Group) -> None:
    data = base64.b64encode(random.Random(3).randbytes(MIB)).decode()
    for _ in range(5):
        topic.produce({"body_base64": data})
    taken: list[int] = []
    for _ in range(2):
        answer = group.client.post(f"{group.path}/pop", max_messages=256)
        assert len(answer.raw) <= RESPONSE_JSON_BYTES_MAX
        taken += offsets(answer.json["messages"])
    assert taken == [0, 1, 2, 3, 4]
