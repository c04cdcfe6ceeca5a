"""Posts to URLs. The addresses of a name are checked at every call, and the connection goes to one that was checked: a
name that resolves to something else a moment later reaches nothing. Redirects are not followed, nothing is repeated."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from threading import Timer
from typing import TYPE_CHECKING

from chalicelib.base.fields import Label
from chalicelib.base.limits import SECOND_MS
from chalicelib.base.runtime import Runtime
from chalicelib.catalogue.push import split_url
from chalicelib.push.addresses import is_allowed
from chalicelib.push.outside import ANSWER_BYTES_MAX, Answer

if TYPE_CHECKING:
    from urllib3.connection import HTTPConnection

_PORTS = {"http": 80, "https": 443}

Resolve = Callable[[str, int], Sequence[str]]
"""The addresses of a name. Raises OSError."""


def resolved(host: str, port: int) -> list[str]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
    return [str(address[0]) for *_, address in found]


class Webhooks:
    def __init__(self, runtime: Runtime, allows_loopback: bool = False, resolve: Resolve = resolved) -> None:
        self._runtime, self._allows_loopback, self._resolve = runtime, allows_loopback, resolve

    def post(self, url: str, headers: Mapping[str, str], body: bytes, timeout_ms: int) -> Answer:
        """Never raises."""
        from http.client import HTTPException  # with the first call, not at a cold start

        from urllib3.exceptions import HTTPError

        until_ms = self._runtime.uptime() + timeout_ms
        try:
            answer = self._posted(url, headers, body, until_ms)
        except (OSError, HTTPError, HTTPException, ValueError) as error:
            answer = Answer.missing(f"no answer: {type(error).__name__}: {error}")
        if self._runtime.uptime() >= until_ms:
            return Answer.missing(f"no answer within {timeout_ms} ms")
        return answer

    def _posted(self, url: str, headers: Mapping[str, str], body: bytes, until_ms: int) -> Answer:
        parts = split_url(url, Label("push.url"))
        host, port = parts.hostname or "", parts.port or _PORTS[parts.scheme]
        if parts.scheme != "https" and not self._allows_loopback:
            return Answer.missing("refused: the URL is not https")
        addresses = list(dict.fromkeys(self._resolve(host, port)))
        for address in addresses:
            if not is_allowed(address, self._allows_loopback):
                return Answer.missing(f"refused: {host} has the address {address}, which is not public")
        tried: list[HTTPConnection] = []
        cutting = Timer(self._left_s(until_ms), _cut, [tried])
        cutting.daemon = True
        cutting.start()  # a time-out of the socket alone would begin anew with each byte
        try:
            connection = self._connected((parts.scheme, host, port), addresses, until_ms, tried)
            target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            connection.request("POST", target, body, {"host": parts.netloc, **headers}, preload_content=False)
            response = connection.getresponse()
            content = response.read(ANSWER_BYTES_MAX + 1, decode_content=False)
            if len(content) > ANSWER_BYTES_MAX:
                return Answer.missing(f"status {response.status}, and more than {ANSWER_BYTES_MAX} bytes")
            return Answer(response.status, content, response.headers.get("retry-after"))
        finally:
            cutting.cancel()
            for connection in tried:
                connection.close()

    def _connected(
        self, server: tuple[str, str, int], addresses: Sequence[str], until_ms: int, tried: list[HTTPConnection]
    ) -> HTTPConnection:
        """A connection to the first address that takes one. Its certificate must be that of the name. `server`: scheme,
        name and port."""
        from urllib3.connection import HTTPConnection, HTTPSConnection

        scheme, host, port = server
        trouble: Exception = OSError(f"{host} has no address")
        for address in addresses:
            left_s = self._left_s(until_ms)
            if scheme == "https":
                connection: HTTPConnection = HTTPSConnection(
                    address, port, timeout=left_s, server_hostname=host, assert_hostname=host
                )
            else:
                connection = HTTPConnection(address, port, timeout=left_s)
            tried.append(connection)
            try:
                connection.connect()
                return connection
            except Exception as error:  # noqa: BLE001 - raised below, unless another address takes the call
                trouble = error
        raise trouble

    def _left_s(self, until_ms: int) -> float:
        """At least a millisecond: sockets take zero for no time-out."""
        return max(1, until_ms - self._runtime.uptime()) / SECOND_MS


def _cut(tried: Sequence[HTTPConnection]) -> None:
    """Ends whatever these connections are waiting for."""
    for connection in tried:
        with suppress(OSError):
            if connection.sock is not None:
                socket.socket.shutdown(connection.sock, socket.SHUT_RDWR)
