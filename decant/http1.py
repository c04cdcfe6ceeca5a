"""HTTP/1.1 without I/O: a request as bytes, and bytes as a response. Both faces read answers with it."""

from __future__ import annotations

import re

from decant.calls import HttpRequest, HttpResponse
from decant.errors import NotDecant

HEAD_BYTES_MAX = 65_536
BODY_BYTES_MAX = 64 * 1024 * 1024
"""Far more than the service ever answers."""
_STATUS_LINE = re.compile(rb"HTTP/1\.([01]) (\d{3})(?: |$)")


def encoded(request: HttpRequest, host: str, prefix: str = "") -> bytes:
    """The request as bytes. `prefix`: the path of the service's address."""
    lines = [f"{request.method} {prefix}{request.target} HTTP/1.1", f"host: {host}", "user-agent: decant-python"]
    lines += [f"{name}: {value}" for name, value in request.headers.items()]
    if request.body or request.method not in ("GET", "DELETE"):
        lines.append(f"content-length: {len(request.body)}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + request.body


class Incomplete(Exception):
    """The connection ended within the answer."""


class Reader:
    """Puts an answer together. `feed` what was received, empty at the end, until it returns the response. `is_kept`:
    whether the connection can carry another request."""

    def __init__(self) -> None:
        self._received = bytearray()
        self._head: tuple[int, dict[str, str]] | None = None
        self._chunks = bytearray()
        self.is_kept = True

    def feed(self, data: bytes) -> HttpResponse | None:
        """Raises NotDecant for what is no HTTP, Incomplete at an early end."""
        self._received += data
        while self._head is None:
            if not self._read_head(is_end=not data):
                return None
            if self._head is not None and self._head[0] < 200:  # 1xx: the answer is yet to come
                self._head = None
        status, headers = self._head
        body = self._body(status, headers, is_end=not data)
        if body is None:
            if len(self._received) > BODY_BYTES_MAX or len(self._chunks) > BODY_BYTES_MAX:
                raise NotDecant(f"the answer has more than {BODY_BYTES_MAX} bytes")
            if not data:
                raise Incomplete(f"the answer was cut off after {len(self._received) + len(self._chunks)} bytes")
            return None
        return HttpResponse(status, headers, body)

    def _read_head(self, *, is_end: bool) -> bool:
        """Whether there is a whole head."""
        self._demand_http(is_end=is_end)
        end = self._received.find(b"\r\n\r\n")
        if end < 0:
            if len(self._received) > HEAD_BYTES_MAX:
                raise NotDecant("the answer has no end of headers")
            if is_end:
                raise Incomplete("the connection was closed before the answer")
            return False
        first, *lines = bytes(self._received[:end]).split(b"\r\n")
        del self._received[: end + 4]
        matched = _STATUS_LINE.match(first)
        if matched is None:
            raise NotDecant(f"the answer is not HTTP/1.1: {first[:40]!r}")
        headers = dict(map(_header, lines))
        connection = headers.get("connection", "").lower()
        self.is_kept = connection == "keep-alive" if matched[1] == b"0" else connection != "close"
        self._head = int(matched[2]), headers
        return True

    def _demand_http(self, *, is_end: bool) -> None:
        start = bytes(self._received[:5])
        if start[:2] in (b"\x15\x03", b"\x16\x03"):
            raise NotDecant("it speaks TLS: the address must begin with https://")
        if start != b"HTTP/"[: len(start)] or (is_end and b"\r\n\r\n" not in self._received and 0 < len(start) < 5):
            raise NotDecant(f"the answer is not HTTP: {bytes(self._received[:40])!r}")

    def _body(self, status: int, headers: dict[str, str], *, is_end: bool) -> bytes | None:
        if status == 204:
            return b""
        if headers.get("content-encoding", "identity").lower() != "identity":
            raise NotDecant(f"the answer is encoded ({headers['content-encoding']}), which nobody asked for")
        if "transfer-encoding" in headers:
            return self._chunked(headers["transfer-encoding"])
        if "content-length" not in headers:
            self.is_kept = False
            return bytes(self._received) if is_end else None
        length = headers["content-length"]
        if not (length.isascii() and length.isdecimal() and len(length) < 19):
            raise NotDecant(f"the answer has the content length {length[:40]!r}")
        if int(length) > BODY_BYTES_MAX:
            raise NotDecant(f"the answer has {length} bytes; at most {BODY_BYTES_MAX} are accepted")
        if len(self._received) > int(length):
            self.is_kept = False  # what follows belongs to no request
        return bytes(self._received[: int(length)]) if len(self._received) >= int(length) else None

    def _chunked(self, coding: str) -> bytes | None:
        if coding.lower() != "chunked":
            raise NotDecant(f"the answer has the transfer encoding {coding[:40]!r}")
        while (end := self._received.find(b"\r\n")) >= 0:
            text = bytes(self._received[:end]).partition(b";")[0].strip()
            if not re.fullmatch(rb"[0-9A-Fa-f]{1,8}", text):
                raise NotDecant(f"the answer has a chunk of {text[:40]!r} bytes")
            size = int(text, 16)
            if size == 0:
                return self._trailed(end)
            if len(self._received) < end + 2 + size + 2:
                return None
            self._chunks += self._received[end + 2 : end + 2 + size]
            del self._received[: end + 2 + size + 2]
        return None

    def _trailed(self, end: int) -> bytes | None:
        """The body, once the trailers behind the last chunk are there."""
        rest = bytes(self._received[end + 2 :])
        if rest == b"\r\n" or rest.endswith(b"\r\n\r\n"):
            return bytes(self._chunks)
        return None


def _header(line: bytes) -> tuple[str, str]:
    name, _, value = line.decode("latin-1").partition(":")
    return name.strip().lower(), value.strip()
