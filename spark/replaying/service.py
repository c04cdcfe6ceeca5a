"""The HTTP client for the service calls of a replay."""

from __future__ import annotations

import http.client
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import quote, urlencode

import orjson

from spark.errors import BadInput

_TIMEOUT_S = 30
_PAGE = 1000
_UNAVAILABLE_FROM = 429
"""Status codes from this one on may succeed on a retry; lower ones will not."""


class Unavailable(Exception):
    """The service did not respond, or could not store all messages now. It may have stored some."""


class Rejected(Exception):
    """The service rejects the messages, and will reject every retry. It stored nothing."""


class TopicClient:
    """One topic. `url`: of the service, such as `http://127.0.0.1:8000`."""

    def __init__(self, url: str, topic: str) -> None:
        self._topic = f"{url.rstrip('/')}/topics/{quote(topic, safe='')}"

    def settings(self) -> dict[str, Any]:
        """Returns the topic's settings. Raises `BadInput` if the topic or the service does not exist."""
        try:
            return self._ask("GET", "")
        except (Rejected, Unavailable) as error:
            raise BadInput(f"{self._topic}: {error}") from error

    def produce(self, messages: Sequence[dict[str, Any]]) -> None:
        """Stores all messages. Raises `Unavailable`, `Rejected`."""
        answer = self._ask("POST", "/messages", {"messages": list(messages)})
        failed = [outcome["error"] for outcome in answer["messages"] if "error" in outcome]
        if failed:
            raise Unavailable(f"{len(failed)} of {len(messages)} messages were not stored: {failed[0].get('detail')}")

    def stored_since(self, at_ms: int) -> Iterator[dict[str, Any]]:
        """The messages of all queues by `stored_at_ms`, from an instant on. Raises `Unavailable`, `Rejected`."""
        query: dict[str, Any] = {"at_ms": at_ms, "limit": _PAGE}
        while True:
            page = self._ask("GET", f"/messages?{urlencode(query)}")
            yield from page["messages"]
            if page["next"] is None:
                return
            query["next"] = page["next"]

    def _ask(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        content = None if body is None else orjson.dumps(body)
        headers = {"content-type": "application/json"}
        request = urllib.request.Request(self._topic + path, content, headers, method=method)  # noqa: S310 checked
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:  # noqa: S310
                parsed: dict[str, Any] = orjson.loads(answer.read())
                return parsed
        except urllib.error.HTTPError as error:
            said = f"{error.code} {_detail(error)}"
            raise (Unavailable if error.code >= _UNAVAILABLE_FROM else Rejected)(said) from error
        except (OSError, http.client.HTTPException, orjson.JSONDecodeError) as error:
            raise Unavailable(f"{type(error).__name__}: {error}") from error


def _detail(error: urllib.error.HTTPError) -> str:
    try:
        return str(orjson.loads(error.read())["detail"])
    except (OSError, http.client.HTTPException, orjson.JSONDecodeError, KeyError, TypeError):
        return error.reason
