"""Parses packed messages, lines of JSON, into columns: many at once by Arrow, where their fields are the usual ones.

Arrow needs the name of every field that a line may have. Those of a message are known (see docs/table.md); the
names of its properties are free. So they are collected: a block with a new name is parsed line by line, and later
blocks with that name are parsed at once. If there are very many names, every block is parsed line by line.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as arrow_json

from spark.unpacking import base64s

Columns = dict[str, pa.Array]

_TEXTS = {"delayed_id": "i", "key": "k", "tag": "t"}
_NAMES_MAX = 64
"""Beyond this, a column for each name costs more than a line for each message."""


class PackedLines:
    """Parses blocks of lines, and keeps the names of properties for later blocks."""

    def __init__(self) -> None:
        self._names: list[str] = []

    def columns(self, blocks: Sequence[bytes], count: int) -> Columns:
        """Parses the lines of all blocks, `count` in all: `delayed_id`, `key`, `tag`, `properties`, `body`, `is_text`.
        Raises `ValueError` or one of its like if a line is not a message."""
        if len(self._names) <= _NAMES_MAX:
            try:
                return _from_table(self._parsed(b"\n".join(blocks)), count, self._names)
            except pa.ArrowException:
                pass  # a name that is not known, or no message at all: the other way tells
        messages = orjson.loads(b"[" + b",".join(chain.from_iterable(block.split(b"\n") for block in blocks)) + b"]")
        if len(messages) != count:
            raise ValueError("a line is not one object")
        found = _from_messages(messages)
        known = dict.fromkeys(self._names)
        self._names = [*(known | dict.fromkeys(chain.from_iterable(each.get("p") or () for each in messages)))]
        return found

    def _parsed(self, text: bytes) -> pa.Table:
        fields = [pa.field(name, pa.string()) for name in ("b", "B", "k", "t", "i")]
        if self._names:
            fields.append(pa.field("p", pa.struct([(name, pa.string()) for name in self._names])))
        how = arrow_json.ParseOptions(explicit_schema=pa.schema(fields), unexpected_field_behavior="error")
        block = arrow_json.ReadOptions(use_threads=False, block_size=len(text) + 1)
        return arrow_json.read_json(pa.BufferReader(text), block, how).combine_chunks()


def _from_table(table: pa.Table, count: int, names: Sequence[str]) -> Columns:
    if table.num_rows != count:
        raise pa.ArrowInvalid("a line is not one object")
    column = {name: table[name].combine_chunks() for name in table.schema.names}
    found: Columns = {name: column[short] for name, short in _TEXTS.items()}
    texts = column["b"].cast(pa.binary())
    found["is_text"] = texts.is_valid()
    blobs = column["B"]
    if pc.any(pc.equal(found["is_text"], blobs.is_valid())).as_py():
        raise pa.ArrowInvalid("a message has one body")
    found["body"] = texts if blobs.null_count == count else pc.coalesce(texts, base64s.decoded(blobs))
    found["properties"] = _maps_of(column["p"], names) if names else _maps([{}] * count)
    return found


def _maps_of(structs: pa.Array, names: Sequence[str]) -> pa.MapArray:
    """A map of the fields that are not null."""
    children = [pc.struct_field(structs, name) for name in names]
    is_there = np.stack([child.is_valid().to_numpy(zero_copy_only=False) for child in children], axis=1)
    row, field = np.nonzero(is_there)
    offsets = np.zeros(len(structs) + 1, np.int32)
    np.cumsum(is_there.sum(axis=1), out=offsets[1:])
    values = pa.concat_arrays(children).take(pa.array(field * len(structs) + row))
    return pa.MapArray.from_arrays(pa.array(offsets), pa.array(names, pa.string()).take(pa.array(field)), values)


def _from_messages(messages: Sequence[dict[str, Any]]) -> Columns:
    blobs = [message.get("B") for message in messages]
    if any((message.get("b") is None) == (blob is None) for message, blob in zip(messages, blobs, strict=True)):
        raise ValueError("a message has one body")
    texts = pa.array([message.get("b") for message in messages], pa.string()).cast(pa.binary())
    found: Columns = {
        name: pa.array([message.get(short) for message in messages], pa.string()) for name, short in _TEXTS.items()
    }
    found["is_text"] = texts.is_valid()
    found["body"] = pc.coalesce(texts, base64s.decoded(pa.array(blobs, pa.string()))) if texts.null_count else texts
    found["properties"] = _maps([message.get("p") or {} for message in messages])
    return found


def _maps(properties: Sequence[dict[str, str]]) -> pa.MapArray:
    offsets = np.zeros(len(properties) + 1, np.int32)
    np.cumsum(np.fromiter(map(len, properties), np.int32, len(properties)), out=offsets[1:])
    names = pa.array(list(chain.from_iterable(properties)), pa.string())
    values = pa.array(list(chain.from_iterable(each.values() for each in properties)), pa.string())
    return pa.MapArray.from_arrays(pa.array(offsets), names, values)
