"""Writes the body of an answer, and reads that of a request."""

from __future__ import annotations

from typing import Any

import orjson

from chalicelib.core.base import strict_json
from chalicelib.core.base.errors import InvalidJson, MessageTooLarge
from chalicelib.core.base.limits import REQUEST_BYTES_MAX


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
        return strict_json.read(raw, "the request body")
    except ValueError as error:
        raise InvalidJson(str(error)) from None
