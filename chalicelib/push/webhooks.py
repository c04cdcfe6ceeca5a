"""Posts to URLs. Each call checks the addresses of a name and connects to a checked one, so a name that resolves
differently a moment later has no effect. It follows no redirects and retries nothing.

One deadline bounds a call. Before each step that waits, it sets the socket's time-out to the time left, so no step
needs another thread to end it, whichever object owns the socket by then. Only the system's resolver has no time-out:
see `Names`.

The addresses that a webhook may have: public ones, so that a URL cannot reach hosts that only this service can
reach."""

from __future__ import annotations

import io
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import ExitStack
from functools import cached_property, partial
from http.client import HTTPConnection, HTTPException, IncompleteRead
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from ssl import SSLContext, create_default_context
from threading import Lock, Thread
from typing import Any

from chalicelib.core.base.fields import Label
from chalicelib.core.base.limits import SECOND_MS
from chalicelib.core.base.runtime import Runtime
from chalicelib.core.catalogue.push import Push, split_url
from chalicelib.push.outside import ANSWER_BYTES_MAX, ConsumerResponse

WIRE_BYTES_MAX = 8 * ANSWER_BYTES_MAX
"""How many bytes of a response are received. In chunks of one byte, a response is six times as long as its content."""

LeftS = Callable[[], float]
"""Returns the seconds left of a call, before each step that waits. Raises TimeoutError if none are."""

# The tables are of this module, since `is_global` differs from one version of Python to the next. They follow
# https://www.iana.org/assignments/iana-ipv4-special-registry and .../iana-ipv6-special-registry, as of October 2025.

_SPECIAL_V4 = [
    IPv4Network(network)
    for network in (
        "0.0.0.0/8",  # this network
        "10.0.0.0/8",  # private
        "100.64.0.0/10",  # shared: of carriers, and of Alibaba Cloud's metadata
        "127.0.0.0/8",  # loopback
        "169.254.0.0/16",  # link-local: metadata of most clouds
        "172.16.0.0/12",  # private
        "192.0.0.0/24",  # protocol assignments, also those of it that are global: no webhook is a NAT or a relay
        "192.0.2.0/24",  # documentation
        "192.88.99.0/24",  # relays of 6to4, deprecated
        "192.168.0.0/16",  # private
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, and broadcast
        "168.63.129.16/32",  # Azure's wire server: public by the registries, and reached from every machine there
    )
]
_GLOBAL_V6 = IPv6Network("2000::/3")
"""All networks assigned to hosts. The rest is loopback, local, multicast, deprecated or reserved."""
_SPECIAL_V6 = [
    IPv6Network(network)
    for network in (
        "2001::/23",  # protocol assignments: Teredo, benchmarks, ORCHID; as those of IPv4
        "2001:db8::/32",  # documentation
        "3fff::/20",  # documentation
    )
]
_NAT64 = IPv6Network("64:ff9b::/96")
"""The one prefix of translators that is global; 64:ff9b:1::/48 is for local use."""
_ISATAP = (b"\0\0\x5e\xfe", b"\2\0\x5e\xfe")
"""Precedes an IPv4 address in the second half of an IPv6 address."""
_LOOPBACK_NAME = "localhost"


def demand_reachable(push: Push, allows_loopback: bool) -> None:
    """Raises InvalidField for a URL that is refused whatever its name resolves to. Each call checks the resolved
    addresses."""
    if push.url is None:
        return
    label = Label("push.url")
    parts = split_url(push.url, label)
    host = (parts.hostname or "").rstrip(".")
    address = literal(host)
    is_loopback = host == _LOOPBACK_NAME or host.endswith(f".{_LOOPBACK_NAME}")
    if parts.scheme != "https" and not allows_loopback:
        raise label.wrong("an https URL", push.url)
    if (is_loopback and not allows_loopback) or (address and not is_allowed(address, allows_loopback)):
        raise label.wrong("a URL with a public address, not a private, loopback or link-local one", push.url)


def literal(host: str) -> str | None:
    """The address that a host spells without a look-up: `127.0.0.1` also for `127.1` and `0x7f000001`. None for a
    name."""
    try:
        return str(ip_address(host))
    except ValueError:
        pass
    try:
        return str(IPv4Address(socket.inet_aton(host)))
    except (OSError, ValueError):
        return None


def is_allowed(address: str, allows_loopback: bool) -> bool:
    """Whether the address is public, and so is each IPv4 address embedded in it."""
    known = ip_address(address.partition("%")[0])
    return all(_is_public(each) or (each.is_loopback and allows_loopback) for each in _with_carried(known))


def _with_carried(known: IPv4Address | IPv6Address) -> Iterator[IPv4Address | IPv6Address]:
    """The addresses that traffic to it may reach. If its prefix only marks an embedded address, that address alone
    counts."""
    if isinstance(known, IPv4Address):
        yield known
    elif carried := known.ipv4_mapped or (IPv4Address(known.packed[-4:]) if known in _NAT64 else None):
        yield carried
    else:
        yield known
        if known.sixtofour:
            yield known.sixtofour
        if known.packed[8:12] in _ISATAP:
            yield IPv4Address(known.packed[-4:])


def _is_public(known: IPv4Address | IPv6Address) -> bool:
    if isinstance(known, IPv4Address):
        return not any(known in network for network in _SPECIAL_V4)
    return known in _GLOBAL_V6 and not any(known in network for network in _SPECIAL_V6)


RESOLVING_MAX = 64
"""Look-ups under way at once in an instance, so that a name server that does not respond cannot pile up threads."""

Resolve = Callable[[str, int], Sequence[str]]
"""The addresses of a name. Raises OSError."""


