"""Resolves names to addresses, within the time of a call."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from threading import Lock, Thread

from chalicelib.push.addresses import literal
from chalicelib.push.wire import LeftS

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
