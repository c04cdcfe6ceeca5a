"""Items in DynamoDB's typed JSON, and their lines in exports."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import orjson

Item = Mapping[str, Any]
Typed = dict[str, Any]


def typed(value: Any) -> Typed:
    if isinstance(value, bool):
        return {"BOOL": value}
    if isinstance(value, str):
        return {"S": value}
    if isinstance(value, int):
        return {"N": str(value)}
    if isinstance(value, bytes):
        return {"B": base64.b64encode(value).decode()}
    if isinstance(value, Mapping):
        return {"M": typed_item(value)}
    return {"L": [typed(element) for element in value]}


def typed_item(item: Item) -> Typed:
    return {name: typed(value) for name, value in item.items()}


def full_line(image: Typed) -> bytes:
    return orjson.dumps({"Item": image}, default=in_base64)


def change_line(written_us: int, keys: Typed, image: Typed | None) -> bytes:
    """`image`: the current item; None: it was removed."""
    changed = {"Metadata": {"WriteTimestampMicros": {"N": str(written_us)}}, "Keys": keys}
    return orjson.dumps(changed if image is None else {**changed, "NewImage": image}, default=in_base64)


def in_base64(value: object) -> str:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    raise TypeError(f"{type(value).__name__} cannot be an attribute of an item")
