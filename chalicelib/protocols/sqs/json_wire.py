"""The AWS JSON 1.0 protocol: reads the members of a request, and writes answers and errors."""

from __future__ import annotations

import base64
from typing import Any

import orjson

from chalicelib.base.errors import InvalidJson
from chalicelib.base.fields import encodable, shown
from chalicelib.protocols.http.body import body_of
from chalicelib.protocols.sqs.action import Blob, Integer, Json, Kind, List, Map, Structure
from chalicelib.protocols.sqs.errors import SqsError

MEDIA_TYPE = "application/x-amz-json-1.0"


def members_of(raw: bytes, structure: Structure) -> Json:
    """The members that are given. Raises SqsError for what is no JSON, or of another type; MessageTooLarge."""
    try:
        data = body_of(raw)
    except InvalidJson as wrong:
        raise SqsError("Serialization", wrong.detail) from None
    return _structure(structure, data, "the request")


def text_of(answer: Json) -> str:
    """The body of an answer; empty where an action answers nothing."""
    given = {name: value for name, value in answer.items() if value is not None and value != [] and value != {}}
    return orjson.dumps(given, default=_encoded).decode() if given else ""


def text_of_error(error: SqsError) -> str:
    return orjson.dumps({"__type": error.shape.type, "message": error.message}).decode()


def _encoded(value: Any) -> str:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    raise TypeError


# -- members ----------------------------------------------------------------------------------------------------------


def _structure(structure: Structure, value: Any, path: str) -> Json:
    given = _object(value, path)
    known = {name: kind for name, kind in structure.members.items() if given.get(name) is not None}
    return {name: _member(kind, given[name], name) for name, kind in known.items()}


def _member(kind: Kind, value: Any, path: str) -> Any:
    if isinstance(kind, Structure):
        return _structure(kind, value, path)
    if isinstance(kind, List):
        if not isinstance(value, list):
            raise _wrong(path, "a list", value)
        return [_member(kind.of, each, path) for each in value]
    if isinstance(kind, Map):
        return {_text(name, path): _member(kind.of, each, path) for name, each in _object(value, path).items()}
    if isinstance(kind, Integer):
        return _integer(value, path)
    return _bytes(value, path) if isinstance(kind, Blob) else _text(value, path)


def _object(value: Any, path: str) -> Json:
    if not isinstance(value, dict):
        raise _wrong(path, "an object", value)
    return value


def _integer(value: Any, path: str) -> int:
    if type(value) is not int:
        raise _wrong(path, "an integer", value)
    return value


def _text(value: Any, path: str) -> str:
    if not isinstance(value, str) or not encodable(value):
        raise _wrong(path, "a string of text", value)
    return value


def _bytes(value: Any, path: str) -> bytes:
    try:
        return base64.b64decode(_text(value, path), validate=True)
    except ValueError:
        raise _wrong(path, "bytes in base64", value) from None


def _wrong(path: str, wanted: str, value: Any) -> SqsError:
    return SqsError("Serialization", f"{path} must be {wanted}; it is {shown(value)}")
