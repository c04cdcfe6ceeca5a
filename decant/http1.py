"""HTTP/1.1 without I/O: a request as bytes, and bytes as a response. Both faces of the client read answers with it."""

from __future__ import annotations

import re
from collections.abc import Generator

from decant.calls import HttpRequest, HttpResponse
from decant.errors import NotDecant

HEAD_BYTES_MAX = 65_536
BODY_BYTES_MAX = 64 * 1024 * 1024
"""Ten times the largest answer of the service."""
_STATUS_LINE = re.compile(rb"HTTP/1\.([01]) (\d{3})(?: |$)")
_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,8})[ \t]*(?:;.*)?")
_TLS_RECORDS = (b"\x15\x03", b"\x16\x03")
_SHOWN_BYTES = 40


class Incomplete(Exception):
    """The connection ended before the answer did."""


def encoded(request: HttpRequest, host: str, prefix: str = "") -> bytes:
    """The request as bytes. `prefix`: the path of the service's address."""
    lines = [f"{request.method} {prefix}{request.target} HTTP/1.1", f"host: {host}", "user-agent: decant-python"]
    lines += [f"{name}: {value}" for name, value in request.headers.items()]
    if request.body or request.method in ("POST", "PUT"):
        lines.append(f"content-length: {len(request.body)}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + request.body


class Reader:
    """Puts an answer together. `is_kept`: the connection can carry another request behind it."""

    def __init__(self) -> None:
        self.is_kept = True
        self._received = bytearray()
        self._is_end = False
        self._steps = self._answer()
        next(self._steps)

    def feed(self, data: bytes) -> HttpResponse | None:
        """The response, once it is complete. No data: the connection has ended. Raises NotDecant if the service
        would not answer so, Incomplete at an early end."""
        self._received += data
        self._is_end = not data
        try:
            next(self._steps)
        except StopIteration as end:
            response: HttpResponse = end.value
            return response
        if self._is_end:
            raise Incomplete("the connection ended before the answer did")
        return None

    def _answer(self) -> Generator[None, None, HttpResponse]:
        yield
        status, headers = yield from self._head()
        while status < 200:  # 1xx: the answer is yet to come
            status, headers = yield from self._head()
        body = b"" if status in (204, 304) else (yield from self._body(headers))
        self.is_kept = self.is_kept and not self._received  # what follows belongs to no request
        return HttpResponse(status, headers, body)

    def _head(self) -> Generator[None, None, tuple[int, dict[str, str]]]:
        while not self._received.startswith(b"HTTP/"):
            self._demand_http()
            yield
        first, *lines = (yield from self._until(b"\r\n\r\n", HEAD_BYTES_MAX)).split(b"\r\n")
        matched = _STATUS_LINE.match(first)
        if matched is None:
            raise NotDecant(f"the answer is not HTTP/1.1: {first[:_SHOWN_BYTES]!r}")
        headers = dict(map(_header, lines))
        connection = headers.get("connection", "").lower()
        self.is_kept = connection == "keep-alive" if matched[1] == b"0" else connection != "close"
        return int(matched[2]), headers

    def _demand_http(self) -> None:
        start = bytes(self._received[:_SHOWN_BYTES])
        if start.startswith(_TLS_RECORDS):
            raise NotDecant("it speaks TLS: its address must begin with https://")
        if start[:5] != b"HTTP/"[: len(start)]:
            raise NotDecant(f"the answer is not HTTP: {start!r}")

    def _body(self, headers: dict[str, str]) -> Generator[None, None, bytes]:
        if headers.get("content-encoding", "identity").lower() != "identity":
            raise NotDecant(f"the answer is encoded as {headers['content-encoding']!r}")
        if "transfer-encoding" in headers:
            return (yield from self._chunks(headers["transfer-encoding"]))
        length = headers.get("content-length")
        if length is None:
            return (yield from self._rest())
        if not (length.isascii() and length.isdecimal() and len(length) < 19):
            raise NotDecant(f"the answer has the content length {length[:_SHOWN_BYTES]!r}")
        _demand_size(int(length))
        return (yield from self._exactly(int(length)))

    def _chunks(self, coding: str) -> Generator[None, None, bytes]:
        if coding.lower() != "chunked":
            raise NotDecant(f"the answer has the transfer encoding {coding[:_SHOWN_BYTES]!r}")
        body = bytearray()
        while size := (yield from self._chunk_size()):
            _demand_size(len(body) + size)
            body += yield from self._exactly(size)
            if (yield from self._exactly(2)) != b"\r\n":
                raise NotDecant("the answer has a chunk that is longer than it says")
        while (yield from self._until(b"\r\n", HEAD_BYTES_MAX)):  # trailers
            pass
        return bytes(body)

    def _chunk_size(self) -> Generator[None, None, int]:
        line = yield from self._until(b"\r\n", HEAD_BYTES_MAX)
        matched = _CHUNK_SIZE.fullmatch(line)
        if matched is None:
            raise NotDecant(f"the answer has a chunk of {line[:_SHOWN_BYTES]!r} bytes")
        return int(matched[1], 16)

    def _rest(self) -> Generator[None, None, bytes]:
        self.is_kept = False
        while not self._is_end:
            _demand_size(len(self._received))
            yield
        return self._taken(len(self._received))

    def _until(self, end: bytes, most: int) -> Generator[None, None, bytes]:
        """The bytes before this end, which are consumed with it."""
        while (place := self._received.find(end)) < 0:
            if len(self._received) > most:
                raise NotDecant(f"the answer has no end of a line within {most} bytes")
            yield
        found = self._taken(place + len(end))
        return found[:place]

    def _exactly(self, count: int) -> Generator[None, None, bytes]:
        while len(self._received) < count:
            yield
        return self._taken(count)

    def _taken(self, count: int) -> bytes:
        taken = bytes(self._received[:count])
        del self._received[:count]
        return taken


def _demand_size(count: int) -> None:
    if count > BODY_BYTES_MAX:
        raise NotDecant(f"the answer is too large: {count} bytes or more, at most {BODY_BYTES_MAX} are accepted")


def _header(line: bytes) -> tuple[str, str]:
    name, _, value = line.decode("latin-1").partition(":")
    return name.strip().lower(), value.strip()
