"""Packed messages become columns, whichever way they are parsed."""

from __future__ import annotations

import base64
from random import Random
from typing import Any
from unittest.mock import Mock

import numpy as np
import orjson
import pyarrow as pa
import pytest

from spark.unpacking import message_lines
from spark.unpacking.message_lines import PackedLines

SECOND = {
    "b": "2026-01-31T12:00:00Z",
    "k": 'é\n"',
    "t": "new",
    "p": {"at": "2026-01-31", "n": "1"},
    "i": "00t1",
    "s": 7,
}
FIRST = {"b": "{}", "p": {"n": "2", "region": "eu"}}
BINARY = {"B": base64.b64encode(b"\0\xff").decode(), "p": {"": "empty name"}}
REQUEST = {"b": "what is it?", "l": 5000, "q": "AbC_-", "u": 1_767_225_600_000}


def block(*messages: dict[str, Any]) -> bytes:
    return b"\n".join(map(orjson.dumps, messages))


def rows(parsing: PackedLines, *blocks: bytes) -> list[dict[str, Any]]:
    counts = np.array([text.count(b"\n") + 1 for text in blocks])
    columns = parsing.columns(blocks, counts, pa.array(["topic"] * len(blocks)))
    lists = [column.to_pylist() for column in columns.values()]
    return [dict(zip(columns, values, strict=True)) for values in zip(*lists, strict=True)]


def expected(message: dict[str, Any]) -> dict[str, Any]:
    body = message["b"].encode() if "b" in message else base64.b64decode(message["B"])
    return {
        "delayed_id": message.get("i"),
        "sent_at_ms": message.get("s"),
        "key": message.get("k"),
        "tag": message.get("t"),
        "is_text": "b" in message,
        "body": body,
        "properties": sorted(message.get("p", {}).items()),
        "ttl_ms": message.get("l"),
        "correlation_id": message.get("q"),
        "reply_by_ms": message.get("u"),
    }


def sorted_maps(parsed: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**row, "properties": sorted(row["properties"])} for row in parsed]


@pytest.mark.parametrize("rounds", [1, 2, 3])
def test_lines_are_read_the_same_before_and_after_their_names_are_known(rounds: int) -> None:
    parsing = PackedLines()
    messages: list[dict[str, Any]] = [FIRST, SECOND, BINARY, REQUEST, {"b": "plain"}]
    for _ in range(rounds):
        parsed = rows(parsing, block(FIRST, SECOND), block(BINARY, REQUEST), block({"b": "plain"}))
    assert sorted_maps(parsed) == [expected(message) for message in messages]


def test_a_new_name_of_a_property_is_not_lost() -> None:
    parsing = PackedLines()
    rows(parsing, block(FIRST))
    assert sorted_maps(rows(parsing, block(FIRST, SECOND))) == [expected(FIRST), expected(SECOND)]


def test_there_may_be_more_names_than_are_worth_a_column_each() -> None:
    parsing = PackedLines()
    messages = [{"b": str(number), "p": {f"name {number}": "x"}} for number in range(500)]
    for _ in range(2):
        assert sorted_maps(rows(parsing, block(*messages))) == [expected(message) for message in messages]


def test_both_parsers_return_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    random, in_bulk, by_line = Random(1), PackedLines(), PackedLines()
    names = ["a", "b\n", "", "ü", '"']
    messages = [_any_message(random, names) for _ in range(2_000)]
    rows(in_bulk, block({"b": "", "p": dict.fromkeys(names, "x")}))  # from now on it knows all names
    both = []
    for parsing, other in ((in_bulk, "_parsed_by_line"), (by_line, "_parsed_in_bulk")):
        with monkeypatch.context() as patch:
            patch.setattr(message_lines, other, Mock(side_effect=pa.ArrowInvalid))
            both.append(sorted_maps(rows(parsing, block(*messages))))
    assert both[0] == both[1] == [expected(message) for message in messages]


def _any_message(random: Random, names: list[str]) -> dict[str, Any]:
    text = "".join(random.choices('aé\n"\\\u2028\U0001f600\0', k=random.randrange(5)))
    body = {"b": text} if random.random() < 0.8 else {"B": base64.b64encode(text.encode()).decode()}
    others: dict[str, Any] = {name: text for name in "ktiq" if random.random() < 0.5}
    others |= {name: random.randrange(2**45) for name in "lu" if random.random() < 0.5}
    properties = {name: text for name in names if random.random() < 0.3}
    return {**body, **others, **({"p": properties} if properties else {})}


@pytest.mark.parametrize(
    "bad",
    [
        b"",
        b"[]",
        b"{",
        b'{"b":"a"}\n',
        b'{"b":1}',
        b'{"k":"a"}',
        b'{"B":"!"}',
        b'{"b":"\xff"}',
        b'{"b":"a","p":{"n":"\xff"}}',
        b'{"b":"a"}{"b":"b"}',
        b'{"b":"a","l":"5"}',
        b'{"b":"a","u":true}',
    ],
)
@pytest.mark.parametrize("is_warm", [False, True])
def test_what_is_no_message_is_an_error_and_no_row(bad: bytes, is_warm: bool) -> None:
    parsing = PackedLines()
    if is_warm:
        rows(parsing, block(FIRST, SECOND))
    with pytest.raises((ValueError, KeyError, TypeError, AttributeError)):
        rows(parsing, block(FIRST), bad)
