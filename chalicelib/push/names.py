"""Finds the addresses of names, for no longer than a call may take."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from threading import BoundedSemaphore, Thread

from chalicelib.push.addresses import literal
from chalicelib.push.wire import LeftS

RESOLVING_MAX = 64
"""Look-ups under way at once in an instance: a name server that does not answer must not gather threads without end."""

Resolve = Callable[[str, int], Sequence[str]]
"""The addresses of a name. Raises OSError."""


def resolved(host: str, port: int) -> list[str]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
    return [str(address[0]) for *_, address in found]


class Names:
    """Each look-up has a thread of its own, since the resolver of the system takes no time-out: it goes on for some ten
    seconds for a caller that has given up, and keeps its place among `RESOLVING_MAX` until then."""

    def __init__(self, resolve: Resolve) -> None:
        self._resolve, self._places = resolve, BoundedSemaphore(RESOLVING_MAX)

    def addresses(self, host: str, port: int, left_s: LeftS) -> Sequence[str]:
        """Raises OSError, and ValueError for what is no name."""
        if known := literal(host):
            return [known]
        if not self._places.acquire(timeout=left_s()):
            raise TimeoutError(f"{RESOLVING_MAX} other names are being looked up")
        found: SimpleQueue[Sequence[str] | Exception] = SimpleQueue()
        try:
            Thread(target=self._look_up, args=(host, port, found), name="decant-name", daemon=True).start()
        except RuntimeError as error:  # there are too many threads
            self._places.release()
            raise OSError(str(error)) from error
        try:
            answer = found.get(timeout=left_s())
        except Empty:
            raise TimeoutError(f"{host} was not found in time") from None
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _look_up(self, host: str, port: int, found: SimpleQueue[Sequence[str] | Exception]) -> None:
        try:
            found.put(self._resolve(host, port))
        except Exception as error:  # noqa: BLE001 - the caller raises it
            found.put(error)
        finally:
            self._places.release()
