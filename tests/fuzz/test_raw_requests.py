"""Requests that no document describes: bytes that are not JSON, unusual JSON, odd queries and headers."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chalicelib.doors.http.openapi import document
from tests.fuzz.cases import NAMES
from tests.fuzz.judge import judge, judge_unrouted
from tests.fuzz.test_documented_requests import fuzzed
from tests.fuzz.world import World, known
from tests.support import documented
from tests.support.client import Answer

OPERATIONS = {each["operationId"]: place for place, each in documented.operations().items()}
WITH_BODY = [name for name, place in OPERATIONS.items() if "requestBody" in documented.operations()[place]]
SCHEMAS = document()["components"]["schemas"]
FIELDS = sorted({name for schema in SCHEMAS.values() for name in schema.get("properties", ())})
PARAMETERS = ("limit", "next", "queue", "offset", "at_ms")

surrogates = st.text(st.characters(categories=("Cs", "Lu", "Cc")), min_size=1, max_size=5)
numbers = st.one_of(
    st.integers(),
    st.integers(2**62, 2**200),
    st.floats(),
    st.sampled_from([-1, 0, 1, 2**31, 2**53, 2**63 - 1, 2**63, 2**64, 10**15, 10**18, 10**400, 1.0, -0.0, 1e308]),
)
scalars = st.one_of(st.none(), st.booleans(), numbers, st.text(max_size=8), surrogates)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.one_of(st.sampled_from(FIELDS), st.text(max_size=4), surrogates), inner, max_size=4),
    ),
    max_leaves=10,
)
depths = st.sampled_from([10, 500, 1_000, 5_000, 100_000])
deep = st.one_of(
    depths.map(lambda depth: b"[" * depth + b"]" * depth),
    depths.map(lambda depth: b'{"messages":' * depth + b"1" + b"}" * depth),
    depths.map(lambda depth: b'{"receipts":' + b"[" * depth + b"]" * depth + b"}"),
    depths.map(lambda depth: b'{"to":{"queue":' + b"[" * depth),
    st.sampled_from([4_000, 5_000, 100_000]).map(lambda digits: b'{"max_messages":' + b"9" * digits + b"}"),
)
bodies = st.one_of(st.binary(max_size=40), values.map(lambda value: json.dumps(value).encode("utf-8")), deep)

MEDIA_TYPES = """
    ; */* text/plain application/xml image/png multipart/form-data application/octet-stream APPLICATION/JSON
    application/x-www-form-urlencoded application/json,text/html application/json;charset=utf-16
"""
media_types = st.sampled_from(["", *MEDIA_TYPES.split()])
headers = st.fixed_dictionaries(
    {"content-type": media_types},
    optional={
        "accept": st.sampled_from(["text/html", "application/xml", "*/*;q=0", "", "\x7f"]),
        "prefer": st.sampled_from(["return=minimal", "RETURN = minimal, wait=3", "return", ",;=", "return=minimalist"]),
        "content-encoding": st.sampled_from(["gzip", "identity", "zstd"]),
        "accept-encoding": st.sampled_from(["gzip", "*;q=0"]),
    },
)
odd_texts = st.one_of(
    st.text(max_size=8),
    numbers.map(str),
    st.sampled_from(
        ["", " 1", "+1", "1_0", "\u0663", "1e2", "0x10", "-0", "null", "true", "1,2", "a" * 5_000, *known().tokens]
    ),
)
pairs = st.lists(st.tuples(st.one_of(st.sampled_from(PARAMETERS), st.text(max_size=4)), odd_texts), max_size=3)
queries = st.one_of(
    pairs.map(urlencode),
    st.text(st.sampled_from("&=;%+#?[]limtnexquo0159%00%ff"), max_size=12),
    st.sampled_from(
        ["limit=1&limit=2", "limit[]=1", "&&", "=", "next=%ff", "next=%00", "%", "?", "queue=0&offset=%E0"]
    ),
)
names = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6),
    st.sampled_from(["..", ".", "%2e", "orders/", "orders;x=1", "a" * 101, "\0", "orders\n", " orders", "*", "~"]),
)

briefly = settings(fuzzed, max_examples=8)

each_operation = pytest.mark.parametrize("operation", OPERATIONS)


def answered(operation: str, raw: bytes, query: str = "", path: dict[str, str] | None = None, **sent: str) -> Answer:
    """Sends this to the operation, about existing objects unless `path` says otherwise, and judges the answer."""
    method, template = OPERATIONS[operation]
    filled = template.format(**{name: quote(value, safe="") for name, value in (_there() | (path or {})).items()})
    target = f"{filled}?{query}" if query else filled
    answer = World().ask(method, target, raw, {"content-type": "application/json", **sent})
    judge(documented.operations()[OPERATIONS[operation]], answer)
    return answer


def _there() -> dict[str, str]:
    ids = {"transaction_id": known().transaction_ids[0], "correlation_id": known().correlation_ids[0]}
    return {
        **NAMES,
        "message_id": known().message_ids[0],
        "secret_id": known().secret_id,
        "token_id": known().token_id,
        **ids,
    }


@pytest.mark.parametrize("operation", WITH_BODY)
@fuzzed
@given(raw=bodies)
def test_any_bytes_get_a_documented_answer(operation: str, raw: bytes) -> None:
    answered(operation, raw)


@pytest.mark.parametrize("operation", WITH_BODY)
@fuzzed
@given(data=st.data())
def test_any_value_in_any_field_gets_a_documented_answer(operation: str, data: st.DataObject) -> None:
    schema = documented.operations()[OPERATIONS[operation]]["requestBody"]["content"]["application/json"]["schema"]
    fields = document()["components"]["schemas"][schema["$ref"].rpartition("/")[2]]["properties"]
    body = data.draw(st.dictionaries(st.sampled_from(sorted(fields)), _odd_values(), min_size=1, max_size=3))
    answered(operation, json.dumps(body).encode())


def _odd_values() -> st.SearchStrategy[Any]:
    message = st.dictionaries(st.sampled_from(["body", "body_base64", "key", "tag", "properties", "queue"]), values)
    return st.one_of(values, st.lists(message, max_size=3), st.lists(st.sampled_from(known().receipts), max_size=3))


@each_operation
@briefly
@given(sent=headers, raw=st.sampled_from([b"", b"{}", b"\xff", b"[]", b"a=b"]))
def test_any_headers_get_a_documented_answer(operation: str, sent: dict[str, str], raw: bytes) -> None:
    answered(operation, raw, "", None, **sent)


@each_operation
@briefly
@given(query=queries)
def test_any_query_gets_a_documented_answer(operation: str, query: str) -> None:
    answered(operation, b"", query)


@pytest.mark.parametrize("operation", [name for name, (_, path) in OPERATIONS.items() if "{" in path])
@briefly
@given(data=st.data())
def test_any_name_in_the_path_gets_a_documented_answer(operation: str, data: st.DataObject) -> None:
    given_names = st.fixed_dictionaries(
        {},
        optional=dict.fromkeys(
            ("topic", "group", "message_id", "transaction_id", "correlation_id", "secret_id"), names
        ),
    )
    answered(operation, b"", path=data.draw(given_names))


@fuzzed
@given(
    method=st.sampled_from(["PATCH", "head", "OPTIONS", "TRACE", "get", "BREW"]),
    path=st.sampled_from([path for _, path in OPERATIONS.values()]),
    raw=bodies,
)
def test_a_method_that_no_path_knows_is_refused(method: str, path: str, raw: bytes) -> None:
    answer = World().ask(method, path.format(**_there()), raw, {"content-type": "application/json"})
    judge_unrouted(answer)
