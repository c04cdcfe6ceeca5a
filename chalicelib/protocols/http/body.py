"""Reads the body of a request as JSON, and refuses what other readers of JSON let pass: a name given twice."""

from __future__ import annotations

import json
from typing import Any, NoReturn

import orjson
from chalice.app import Request

from chalicelib.base.errors import InvalidJson, MessageTooLarge
from chalicelib.base.fields import shown
from chalicelib.base.limits import REQUEST_BYTES_MAX

_INTEGER_DIGITS = 19
"""Those of a signed 64-bit integer. A longer one is out of every range; the fast reader makes a float of it, which its
client did not write."""
_DIGITS_READ = 100
"""More than an error text shows of a number."""
_ZEROS = bytes.maketrans(b"123456789", b"000000000")


def body_of(request: Request) -> Any:
    """The request body as JSON; an empty one is `{}`. Raises InvalidJson, and MessageTooLarge."""
    raw = request.raw_body
    given = raw if isinstance(raw, bytes) else raw.encode()
    if len(given) > REQUEST_BYTES_MAX:
        raise MessageTooLarge(f"the request has more than {REQUEST_BYTES_MAX} bytes")
    return parsed(given) if given.strip() else {}


def parsed(raw: bytes) -> Any:
    """Raises InvalidJson. The fast reader takes a name that is given twice, and drops the first value."""
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        return _parsed_slowly(raw, error)
    if b"0" * (_INTEGER_DIGITS + 1) in raw.translate(_ZEROS):
        return _parsed_slowly(raw)
    if not _is_whole(raw, value):
        _parsed_slowly(raw)
    return value


def _is_whole(raw: bytes, value: Any) -> bool:
    """Whether nothing was dropped: written again, the value has as many colons. When in doubt, not: an escaped colon
    spoils the count, and what is nested deep is read but not written."""
    try:
        again = orjson.dumps(value)
    except orjson.JSONEncodeError:
        return False
    return raw.count(b":") == again.count(b":") and b"\\u003a" not in raw and b"\\u003A" not in raw


def _parsed_slowly(raw: bytes, refusal: ValueError | None = None) -> Any:
    """Names what is given twice. And JSON can spell half a surrogate pair, which the fast reader refuses: then a field
    is wrong, and not the JSON."""
    try:
        text = raw.decode()  # or json would guess at UTF-16, and let surrogates pass in UTF-8
        return json.loads(text, object_pairs_hook=_object, parse_int=_integer, parse_constant=_refuse)
    except RecursionError:
        raise InvalidJson("the request body is nested too deep") from None
    except ValueError as error:
        raise InvalidJson(f"the request body is not JSON: {refusal or error}") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise InvalidJson(f"an object in the request body has {shown(name)} twice")
        found[name] = value
    return found


def _integer(digits: str) -> int:
    return int(digits[:_DIGITS_READ])


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")
