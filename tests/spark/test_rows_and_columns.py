"""The two ways from lines to items give the same: one line at a time, and many at once in columns."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from spark.reading.data_file import SCHEMA
from spark.reading.items.attributes import Malformed
from spark.reading.items.columns import KINDS, Unsuited, columns_of
from spark.reading.items.rows import row_of
from tests.spark import items
from tests.spark.exports import change, line
from tests.spark.items import Item

Row = dict[str, Any]

NUMBERS = (0, 1, 9, 10, 99, 100, 101, 1_000_000, 120_000, 2**31 - 1)
TEXTS = (
    b'{"N":"0x1"}', b'{"N":" 1"}', b'{"N":"-1"}', b'{"N":"1.0"}', b'{"N":"3000000000"}', b'{"N":1}', b'{"S":"1"}',
    b'{"B":"YQ"}', b'{"B":"YQ=="}', b'{"B":"Y Q="}', b'{"B":""}', b'{"N":"9223372036854775808"}',
    b'{"NULL":true}', b"[]",
)  # fmt: skip


def entry(random: Random) -> Item | bytes:
    about: dict[str, Any] = {name: random.choice(NUMBERS) for name in "ls" if random.random() < 0.3}
    about |= {"at": random.randrange(2**41), "c": random.choice(("json", "zstd")), "w": random.choice(NUMBERS)}
    head = random.randbytes(8), random.choice((1, 2, 10, 256))
    if random.random() < 0.3:
        return items.pointer(*head, random.choice((0, 1, 10)), **about)
    return items.entry(random.randbytes(random.choice((0, 1, 2, 3, 200))), *head, **about)


def segment(random: Random) -> Item:
    entries = [entry(random) for _ in range(random.choice((0, 1, 1, 2, 32)))]
    made = items.segment(*entries, base=random.choice(NUMBERS), queue=random.randrange(64), topic="ü" * 3)
    return {
        **made,
        "bytes": random.choice(NUMBERS),
        **random.choice(({}, {"closed": True}, {"closed": True, "left": 7})),
    }


def payload(random: Random) -> Item:
    return items.payload(random.randbytes(random.randrange(50)), random.randbytes(8), random.randrange(30))


MAKE = {"segment": segment, "payload": payload}


def item(random: Random, kind: str) -> Item:
    return {**MAKE[kind](random), **({"ttl": random.choice(NUMBERS)} if random.random() < 0.5 else {})}


def by_columns(kind: str, lines: list[bytes], is_incremental: bool = False) -> list[Row]:
    columns = columns_of(kind, lines, is_incremental, SCHEMA.field(kind).type)
    names = {"struct": kind}
    lists = {names.get(name, name): column.to_pylist() for name, column in columns._asdict().items()}
    return [dict(zip(lists, values, strict=True)) for values in zip(*lists.values(), strict=True)]


def by_row(kind: str, text: bytes, is_incremental: bool = False) -> Row:
    row = {"written_us": None, **row_of(text, is_incremental)}
    assert (row.pop("kind"), row.pop("is_deleted")) == (kind, False)
    return row


@pytest.mark.parametrize("is_incremental", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_rows_and_columns_of_the_same_lines_are_equal(kind: str, is_incremental: bool) -> None:
    random = Random(kind)
    for count in (1, 2, 200):
        made = [item(random, kind) for _ in range(count)]
        lines = [change(stored, random.randrange(2**50)) if is_incremental else line(stored) for stored in made]
        assert by_columns(kind, lines, is_incremental) == [by_row(kind, text, is_incremental) for text in lines]


@pytest.mark.parametrize("kind", KINDS)
def test_columns_accept_no_line_that_rows_reject(kind: str) -> None:
    """Lines with one attribute, or one letter, that is another."""
    random, outcomes = Random(kind), set[str]()
    for _ in range(2_000):
        text = _altered(random, line(item(random, kind)))
        try:
            (row,) = by_columns(kind, [text])
        except Unsuited:
            outcomes.add("unsuited")
            continue
        try:
            assert by_row(kind, text) == row
        except Malformed as error:
            pytest.fail(f"{text!r}: {error}")
        outcomes.add("accepted")
    assert outcomes == {"accepted", "unsuited"}


def _altered(random: Random, text: bytes) -> bytes:
    if random.random() < 0.5:
        at = random.randrange(text.index(b"#"), len(text))  # what comes before it says the kind
        return text[:at] + random.choice((b"", b"0", b"-", b"A", b'"', b"=", b"#", b"}")) + text[at + 1 :]
    start = random.choice([at for at in range(text.index(b"#"), len(text)) if text[at : at + 2] == b":{"])
    end = text.index(b"}", start) + 1
    return text[: start + 1] + random.choice(TEXTS) + text[end:]
