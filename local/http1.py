"""HTTP/1.1 over a connection: reads the head and the body of a request as they arrive, and renders responses.

Readers are generators. They yield a `WaitFor` where they have to wait; the connection resumes them when that is over. A
request that has arrived whole is read without a pause. After an error it is unknown where the next request begins: the
caller has to close the connection."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Generator, Mapping
from email.utils import formatdate
from enum import Enum
from functools import lru_cache
from http import HTTPStatus
from typing import NamedTuple, TypeVar

from chalicelib.core.base.errors import DecantError, InvalidField, MessageTooLarge
from chalicelib.core.base.fields import shown
from chalicelib.doors.http import exchange

T = TypeVar("T")

HEAD_BYTES_MAX = 64 * 1024
"""The request line and all headers. AWS load balancers accept as much, API Gateway less."""

HEADERS_MAX = 99
"""As many as the standard library accepts, which counts the blank line."""

LINE_BYTES_MAX = 1_024
"""A chunk's size and its extensions, or one trailer."""

CHUNK_HEAD = re.compile(rb"([0-9A-Fa-f]{1,16})(?:[ \t]*+;[\t -~\x80-\xff]{0,%d}+)?\r\n" % LINE_BYTES_MAX)
"""The size of a chunk, and extensions, which are ignored."""

_BLANK = (b"\r\n", b"\n")
_END_OF_HEAD = re.compile(rb"\n\r?\n")
_END_BYTES_MAX = 3

_TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]++"

_REQUEST_LINE = re.compile(rb"(?P<method>%s) (?P<target>[!-~\x80-\xff]++) HTTP/1\.(?P<minor>[0-9])\r?" % _TOKEN)

_HEADER = rb"(%s):[ \t]*+([\t -~\x80-\xff]*+)\r?\n" % _TOKEN

_EACH_HEADER = re.compile(_HEADER)

_HEADERS = re.compile(b"(?:%s)*+" % _HEADER)
"""Other lines (without a colon, continuing the previous one, or with control characters) are refused. A server that
skips them, or takes them for the end of the headers, loses headers that others see, such as the length. RFC 9112 lets a
line end without its carriage return."""

_HOST = re.compile(r"[!$%&'()*+;=.:_~\[\]0-9A-Za-z-]*")
"""A name or an address, and perhaps a port; no comma, which stands between two headers."""

_PHRASES = {status.value: status.phrase for status in HTTPStatus}

Headers = Mapping[str, str | list[str]]

_TRAILERS_MAX = 100

_CHUNKS_AT_ONCE = 256
"""After this many chunks other connections have their turn. A body of one-byte chunks that have all arrived would keep
them waiting."""


class WaitFor(Enum):
    INPUT = "until more has arrived"
    OUTPUT = "until the client has read all that was sent"
    RESPONSE = "until the request is executed"
    TURN = "until the other connections have had their turn"


Steps = Generator[WaitFor, None, T]


