"""Offers the embedded store as a DynamoDB endpoint on loopback, so that other processes can read and export it."""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from local.server import BACKLOG, BUFFER_BYTES, HOST, IDLE_SECONDS

REQUEST_BYTES_MAX = 1 << 20
"""A hundred keys are a fifth of it."""

Answering = Callable[[str, bytes], Any]


class Endpoint(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = BACKLOG

    def __init__(self, port: int, answering: Answering) -> None:
        """Takes the port. Raises `OSError` if it cannot."""
        self.answering = answering
        super().__init__((HOST, port), Handler)

    def server_bind(self) -> None:
        self.socket.bind(self.server_address)  # HTTPServer also asks the resolver for the name of the address
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = HOST, self.server_address[1]

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.server_port}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = BUFFER_BYTES
    timeout = IDLE_SECONDS
    server: Endpoint

    def do_POST(self) -> None:
        length = self.headers.get("content-length", "")
        if not (length.isascii() and length.isdigit() and int(length) <= REQUEST_BYTES_MAX):
            self.close_connection = True
            self._send(413, b"", "text/plain")
            return
        body = self.rfile.read(int(length))
        try:
            status, content, content_type = self.server.answering(self.headers.get("x-amz-target", ""), body)
        except Exception:  # noqa: BLE001 - whatever it is, the client gets an answer, and the log the rest
            sys.stderr.write(f"decant: a request to the DynamoDB endpoint failed\n{traceback.format_exc()}")
            status, content, content_type = 500, b"", "text/plain"
        self._send(status, content, content_type)

    def log_message(self, *_: Any) -> None:
        pass

    def _send(self, status: int, content: bytes, content_type: str) -> None:
        self.send_response(status)
        self.send_header("content-type", content_type)
        self.send_header("content-length", str(len(content)))
        if self.close_connection:
            self.send_header("connection", "close")
        self.end_headers()
        self.wfile.write(content)


def start(endpoint: Endpoint) -> threading.Thread:
    """Answers in a thread of its own until the process ends."""
    serving = threading.Thread(target=endpoint.serve_forever, name="decant-dynamodb", daemon=True)
    serving.start()
    return serving
