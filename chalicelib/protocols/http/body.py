"""Writes the body of an answer, and reads that of a request as JSON, in one pass. It refuses what most JSON readers
accept: a name given twice.

The reader is Python's own, because its hooks see every name and every number. A faster reader drops the first of two
equal names without a word, and finding that out costs more than it saves: reading, writing again and comparing took 1.1
to 2.6 times as long for most bodies.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any, NoReturn

import orjson

from chalicelib.base.errors import InvalidJson, MessageTooLarge
from chalicelib.base.fields import shown
from chalicelib.base.limits import REQUEST_BYTES_MAX

_DIGITS_READ = 100
"""More than an error text shows of a number. Python refuses to read thousands of digits."""


def text_of(answer: Any) -> str:
    """The body of an answer, or of a problem document. Text is no JSON, and goes as it is."""
    if isinstance(answer, str):
        return answer
    return orjson.dumps(answer, option=orjson.OPT_APPEND_NEWLINE).decode()


def body_of(raw: bytes) -> Any:
    """The request body as JSON; an empty one is `{}`. Raises InvalidJson, and MessageTooLarge."""
    if len(raw) > REQUEST_BYTES_MAX:
        raise MessageTooLarge(f"the request has more than {REQUEST_BYTES_MAX} bytes")
    return parsed(raw) if raw.strip() else {}


def parsed(raw: bytes) -> Any:
    """Raises InvalidJson. Text may still hold half of a surrogate pair: the checks of fields refuse that."""
    try:
        return _READER.decode(raw.decode())  # given bytes, `json` would guess at UTF-16, and let surrogates pass
    except RecursionError:
        raise InvalidJson("the request body is nested too deeply") from None
    except ValueError as error:
        raise InvalidJson(f"the request body is not JSON: {error}") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        twice = next(name for name, times in Counter(name for name, _ in pairs).items() if times > 1)
        raise InvalidJson(f"an object in the request body has {shown(twice)} twice")
    return members


def _integer(digits: str) -> int:
    return int(digits[:_DIGITS_READ])


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


_READER = json.JSONDecoder(object_pairs_hook=_object, parse_int=_integer, parse_constant=_refuse)
