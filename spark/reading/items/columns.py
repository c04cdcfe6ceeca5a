"""Lines of a data file, many at once: segments and payloads, the most frequent kinds, become columns.

`pyarrow.json` parses a block into the typed JSON's own columns, by an explicit schema. This module then converts
numbers and base64 texts a column at a time. Any unexpected value makes the whole block `Unsuited`: it is then read line
by line, which finds the error and its place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from spark.reading.items.structs import CODECS, HAS_FIRST_SENT, HAS_LEAST_TTL, IS_ZSTD, POINTER, TIME_BYTES
from spark.unpacking.base64s import decoded

_S, _N, _B = (pa.struct([(letter, pa.string())]) for letter in "SNB")
_BOOL = pa.struct([("BOOL", pa.bool_())])
_ENTRY = pa.struct([("i", _B), ("n", _N), ("at", _N), ("c", _S), ("w", _N), ("d", _B), ("l", _N), ("s", _N)])
_ENTRIES = pa.struct([("L", pa.list_(pa.struct([("M", _ENTRY), ("B", pa.string())])))])
_HEAD = [("pk", _S), ("sk", _S), ("ttl", _N)]
_TYPED = {
    "segment": pa.struct([*_HEAD, ("end", _N), ("bytes", _N), ("closed", _BOOL), ("left", _N), ("entries", _ENTRIES)]),
    "payload": pa.struct([*_HEAD, ("data", _B)]),
}
_KEYS = pa.struct([("pk", _S), ("sk", _S)])
_METADATA = pa.struct([("WriteTimestampMicros", _N)])

KINDS = tuple(_TYPED)
"""The kinds that are read in bulk."""

_NUMBER, _PLACE, _HEX = "^[0-9]+$", "^[0-9]{1,18}$", "^([0-9a-f]{2})+$"
_POWERS = 10 ** np.arange(19, dtype=np.int64)
Numbers = npt.NDArray[np.int64]

_MAP_BYTES, _ELEMENT_BYTES, _BOOL_BYTES = 3, 1, 1
_COUNT = 1
"""The place of `count` in the fields of an entry."""
_ID_BYTES = 8
_FIELDS = ((8, 2), (10, 6), (16, 4), (20, 1), (21, 1))
"""Where the numbers of a pointer begin, and their sizes in bytes: count, time, wire bytes, pieces, flags."""


class Unsuited(Exception):
    """These lines must be read one by one."""


class Columns(NamedTuple):
    """All except the struct are the columns of `item_schemas.ITEMS` with these names."""

    pk: pa.Array
    sk: pa.Array
    topic_id: pa.Array
    bytes: pa.Array
    ttl: pa.Array
    written_us: pa.Array
    struct: pa.StructArray


class _Item(NamedTuple):
    """`typed`: the typed JSON. `parts`: of the partition key."""

    typed: pa.StructArray
    parts: pa.Array
    sk: pa.Array


def columns_of(kind: str, lines: Sequence[bytes], is_incremental: bool, target: pa.StructType) -> Columns:
    """`target`: the Arrow type of the kind's struct in `ITEMS`. Raises `Unsuited`."""
    try:
        table = _parsed(kind, lines, is_incremental)
        typed = table["NewImage" if is_incremental else "Item"].combine_chunks()
        pk, sk = (_required(pc.struct_field(typed, [name, "S"])) for name in ("pk", "sk"))
        for key in (pk, sk):
            key.validate(full=True)  # that it is UTF-8
        item = _Item(typed, pc.split_pattern(pk, "#"), sk)
        ttl = pc.cast(_demanded(pc.struct_field(typed, ["ttl", "N"]), _NUMBER), pa.int64())
        struct, weight = _STRUCTS[kind](item, target)
        weight = weight + len("pksk") + _lengths(pk) + _lengths(sk) + _weights(ttl, "ttl")
        return Columns(
            pk, sk, pc.list_element(item.parts, 1), pa.array(weight, pa.int64()), ttl, _written(table), struct
        )
    except (pa.ArrowException, ValueError, IndexError) as error:
        raise Unsuited(str(error)) from error


def _parsed(kind: str, lines: Sequence[bytes], is_incremental: bool) -> pa.Table:
    text = b"\n".join(lines)
    item = _TYPED[kind]
    change = [("Metadata", _METADATA), ("Keys", _KEYS), ("NewImage", item), ("OldImage", item)]
    schema = pa.schema(change if is_incremental else [("Item", item)])
    table = pj.read_json(
        pa.BufferReader(text),
        read_options=pj.ReadOptions(use_threads=False, block_size=len(text) + 1),
        parse_options=pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="error"),
    )
    if table.num_rows != len(lines):
        raise Unsuited("a line is not one object")
    return table


