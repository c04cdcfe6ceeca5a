"""Producing over HTTP: where messages go, what comes back, and that it comes back as it went in."""

from __future__ import annotations

import base64
import random
from typing import Any

import pytest

from chalicelib.core.base.limits import MIB
from tests.support.client import Client, Group, Topic, bodies, offsets
from tests.support.clock import START_MS

EVERY_BYTE = bytes(range(256))


def in_base64(data: bytes) -> dict[str, Any]:
    return {"body_base64": base64.b64encode(data).decode()}


# -- where messages go ------------------------------------------------------------------------------------------------


def test_results_are_in_the_order_given_and_offsets_are_consecutive(client: Client) -> None:
    topic = client.topic("orders", queues=3)
    first = [topic.client.post(f"{topic.path}/messages", messages=_to(2, 0, 2, 1, 0, 2)).json]
    second = [topic.client.post(f"{topic.path}/messages", messages=_to(0, 2)).json]
    places = [(each["queue"], each["offset"]) for page in first + second for each in page["messages"]]
    assert places == [(2, 0), (0, 0), (2, 1), (1, 0), (0, 1), (2, 2), (0, 2), (2, 3)]


def test_each_result_names_the_message_that_was_given(client: Client) -> None:
    topic = client.topic("orders", queues=4)
    given = [{"body": f"m{number}", "key": f"k{number % 7}"} for number in range(40)]
    for message, stored in zip(given, topic.produce(*given), strict=True):
        found = client.get(f"{topic.path}/messages/{stored['message_id']}").json
        assert (found["body"], found["key"]) == (message["body"], message["key"])
        assert (found["queue"], found["offset"]) == (stored["queue"], stored["offset"])


def test_ids_are_unique(client: Client) -> None:
    topic = client.topic("orders", queues=4)
    made = [each["message_id"] for _ in range(5) for each in topic.produce(*["same"] * 50)]
    assert len(set(made)) == 250


@pytest.mark.parametrize(
    ("key", "queue"),
    [("customer-1", 2), ("customer-2", 0), ("customer-42", 1), ("é", 2), ("日本語", 1), ("\0", 0)],
)
def test_a_key_means_the_same_queue_on_every_instance_and_in_every_release(
    client: Client, key: str, queue: int
) -> None:
    topic = client.topic("orders", queues=4)
    for instance in (client, client.another()):
        assert [each["queue"] for each in Topic(instance, topic.name).produce("a", "b", key=key)] == [queue, queue]


def test_keys_spread_over_all_queues(client: Client) -> None:
    topic = client.topic("orders", queues=8)
    made = topic.produce(*[{"body": "x", "key": f"key-{number}"} for number in range(256)])
    assert {each["queue"] for each in made} == set(range(8))


def test_messages_of_one_key_keep_their_order(client: Client) -> None:
    topic = client.topic("orders", queues=4)
    group = topic.group("billing")
    for first in range(0, 60, 20):
        topic.produce(*[{"body": str(first + number), "key": "customer-1"} for number in range(20)])
    assert bodies(group.take(60)) == [str(number) for number in range(60)]


def test_an_explicit_queue_wins_over_the_key(client: Client) -> None:
    topic = client.topic("orders", queues=4)
    made = topic.produce(*[{"body": "x", "key": "customer-1", "queue": queue} for queue in range(4)])
    assert [each["queue"] for each in made] == [0, 1, 2, 3]


def test_a_batch_without_keys_goes_to_one_queue_and_loses_nothing(client: Client) -> None:
    topic = client.topic("orders", queues=4)
    made = topic.produce(*["x"] * 30)
    assert len({each["queue"] for each in made}) == 1
    assert offsets(made) == list(range(30))


@pytest.mark.parametrize("queue", [4, 127])
def test_a_queue_that_the_topic_does_not_have_is_refused(client: Client, queue: object) -> None:
    topic = client.topic("orders", queues=4)
    answer = client.post(f"{topic.path}/messages", messages=[{"body": "x", "queue": queue}])
    assert answer.problem == (400, "InvalidField")
    assert "messages[0].queue" in answer.json["detail"]


