"""The AWS query protocol: a form in the body or in the query string, answered in XML.

A form names the members of a list or a map by their place: `AttributeName.1`, `Attribute.1.Name`. Old clients leave the
place out where there is one only. Everything that no action declares is ignored: what a signature needs, for one."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qsl, unquote_plus, urlencode
from xml.sax.saxutils import escape

import orjson

from chalicelib.core.base.fields import encodable, quoted
from chalicelib.core.base.limits import KIB, MIB
from chalicelib.doors.http.exchange import Request, Response
from chalicelib.doors.sqs.action import Action, Blob, Integer, Json, Kind, List, Map, Structure, present
from chalicelib.doors.sqs.actions import named
from chalicelib.doors.sqs.errors import QUERY_STATUS, QUERY_TEXT, SqsError, missing, wrong_kind
from chalicelib.doors.xml_text import sendable

MEDIA_TYPE = "text/xml"
VERSION = "2012-11-05"
FORM_BYTES_MAX = 4 * MIB
"""Messages of 1 MiB, each byte as three characters, and their attributes."""
PARAMETERS_MAX = 2_000
"""A batch of ten messages with ten attributes each has some 400."""

QUOTED_CHARS_MAX = 64 * KIB
"""In longer texts quotes stand as they are, which XML allows: else a message of 1 MiB could be too long for Lambda."""

_NAMESPACE = f"http://queue.amazonaws.com/doc/{VERSION}/"
_DEPTH_MAX = 6
"""`SendMessageBatchRequestEntry.1.MessageAttribute.1.Value.DataType`: nothing is named in more parts."""
_ACTION = re.compile(
    b"&%s=([^&]{0,100})" % b"".join(b"(?:%c|%%(?i:%02x))" % (byte, byte) for byte in b"Action"),
)
"""The parameter, each byte of its name as it is or percent-encoded. No name of an action is longer, however it is
written."""
_PLACE = re.compile("[0-9]{1,6}")
_INTEGER = re.compile("[+-]?[0-9]{1,20}")

Pairs = list[tuple[str, str]]

# -- names ------------------------------------------------------------------------------------------------------------

_MAPS = {"Attribute": "Name", "MessageAttribute": "Name", "MessageSystemAttribute": "Name", "Tag": "Key"}
"""The names that maps give to the name of a value."""


def _each(name: str, action: str) -> str:
    """The name of one member of this list or map in a form, or in an answer in XML."""
    own = {
        "Entries": f"{action}RequestEntry",
        "Successful": f"{action}ResultEntry",
        "Failed": "BatchResultErrorEntry",
        "Results": f"{action}ResultEntry",
        "Actions": "ActionName",
    }
    return own.get(name) or name[0].upper() + name[1:].removesuffix("s")


# -- requests ---------------------------------------------------------------------------------------------------------


class _Node:
    """The content of a form under a name: a value, and the names behind a dot."""

    def __init__(self) -> None:
        self.text: str | None = None
        self.parts: dict[str, _Node] = {}

    def each(self) -> Iterator[_Node]:
        """The members of a list, in order. An empty one is sent as a name with no value."""
        places = sorted((place for place in self.parts if _PLACE.fullmatch(place)), key=int)
        if places:
            yield from (self.parts[place] for place in places)
        elif self.parts or self.text:
            yield self


class QueryWire:
    """A request. `action`: the name that it gives; empty if it gives none. The form is parsed only after authorization,
    so rejected requests cost nothing."""

    def __init__(self, raw: bytes, is_get: bool, at_queue: bool) -> None:
        """`raw`: each parameter behind an `&`. `at_queue`: it came to the URL of a queue."""
        found = _ACTION.search(raw) if _is_small(raw) else None
        self.action = unquote_plus(found[1].decode("latin-1")) if found else ""
        self._raw, self._form = raw, _Node()
        self._is_get, self._at_queue = is_get, at_queue

    def _add(self, name: str, value: str) -> None:
        node = self._form
        for part in name.split(".", _DEPTH_MAX):
            node = node.parts.setdefault(part, _Node())
        if node.text not in (None, value):
            raise SqsError("InvalidParameterValue", f"The parameter {quoted(name)} is given more than once.")
        node.text = value

    def _given(self, name: str) -> str | None:
        return self._form.parts[name].text if name in self._form.parts else None

    def demand_action(self) -> Action:
        """Raises SqsError."""
        for name, value in _pairs(self._raw[1:]):
            self._add(name, value)
        version = self._given("Version")
        if version not in (None, VERSION):
            raise SqsError("NoSuchVersion", f"The requested version {quoted(version)} is not valid.")
        self.action = self._given("Action") or ""
        if not self.action:
            kind = "UnknownOperation" if self._is_get and self._at_queue else "MissingAction"
            raise SqsError(kind, missing("Action").message)
        return named(self.action, self._at_queue)

    def members(self, action: Action) -> Json:
        """The members that are given. A form cannot tell an empty list from none: one that is required is empty. Raises
        SqsError for values that are not of their kind."""
        empty: Json = {}
        for name in action.required:
            kind = action.members.members.get(name)
            empty |= {name: []} if isinstance(kind, List) else {name: {}} if isinstance(kind, Map) else {}
        return empty | _structure(action.members, self._form, action.name)

    @property
    def growth(self) -> int:
        """Attributes with short names and values grow most: each becomes five elements. A body grows five times."""
        return 8

    def weigh(self, members: Json) -> int:
        return len(orjson.dumps(_members(members, self.action)))

    def response(self, answer: Json, request_id: str) -> Response:
        """Without a result where an action answers nothing."""
        name, inside = f"{self.action}Result", _members(answer, self.action)
        result = "" if not answer else f"<{name}>{inside}</{name}>" if inside else f"<{name}/>"
        number = f"<ResponseMetadata><RequestId>{request_id}</RequestId></ResponseMetadata>"
        return _response(200, f"{self.action}Response", result + number, request_id)

    def refusal(self, error: SqsError, request_id: str) -> Response:
        if error.code == "UnknownOperation":
            return Response(error.shape.status, _headers(request_id), f"<{error.shape.code}/>")
        message = QUERY_TEXT.get(error.code, error.message)
        about = {"Type": error.fault, "Code": error.shape.code, "Message": message}
        text = f"<Error>{_members(about, '')}<Detail/></Error><RequestId>{request_id}</RequestId>"
        status = QUERY_STATUS.get(error.code, error.shape.status)
        return _response(status, "ErrorResponse", text, request_id)


def wire_of(request: Request, at_queue: bool) -> QueryWire | None:
    """None: the request does not use this protocol. Any request to a queue does."""
    query = urlencode(request.query, errors="surrogatepass") if request.raw_query is None else request.raw_query
    body = request.body[: FORM_BYTES_MAX + 2] if request.method == "POST" else b""  # more is refused for its size
    raw = b"".join(b"&" + part for part in (query.encode(errors="surrogatepass"), body) if part)
    wire = QueryWire(raw, request.method == "GET", at_queue)
    is_own = at_queue or wire.action or b"&Action=" in raw or b"&Version=" in raw
    return wire if is_own else None


def _is_small(raw: bytes) -> bool:
    """Whether its form is going to be read."""
    return len(raw) <= FORM_BYTES_MAX + 1 and raw.count(b"&") <= PARAMETERS_MAX


def _pairs(form: bytes) -> Pairs:
    """Raises SqsError."""
    if len(form) > FORM_BYTES_MAX:
        raise SqsError("InvalidParameterValue", f"The request has more than {FORM_BYTES_MAX} bytes.")
    if form.count(b"&") >= PARAMETERS_MAX:
        raise SqsError("InvalidParameterValue", f"The request has more than {PARAMETERS_MAX} parameters.")
    try:
        return parse_qsl(form.decode(), keep_blank_values=True, errors="strict")
    except UnicodeDecodeError:
        raise SqsError("InvalidParameterValue", "The request is not in UTF-8.") from None


def _structure(structure: Structure, node: _Node, action: str) -> Json:
    members: Json = {}
    for name, kind in structure.members.items():
        part = node.parts.get(_each(name, action) if isinstance(kind, List | Map) else name)
        if part and (isinstance(kind, List | Map | Structure) or part.text is not None):
            members[name] = _member(kind, part, name, action)
    return members


def _member(kind: Kind, node: _Node, name: str, action: str) -> Any:
    if isinstance(kind, Structure):
        return _structure(kind, node, action)
    if isinstance(kind, List):
        return [_member(kind.of, each, name, action) for each in node.each()]
    if isinstance(kind, Map):
        return dict(_entry(kind, each, name, action) for each in node.each())
    text = _text(node, name)
    if isinstance(kind, Integer):
        return _integer(text, name)
    return _bytes(text, name) if isinstance(kind, Blob) else text


def _entry(kind: Map, node: _Node, name: str, action: str) -> tuple[str, Any]:
    """A value of a map, by its name."""
    each = _each(name, action)
    parts = {part: node.parts.get(part) or _Node() for part in (_MAPS[each], "Value")}
    key, value = parts.values()
    if key.text is None:
        raise missing(f"{each}.{_MAPS[each]}")
    if value.text is None and not value.parts:
        raise missing(f"{each}.Value")
    return _text(key, name), _member(kind.of, value, name, action)


def _text(node: _Node, name: str) -> str:
    if node.text is None or not encodable(node.text):
        raise wrong_kind(name, "a string of text", node.text)
    return node.text


def _integer(text: str, name: str) -> int:
    if not _INTEGER.fullmatch(text):
        raise wrong_kind(name, "an integer", text)
    return int(text)


def _bytes(text: str, name: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise wrong_kind(name, "bytes in base64", text) from None


# -- answers ----------------------------------------------------------------------------------------------------------


def _headers(request_id: str) -> dict[str, str]:
    return {"Content-Type": MEDIA_TYPE, "x-amzn-RequestId": request_id}


def _response(status: int, name: str, content: str, request_id: str) -> Response:
    return Response(
        status, _headers(request_id), f'<?xml version="1.0"?><{name} xmlns="{_NAMESPACE}">{content}</{name}>'
    )


def _members(members: Json, action: str) -> str:
    return "".join(_elements(name, value, action) for name, value in present(members).items())


def _elements(name: str, value: Any, action: str) -> str:
    each = _each(name, action)
    if isinstance(value, dict) and each in _MAPS:
        value = [{_MAPS[each]: own, "Value": of} for own, of in value.items()]
    named_values = [(each, one) for one in value] if isinstance(value, list) else [(name, value)]
    return "".join(f"<{own}>{_content(one, action)}</{own}>" for own, one in named_values)


def _content(value: Any, action: str) -> str:
    if isinstance(value, dict):
        return _members(value, action)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    text = str(value).lower() if isinstance(value, bool) else str(value)
    quotes = {'"': "&quot;"} if len(text) <= QUOTED_CHARS_MAX else {}
    return escape(sendable(text), {**quotes, "\r": "&#xD;"})  # a bare CR would be read as LF