def _written(table: pa.Table) -> pa.Array:
    if "Metadata" not in table.column_names:
        return pa.nulls(table.num_rows, pa.int64())
    return _numbers(pc.struct_field(table["Metadata"].combine_chunks(), ["WriteTimestampMicros", "N"]))


def _segments(item: _Item, target: pa.StructType) -> tuple[pa.StructArray, Numbers]:
    end, filled = (_numbers(pc.struct_field(item.typed, [name, "N"])) for name in ("end", "bytes"))
    lists = _required(pc.struct_field(item.typed, ["entries", "L"]))
    queue = pc.cast(_demanded(pc.list_element(item.parts, 2), _PLACE), pa.int32())
    base = pc.cast(_demanded(item.sk, _PLACE), pa.int64())
    bounds = pc.subtract(lists.offsets, lists.offsets[0])
    entries, weight = _entries(lists.flatten())
    placed = [_offsets(base, bounds, entries[_COUNT]), *entries]
    kind = target.field("entries").type
    listed = pa.ListArray.from_arrays(
        bounds, pa.StructArray.from_arrays(placed, fields=list(kind.value_type)), type=kind
    )
    closed = pc.struct_field(item.typed, ["closed", "BOOL"])
    left = pc.cast(_demanded(pc.struct_field(item.typed, ["left", "N"]), _NUMBER), pa.int64())
    columns = [queue, base, end, filled, listed, pc.fill_null(closed, False)]
    total = np.concatenate([[0], np.cumsum(weight)])[bounds.to_numpy()]
    size = len("entries") + _MAP_BYTES + np.diff(total) + _weights(end, "end") + _weights(filled, "bytes")
    size += np.where(_valid(closed), len("closed") + _BOOL_BYTES, 0) + _weights(left, "left")
    return pa.StructArray.from_arrays(columns, fields=list(target)), size


def _offsets(base: pa.Array, bounds: pa.Array, counts: pa.Array) -> pa.Array:
    """The offset of the first message of each entry. `base`: of each segment. `bounds`: of its entries among all."""
    first, entries = bounds.to_numpy()[:-1], np.diff(bounds.to_numpy())
    before = np.concatenate([[0], np.cumsum(counts.to_numpy().astype(np.int64))])
    return pa.array(np.repeat(base.to_numpy() - before[first], entries) + before[:-1], pa.int64())


def _entries(typed: pa.StructArray) -> tuple[list[pa.Array], Numbers]:
    """The fields of the entries of all segments, as in `item_schemas.ENTRY`, and the size of each entry as an element
    of a list."""
    packed, maps = decoded(pc.struct_field(typed, ["B"])), pc.struct_field(typed, ["M"])
    is_pointer = _valid(packed)
    if not is_pointer.any():
        return _inline(maps)
    if np.any(is_pointer & _valid(maps)):
        raise Unsuited("an entry of two types")
    columns, weight = _inline(maps.filter(pa.array(~is_pointer)))
    pointers, weight_of_pointers = _pointers(packed.filter(pa.array(is_pointer)))
    order = np.argsort(np.argsort(is_pointer, kind="stable"))
    merged = [pa.concat_arrays(both).take(pa.array(order)) for both in zip(columns, pointers, strict=True)]
    return merged, np.concatenate([weight, weight_of_pointers])[order]


def _pointers(packed: pa.BinaryArray) -> tuple[list[pa.Array], Numbers]:
    lengths = _lengths(packed)
    if np.any(lengths < POINTER.size):
        raise Unsuited("an entry that is too short")
    starts = np.frombuffer(packed.buffers()[1], np.int32, len(packed), packed.offset * 4)
    letters = np.frombuffer(packed.buffers()[2], np.uint8)

    def number(at: npt.NDArray[Any], size: int) -> Numbers:
        found: Numbers = letters[at[:, None] + np.arange(size)] @ (256 ** np.arange(size - 1, -1, -1, dtype=np.int64))
        return found

    count, stored, wire, pieces, flags = (number(starts + at, size) for at, size in _FIELDS)
    rare, at = [], starts + POINTER.size
    for flag in (HAS_LEAST_TTL, HAS_FIRST_SENT):
        has = flags & flag > 0
        times = np.zeros(len(packed), np.int64)
        times[has] = number(at[has], TIME_BYTES)
        rare.append(pa.array(times, mask=~has))
        at = at + has * TIME_BYTES
    if np.any(at - starts != lengths) or np.any(flags > IS_ZSTD + HAS_LEAST_TTL + HAS_FIRST_SENT):
        raise Unsuited("an entry with other flags, or of another length")
    codec, nothing = pa.array(CODECS).take(pa.array(flags & IS_ZSTD)), pa.nulls(len(packed), pa.binary())
    head = [pc.binary_slice(packed, 0, _ID_BYTES), pa.array(count, pa.int32()), pa.array(stored), codec, pa.array(wire)]
    return [*head, nothing, pa.array(pieces, pa.int32()), *rare], _ELEMENT_BYTES + lengths


