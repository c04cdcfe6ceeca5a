"""Lines of a data file, one by one: each becomes a row of `item_schemas.ITEMS`, or the reason why it cannot.

Used for rare kinds, for maps whose names are not known beforehand, and for lines that do not parse in bulk."""

from __future__ import annotations

from typing import Any

import orjson

from spark.reading.items.attributes import Attributes, Malformed, as_number
from spark.reading.items.keys import ItemKey, key_of, kind_of, topic_id_of
from spark.reading.items.structs import struct_of


def row_of(line: bytes, is_incremental: bool) -> dict[str, Any]:
    """Parses a line into a row, without file and line. Raises `Malformed`."""
    try:
        parsed = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise Malformed(f"not JSON: {error}") from None
    if not isinstance(parsed, dict):
        raise Malformed("the line is not an object")
    if is_incremental:
        return {**_changed(parsed), "written_us": _written_us(parsed)}
    return {**_item(Attributes(parsed.get("Item"))), "is_deleted": False}


def _changed(parsed: dict[str, Any]) -> dict[str, Any]:
    keys = Attributes(parsed.get("Keys"))
    if "NewImage" in parsed:
        return {**_item(Attributes(parsed["NewImage"])), "is_deleted": False}
    return {**_head(keys, None)[0], "is_deleted": True}


def _item(item: Attributes) -> dict[str, Any]:
    head, key = _head(item, item)
    struct = struct_of(head["kind"], key, item)
    weighed = {"bytes": item.weight, "ttl": item.maybe_number("ttl")}
    return {**head, **weighed, **({head["kind"]: struct} if struct else {})}


def _head(keys: Attributes, item: Attributes | None) -> tuple[dict[str, Any], ItemKey]:
    key = key_of(keys.text("pk"), keys.text("sk"))
    kind = kind_of(key)
    return {"kind": kind, "pk": key.pk, "sk": key.sk, "topic_id": topic_id_of(kind, key, item)}, key


def _written_us(parsed: dict[str, Any]) -> int:
    """The time of the write, which exports store as a typed number or a plain text."""
    metadata = parsed.get("Metadata")
    value = metadata.get("WriteTimestampMicros") if isinstance(metadata, dict) else None
    return as_number({"N": value} if isinstance(value, str) else value, "WriteTimestampMicros")
