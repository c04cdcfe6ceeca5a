"""A network that fails: a proxy between clients and a DynamoDB emulator, which passes bytes on, or does not.

It parses HTTP only to find the end of a message, and DynamoDB only to tell which requests write.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from random import Random
from socketserver import StreamRequestHandler, ThreadingTCPServer
from typing import Protocol
from urllib.parse import urlsplit

from tests.load.clock import now
from tests.load.throttling import Throttling

SECONDS_MAX = 10
"""How long the proxy waits for an answer of the emulator."""

_WRITES = (b"UpdateItem", b"DeleteItem", b"PutItem", b"TransactWriteItems", b"BatchWriteItem")

_SORRY = json.dumps({"__type": "com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException"}).encode()
_THROTTLED = b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/x-amz-json-1.0\r\ncontent-length: %d\r\n\r\n%s" % (
    len(_SORRY),
    _SORRY,
)


@dataclass(frozen=True, slots=True)
class Faults:
    """The probability of each fault, for each request. A request has at most one of them, and perhaps a delay too."""

    lose_request: float = 0.0
    """The connection closes, and nothing was applied."""
    lose_reply: float = 0.0
    """The connection closes after the request was applied."""
    throttle: float = 0.0
    """A throttling error is the answer, and nothing was applied."""
    zombie: float = 0.0
    """A write gets its answer, and is applied once more later."""
    late: float = 0.0
    """The connection closes, and a write is applied only later, perhaps after its own repeat."""
    delay: float = 0.0
    delay_ms_max: int = 50
    late_ms_max: int = 900


NONE = Faults()
ALL = Faults(lose_request=0.03, lose_reply=0.04, throttle=0.03, zombie=0.04, late=0.03, delay=0.1)

KINDS = tuple(each.name for each in fields(Faults) if not each.name.endswith("_max"))


class Proxy:
    """`throttling`: of partition keys, besides. Tests may change `faults` while it runs. `did` counts the faults by
    kind, `connections` those of clients."""

    def __init__(self, endpoint: str, faults: Faults, seed: int, throttling: Throttling | None = None) -> None:
        address = urlsplit(endpoint)
        self._emulator = (str(address.hostname), int(address.port or 80))
        self._random = Random(seed)
        self._lock = threading.Lock()
        self._late: list[threading.Thread] = []
        self.faults = faults
        self._throttling = throttling
        self.did: Counter[str] = Counter()
        self.connections = 0

    @contextmanager
    def running(self) -> Iterator[str]:
        """Listens on loopback and yields the endpoint. Applies all delayed writes before it ends."""
        with _Server(("127.0.0.1", 0), _Connection) as server:
            server.proxy = self
            threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
            try:
                yield f"http://127.0.0.1:{server.server_address[1]}"
            finally:
                server.shutdown()
                self.settle()

    def settle(self) -> None:
        """Waits until all delayed writes are applied."""
        while self._late:
            self._late.pop().join()

    def answer(self, request: bytes, upstream: Upstream) -> bytes | None:
        """Returns the reply, or None to close the connection."""
        fault, delay_ms, late_ms = self._luck(_is_write(request))
        time.sleep(delay_ms / 1_000)
        if fault == "throttle":
            return _THROTTLED
        if self._throttling and (refusal := self._throttling.reply(request, now())):
            return refusal
        if fault in ("zombie", "late"):
            self._apply_later(request, late_ms)
        if fault in ("lose_request", "late"):
            return None
        reply = upstream.exchange(request)
        return None if fault == "lose_reply" else reply

    def connected(self) -> Upstream:
        """Opens the emulator's side of a client's connection."""
        self.connections += 1
        return Upstream(self._emulator)

    def _luck(self, is_write: bool) -> tuple[str | None, int, int]:
        """Chooses the fate of a request: a fault, a delay, and how much later a late one is applied."""
        faults = self.faults
        with self._lock:
            fault = self._fault(is_write)
            delay_ms = self._random.randint(1, faults.delay_ms_max) if self._random.random() < faults.delay else 0
            self.did.update([fault] if fault else [])
            self.did.update(["delay"] if delay_ms else [])
            return fault, delay_ms, self._random.randrange(faults.late_ms_max)

    def _fault(self, is_write: bool) -> str | None:
        luck = self._random.random()
        kinds = ["lose_request", "lose_reply", "throttle"] + (["zombie", "late"] if is_write else [])
        for kind in kinds:
            luck -= getattr(self.faults, kind)
            if luck < 0:
                return kind
        return None

    def _apply_later(self, request: bytes, late_ms: int) -> None:
        def apply() -> None:
            time.sleep(late_ms / 1_000)
            with suppress(OSError), Upstream(self._emulator) as upstream:
                upstream.exchange(request)

        thread = threading.Thread(target=apply, daemon=True)
        thread.start()
        with self._lock:
            self._late = [each for each in self._late if each.is_alive()] + [thread]


class Upstream:
    """A connection to the emulator."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._socket = socket.create_connection(address, SECONDS_MAX)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._file = self._socket.makefile("rb")

    def __enter__(self) -> Upstream:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._socket.close()

    def exchange(self, request: bytes) -> bytes | None:
        self._socket.sendall(request)
        return read_message(self._file)


class Stream(Protocol):
    def readline(self) -> bytes: ...

    def read(self, size: int) -> bytes: ...


def read_message(stream: Stream) -> bytes | None:
    """The next HTTP message, head and body; None when the other side has closed."""
    head, length = b"", 0
    while line := stream.readline():
        head += line
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
        if not line.strip():
            return head + stream.read(length)
    return None


def _is_write(request: bytes) -> bool:
    head = request.partition(b"\r\n\r\n")[0]
    return any(b"." + verb in head for verb in _WRITES)


class _Server(ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128
    proxy: Proxy


class _Connection(StreamRequestHandler):
    disable_nagle_algorithm = True
    server: _Server

    def handle(self) -> None:
        with suppress(OSError), self.server.proxy.connected() as upstream:
            while request := read_message(self.rfile):
                reply = self.server.proxy.answer(request, upstream)
                if reply is None:
                    return
                self.wfile.write(reply)