def resolved(host: str, port: int) -> list[str]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
    return [str(address[0]) for *_, address in found]


class Names:
    """Each look-up has its own thread, since the system's resolver has no time-out and continues for some ten seconds
    after its caller has given up. All callers of a host share one look-up, so that an unresponsive name server holds up
    only its own names."""

    def __init__(self, resolve: Resolve) -> None:
        self._resolve = resolve
        self._lock = Lock()
        self._under_way: dict[tuple[str, int], Future[Sequence[str]]] = {}

    def addresses(self, host: str, port: int, left_s: LeftS) -> Sequence[str]:
        """Raises OSError, and ValueError for a malformed name."""
        if known := literal(host):
            return [known]
        found = self._asked((host, port))
        wait([found], left_s())
        if not found.done():
            raise TimeoutError(f"{host} was not found in time")
        return found.result()

    def _asked(self, place: tuple[str, int]) -> Future[Sequence[str]]:
        with self._lock:
            if under_way := self._under_way.get(place):
                return under_way
            if len(self._under_way) == RESOLVING_MAX:
                raise TimeoutError(f"{RESOLVING_MAX} other names are being looked up")
            found: Future[Sequence[str]] = Future()
            try:
                Thread(target=self._look_up, args=(place, found), name="decant-name", daemon=True).start()
            except RuntimeError as error:  # there are too many threads
                raise OSError(str(error)) from error
            self._under_way[place] = found
            return found

    def _look_up(self, place: tuple[str, int], found: Future[Sequence[str]]) -> None:
        try:
            answer = self._resolve(*place)
        except Exception as error:  # noqa: BLE001 - the callers raise it
            self._end(place)
            found.set_exception(error)
        else:
            self._end(place)
            found.set_result(answer)

    def _end(self, place: tuple[str, int]) -> None:
        with self._lock:
            del self._under_way[place]


class DeadlineSocket(io.RawIOBase):
    """Its creator closes the socket."""

    def __init__(self, connected: socket.socket, left_s: LeftS) -> None:
        self._socket, self._left_s, self._received = connected, left_s, 0

    def sendall(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            self._socket.settimeout(self._left_s())
            rest = rest[self._socket.send(rest) :]

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(self)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if self._received > WIRE_BYTES_MAX:
            raise OSError(f"the answer has more than {WIRE_BYTES_MAX} bytes")
        self._socket.settimeout(self._left_s())
        count = self._socket.recv_into(buffer)
        self._received += count
        return count

    def close(self) -> None: ...


_PORTS = {"http": 80, "https": 443}


class Webhooks:
    def __init__(self, runtime: Runtime, allows_loopback: bool = False, resolve: Resolve = resolved) -> None:
        self._runtime, self._allows_loopback, self._names = runtime, allows_loopback, Names(resolve)

    def post(self, url: str, headers: Mapping[str, str], body: bytes, timeout_ms: int) -> ConsumerResponse:
        """Never raises."""
        until_ms = self._runtime.uptime() + timeout_ms
        try:
            answer = self._posted(url, headers, body, partial(self._left_s, until_ms))
        except (OSError, HTTPException, ValueError) as error:
            answer = ConsumerResponse.missing(f"no answer: {type(error).__name__}: {error}")
        if self._runtime.uptime() >= until_ms:
            return ConsumerResponse.missing(f"no answer within {timeout_ms} ms")
        return answer

    def _posted(self, url: str, headers: Mapping[str, str], body: bytes, left_s: LeftS) -> ConsumerResponse:
        parts = split_url(url, Label("push.url"))
        host, port = parts.hostname or "", parts.port or _PORTS[parts.scheme]
        if parts.scheme != "https" and not self._allows_loopback:
            return ConsumerResponse.missing("refused: the URL is not https")
        addresses = list(dict.fromkeys(self._names.addresses(host, port, left_s)))
        for address in addresses:
            if not is_allowed(address, self._allows_loopback):
                return ConsumerResponse.missing(f"refused: {host} has the address {address}, which is not public")
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        with self._connected((parts.scheme, host, port), addresses, left_s) as connected:
            connection: Any = HTTPConnection(host, port)
            connection.sock = DeadlineSocket(connected, left_s)
            connection.request("POST", target, body, {"host": parts.netloc, **headers})
            return _answer(connection)

    def _connected(self, server: tuple[str, str, int], addresses: Sequence[str], left_s: LeftS) -> socket.socket:
        """A connection to the first address that accepts one. Its certificate must match the name. `server`: scheme,
        name and port."""
        scheme, host, port = server
        trouble: Exception = OSError(f"{host} has no address")
        for address in addresses:
            try:
                connected = socket.create_connection((address, port), timeout=left_s())
                return self._opened(connected, host if scheme == "https" else None, left_s)
            except (OSError, ValueError) as error:
                trouble = error
        raise trouble

    def _opened(self, connected: socket.socket, host: str | None, left_s: LeftS) -> socket.socket:
        """The connection, ready for a request. `host`: the name that its certificate must match; None: no TLS."""
        with ExitStack() as failing:
            failing.callback(connected.close)
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
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


def _answer(connection: HTTPConnection) -> ConsumerResponse:
    response = connection.getresponse()
    content = response.read(ANSWER_BYTES_MAX + 1)
    if len(content) > ANSWER_BYTES_MAX:
        return ConsumerResponse.missing(f"status {response.status}, and more than {ANSWER_BYTES_MAX} bytes")
    if response.length:  # of the bytes announced, as many never came
        raise IncompleteRead(content, response.length)
    return ConsumerResponse(response.status, content, response.headers.get("retry-after"))