# -- what went in comes out -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "plain",
        " \t\r\n ",
        "\0",
        "".join(map(chr, range(128))),
        '"\\/\u2028\u2029',
        "\x7f\x80\x9f\ufeff\ufffd\uffff",
        "日本語 é e\u0301 🎉 \U0010ffff",
        "{}",
        "null",
    ],
)
def test_text_comes_back_as_text_character_for_character(topic: Topic, group: Group, text: str) -> None:
    topic.produce(text)
    message = group.take_one()
    assert message["body"] == text
    assert "body_base64" not in message
    assert topic.read()["messages"][0]["body"] == text


@pytest.mark.parametrize("data", [EVERY_BYTE, b"\0", b"plain text", b"\xff", b"\xc3", EVERY_BYTE * 1_000])
def test_bytes_come_back_as_bytes_byte_for_byte(topic: Topic, group: Group, data: bytes) -> None:
    topic.produce(in_base64(data))
    message = group.take_one()
    assert base64.b64decode(message["body_base64"]) == data
    assert "body" not in message


def test_every_single_byte_value_comes_back(topic: Topic, group: Group) -> None:
    topic.produce(*[in_base64(bytes([value])) for value in EVERY_BYTE])
    taken = group.take(256)
    assert [base64.b64decode(each["body_base64"]) for each in taken] == [bytes([value]) for value in EVERY_BYTE]


def test_text_and_bytes_of_one_batch_stay_what_they_are(topic: Topic, group: Group) -> None:
    topic.produce("text", in_base64(b"text"), "text")
    assert [each.get("body", each.get("body_base64")) for each in group.take(3)] == ["text", "dGV4dA==", "text"]


@pytest.mark.parametrize("text", ["x" * 4 * MIB, "é" * 2 * MIB, random.Random(5).randbytes(2 * MIB).hex()])
def test_text_of_4_mib_comes_back(topic: Topic, group: Group, text: str) -> None:
    stored = topic.produce(text)[0]
    assert group.take_one()["body"] == text
    assert topic.read()["messages"][0]["body"] == text
    assert topic.client.get(f"{topic.path}/messages/{stored['message_id']}").json["body"] == text


def test_bytes_of_4_mib_come_back(topic: Topic, group: Group) -> None:
    message = in_base64(random.Random(5).randbytes(4 * MIB))
    topic.produce(message)
    assert group.take_one()["body_base64"] == message["body_base64"]


def test_a_message_with_every_field_at_its_limit_fits_a_lambda_response(topic: Topic, group: Group) -> None:
    message = {
        **in_base64(random.Random(5).randbytes(4 * MIB)),
        "key": "\x01" * 256,
        "tag": "\U0001f389" * 128,
        "properties": {"a": "\x01" * 16_383},
    }
    topic.produce(message)
    answer = topic.client.post(f"{group.path}/pop")
    assert len(answer.raw) < 6 * MIB
    assert {name: answer.json["messages"][0][name] for name in message} == message


def test_a_body_between_inline_and_piece_sizes_comes_back(topic: Topic, group: Group) -> None:
    texts = [random.Random(size).randbytes(size).hex() for size in (1, 300, 499, 500, 501, 131_072, 200_000)]
    for text in texts:
        topic.produce(text)
    assert bodies(group.take(len(texts))) == texts


def test_key_tag_and_properties_come_back(topic: Topic, group: Group) -> None:
    given = {"body": "a", "key": "ключ\n", "tag": "päid in full", "properties": {"": "", "é\0": "🎉", "a": " b "}}
    topic.produce(given)
    message = group.take_one()
    assert {name: message[name] for name in given} == given


def test_key_and_tag_are_null_and_properties_empty_when_not_given(topic: Topic, group: Group) -> None:
    topic.produce("a")
    message = group.take_one()
    assert (message["key"], message["tag"], message["properties"]) == (None, None, {})


