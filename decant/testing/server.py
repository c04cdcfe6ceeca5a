"""The service over a memory store, in this process."""

from __future__ import annotations

import os
import threading
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from chalicelib import wiring
from chalicelib.api import Api
from chalicelib.core.base.runtime import Runtime
from chalicelib.doors.http import door
from chalicelib.settings import Settings
from decant.aio import AsyncDecant
from decant.aio_transport import InThreads
from decant.calls import HttpRequest, HttpResponse, NotSent
from decant.client import Decant
from decant.testing.clock import Bell, Clock, Seconds
from local import background
from local import server as http
from local.memory.store import MemoryStore

if TYPE_CHECKING:
    from local.asyncio_server import Server as HttpServer

ADDRESS = "http://decant.testing"
EVERYTHING = {"operations": ["produce", "consume", "read", "admin"], "topics": "*"}


class Server:
    """The service, and what a test needs of it. `with` or `close` ends it; a process has one at a time.

    access: Callers need tokens; `client` and `async_client` have one that may do everything.
    settings: Environment variables of the service, such as `DECANT_ACCOUNT`.

    Raises RuntimeError while another runs.
    """

    _running: Server | None = None
    _lock = threading.Lock()

    def __init__(self, *, access: bool = False, settings: dict[str, str] | None = None) -> None:
        with Server._lock:
            if Server._running:
                raise RuntimeError("another decant.testing.Server runs in this process; close it first")
            Server._running = self
        try:
            self._begin(access, settings or {})
        except BaseException:
            Server._running = None
            raise

    def _begin(self, access: bool, settings: dict[str, str]) -> None:
        self.clock = Clock(self.sweep)
        chosen = {"DECANT_STORE": "memory", "DECANT_ACCESS": "tokens" if access else "none", **settings}
        runtime = Runtime(
            self.clock.now_ms, self.clock.sleep, os.urandom, self.clock.uptime_ms, lambda: Bell(self.clock)
        )
        self._store = MemoryStore(keeps_blobs=False)
        parts = wiring.Parts(lambda _: self._store, self._wake, wiring.parts.hooks, runtime)
        self._api: Api = wiring.build(Settings(chosen), parts)
        self._http: HttpServer | None = None
        wiring.use(self._api)
        token = self._token() if access else None
        seconds = Seconds(self.clock)
        self.client = Decant(ADDRESS, token, transport=InProcess(self), clock=seconds, sleep=seconds.sleep)
        self.async_client = AsyncDecant(ADDRESS, token, transport=InThreads(InProcess(self)), clock=seconds)

    def _token(self) -> str:
        made: dict[str, Any] = self._api.make_token({"name": "test", "rights": [EVERYTHING]})
        return str(made["token"])

    def _wake(self, topic: str, _is_staying: bool) -> None:
        """Runs the push of the topic, as `make run` does."""
        run = self._api.service.pushing.run
        threading.Thread(target=run, args=[topic], name="decant-push", daemon=True).start()

    @property
    def is_running(self) -> bool:
        return Server._running is self

    @property
    def url(self) -> str:
        """Where programs that speak HTTP reach the same service. The first use begins to listen, on loopback."""
        with Server._lock:
            if self._http is None:
                self._http = http.listen(0, is_logging=False)
                threading.Thread(target=self._http.serve_forever, name="decant-testing", daemon=True).start()
        return f"http://127.0.0.1:{self._http.port}"

    def sweep(self) -> None:
        """Runs the scheduled work of the service once, as each `clock.advance` does."""
        with self.clock.call():
            background.sweep_all()
            background.move()
            self._store.drop_expired(self.clock.now_ms())

    def close(self) -> None:
        """Ends the service. All that it stored is gone."""
        self.client.close()
        with Server._lock:
            if Server._running is self:
                Server._running = None
                wiring.use(None)
            if self._http:
                self._http.shutdown()
                self._http.server_close()
                self._http = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()


class InProcess:
    """Carries the requests of a client to the service without a socket."""

    address = ADDRESS

    def __init__(self, server: Server) -> None:
        self._server = server

    def send(self, request: HttpRequest, _timeout_s: float) -> HttpResponse:
        """Raises NotSent after the server was closed: the next request of this process may be for any other."""
        if not self._server.is_running:
            raise NotSent("the decant.testing.Server is closed")
        asked = http.request_of(request.method, request.target, request.headers, request.body)
        with self._server.clock.call():
            response = door.respond(asked, lambda: None)
        return HttpResponse(response.status, response.headers, response.text.encode())

    def close(self) -> None:
        pass