class ReceiveBuffer:
    """`has_ended`: no more comes."""

    def __init__(self) -> None:
        self._bytes = bytearray()
        self.has_ended = False

    def __len__(self) -> int:
        return len(self._bytes)

    def add(self, data: bytes) -> None:
        self._bytes += data

    def clear(self) -> None:
        self._bytes.clear()

    def head(self) -> Steps[bytes]:
        """Returns the head of a request up to its blank line. Ignores one blank line before it, which old clients send
        after a body. Raises `EOFError` if the connection ends early: an incomplete head may lack anything, such as the
        length of the body, and must not be executed."""
        head = yield from self._to_blank()
        return (yield from self._to_blank()) if head in _BLANK else head

    def _to_blank(self) -> Steps[bytes]:
        searched = lines = 0
        while (end := self._end_of_head(searched)) is None:
            lines += self._bytes.count(b"\n", searched)
            searched = len(self._bytes)
            _demand_small(searched, lines)
            yield from self.more()
        _demand_small(end, self._bytes.count(b"\n", 0, end) - 1)
        return self._taken(end)

    def exactly(self, size: int) -> Steps[bytes]:
        """Raises `EOFError` if the connection ends before that."""
        while len(self._bytes) < size:
            yield from self.more()
        return self._taken(size)

    def take_chunks(self, body: bytearray, most: int) -> int:
        """Adds the data of up to so many chunks to the body, as far as they have arrived whole. Returns how many it
        took. The caller reads any other step by step, which takes ten times as long."""
        at = taken = 0
        while taken < most and (head := CHUNK_HEAD.match(self._bytes, at)):
            end = head.end() + int(head[1], 16)
            if end == head.end() or self._bytes[end : end + 2] != b"\r\n":
                break
            body += self._bytes[head.end() : end]
            at, taken = end + 2, taken + 1
        del self._bytes[:at]
        return taken

    def line(self) -> Steps[bytes]:
        """Returns a line without its end. Within a body, a line feed alone ends no line, as other servers may not take
        it for an end. Raises `EOFError` if the connection ends before that."""
        while (end := self._bytes.find(b"\n", 0, LINE_BYTES_MAX)) < 0:
            if len(self._bytes) >= LINE_BYTES_MAX:
                raise InvalidField(f"the request body has a chunk header of more than {LINE_BYTES_MAX} bytes")
            yield from self.more()
        line = self._taken(end + 1)
        if not line.endswith(b"\r\n"):
            raise InvalidField("a line of a chunked body must end with a carriage return and a line feed")
        return line[:-2]

    def _end_of_head(self, searched: int) -> int | None:
        """Where it ends. `searched`: it does not end within so many bytes."""
        for blank in _BLANK:
            if self._bytes.startswith(blank):
                return len(blank)
        found = _END_OF_HEAD.search(self._bytes, max(0, searched - _END_BYTES_MAX))
        return found.end() if found else None

    def more(self) -> Steps[None]:
        if self.has_ended:
            raise EOFError
        yield WaitFor.INPUT

    def _taken(self, size: int) -> bytes:
        with memoryview(self._bytes) as view:
            taken = bytes(view[:size])
        del self._bytes[:size]
        return taken


def _demand_small(size: int, lines: int) -> None:
    """`lines`: the request line and headers."""
    if size > HEAD_BYTES_MAX:
        raise InvalidField(f"the head of the request has more than {HEAD_BYTES_MAX} bytes")
    if lines > HEADERS_MAX + 1:
        raise InvalidField(f"the request has more than {HEADERS_MAX} headers")


# -- heads, and responses ---------------------------------------------------------------------------------------------


class Head(NamedTuple):
    """`target`: as the client sent it. `headers`: by their names in lower case; the values of one that was sent several
    times are one list, as HTTP has it. `keeps`: the client may send another request on the same connection."""

    line: str
    method: str
    target: str
    headers: Mapping[str, str]
    keeps: bool

    @property
    def waits_to_send(self) -> bool:
        """Whether the client waits for `100 Continue`. Clients of HTTP/1.0 do not: RFC 9110 makes servers ignore their
        expectation."""
        return not self.line.endswith("/1.0") and self.headers.get("expect", "").lower() == "100-continue"


class RawResponse(NamedTuple):
    status: int
    headers: Headers
    body: bytes


def parse_head(head: bytes) -> Head:
    """Raises `InvalidField` if it is not HTTP/1."""
    line, _, rest = head.partition(b"\n")
    parts = _REQUEST_LINE.fullmatch(line)
    if parts is None:
        raise InvalidField(
            f"the request line must be a method, a path and HTTP/1.1; it is {shown(_text(line).removesuffix(chr(13)))}"
        )
    headers = _parsed_headers(rest.removesuffix(b"\n").removesuffix(b"\r"))
    is_old = parts["minor"] == b"0"
    _check_host(headers.get("host"), is_old)
    if is_old and "transfer-encoding" in headers:
        raise InvalidField("header 'transfer-encoding' is not known in HTTP/1.0")
    keeps = _is_kept(headers.get("connection", ""), is_by_default=not is_old)
    return Head(_text(line).strip(), _text(parts["method"]), _text(parts["target"]), headers, keeps)


def refusal(error: DecantError) -> RawResponse:
    refused = exchange.refusal(error)
    return RawResponse(refused.status, refused.headers, refused.text.encode())


