"""Reads the body of an HTTP request as its headers announce it: by length, in chunks, or none.

After any error here it is unknown where the next request begins: the caller has to close the connection.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from chalicelib.core.base.errors import InvalidField, MessageTooLarge
from chalicelib.core.base.fields import shown
from local.incoming import CHUNK_HEAD, Incoming, Pause, Steps
from local.request import is_header

_TRAILERS_MAX = 100

_CHUNKS_AT_ONCE = 256
"""After this many chunks other connections have their turn. A body of one-byte chunks that have all arrived would keep
them waiting."""


def read_body(
    headers: Mapping[str, str], incoming: Incoming, bytes_max: int, go_on: Callable[[int | None], Steps[None]]
) -> Steps[bytes | None]:
    """None if no body is announced. Runs `go_on` once a body is going to be read: with its size, which chunks do not
    tell.

    Raises `EOFError` if the connection ends before the body does."""
    length, encoding = headers.get("content-length"), headers.get("transfer-encoding")
    if encoding is not None:
        _check_chunked(encoding, length)
        yield from go_on(None)
        return (yield from _read_chunks(incoming, bytes_max))
    if length is None:
        return None
    size = _checked_length(length, bytes_max)
    yield from go_on(size)
    return (yield from incoming.exactly(size))


def _check_chunked(encoding: str, length: str | None) -> None:
    if encoding.lower() != "chunked":
        raise InvalidField(f"header 'transfer-encoding' must be 'chunked'; it is {shown(encoding)}")
    if length is not None:
        raise InvalidField("headers 'transfer-encoding' and 'content-length' exclude each other")


def _checked_length(length: str, bytes_max: int) -> int:
    """The same number may be given twice."""
    sizes = set(length.split(", "))
    size = sizes.pop()
    if sizes or not re.fullmatch("[0-9]{1,19}", size):
        raise InvalidField(f"header 'content-length' must be one number of bytes; it is {shown(length)}")
    _check_size(int(size), bytes_max)
    return int(size)


def _check_size(size: int, bytes_max: int) -> None:
    if size > bytes_max:
        raise MessageTooLarge(f"the request has more than {bytes_max} bytes")


def _read_chunks(incoming: Incoming, bytes_max: int) -> Steps[bytes]:
    body = bytearray()
    while size := (yield from _chunk_size(incoming)):
        _check_size(len(body) + size, bytes_max)
        body += yield from incoming.exactly(size)
        if (yield from incoming.line()):
            raise InvalidField("the request body has a chunk that is longer than its size says")
        taken = incoming.take_chunks(body, _CHUNKS_AT_ONCE)
        _check_size(len(body), bytes_max)
        if taken == _CHUNKS_AT_ONCE:
            yield Pause.TURN
    for _ in range(_TRAILERS_MAX):
        if not (trailer := (yield from incoming.line())):
            return bytes(body)
        if not is_header(trailer):
            raise InvalidField(f"a trailer must be a line with a name, a colon and a value; one is {_shown(trailer)}")
    raise InvalidField(f"the request body has more than {_TRAILERS_MAX} trailers")


def _chunk_size(incoming: Incoming) -> Steps[int]:
    line = yield from incoming.line()
    head = CHUNK_HEAD.fullmatch(line + b"\r\n")
    if head is None:
        raise InvalidField(f"a chunk must begin with its size, in hexadecimal digits; one begins with {_shown(line)}")
    return int(head[1], 16)


def _shown(line: bytes) -> str:
    return shown(line.decode("latin-1"))
