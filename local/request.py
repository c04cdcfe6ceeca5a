"""Parses the head of an HTTP/1.1 request, and renders responses."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from typing import NamedTuple

from chalicelib.core.base.errors import DecantError, InvalidField
from chalicelib.core.base.fields import shown
from chalicelib.doors.http import response

_TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]++"
_REQUEST_LINE = re.compile(rb"(?P<method>%s) (?P<target>[!-~\x80-\xff]++) HTTP/1\.(?P<minor>[0-9])\r?" % _TOKEN)
_HEADER = rb"(%s):[ \t]*+([\t -~\x80-\xff]*+)\r?\n" % _TOKEN
_EACH_HEADER = re.compile(_HEADER)
_HEADERS = re.compile(b"(?:%s)*+" % _HEADER)
"""Other lines (without a colon, continuing the previous one, or with control characters) are refused: whoever skips
them, or takes them for the end of the headers, loses headers that others see, such as the length. RFC 9112 lets a line
end without its carriage return."""

_HOST = re.compile(r"[!$%&'()*+;=.:_~\[\]0-9A-Za-z-]*")
"""A name or an address, and perhaps a port; no comma, which stands between two headers."""

_PHRASES = {status.value: status.phrase for status in HTTPStatus}

Headers = Mapping[str, str | list[str]]


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
        """No client of HTTP/1.0 does: RFC 9110 has servers ignore its expectation."""
        return not self.line.endswith("/1.0") and self.headers.get("expect", "").lower() == "100-continue"


class Answer(NamedTuple):
    status: int
    headers: Headers
    body: bytes


def understood(head: bytes) -> Head:
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


def refusal(error: DecantError) -> Answer:
    refused = response.refusal(error)
    return Answer(refused.status, refused.headers, refused.text.encode())


def rendered(answer: Answer, is_last: bool, has_body: bool = True) -> bytes:
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


def _completed(answer: Answer, is_last: bool) -> Headers:
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
