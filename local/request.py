"""Parses the head of an HTTP/1.1 request, and renders responses."""

from __future__ import annotations

import re
from asyncio import LimitOverrunError, StreamReader
from collections.abc import Mapping
from dataclasses import dataclass
from email.message import Message
from email.utils import formatdate
from http import HTTPStatus
from http.client import HTTPException, parse_headers
from io import BytesIO
from typing import NamedTuple

from chalicelib.base.errors import DecantError, InvalidField
from chalicelib.base.fields import shown
from chalicelib.protocols import entrance
from chalicelib.protocols.http.body import text_of

HEAD_BYTES_MAX = 64 * 1024
"""The request line and all headers. AWS load balancers accept as much, API Gateway less."""

HEADERS_MAX = 99
"""As many as the standard library accepts, which counts the blank line. Lines that have arrived are read in one go
while other connections wait: a head of 64 KB in lines of four bytes takes some 10 ms."""

_BLANK = (b"\r\n", b"\n")
_REQUEST_LINE = re.compile(rb"(?P<method>\S+)\s+(?P<target>\S+)\s+HTTP/1\.(?P<minor>[0-9])\s*")
_HEADER_LINE = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+:[^\r\0]*\r?\n")
"""The standard library's parser would take other lines (without a colon, or continuing the previous one) for the end of
the headers or part of one: the request could lose its length."""

Headers = Mapping[str, str | list[str]]


@dataclass(frozen=True, slots=True)
class Head:
    """`target`: as the client sent it. `keeps`: the client may send another request on the same connection."""

    line: str
    method: str
    target: str
    headers: Message
    keeps: bool

    @property
    def waits_to_send(self) -> bool:
        return str(self.headers.get("expect", "")).lower() == "100-continue"


class Answer(NamedTuple):
    status: int
    headers: Headers
    body: bytes


async def read_head(stream: StreamReader, begun: bytes) -> bytes:
    """The head of a request, `begun` included, up to its blank line.

    Raises `EOFError` if the connection ends before that: a head without its blank line may lack anything, such as the
    length of the body, and must not be executed."""
    head = bytearray(begun)
    for _ in range(HEADERS_MAX + 2):  # the request line, and the blank one
        try:
            line = await stream.readuntil(b"\n")
        except LimitOverrunError:
            line = bytes(HEAD_BYTES_MAX)
        head += line
        if len(head) > HEAD_BYTES_MAX:
            raise InvalidField(f"the head of the request has more than {HEAD_BYTES_MAX} bytes")
        if line in _BLANK or head in _BLANK:
            return bytes(head)
    raise InvalidField(f"the request has more than {HEADERS_MAX} headers")


def understood(head: bytes) -> Head:
    """Raises `InvalidField` if it is not HTTP/1."""
    line, *headers = head.splitlines(keepends=True)
    parts = _REQUEST_LINE.fullmatch(line)
    if parts is None:
        raise InvalidField(
            f"the request line must be a method, a path and HTTP/1.1; it is {shown(_text(line).strip())}"
        )
    parsed = _parsed_headers(headers)
    keeps = _is_kept(parsed, is_by_default=parts["minor"] != b"0")
    return Head(_text(line).strip(), _text(parts["method"]), _text(parts["target"]), parsed, keeps)


def refusal(error: DecantError) -> Answer:
    refused = entrance.refusal(error)
    return Answer(refused.status, refused.headers, text_of(refused.body).encode())


def rendered(answer: Answer, is_last: bool, has_body: bool = True) -> bytes:
    """`has_body`: False in response to HEAD, which only states the length."""
    lines = [f"HTTP/1.1 {answer.status} {_phrase(answer.status)}", "server: Decant", f"date: {formatdate(usegmt=True)}"]
    for name, value in _completed(answer, is_last).items():
        lines += [f"{name}: {one}" for one in (value if isinstance(value, list) else [value])]
    head = "\r\n".join([*lines, "", ""]).encode("latin-1")
    return head + answer.body if has_body and answer.status != HTTPStatus.NO_CONTENT else head


def _completed(answer: Answer, is_last: bool) -> Headers:
    headers: dict[str, str | list[str]] = {name.lower(): value for name, value in answer.headers.items()}
    if is_last:
        headers["connection"] = "close"
    if answer.status == HTTPStatus.NO_CONTENT:
        headers.pop("content-type", None)
        return headers
    return {"content-type": "application/json", **headers, "content-length": str(len(answer.body))}


def _parsed_headers(lines: list[bytes]) -> Message:
    for line in lines[:-1]:
        if not _HEADER_LINE.fullmatch(line):
            raise InvalidField(f"a header must be a line with a name, a colon and a value; one is {shown(_text(line))}")
    try:
        return parse_headers(BytesIO(b"".join(lines)))
    except HTTPException as error:
        raise InvalidField(f"the request has too many headers: {error}") from error


def _is_kept(headers: Message, is_by_default: bool) -> bool:
    wishes = {wish.strip().lower() for value in headers.get_all("connection", []) for wish in value.split(",")}
    return "close" not in wishes and (is_by_default or "keep-alive" in wishes)


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""


def _text(data: bytes) -> str:
    return data.decode("latin-1")