def test_null_means_not_given(topic: Topic, group: Group) -> None:
    topic.produce({"body": "a", "body_base64": None, "key": None, "tag": None, "properties": None, "queue": None})
    topic.produce({"body": None, **in_base64(b"b")})
    assert [each["queue"] for each in group.take(2)] == [0, 0]


def test_a_message_carries_its_topic_and_when_it_was_stored(topic: Topic, group: Group) -> None:
    topic.produce("a")
    topic.client.clock.sleep(5)
    topic.produce("b")
    assert [(each["topic"], each["stored_at_ms"]) for each in group.take(2)] == [
        ("orders", START_MS),
        ("orders", START_MS + 5),
    ]


# -- how a producer asks ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prefer", ["return=minimal", "respond-async, return=minimal", "Return = Minimal"])
def test_a_one_way_send_is_answered_204_without_a_body_and_stored(topic: Topic, group: Group, prefer: str) -> None:
    answer = topic.client.ask("POST", f"{topic.path}/messages", {"messages": [{"body": "a"}]}, prefer=prefer)
    assert (answer.status, answer.raw) == (204, b"")
    assert bodies(group.take(1)) == ["a"]


def test_a_one_way_send_that_is_refused_says_so(topic: Topic) -> None:
    answer = topic.client.ask("POST", f"{topic.path}/messages", {"messages": [{}]}, prefer="return=minimal")
    assert answer.problem == (400, "InvalidField")


def test_any_other_preference_is_ignored(topic: Topic) -> None:
    answer = topic.client.ask(
        "POST", f"{topic.path}/messages", {"messages": [{"body": "a"}]}, prefer="return=representation"
    )
    assert answer.status == 200


def test_a_preference_behind_a_hundred_others_is_ignored(topic: Topic) -> None:
    for others, status in ((99, 204), (100, 200)):
        prefer = "a," * others + "return=minimal"
        answer = topic.client.ask("POST", f"{topic.path}/messages", {"messages": [{"body": "a"}]}, prefer=prefer)
        assert answer.status == status


@pytest.mark.parametrize(
    "content_type", ["application/x-www-form-urlencoded", "text/plain", "application/octet-stream"]
)
def test_the_content_type_of_a_request_does_not_matter(topic: Topic, content_type: str) -> None:
    header: dict[str, Any] = {"content-type": content_type}
    answer = topic.client.ask("POST", f"{topic.path}/messages", {"messages": [{"body": "a"}]}, **header)
    assert answer.status == 200


# -- what is refused --------------------------------------------------------------------------------------------------

BAD_MESSAGES = [
    ({}, "InvalidField"),
    ({"body": None, "body_base64": None}, "InvalidField"),
    ({"body": "a", "body_base64": "YQ=="}, "InvalidField"),
    ({"body": "a\udfff b"}, "InvalidField"),
    ({"body_base64": ""}, "InvalidField"),
    ({"body_base64": "YQ"}, "InvalidField"),
    ({"body_base64": "YQ="}, "InvalidField"),
    ({"body_base64": "YQ==YQ=="}, "InvalidField"),
    ({"body_base64": "Y Q=="}, "InvalidField"),
    ({"body_base64": "YQ==\n"}, "InvalidField"),
    ({"body_base64": "-_-_"}, "InvalidField"),
    ({"body_base64": "é==="}, "InvalidField"),
    ({"body_base64": "===="}, "InvalidField"),
    ({"body": "a", "tag": "a|b"}, "InvalidField"),
    ({"body": "a", "tag": " a"}, "InvalidField"),
    ({"body": "a", "tag": "a\n"}, "InvalidField"),
    ({"body": "a", "tag": "a\u00a0"}, "InvalidField"),
    ({"body": "a", "properties": {"a": 1}}, "InvalidField"),
    ({"body": "a", "properties": {"a": {}}}, "InvalidField"),
    ({"body": "a", "properties": {"a": "\ud800"}}, "InvalidField"),
    ({"body": "a", "properties": {"\ud800": "a"}}, "InvalidField"),
    ({"body": "a", "bodi": "a"}, "UnknownField"),
    ({"body": "a", "\ud800": "a"}, "UnknownField"),
    ({"body": "a", "message_id": "5"}, "UnknownField"),
    ("a", "InvalidField"),
    (None, "InvalidField"),
    ([], "InvalidField"),
]


