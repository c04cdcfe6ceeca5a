"""Offers the embedded store as a DynamoDB endpoint on loopback, so that other processes can read and export it."""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any

from local.connections import HOST, HasHungUp, Server
from local.request import Answer, Head

REQUEST_BYTES_MAX = 1 << 20
"""A hundred keys need a fifth of it."""

Answering = Callable[[str, bytes], Any]


class Endpoint(Server):
    def __init__(self, port: int, answering: Answering) -> None:
        """Binds the port. Raises `OSError`."""
        super().__init__(port, self._answer, body_bytes_max=REQUEST_BYTES_MAX)
        self._answering = answering

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def _answer(self, head: Head, body: bytes | None, _has_hung_up: HasHungUp) -> Answer:
        try:
            status, content, content_type = self._answering(head.headers.get("x-amz-target", ""), body or b"")
        except Exception:  # noqa: BLE001 - the client gets a response, the log the details
            sys.stderr.write(f"decant: a request to the DynamoDB endpoint failed\n{traceback.format_exc()}")
            status, content, content_type = 500, b"", "text/plain"
        return Answer(status, {"content-type": content_type}, content)


def start(endpoint: Endpoint) -> threading.Thread:
    """Answers in a thread of its own until the process ends."""
    serving = threading.Thread(target=endpoint.serve_forever, name="decant-dynamodb", daemon=True)
    serving.start()
    return serving
