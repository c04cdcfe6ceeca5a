"""Parses packed messages, lines of JSON, into columns.

There are two parsers for the same lines. `_parsed_in_bulk` hands a whole block to Arrow, which is 1.5 times as fast.
Arrow needs the name of every field that a line may have. Those of a message are known (see docs/table.md), but the
names of its properties are free. So `_parsed_by_line` reads blocks with new names; `PackedLines` keeps these names by
topic, and later blocks of that topic are parsed in bulk. With very many names, a column for each is slower than a line
for each message: such a topic is parsed line by line, separately from others. tests/spark/test_packed_lines.py compares
the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as arrow_json

from spark.unpacking import base64s

Columns = dict[str, pa.Array]
Numbers = npt.NDArray[Any]

_FIELDS = {**dict.fromkeys("bBktiq", pa.string()), **dict.fromkeys("lsu", pa.int64())}
_NAMES_MAX = 64
"""Beyond this, a column for each name costs more than a line for each message."""
_LINES_APART = 1_000
"""For fewer lines, parsing those with few names separately does not pay off."""
_LINE_END = ord("\n")


class TooManyNames(ValueError):
    """These topics together have too many names of properties; separately, some may be parsed in bulk."""


class PackedLines:
    """Parses blocks of lines, and keeps the names of each topic's properties for later blocks."""

    def __init__(self) -> None:
        self._names: dict[str, dict[str, None]] = {}

    def columns(self, blocks: Sequence[bytes], counts: Numbers, topics: pa.StringArray) -> Columns:
        """Parses the lines of all blocks: `delayed_id`, `sent_at_ms`, `key`, `tag`, `properties`, `body`,
        `is_text`, `ttl_ms`, `correlation_id`, `reply_by_ms`. `counts`: the lines of each block. `topics`: the topic of
        each. Raises `ValueError` or one of its like if a line is not a message."""
        named = [self._names.get(topic, {}) for topic in topics.unique().to_pylist()]
        names = list(dict.fromkeys(chain.from_iterable(named)))
        is_in_bulk, count = len(names) <= _NAMES_MAX, int(counts.sum())
        if not is_in_bulk and len(named) > 1 and count > _LINES_APART:
            raise TooManyNames
        text = b"\n".join(blocks)
        _demand_counts(text, list(map(len, blocks)), counts)
        if is_in_bulk:
            try:
                return _columns(_parsed_in_bulk(text, count, names))
            except pa.ArrowException:
                pass  # a line has a new name, or is not a message
        fields, properties = _parsed_by_line(text, count)
        self._learn(topics.take(pa.array(np.repeat(np.arange(len(counts)), counts))).to_pylist(), properties)
        return _columns(fields)

    def _learn(self, topics: Sequence[str], properties: Sequence[dict[str, str]]) -> None:
        for topic, named in zip(topics, properties, strict=True):
            known = self._names.setdefault(topic, {})
            if len(known) <= _NAMES_MAX:
                known.update(dict.fromkeys(named))


def _demand_counts(text: bytes, sizes: Sequence[int], counts: Numbers) -> None:
    """Raises `ValueError` unless each block has so many lines. `sizes`: of the blocks, which a line's end parts."""
    ends = np.flatnonzero(np.frombuffer(text, np.uint8) == _LINE_END)
    lines = np.diff(np.searchsorted(ends, np.cumsum(np.add(sizes, 1)), side="left"), prepend=0)
    lines[-1] += 1
    if (wrong := np.flatnonzero(lines != counts)).size:
        raise ValueError(f"the entry has {lines[wrong[0]]} messages, and says {counts[wrong[0]]}")


def _parsed_in_bulk(text: bytes, count: int, names: Sequence[str]) -> Columns:
    """The fields of the messages; `p` is a map."""
    known = [pa.field(name, kind) for name, kind in _FIELDS.items()]
    if names:
        known.append(pa.field("p", pa.struct([(name, pa.string()) for name in names])))
    how = arrow_json.ParseOptions(explicit_schema=pa.schema(known), unexpected_field_behavior="error")
    block = arrow_json.ReadOptions(use_threads=False, block_size=len(text) + 1)
    table = arrow_json.read_json(pa.BufferReader(text), block, how)
    if table.num_rows != count:
        raise pa.ArrowInvalid("a line is not one object")
    table.validate(full=True)  # that texts are UTF-8
    fields = {name: table[name].combine_chunks() for name in table.schema.names}
    return {**fields, "p": _maps_of(fields["p"], names) if names else _maps([{}] * count)}


def _parsed_by_line(text: bytes, count: int) -> tuple[Columns, list[dict[str, str]]]:
    """The same, and the properties of each message."""
    messages = orjson.loads(b"[" + text.replace(b"\n", b",") + b"]")
    if len(messages) != count:
        raise ValueError("a line is not one object")
    properties = [message.get("p") or {} for message in messages]
    fields = {name: pa.array([message.get(name) for message in messages], kind) for name, kind in _FIELDS.items()}
    return {**fields, "p": _maps(properties)}, properties


def _columns(fields: Columns) -> Columns:
    """The columns of messages with these fields. Raises `ValueError` if a message has no body, or two."""
    texts, blobs = fields["b"].cast(pa.binary()), fields["B"]
    is_text = texts.is_valid()
    if pc.any(pc.equal(is_text, blobs.is_valid())).as_py():
        raise ValueError("a message has one body")
    return {
        "delayed_id": fields["i"],
        "sent_at_ms": fields["s"],
        "key": fields["k"],
        "tag": fields["t"],
        "properties": fields["p"],
        "body": texts if blobs.null_count == len(blobs) else pc.coalesce(texts, base64s.decoded(blobs)),
        "is_text": is_text,
        "ttl_ms": fields["l"],
        "correlation_id": fields["q"],
        "reply_by_ms": fields["u"],
    }


def _maps_of(structs: pa.Array, names: Sequence[str]) -> pa.MapArray:
    """A map of the fields that are not null."""
    children = [pc.struct_field(structs, name) for name in names]
    is_there = np.stack([child.is_valid().to_numpy(zero_copy_only=False) for child in children], axis=1)
    row, field = np.nonzero(is_there)
    offsets = np.zeros(len(structs) + 1, np.int32)
    np.cumsum(is_there.sum(axis=1), out=offsets[1:])
    values = pa.concat_arrays(children).take(pa.array(field * len(structs) + row))
    return pa.MapArray.from_arrays(pa.array(offsets), pa.array(names, pa.string()).take(pa.array(field)), values)


def _maps(properties: Sequence[dict[str, str]]) -> pa.MapArray:
    offsets = np.zeros(len(properties) + 1, np.int32)
    np.cumsum(np.fromiter(map(len, properties), np.int32, len(properties)), out=offsets[1:])
    names = pa.array(list(chain.from_iterable(properties)), pa.string())
    values = pa.array(list(chain.from_iterable(named.values() for named in properties)), pa.string())
    return pa.MapArray.from_arrays(pa.array(offsets), names, values)
