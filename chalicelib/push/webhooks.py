"""Posts to URLs. Each call checks the addresses of a name and connects to a checked one, so a name that resolves
differently a moment later has no effect. It follows no redirects and retries nothing.

One deadline bounds a call. Before each step that waits, it sets the socket's time-out to the time left, so no step
needs another thread to end it, whichever object owns the socket by then. Only the system's resolver has no time-out:
see `names`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import cached_property, partial
from http.client import HTTPConnection, HTTPException, IncompleteRead
from socket import IPPROTO_TCP, TCP_NODELAY, create_connection, socket
from ssl import SSLContext, create_default_context
from typing import Any

from chalicelib.core.base.fields import Label
from chalicelib.core.base.limits import SECOND_MS
from chalicelib.core.base.runtime import Runtime
from chalicelib.core.catalogue.push import split_url
from chalicelib.push.addresses import is_allowed
from chalicelib.push.names import Names, Resolve, resolved
from chalicelib.push.outside import ANSWER_BYTES_MAX, Answer
from chalicelib.push.wire import LeftS, Wire

_PORTS = {"http": 80, "https": 443}


class Webhooks:
    def __init__(self, runtime: Runtime, allows_loopback: bool = False, resolve: Resolve = resolved) -> None:
        self._runtime, self._allows_loopback, self._names = runtime, allows_loopback, Names(resolve)

    def post(self, url: str, headers: Mapping[str, str], body: bytes, timeout_ms: int) -> Answer:
        """Never raises."""
        until_ms = self._runtime.uptime() + timeout_ms
        try:
            answer = self._posted(url, headers, body, partial(self._left_s, until_ms))
        except (OSError, HTTPException, ValueError) as error:
            answer = Answer.missing(f"no answer: {type(error).__name__}: {error}")
        if self._runtime.uptime() >= until_ms:
            return Answer.missing(f"no answer within {timeout_ms} ms")
        return answer

    def _posted(self, url: str, headers: Mapping[str, str], body: bytes, left_s: LeftS) -> Answer:
        parts = split_url(url, Label("push.url"))
        host, port = parts.hostname or "", parts.port or _PORTS[parts.scheme]
        if parts.scheme != "https" and not self._allows_loopback:
            return Answer.missing("refused: the URL is not https")
        addresses = list(dict.fromkeys(self._names.addresses(host, port, left_s)))
        for address in addresses:
            if not is_allowed(address, self._allows_loopback):
                return Answer.missing(f"refused: {host} has the address {address}, which is not public")
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        with self._connected((parts.scheme, host, port), addresses, left_s) as connected:
            connection: Any = HTTPConnection(host, port)
            connection.sock = Wire(connected, left_s)
            connection.request("POST", target, body, {"host": parts.netloc, **headers})
            return _answer(connection)

    def _connected(self, server: tuple[str, str, int], addresses: Sequence[str], left_s: LeftS) -> socket:
        """A connection to the first address that accepts one. Its certificate must match the name. `server`: scheme,
        name and port."""
        scheme, host, port = server
        trouble: Exception = OSError(f"{host} has no address")
        for address in addresses:
            try:
                connected = create_connection((address, port), timeout=left_s())
                return self._opened(connected, host if scheme == "https" else None, left_s)
            except (OSError, ValueError) as error:
                trouble = error
        raise trouble

    def _opened(self, connected: socket, host: str | None, left_s: LeftS) -> socket:
        """The connection, ready for a request. `host`: the name that its certificate must match; None: no TLS."""
        with ExitStack() as failing:
            failing.callback(connected.close)
            connected.setsockopt(IPPROTO_TCP, TCP_NODELAY, 1)
            connected.settimeout(left_s())  # of the whole handshake
            opened = connected if host is None else self._tls.wrap_socket(connected, server_hostname=host)
            failing.pop_all()
        return opened

    @cached_property
    def _tls(self) -> SSLContext:
        """Made once, since it reads all certificate authorities of the machine."""
        return create_default_context()

    def _left_s(self, until_ms: int) -> float:
        """Raises TimeoutError if nothing is left: sockets take zero for no time-out."""
        left_ms = until_ms - self._runtime.uptime()
        if left_ms <= 0:
            raise TimeoutError("the time is over")
        return left_ms / SECOND_MS


def _answer(connection: HTTPConnection) -> Answer:
    response = connection.getresponse()
    content = response.read(ANSWER_BYTES_MAX + 1)
    if len(content) > ANSWER_BYTES_MAX:
        return Answer.missing(f"status {response.status}, and more than {ANSWER_BYTES_MAX} bytes")
    if response.length:  # of the bytes announced, as many never came
        raise IncompleteRead(content, response.length)
    return Answer(response.status, content, response.headers.get("retry-after"))
