"""The AWS JSON 1.0 protocol: reads the members of a request, and writes answers and errors."""

from __future__ import annotations

import base64
from typing import Any, NamedTuple

import orjson

from chalicelib.core.base.errors import InvalidJson
from chalicelib.core.base.fields import encodable
from chalicelib.core.base.message import carried_bytes
from chalicelib.doors.http.exchange import Request, Response, body_of
from chalicelib.doors.sqs.action import Action, Blob, Integer, Json, Kind, List, Map, Structure, present
from chalicelib.doors.sqs.actions import named
from chalicelib.doors.sqs.errors import SqsError, wrong_kind

MEDIA_TYPE = "application/x-amz-json-1.0"
TARGET = "AmazonSQS."


class JsonWire(NamedTuple):
    """A request. `action`: the name that it gives. `at_queue`: it came to the URL of a queue."""

    action: str
    body: bytes
    at_queue: bool

    def demand_action(self) -> Action:
        return named(self.action, self.at_queue)

    def members(self, action: Action) -> Json:
        """The members that are given. Raises SqsError if the body is not JSON, or of another type; MessageTooLarge."""
        try:
            data = body_of(self.body)
        except InvalidJson as wrong:
            raise SqsError("Serialization", wrong.detail) from None
        return _structure(action.members, data, "the request")

    @property
    def growth(self) -> int:
        """Attributes with short names and values grow most, since each becomes an object."""
        return 2

    def weigh(self, members: Json) -> int:
        return carried_bytes(orjson.dumps(members, default=_encoded))

    def response(self, answer: Json, request_id: str) -> Response:
        """Its body is empty where an action answers nothing."""
        given = present(answer)
        return _response(200, orjson.dumps(given, default=_encoded).decode() if given else "", request_id)

    def refusal(self, error: SqsError, request_id: str) -> Response:
        text = orjson.dumps({"__type": error.shape.type, "message": error.message}).decode()
        response = _response(error.shape.status, text, request_id)
        return response._replace(
            headers={**response.headers, "x-amzn-query-error": f"{error.shape.code};{error.fault}"}
        )


def wire_of(request: Request, at_queue: bool) -> JsonWire | None:
    """None: the request is none in this protocol."""
    target = request.headers.get("x-amz-target", "")
    if request.method != "POST" or not target.startswith(TARGET):
        return None
    return JsonWire(target.removeprefix(TARGET), request.body, at_queue)


def _response(status: int, text: str, request_id: str) -> Response:
    return Response(status, {"Content-Type": MEDIA_TYPE, "x-amzn-RequestId": request_id}, text)


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
            raise wrong_kind(path, "a list", value)
        return [_member(kind.of, each, f"{path}.{number}") for number, each in enumerate(value, 1)]
    if isinstance(kind, Map):
        given = _object(value, path).items()
        return {_text(name, path): _member(kind.of, each, f"{path}.{name}") for name, each in given}
    if isinstance(kind, Integer):
        return _integer(value, path)
    return _bytes(value, path) if isinstance(kind, Blob) else _text(value, path)


def _object(value: Any, path: str) -> Json:
    if not isinstance(value, dict):
        raise wrong_kind(path, "an object", value)
    return value


def _integer(value: Any, path: str) -> int:
    if type(value) is not int:
        raise wrong_kind(path, "an integer", value)
    return value


def _text(value: Any, path: str) -> str:
    if not isinstance(value, str) or not encodable(value):
        raise wrong_kind(path, "a string of text", value)
    return value


def _bytes(value: Any, path: str) -> bytes:
    try:
        return base64.b64decode(_text(value, path), validate=True)
    except ValueError:
        raise wrong_kind(path, "bytes in base64", value) from None
