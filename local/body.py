"""Reads the body of an HTTP request, as its headers announce it: a length, or chunks, or nothing.

Whatever is wrong here leaves unknown how much of the connection belongs to this request: the caller has to close it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from email.message import Message
from typing import BinaryIO

from chalicelib.errors import InvalidField, MessageTooLarge
from chalicelib.fields import shown
from chalicelib.limits import REQUEST_BYTES_MAX

_LINE_BYTES_MAX = 1_024
"""A chunk's size and its extensions, or one trailer."""

_TRAILERS_MAX = 100


class ClientGone(ConnectionError):
    """The connection ended before the body did."""


def read_body(headers: Message, stream: BinaryIO, go_on: Callable[[], None]) -> bytes | None:
    """None where no body is announced. `go_on` is called once it is clear that a body will be read."""
    lengths = headers.get_all("content-length", [])
    encodings = headers.get_all("transfer-encoding", [])
    if encodings:
        _check_chunked(encodings, lengths)
        go_on()
        return _read_chunks(stream)
    if not lengths:
        return None
    length = _checked_length(lengths)
    go_on()
    return _read(stream, length)


def _check_chunked(encodings: list[str], lengths: list[str]) -> None:
    if [encoding.strip().lower() for encoding in encodings] != ["chunked"]:
        raise InvalidField(f"header 'transfer-encoding' must be 'chunked'; it is {shown(', '.join(encodings))}")
    if lengths:
        raise InvalidField("headers 'transfer-encoding' and 'content-length' exclude each other")


def _checked_length(lengths: list[str]) -> int:
    length = lengths[0].strip()
    if len(set(lengths)) > 1 or not re.fullmatch("[0-9]{1,19}", length):
        raise InvalidField(f"header 'content-length' must be one number of bytes; it is {shown(', '.join(lengths))}")
    _check_size(int(length))
    return int(length)


def _check_size(size: int) -> None:
    if size > REQUEST_BYTES_MAX:
        raise MessageTooLarge(f"the request has more than {REQUEST_BYTES_MAX} bytes")


def _read_chunks(stream: BinaryIO) -> bytes:
    body = bytearray()
    while size := _chunk_size(stream):
        _check_size(len(body) + size)
        body += _read(stream, size)
        if _read_line(stream):
            raise InvalidField("the request body has a chunk that is longer than its size says")
    for _ in range(_TRAILERS_MAX):
        if not _read_line(stream):
            return bytes(body)
    raise InvalidField(f"the request body has more than {_TRAILERS_MAX} trailers")


def _chunk_size(stream: BinaryIO) -> int:
    size = _read_line(stream).partition(b";")[0].strip()
    if not re.fullmatch(b"[0-9A-Fa-f]{1,16}", size):
        raise InvalidField(f"the request body has a chunk of the size {shown(size.decode('latin-1'))}")
    return int(size, 16)


def _read_line(stream: BinaryIO) -> bytes:
    line = stream.readline(_LINE_BYTES_MAX + 1)
    if not line.endswith(b"\n"):
        if len(line) > _LINE_BYTES_MAX:
            raise InvalidField(f"the request body has a chunk header of more than {_LINE_BYTES_MAX} bytes")
        raise ClientGone
    return line.rstrip(b"\r\n")


def _read(stream: BinaryIO, size: int) -> bytes:
    data = stream.read(size)
    if len(data) < size:
        raise ClientGone
    return data
