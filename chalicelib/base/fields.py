"""Reads the fields of a JSON object, once each, and says exactly which one is wrong and what it held.

`null` means not given. Whatever is not read is unknown, and refused: a typo must never be silently ignored.
"""

from __future__ import annotations

import base64
import itertools
import json
import re
from collections.abc import Collection, Mapping
from typing import Any

from chalicelib.base.errors import InvalidField, InvalidJson, InvalidName, UnknownField
from chalicelib.base.limits import NAME_PATTERN, OFFSET_MAX

_SHOWN_CHARS_MAX = 80


_ENCODER = json.JSONEncoder(ensure_ascii=False)


def shown(value: object) -> str:
    """A JSON value as an error text shows it: as its client may have written it, short enough for a log line."""
    return _cut(_json(value))


def quoted(name: str) -> str:
    """A name that a client gave, as names stand in error texts: in single quotes."""
    return f"'{_cut(_json(name)[1:-1])}'"


def _json(value: object) -> str:
    """As much of it as is shown: the rest may be megabytes, or nested deeper than one can recurse."""
    chunks = itertools.islice(_ENCODER.iterencode(value), _SHOWN_CHARS_MAX + 1)
    return "".join(chunks).encode(errors="backslashreplace").decode()


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARS_MAX else text[:_SHOWN_CHARS_MAX] + "..."


def checked_name(kind: str, name: str) -> str:
    if not re.fullmatch(NAME_PATTERN, name):
        raise InvalidName(f"{kind} name {quoted(name)} must match {NAME_PATTERN}")
    return name


class Fields:
    """The fields of one JSON object; `where` prefixes their names in error texts, which call them `noun`s."""

    def __init__(self, data: object, known: Collection[str], where: str = "", noun: str = "field") -> None:
        if not isinstance(data, dict):
            if where:
                raise InvalidField(f"{noun} '{where.rstrip('.')}' must be a JSON object, not {shown(data)}")
            raise InvalidJson(f"the request must be a JSON object, not {shown(data)}")
        self._data: dict[str, Any] = data
        self._where = where
        self._noun = noun
        for name in data:
            if name not in known:
                raise UnknownField(
                    f"{noun} {quoted(where + name)} is not known; known are: {', '.join(sorted(known)) or 'none'}"
                )

    def given(self, name: str) -> bool:
        return self._data.get(name) is not None

    def raw(self, name: str) -> Any:
        return self._data.get(name)

    def integer(self, name: str, least: int, most: int) -> int | None:
        value = self._data.get(name)
        if value is None:
            return None
        if type(value) is not int or not least <= value <= most:
            raise self.wrong(name, f"an integer from {least} to {most}")
        return value

    def flag(self, name: str) -> bool | None:
        value = self._data.get(name)
        if value is None or isinstance(value, bool):
            return value
        raise self.wrong(name, "true or false")

    def text(self, name: str, chars_max: int | None = None, chars_min: int = 1) -> str | None:
        value = self._data.get(name)
        if value is None:
            return None
        if wanted := _wrong_text(value, chars_max, chars_min):
            raise self.wrong(name, wanted)
        return str(value)

    def data(self, name: str) -> bytes | None:
        """Bytes in base64, taken only as they would be written: what went in comes out."""
        value = self.text(name, chars_min=0)
        if value is None:
            return None
        try:
            return _decoded(value)
        except ValueError:
            raise self.wrong(name, "base64 of RFC 4648, section 4: padded, and with no stray bits") from None

    def strings(self, name: str, most: int, chars_max: int, least: int = 1, chars_min: int = 0) -> list[str] | None:
        value = self._data.get(name)
        if value is None:
            return None
        if not isinstance(value, list) or not least <= len(value) <= most:
            raise self.wrong(name, f"a list of {least} to {most} strings")
        for index, element in enumerate(value):
            if wanted := _wrong_text(element, chars_max, chars_min):
                raise InvalidField(
                    f"{self._noun} '{self._where}{name}[{index}]' must be {wanted}; it is {shown(element)}"
                )
        return value

    def wrong(self, name: str, wanted: str) -> InvalidField:
        return InvalidField(f"{self._noun} '{self._where}{name}' must be {wanted}; it is {shown(self._data.get(name))}")


def _wrong_text(value: object, chars_max: int | None, chars_min: int) -> str | None:
    """What it should be, and is not."""
    if not isinstance(value, str):
        return "a string"
    if len(value) < chars_min:
        return f"a string of at least {chars_min} character"
    if chars_max is not None and len(value) > chars_max:
        return f"a string of at most {chars_max} characters, not {len(value)}"
    return None if encodable(value) else "text without a lone surrogate"


def encodable(text: str) -> bool:
    """Whether UTF-8 can say it: JSON can spell half a surrogate pair, text cannot hold one."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _decoded(text: str) -> bytes:
    """Raises ValueError. Python checks the alphabet, but takes bits and padding at the end that nothing needs."""
    data = base64.b64decode(text, validate=True)
    triples = len(data) // 3
    if base64.b64encode(data[triples * 3 :]).decode() != text[triples * 4 :]:
        raise ValueError("the end is not as it would be written")
    return data


def encoded_token(positions: Mapping[int, int]) -> str:
    """Positions in queues as a `next` token, opaque to clients."""
    text = ",".join(f"{queue}:{offset}" for queue, offset in sorted(positions.items()))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def decoded_token(token: str, queues: int) -> dict[int, int]:
    """Raises InvalidField when no page gave this token."""
    try:
        text = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True).decode()
        pairs = [place.split(":") for place in text.split(",")]
        positions = {int(queue): int(offset) for queue, offset in pairs}
    except ValueError:
        positions = {}
    is_ours = positions and all(0 <= queue < queues and 0 <= at <= OFFSET_MAX for queue, at in positions.items())
    if not is_ours or encoded_token(positions) != token:
        raise InvalidField(f"parameter 'next' must be a token that a page before gave; it is {shown(token)}")
    return positions