@pytest.mark.parametrize(("message", "code"), BAD_MESSAGES)
def test_a_bad_message_is_refused_and_its_batch_stores_nothing(client: Client, message: Any, code: str) -> None:
    topic = client.topic("orders", queues=4)
    batch = [*_to(0, 1, 2), message, {"body": "a"}]
    answer = client.post(f"{topic.path}/messages", messages=batch)
    assert answer.problem == (400, code)
    assert [(each["index"], each["code"]) for each in answer.json["errors"]] == [(3, code)]
    assert topic.read()["messages"] == []


def test_a_batch_error_lists_every_bad_message_and_names_the_first(topic: Topic) -> None:
    batch = [{"body": "a"}, {"bodi": "a"}, {"body": "b"}, {"body": ""}, {"body": "a", "key": 5}]
    answer = topic.client.post(f"{topic.path}/messages", messages=batch)
    assert answer.problem == (400, "UnknownField")
    listed = answer.json["errors"]
    assert [(each["index"], each["code"]) for each in listed] == [
        (1, "UnknownField"),
        (3, "InvalidField"),
        (4, "InvalidField"),
    ]
    assert answer.json["detail"] == listed[0]["detail"]
    assert "messages[4].key" in listed[2]["detail"]
    assert "5" in listed[2]["detail"]
    assert topic.read()["messages"] == []


@pytest.mark.parametrize("messages", [None, [], {}, "a", 1, True, [{"body": "a"}] * 257])
def test_messages_must_be_a_list_of_1_to_256(topic: Topic, messages: object) -> None:
    answer = topic.client.ask("POST", f"{topic.path}/messages", {"messages": messages})
    assert answer.problem == (400, "InvalidField")
    assert topic.read()["messages"] == []


# -- sizes, at the limit and one over ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fields",
    [
        {"key": "k" * 256},
        {"key": "é" * 128},
        {"key": "🎉" * 64},
        {"tag": "t" * 128},
        {"tag": "日" * 128},
        {"properties": {"a" * 8_192: "b" * 8_192}},
        {"properties": {"é": "é" * 8_191}},
        {"properties": {f"{number:04}": "1234" for number in range(2_048)}},
    ],
)
def test_a_field_at_its_limit_comes_back(topic: Topic, group: Group, fields: dict[str, Any]) -> None:
    topic.produce({"body": "a", **fields})
    message = group.take_one()
    assert {name: message[name] for name in fields} == fields


@pytest.mark.parametrize(
    "fields",
    [
        {"key": "k" * 257},
        {"key": "é" * 128 + "k"},
        {"key": "🎉" * 64 + "k"},
        {"tag": "t" * 129},
        {"tag": "日" * 129},
        {"properties": {"a" * 8_192: "b" * 8_193}},
        {"properties": {"é": "é" * 8_191 + "a"}},
        {"properties": {f"{number:04}": "1234" for number in range(2_048)} | {"a": ""}},
    ],
)
def test_a_field_one_over_its_limit_is_refused(topic: Topic, fields: dict[str, Any]) -> None:
    answer = topic.client.post(f"{topic.path}/messages", messages=[{"body": "a", **fields}])
    assert answer.problem == (400, "InvalidField")
    assert next(iter(fields)) in answer.json["detail"]


@pytest.mark.parametrize(
    "message", [{"body": "x" * (4 * MIB + 1)}, {"body": "é" * 2 * MIB + "x"}, in_base64(b"x" * (4 * MIB + 1))]
)
def test_a_body_one_byte_over_4_mib_is_413(topic: Topic, message: dict[str, Any]) -> None:
    answer = topic.client.post(f"{topic.path}/messages", messages=[{"body": "a"}, message])
    assert answer.problem == (413, "MessageTooLarge")
    assert [(each["index"], each["code"]) for each in answer.json["errors"]] == [(1, "MessageTooLarge")]
    assert topic.read()["messages"] == []