def _inline(typed: pa.StructArray) -> tuple[list[pa.Array], Numbers]:
    typed = _required(typed)
    identity = _required(decoded(pc.struct_field(typed, ["i", "B"])))
    count, stored, wire = (_numbers(pc.struct_field(typed, [name, "N"])) for name in ("n", "at", "w"))
    codec = _required(pc.struct_field(typed, ["c", "S"]))
    if not pc.all(pc.is_in(codec, pa.array(CODECS))).as_py() and len(codec):
        raise Unsuited("an unknown codec")
    data = _required(decoded(pc.struct_field(typed, ["d", "B"])))
    rare = {name: pc.struct_field(typed, [name, "N"]) for name in ("l", "s")}
    rare = {name: pc.cast(_demanded(given, _NUMBER), pa.int64()) for name, given in rare.items()}
    nothing = pa.nulls(len(data), pa.int32())
    columns = [identity, pc.cast(count, pa.int32()), stored, codec, wire, data, nothing, *rare.values()]
    attributes = [
        len("i") + _lengths(identity),
        _weights(count, "n"),
        _weights(stored, "at"),
        len("c") + _lengths(codec),
        _weights(wire, "w"),
        len("d") + _lengths(data),
    ]
    weight: Numbers = _ELEMENT_BYTES + _MAP_BYTES + sum(attributes, start=np.zeros(len(data), np.int64))
    weight += len(attributes) * _ELEMENT_BYTES
    for name, numbers in rare.items():
        weight += _weights(numbers, name) + _valid(numbers) * _ELEMENT_BYTES
    return columns, weight


def _payloads(item: _Item, target: pa.StructType) -> tuple[pa.StructArray, Numbers]:
    data = _required(decoded(pc.struct_field(item.typed, ["data", "B"])))
    ids = _demanded(pc.list_element(item.parts, 2), _HEX).to_pylist()
    entry_ids = pa.array([bytes.fromhex(text) for text in ids], pa.binary())
    columns = [entry_ids, pc.cast(_demanded(item.sk, _PLACE), pa.int32()), data]
    return pa.StructArray.from_arrays(columns, fields=list(target)), len("data") + _lengths(data)


_STRUCTS: dict[str, Callable[[_Item, pa.StructType], tuple[pa.StructArray, Numbers]]] = {
    "segment": _segments,
    "payload": _payloads,
}


def _required(column: pa.Array) -> pa.Array:
    if column.null_count:
        raise Unsuited("an attribute is missing, or of another type")
    return column


def _numbers(texts: pa.Array) -> pa.Array:
    return _required(pc.cast(_demanded(texts, _NUMBER), pa.int64()))


def _demanded(texts: pa.Array, pattern: str) -> pa.Array:
    """Returns the texts unchanged if they match the pattern; a cast alone accepts hexadecimal numbers, and more."""
    if pc.any(pc.invert(pc.match_substring_regex(texts, pattern))).as_py():
        raise Unsuited("an attribute is not valid UTF-8 text")
    return texts


def _valid(column: pa.Array) -> npt.NDArray[np.bool_]:
    valid: npt.NDArray[np.bool_] = column.is_valid().to_numpy(zero_copy_only=False)
    return valid


def _lengths(column: pa.Array) -> Numbers:
    """The lengths in bytes; 0 for null."""
    lengths: Numbers = pc.fill_null(pc.binary_length(column), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    return lengths


def _weights(numbers: pa.Array, name: str) -> Numbers:
    """The size of each number with its name, as DynamoDB counts: one byte for two digits, without trailing zeros; 0 for
    null."""
    values = pc.fill_null(numbers, 0).to_numpy(zero_copy_only=False).astype(np.int64)
    digits = np.searchsorted(_POWERS, values, side="right")
    round_ones = np.flatnonzero((values > 0) & (values % 10 == 0))
    while len(round_ones):
        digits[round_ones] -= 1
        values[round_ones] //= 10
        round_ones = round_ones[values[round_ones] % 10 == 0]
    return np.where(_valid(numbers), len(name) + 1 + (digits + 1) // 2, 0)