def render(answer: RawResponse, is_last: bool, has_body: bool = True) -> bytes:
    """`has_body`: False in response to HEAD, which only states the length."""
    status = answer.status
    lines = [f"HTTP/1.1 {status} {_PHRASES.get(status, '')}", "server: Decant", f"date: {_date(int(time.time()))}"]
    for name, value in _completed(answer, is_last).items():
        lines += [f"{name}: {one}" for one in (value if isinstance(value, list) else [value])]
    head = "\r\n".join([*lines, "", ""]).encode("latin-1")
    return head + answer.body if has_body and status != HTTPStatus.NO_CONTENT else head


@lru_cache(maxsize=1)
def _date(seconds: int) -> str:
    return formatdate(seconds, usegmt=True)


def _completed(answer: RawResponse, is_last: bool) -> Headers:
    headers: dict[str, str | list[str]] = {name.lower(): value for name, value in answer.headers.items()}
    if is_last:
        headers["connection"] = "close"
    if answer.status == HTTPStatus.NO_CONTENT:
        headers.pop("content-type", None)
        return headers
    return {"content-type": "application/json", **headers, "content-length": str(len(answer.body))}


def _parsed_headers(lines: bytes) -> dict[str, str]:
    if not _HEADERS.fullmatch(lines):
        refused = next(line for line in lines.split(b"\n") if not is_header(line))
        raise InvalidField(f"a header must be a line with a name, a colon and a value; one is {shown(_text(refused))}")
    headers: dict[str, str] = {}
    for name, value in _EACH_HEADER.findall(lines):
        key, text = _text(name).lower(), _text(value).rstrip(" \t")
        headers[key] = f"{headers[key]}, {text}" if key in headers else text
    return headers


def is_header(line: bytes) -> bool:
    """`line`: without its end."""
    return _EACH_HEADER.fullmatch(line + b"\n") is not None


def _check_host(host: str | None, is_old: bool) -> None:
    if host is None and not is_old:
        raise InvalidField("header 'host' is missing, which HTTP/1.1 demands")
    if host and not _HOST.fullmatch(host):
        raise InvalidField(f"header 'host' must be one host, and perhaps its port; it is {shown(host)}")


def _is_kept(wished: str, is_by_default: bool) -> bool:
    if not wished:
        return is_by_default
    wishes = {wish.strip().lower() for wish in wished.split(",")}
    return "close" not in wishes and (is_by_default or "keep-alive" in wishes)


def _text(data: bytes) -> str:
    return data.decode("latin-1")


# -- bodies -----------------------------------------------------------------------------------------------------------


def read_body(
    headers: Mapping[str, str], incoming: ReceiveBuffer, bytes_max: int, go_on: Callable[[int | None], Steps[None]]
) -> Steps[bytes | None]:
    """Returns the body, or None if the head announces none. Calls `go_on` with the body's size before it reads one;
    chunks do not tell the size. Raises `EOFError` if the connection ends before the body does."""
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


def _read_chunks(incoming: ReceiveBuffer, bytes_max: int) -> Steps[bytes]:
    body = bytearray()
    while size := (yield from _chunk_size(incoming)):
        _check_size(len(body) + size, bytes_max)
        body += yield from incoming.exactly(size)
        if (yield from incoming.line()):
            raise InvalidField("the request body has a chunk that is longer than its size says")
        taken = incoming.take_chunks(body, _CHUNKS_AT_ONCE)
        _check_size(len(body), bytes_max)
        if taken == _CHUNKS_AT_ONCE:
            yield WaitFor.TURN
    for _ in range(_TRAILERS_MAX):
        if not (trailer := (yield from incoming.line())):
            return bytes(body)
        if not is_header(trailer):
            raise InvalidField(f"a trailer must be a line with a name, a colon and a value; one is {_shown(trailer)}")
    raise InvalidField(f"the request body has more than {_TRAILERS_MAX} trailers")


def _chunk_size(incoming: ReceiveBuffer) -> Steps[int]:
    line = yield from incoming.line()
    head = CHUNK_HEAD.fullmatch(line + b"\r\n")
    if head is None:
        raise InvalidField(f"a chunk must begin with its size, in hexadecimal digits; one begins with {_shown(line)}")
    return int(head[1], 16)


def _shown(line: bytes) -> str:
    return shown(line.decode("latin-1"))
