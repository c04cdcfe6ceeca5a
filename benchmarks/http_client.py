"""JSON over HTTP by the standard library's client, the lightest there is, so that the servers decide."""

from __future__ import annotations

import http
import http.client
from typing import Any

import orjson

_TIMEOUT_SECONDS = 30


class Connection:
    """`is_kept`: one connection for all requests, as long as the server leaves it open."""

    def __init__(self, port: int, is_kept: bool, **headers: str) -> None:
        self._http = http.client.HTTPConnection("127.0.0.1", port, timeout=_TIMEOUT_SECONDS)
        self._headers = {"content-type": "application/json", **headers}
        if not is_kept:
            self._headers["connection"] = "close"

    def close(self) -> None:
        self._http.close()

    def ask(self, method: str, path: str, body: object, headers: dict[str, str] | None = None) -> Any:
        self._http.request(method, path, orjson.dumps(body), self._headers | (headers or {}))
        response = self._http.getresponse()
        answer = response.read()
        if response.status >= http.HTTPStatus.MULTIPLE_CHOICES:
            raise RuntimeError(f"{method} {path}: {response.status} {answer[:500]!r}")
        return orjson.loads(answer) if answer else None
