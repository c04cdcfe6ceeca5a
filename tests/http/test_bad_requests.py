"""All operations refuse bad JSON, unknown fields, wrong types and ranges, bad names and parameters alike."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.api import OPERATIONS
from chalicelib.core.base.fields import declarations
from chalicelib.core.base.limits import INSTANT_MS_MAX, OFFSET_MAX
from tests.http.provoked import Provoked
from tests.support.client import Client, Group, Topic

MALFORMED = {
    "truncated": b'{"queues": 4',
    "two values": b'{"queues": 4}{}',
    "trailing garbage": b'{"queues": 4} x',
    "trailing comma": b'{"queues": 4,}',
    "single quotes": b"{'queues': 4}",
    "no quotes": b"{queues: 4}",
    "a comment": b'{"queues": 4 /* four */}',
    "NaN": b'{"queues": NaN}',
    "Infinity": b'{"queues": Infinity}',
    "-Infinity": b'{"queues": -Infinity}',
    "a leading zero": b'{"queues": 04}',
    "a raw control character": b'{"queues": "\x01"}',
    "a bad escape": b'{"queues": "\\x41"}',
    "half an escape": b'{"queues": "\\ud8"}',
    "invalid UTF-8": b'{"queues": "\xff"}',
    "overlong UTF-8": b'{"queues": "\xc0\xaf"}',
    "a surrogate in UTF-8": b'{"queues": "\xed\xa0\x80"}',
    "UTF-16": '{"queues": 4}'.encode("utf-16"),
    "UTF-16 without a mark": '{"queues": 4}'.encode("utf-16-le"),
    "UTF-32": '{"queues": 4}'.encode("utf-32"),
    "a form": b"queues=4",
    "words": b"four queues",
    "a NUL": b"\0",
    "deep arrays": b"[" * 100_000,
    "deep objects": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "arrays as deep as can be read": b'{"queues": ' + b"[" * 1_000 + b"]" * 1_000 + b"}",
    "objects as deep as can be read": b'{"a":' * 1_000 + b"1" + b"}" * 1_000,
    "a deep value and half a surrogate": b'{"\\ud800": ' + b"[" * 2_000 + b"]" * 2_000 + b"}",
}
NO_OBJECTS = [b"[]", b"null", b"1", b"1.5", b'"queues"', b"true", b'[{"queues": 4}]', b'"\\ud800"']


@pytest.mark.parametrize("raw", MALFORMED.values(), ids=MALFORMED.keys())
def test_a_body_that_is_not_json_is_refused_and_changes_nothing(client: Client, raw: bytes) -> None:
    assert client.ask("PUT", "/topics/orders", raw=raw).problem == (400, "InvalidJson")
    assert client.get("/topics").json["topics"] == []


@pytest.mark.parametrize("raw", NO_OBJECTS)
def test_json_that_is_not_an_object_is_refused(client: Client, raw: bytes) -> None:
    assert client.ask("PUT", "/topics/orders", raw=raw).problem == (400, "InvalidJson")


REPEATED = {
    "the same value": (b'{"queues": 4, "queues": 4}', '"queues"'),
    "without spaces": (b'{"queues":4,"queues":2}', '"queues"'),
    "with spaces": (b'{"queues" \t: 4, "queues"\r\n:\n2}', '"queues"'),
    "null first": (b'{"queues": null, "queues": 4}', '"queues"'),
    "an unknown name": (b'{"a": 1, "a": 1}', '"a"'),
    "no name": (b'{"": 1, "": 1}', '""'),
    "another spelling": (b'{"queues": 4, "\\u0071ueues": 2}', '"queues"'),
    "a colon that is escaped": (b'{"queues": 4, "queues": 2, "a": "\\u003a"}', '"queues"'),
    "a colon that is ESCAPED": (b'{"queues": 4, "queues": 2, "a": "\\u003A"}', '"queues"'),
    "a name with a colon that is escaped": (b'{"a:": 4, "a\\u003a": 2}', '"a:"'),
    "a colon in a value that is dropped": (b'{"queues": "a:b", "queues": 2}', '"queues"'),
    "inside another": (b'{"a": [{}, {"b": {"c": 1, "c": 2}}]}', '"c"'),
    "inside a value that is dropped": (b'{"queues": {"b": 1, "b": 2}, "queues": 4}', '"b"'),
    "far inside": (b'{"a":' * 300 + b'{"c": 1, "c": 2}' + b"}" * 300, '"c"'),
    "half a surrogate": (b'{"\\ud800": 1, "\\ud800": 1}', r'"\ud800"'),
}


@pytest.mark.parametrize(("raw", "name"), REPEATED.values(), ids=REPEATED.keys())
def test_a_name_that_is_given_twice_in_one_object_is_refused_and_named(client: Client, raw: bytes, name: str) -> None:
    answer = client.ask("PUT", "/topics/orders", raw=raw)
    assert answer.problem == (400, "InvalidJson")
    assert f"has {name} twice" in answer.json["detail"]
    assert client.get("/topics").json["topics"] == []


@pytest.mark.parametrize("properties", [b'{"a": "1", "a": "1"}', b'{"a": "1", "b": "::", "a": ""}'])
def test_a_property_that_is_given_twice_is_refused_and_nothing_is_stored(topic: Topic, properties: bytes) -> None:
    raw = b'{"messages": [{"body": "a"}, {"body": "b", "properties": ' + properties + b"}]}"
    answer = topic.client.ask("POST", f"{topic.path}/messages", raw=raw)
    assert answer.problem == (400, "InvalidJson")
    assert '"a"' in answer.json["detail"]
    assert topic.read()["messages"] == []


@pytest.mark.parametrize(
    "raw",
    [
        b'{"messages": [{"body": "a"}, {"body": "a"}]}',
        b'{"messages": [{"body": "{\\"a\\": 1, \\"a\\": 2}"}]}',
        b'{"messages": [{"body": "\\u003a \\u003A : \\\\u003a"}]}',
        b'{"messages": [{"body": "a", "properties": {"a:": "1", "a": "\\u003a", "A": "1"}}]}',
    ],
)
def test_names_that_only_look_repeated_are_none(topic: Topic, raw: bytes) -> None:
    assert topic.client.ask("POST", f"{topic.path}/messages", raw=raw).status == 200


@pytest.mark.parametrize("raw", [b"", b" \r\n\t", b"{}", b" {} "])
def test_an_empty_body_means_no_fields(client: Client, raw: bytes) -> None:
    assert client.ask("PUT", "/topics/orders", raw=raw).status == 201


# -- fields of later releases, and typos, are unknown -----------------------------------------------------------------

# -- what an error text shows ------------------------------------------------------------------------------------------

SHOWN = [
    (b"true", "true"),
    (b"false", "false"),
    (b'"four"', '"four"'),
    (b'"it\'s"', '"it\'s"'),
    (b'"a \\"b\\" \\\\ \\n"', r'"a \"b\" \\ \n"'),
    ('"日本 🎉"'.encode(), '"日本 🎉"'),
    (b'"\\ud800"', r'"\ud800"'),
    (b"[null, true]", "[null, true]"),
    (b"18446744073709551616", "18446744073709551616"),
    (b"-" + b"9" * 79, "-" + "9" * 79),
    (b"1" * 400, "1" * 80 + "..."),
    (b"[" + b"1" * 5_000 + b"]", "[" + "1" * 79 + "..."),
    (b'{"a": null, "b": [1.5]}', '{"a": null, "b": [1.5]}'),
    (b'"' + b"x" * 5_000 + b'"', '"' + "x" * 79 + "..."),
    (b"[" + b"1," * 5_000 + b"1]", ("[" + "1, " * 27)[:80] + "..."),
    (b"[" * 300 + b"]" * 300, "[" * 80 + "..."),
    (b'{"a":' * 300 + b"1" + b"}" * 300, ('{"a": ' * 14)[:80] + "..."),
]


@pytest.mark.parametrize(("raw", "shown"), SHOWN)
def test_a_wrong_value_is_shown_as_json_and_not_at_length(client: Client, raw: bytes, shown: str) -> None:
    answer = client.ask("PUT", "/topics/orders", raw=b'{"queues": ' + raw + b"}")
    assert answer.problem == (400, "InvalidField")
    assert answer.json["detail"].endswith(f"it is {shown}")


def test_missing_values_are_null(group: Group) -> None:
    assert group.client.post(f"{group.path}/ack").json["detail"].endswith("it is null")


@pytest.mark.parametrize("raw", [b"null", b"true", b'["a"]'])
def test_a_request_that_is_no_object_is_shown_as_it_came(client: Client, raw: bytes) -> None:
    assert client.ask("PUT", "/topics/orders", raw=raw).json["detail"].endswith(f"not {raw.decode()}")


SURROGATE = "must be text without a lone surrogate; it is"
DETAILS = [
    ("POST", "ack", {"receipts": ["a", "\ud800"]}, f"field 'receipts[1]' {SURROGATE}"),
    (
        "POST",
        "ack",
        {"receipts": ["x" * 600]},
        "field 'receipts[0]' must be a string of at most 512 characters, not 600;",
    ),
    ("POST", "ack", {"receipts": [7]}, "field 'receipts[0]' must be a string; it is 7"),
    ("POST", "dead/redrive", {"message_ids": ["\ud800"]}, f"field 'message_ids[0]' {SURROGATE}"),
    ("POST", "dead/redrive", {"message_ids": [""]}, "field 'message_ids[0]' must be a string of at least 1 character;"),
    ("PUT", "", {"alarm": 5}, "field 'alarm' must be a JSON object, not 5"),
    (
        "PUT",
        "",
        {"backoff_ms": {"initial_ms": 1, "max_ms": 9, "multiplier": 0}},
        "field 'backoff_ms.multiplier' must be a number from 1 to 100; it is 0",
    ),
]


@pytest.mark.parametrize(("method", "verb", "body", "detail"), DETAILS)
def test_an_error_says_which_field_is_wrong_and_what_is_wrong_with_it(
    group: Group, method: str, verb: str, body: dict[str, Any], detail: str
) -> None:
    answer = group.client.ask(method, f"{group.path}/{verb}".rstrip("/"), body)
    assert answer.problem == (400, "InvalidField")
    assert answer.json["detail"].startswith(detail)


@pytest.mark.parametrize(
    ("message", "detail"),
    [
        ("a", "field 'messages[0]' must be a JSON object, not"),
        ({"body": "a", "properties": {"a": 1}}, "field 'messages[0].properties.a' must be a string of text; it is 1"),
        ({"body": "a", "properties": {"a": "x" * 16_384}}, "field 'messages[0].properties' holds 16385 bytes;"),
    ],
)
def test_an_error_says_which_field_of_a_message_is_wrong(topic: Topic, message: object, detail: str) -> None:
    answer = topic.client.post(f"{topic.path}/messages", messages=[message])
    assert answer.problem == (400, "InvalidField")
    assert answer.json["detail"].startswith(detail)


@pytest.mark.parametrize(
    ("field", "wanted"),
    [
        ("start", '"earliest", "latest" or an integer'),
        ("to", '"earliest", "latest", "now", {"at_ms"} or {"queue", "offset"}'),
    ],
)
def test_the_values_that_are_wanted_are_shown_as_json(group: Group, field: str, wanted: str) -> None:
    ask = {"start": group.client.put, "to": group.client.post}[field]
    answer = ask(group.path + "/reset" * (field == "to"), **{field: "first"})
    assert f"must be {wanted}" in answer.json["detail"]


@pytest.mark.parametrize(
    ("name", "shown"),
    [("it's", "'it's'"), ('"', r"'\"'"), ("é\n", r"'é\n'"), ("\ud800", r"'\ud800'"), ("x" * 500, f"'{'x' * 80}...'")],
)
def test_an_unknown_name_is_shown_in_single_quotes(client: Client, name: str, shown: str) -> None:
    answer = client.ask("PUT", "/topics/orders", {name: 1})
    assert answer.problem == (400, "UnknownField")
    assert answer.json["detail"].startswith(f"field {shown} is not known")


def test_a_parameter_that_is_given_twice_is_named_and_not_at_length(client: Client) -> None:
    detail = client.get("/topics", **{"x" * 500: ["1", "2"]}).json["detail"]
    assert detail.startswith(f"parameter '{'x' * 80}...' must be given once")


# -- integers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("raw", [b'{"queues": 1.0}', b'{"queues": 1e0}', b'{"queues": 1E400}', b'{"queues": "4"}'])
def test_a_number_with_a_point_or_an_exponent_is_not_an_integer(client: Client, raw: bytes) -> None:
    assert client.ask("PUT", "/topics/orders", raw=raw).problem == (400, "InvalidField")


@pytest.mark.parametrize("raw", [b'{"queues": ' + b"9" * 5_000 + b"}", b'{"queues": -' + b"9" * 5_000 + b"}"])
def test_a_number_of_thousands_of_digits_is_refused_and_not_repeated(client: Client, raw: bytes) -> None:
    answer = client.ask("PUT", "/topics/orders", raw=raw)
    assert answer.status == 400
    assert len(answer.raw) < 1_000


# -- texts and lists of receipts --------------------------------------------------------------------------------------


@pytest.mark.parametrize("field", ["consumer_id", "attempt_id"])
@pytest.mark.parametrize("value", ["x", "x" * 128, "日" * 128, "\0", "é🎉 |"])
def test_an_id_may_be_any_text(group: Group, field: str, value: str) -> None:
    group.topic.produce("a")
    group.pop(**{field: value})
    assert group.queue()["last_consumer_id"] == (value if field == "consumer_id" else None)


@pytest.mark.parametrize("ack", [None, []])
def test_a_pop_may_ack_nothing(group: Group, ack: object) -> None:
    assert group.pop(ack=ack) == {"messages": [], "acked": 0, "failed": []}


# -- names ------------------------------------------------------------------------------------------------------------

GOOD_NAMES = ["a", "9", "A" * 100, "a.b_c-D", "0..__--", "health"]
BAD_NAMES = [
    "a" * 101,
    ".a",
    "-a",
    "_a",
    "a b",
    "a%20b",
    "%61%2Fb",
    "a%0A",
    "é",
    "%C3%A9",
    "%FF",
    "a%00",
    "a$",
    "a:b",
    "~",
]


@pytest.mark.parametrize("name", GOOD_NAMES)
def test_a_good_name_is_one_for_topics_and_for_groups(client: Client, name: str) -> None:
    group = client.topic(name).group(name)
    assert (group.progress()["topic"], group.progress()["group"]) == (name, name)
    group.delete()
    group.topic.delete()


@pytest.mark.parametrize("kind", ["orders", "billing"])
@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_bad_name_is_refused_by_every_operation(name: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    provoked = Provoked(monkeypatch)
    paths = [(method, path, body) for method, path, body in provoked.requests.values() if f"/{kind}" in path]
    for method, path, body in paths:
        answer = provoked.client.ask(method, path.replace(f"/{kind}", f"/{name}"), body)
        assert answer.problem == (400, "InvalidName"), path


def test_a_name_may_come_percent_encoded(client: Client) -> None:
    assert client.put("/topics/%61%2Eb").json["topic"] == "a.b"


# -- query parameters -------------------------------------------------------------------------------------------------


LISTS = [
    operation.id for operation in OPERATIONS.values() if operation.request and "next" in declarations(operation.request)
]


@pytest.mark.parametrize("operation", LISTS)
@pytest.mark.parametrize(
    "token", ["", "x", "!", "é", "AA", "w6k", "fw", "MDo=", "MDow=", "//", "zzzz", "MDotMQ", "MToyLDM6NA", "A" * 500]
)
def test_a_forged_next_is_refused(operation: str, token: str, monkeypatch: pytest.MonkeyPatch) -> None:
    provoked = Provoked(monkeypatch)
    answer = provoked.client.get(provoked.requests[operation][1], next=token)
    assert answer.problem == (400, "InvalidField")
    assert "'next'" in answer.json["detail"]


@pytest.mark.parametrize(
    "query",
    [
        {"queue": -1},
        {"queue": 1},
        {"queue": "x"},
        {"queue": 0, "offset": -1},
        {"queue": 0, "offset": OFFSET_MAX + 1},
        {"queue": 0, "offset": "1.0"},
        {"at_ms": -1},
        {"at_ms": INSTANT_MS_MAX + 1},
        {"at_ms": "now"},
        {"offset": 0},
        {"queue": 0, "offset": 0, "at_ms": 0},
    ],
)
def test_an_invalid_place_to_read_from_is_refused(topic: Topic, query: dict[str, object]) -> None:
    assert topic.client.get(f"{topic.path}/messages", **query).problem == (400, "InvalidField")
