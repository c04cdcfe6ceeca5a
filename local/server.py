"""The HTTP server of `make run`, fit for load and for odd clients."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import parse_qsl

from chalicelib.base import deadline
from chalicelib.protocols.http.respond import Request, respond
from local.connections import HasHungUp, Server
from local.request import Answer, Head


def listen(port: int, is_logging: bool) -> Server:
    """Binds the port and returns the server; its `serve_forever` serves requests. Raises `OSError`."""
    return Server(port, carry_out, is_poll=is_poll, is_logging=is_logging)


def is_poll(head: Head) -> bool:
    """Whether the request may wait for messages."""
    return head.target.partition("?")[0].endswith("/pop")


def carry_out(head: Head, body: bytes | None, has_hung_up: HasHungUp) -> Answer:
    headers = {name: ", ".join(head.headers.get_all(name, [])) for name in head.headers}
    with deadline.caller(has_hung_up):
        response = respond(request_of(head.method, head.target, headers, body))
    return Answer(response.status, response.headers, response.text.encode())


def request_of(method: str, target: str, headers: Mapping[str, str], body: bytes | None) -> Request:
    """HTTP allows the target to begin with the host."""
    path, _, query = re.sub("^https?://[^/?]*", "", target, flags=re.IGNORECASE).partition("?")
    by_name = {name.lower(): value for name, value in headers.items()}
    return Request(method, path, parse_qsl(query, keep_blank_values=True), by_name, body or b"")