def test_a_batch_of_4_mib_in_all_is_stored(topic: Topic) -> None:
    batch = [{"body": "x" * MIB}, {"body": "é" * (MIB // 2)}, in_base64(b"y" * MIB), {"body": "z" * MIB}]
    assert offsets(topic.produce(*batch)) == [0, 1, 2, 3]


def test_a_batch_one_byte_over_4_mib_in_all_is_413_and_stores_nothing(topic: Topic) -> None:
    answer = topic.client.post(f"{topic.path}/messages", messages=[{"body": "x" * MIB}] * 4 + [{"body": "y"}])
    assert answer.problem == (413, "MessageTooLarge")
    assert topic.read()["messages"] == []


def test_a_size_counts_only_when_nothing_else_is_wrong(topic: Topic) -> None:
    large = {"body": "x" * (4 * MIB + 1)}
    answer = topic.client.post(f"{topic.path}/messages", messages=[large, {"bodi": "a"}])
    assert answer.problem == (400, "UnknownField")
    assert [each["code"] for each in answer.json["errors"]] == ["MessageTooLarge", "UnknownField"]


@pytest.mark.parametrize(
    "wrong",
    [{"tag": "a|b"}, {"key": ""}, {"queue": 1}, {"properties": {"a": 1}}, {"bodi": "a"}, {"body_base64": "YQ=="}],
)
def test_a_message_that_is_too_large_and_wrong_besides_is_wrong(topic: Topic, wrong: dict[str, Any]) -> None:
    large = {"body": "x" * (4 * MIB + 1)}
    answer = topic.client.post(f"{topic.path}/messages", messages=[large, {**large, **wrong}])
    assert answer.status == 400
    listed = answer.json["errors"]
    assert [each["code"] for each in listed] == ["MessageTooLarge", answer.json["code"]]
    assert answer.json["detail"] == listed[1]["detail"]


def test_every_too_large_message_is_listed_and_the_first_is_named(topic: Topic) -> None:
    large = {"body": "x" * (4 * MIB + 1)}
    answer = topic.client.post(
        f"{topic.path}/messages", messages=[{"body": "a"}, large, in_base64(b"x" * (4 * MIB + 9))]
    )
    assert answer.problem == (413, "MessageTooLarge")
    assert [(each["index"], each["code"]) for each in answer.json["errors"]] == [
        (1, "MessageTooLarge"),
        (2, "MessageTooLarge"),
    ]
    assert answer.json["detail"] == answer.json["errors"][0]["detail"]


def test_a_batch_that_is_too_large_in_all_lists_only_what_is_wrong_in_it(topic: Topic) -> None:
    batch = [{"body": "x" * MIB}] * 4 + [{"body": "y"}]
    answer = topic.client.post(f"{topic.path}/messages", messages=[*batch, {"body": 1}])
    assert answer.problem == (400, "InvalidField")
    assert [each["index"] for each in answer.json["errors"]] == [5]
    assert "errors" not in topic.client.post(f"{topic.path}/messages", messages=batch).json


def test_a_message_that_no_response_could_carry_as_json_is_413(topic: Topic) -> None:
    answer = topic.client.post(f"{topic.path}/messages", messages=[{"body": "\x01" * 4 * MIB}])
    assert answer.problem == (413, "MessageTooLarge")
    assert topic.read()["messages"] == []


def test_control_characters_that_a_response_can_carry_come_back(topic: Topic, group: Group) -> None:
    text = "\x01" * 800_000
    topic.produce(text)
    assert group.take_one()["body"] == text


def _to(*queues: int) -> list[dict[str, Any]]:
    return [{"body": f"to {queue}", "queue": queue} for queue in queues]
