"""Reads the body of an HTTP request as its headers announce it: by length, in chunks, or none.

After any error here it is unknown where the next request begins: the caller has to close the connection.
"""

from __future__ import annotations

import re
from asyncio import StreamReader, sleep
from collections.abc import Awaitable, Callable
from email.message import Message

from chalicelib.base.errors import InvalidField, MessageTooLarge
from chalicelib.base.fields import shown

_LINE_BYTES_MAX = 1_024
"""A chunk's size and its extensions, or one trailer."""

_TRAILERS_MAX = 100

_CHUNKS_AT_ONCE = 16
"""After this many chunks the event loop serves other connections. A body of one-byte chunks that have all arrived
would keep them waiting."""


async def read_body(
    headers: Message, stream: StreamReader, bytes_max: int, go_on: Callable[[], Awaitable[None]]
) -> bytes | None:
    """None if no body is announced. Calls `go_on` once a body is going to be read.

    Raises `EOFError` if the connection ends before the body does."""
    lengths = headers.get_all("content-length", [])
    encodings = headers.get_all("transfer-encoding", [])
    if encodings:
        _check_chunked(encodings, lengths)
        await go_on()
        return await _read_chunks(stream, bytes_max)
    if not lengths:
        return None
    length = _checked_length(lengths, bytes_max)
    await go_on()
    return await stream.readexactly(length)


def _check_chunked(encodings: list[str], lengths: list[str]) -> None:
    if [encoding.strip().lower() for encoding in encodings] != ["chunked"]:
        raise InvalidField(f"header 'transfer-encoding' must be 'chunked'; it is {shown(', '.join(encodings))}")
    if lengths:
        raise InvalidField("headers 'transfer-encoding' and 'content-length' exclude each other")


def _checked_length(lengths: list[str], bytes_max: int) -> int:
    length = lengths[0].strip()
    if len(set(lengths)) > 1 or not re.fullmatch("[0-9]{1,19}", length):
        raise InvalidField(f"header 'content-length' must be one number of bytes; it is {shown(', '.join(lengths))}")
    _check_size(int(length), bytes_max)
    return int(length)


def _check_size(size: int, bytes_max: int) -> None:
    if size > bytes_max:
        raise MessageTooLarge(f"the request has more than {bytes_max} bytes")


async def _read_chunks(stream: StreamReader, bytes_max: int) -> bytes:
    body = bytearray()
    chunks = 0
    while size := await _chunk_size(stream):
        _check_size(len(body) + size, bytes_max)
        body += await stream.readexactly(size)
        if await _read_line(stream):
            raise InvalidField("the request body has a chunk that is longer than its size says")
        chunks += 1
        if chunks % _CHUNKS_AT_ONCE == 0:
            await sleep(0)
    for _ in range(_TRAILERS_MAX):
        if not await _read_line(stream):
            return bytes(body)
    raise InvalidField(f"the request body has more than {_TRAILERS_MAX} trailers")


async def _chunk_size(stream: StreamReader) -> int:
    size = (await _read_line(stream)).partition(b";")[0].strip()
    if not re.fullmatch(b"[0-9A-Fa-f]{1,16}", size):
        raise InvalidField(f"the request body has a chunk of the size {shown(size.decode('latin-1'))}")
    return int(size, 16)


async def _read_line(stream: StreamReader) -> bytes:
    """Reads byte by byte: `readuntil` would wait for more bytes than a line may have."""
    line = bytearray()
    while not line.endswith(b"\n"):
        if len(line) == _LINE_BYTES_MAX:
            raise InvalidField(f"the request body has a chunk header of more than {_LINE_BYTES_MAX} bytes")
        line += await stream.readexactly(1)
    return bytes(line).rstrip(b"\r\n")
