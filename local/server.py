"""The HTTP server in front of the app: Chalice's own local one, made fit for load and for odd clients.

As it comes, it sends headers and body apart (44 ms per request on a kept connection), keeps one current request for all
threads, does not decode chunks, and says 403 to an unknown path, as API Gateway does. A path that the app does not have
is 404 here, as behind a function URL.
"""

from __future__ import annotations

import re
import socket
import socketserver
import sys
import time
import traceback
from collections.abc import Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any
from uuid import uuid4

from chalice.app import Chalice
from chalice.config import Config
from chalice.local import (
    ChaliceRequestHandler,
    LocalChalice,
    LocalDevServer,
    LocalGateway,
    LocalGatewayException,
    ThreadedHTTPServer,
)

from chalicelib.errors import DecantError, Internal, InvalidField, NotFound
from chalicelib.fields import quoted
from chalicelib.protocols.http import problems
from local.body import read_body

HOST = "127.0.0.1"

BACKLOG = 1_024
"""Connections that may wait to be accepted: all the clients of a load test arrive at once."""

IDLE_SECONDS = 120
"""How long a kept connection may say nothing."""

LINGER_SECONDS = 2
"""How long a client that is still sending may take to see that it has been refused."""

BUFFER_BYTES = 64 * 1024
"""Answers up to this size, headers included, leave in one piece."""

Headers = Mapping[str, str | list[str]]
Answer = tuple[int, Headers, str | bytes | None]


def listen(app: Chalice, port: int, is_logging: bool) -> LocalDevServer:
    """Takes the port; `serve_forever` on `.server` of what it returns begins to answer. `OSError` if it cannot."""
    handler = LoggingHandler if is_logging else Handler
    return LocalDevServer(with_requests_apart(app), Config.create(), HOST, port, handler, Server)


def with_requests_apart(app: Chalice) -> Chalice:
    """The same app, whose `current_request` is each thread's own."""
    app.__class__ = type("LocalApp", (LocalChalice, type(app)), {})
    return app


def problem(error: DecantError) -> Answer:
    response = problems.response(error)
    return response.status_code, response.headers, response.body


class Server(ThreadedHTTPServer):
    request_queue_size = BACKLOG

    def server_bind(self) -> None:
        # HTTPServer also asks the resolver for the name of the address, which can take seconds.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = HOST, self.server_address[1]

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class NoSuchPath(LocalGatewayException):
    """Not a `ValueError`, by which Chalice would know it and answer 403."""


class Gateway(LocalGateway):
    def _generate_lambda_event(self, method: str, path: str, headers: dict[str, Any], body: bytes | None) -> Any:
        try:
            return super()._generate_lambda_event(method, _bare(path), headers, body)
        except ValueError:
            raise NoSuchPath({}) from None

    def _has_user_defined_options_method(self, _lambda_event: dict[str, Any]) -> bool:
        return True  # or Chalice would answer OPTIONS itself, and deployed the app does


def _bare(target: str) -> str:
    """The target of a request as a path and a query only. HTTP lets it begin with the host. Chalice would take what
    follows a semicolon for parameters of the path, and what follows a hash for a fragment, and drop it."""
    return re.sub("^https?://[^/?]*", "", target, flags=re.IGNORECASE).replace(";", "%3B").replace("#", "%23")


class Handler(ChaliceRequestHandler):
    disable_nagle_algorithm = True
    wbufsize = BUFFER_BYTES
    timeout = IDLE_SECONDS
    default_request_version = "HTTP/1.1"

    def __init__(self, request: Any, client_address: Any, server: Any, app_object: Chalice, config: Config) -> None:
        self.local_gateway = Gateway(app_object, config)
        BaseHTTPRequestHandler.__init__(self, request, client_address, server)

    def answer(self) -> None:
        try:
            body = read_body(self.headers, self.rfile, self._go_on)
        except DecantError as error:
            self._refuse(error)
            return
        self._send(*self._answer_to(body))

    @property
    def _target(self) -> str:
        """As it came: the `path` of the base class has lost all slashes at its beginning but one."""
        target: str = self.requestline.split()[1]
        return target

    def _answer_to(self, body: bytes | None) -> Answer:
        try:
            response = self.local_gateway.handle_request(self.command, self._target, dict(self.headers), body)
            headers = {**response["headers"], **response["multiValueHeaders"]}
            return response["statusCode"], headers, self._handle_binary(response)["body"]
        except NoSuchPath:
            return problem(NotFound(f"there is no path {quoted(self._target.partition('?')[0])}"))
        except LocalGatewayException as error:
            return error.CODE, error.headers, error.body
        except Exception:  # noqa: BLE001 - whatever it is, the client gets an answer, and the log the rest
            return problem(self._defect())

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = answer  # noqa: N815

    def handle_expect_100(self) -> bool:
        return True  # `_go_on` says it, when the body is wanted

    def send_error(self, code: int, message: str | None = None, _explain: str | None = None) -> None:
        """Where the base class finds that this is not HTTP; or not a method that it knows, of which the app can say
        more."""
        if code == HTTPStatus.NOT_IMPLEMENTED:
            self.answer()
            self.wfile.flush()
        else:
            self._refuse(InvalidField(message or HTTPStatus(code).phrase))

    def version_string(self) -> str:
        return "Decant"

    def log_message(self, *_: Any) -> None:
        pass

    def _go_on(self) -> None:
        if self.headers.get("Expect", "").lower() == "100-continue":
            self.send_response_only(HTTPStatus.CONTINUE)
            self.end_headers()
            self.wfile.flush()

    def _refuse(self, error: DecantError) -> None:
        """Answers without having read the request to its end, so that the connection cannot be used again."""
        self.close_connection = True
        self._send(*problem(error))
        self.wfile.flush()
        self._discard()

    def _discard(self) -> None:
        """Reads on for a moment: closed at once, the connection would be reset, and the answer lost with it."""
        end = time.monotonic() + LINGER_SECONDS
        self.connection.settimeout(LINGER_SECONDS)
        try:
            self.connection.shutdown(socket.SHUT_WR)
            while time.monotonic() < end and self.connection.recv(BUFFER_BYTES):
                pass
        except OSError:
            pass

    def _defect(self) -> DecantError:
        reference = uuid4().hex
        sys.stderr.write(f"defect {reference}\n{traceback.format_exc()}")
        return Internal(f"a defect, in the log as {reference}")

    def _send(self, status: int, headers: Headers, body: str | bytes | None) -> None:
        data = body.encode() if isinstance(body, str) else body or b""
        self.send_response(status)
        for name, value in self._with_length(status, headers, len(data)).items():
            for each in value if isinstance(value, list) else [value]:
                self.send_header(name, each)
        self.end_headers()
        if self.command != "HEAD" and status != HTTPStatus.NO_CONTENT:
            self.wfile.write(data)

    def _with_length(self, status: int, headers: Headers, length: int) -> Headers:
        sent: dict[str, str | list[str]] = {name.lower(): value for name, value in headers.items()}
        if self.close_connection:
            sent["connection"] = "close"
        if status == HTTPStatus.NO_CONTENT:
            sent.pop("content-type", None)
            return sent
        return {"content-type": "application/json", **sent, "content-length": str(length)}


class LoggingHandler(Handler):
    def log_message(self, *args: Any) -> None:
        BaseHTTPRequestHandler.log_message(self, *args)
