"""Instances of the service in one process, each with caches and connections of its own, that produce to one topic.

`python -m tests.load.crowd NAME ENDPOINT TOPIC INSTANCES SECONDS` prints a line for each message, as JSON: its body,
the status, the outcome and `Retry-After`."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Sequence
from typing import Any

from chalicelib.api import Api
from chalicelib.core.base.errors import DecantError
from chalicelib.doors.http.exchange import refusal
from tests.load.clock import now
from tests.load.worker import instance


def main(arguments: Sequence[str]) -> None:
    name, endpoint, topic, instances, seconds = arguments
    until_ms = now() + int(float(seconds) * 1_000)
    lines: list[str] = []
    threads = [
        threading.Thread(target=_produce, args=(f"{name}-{number}", endpoint, topic, until_ms, lines))
        for number in range(int(instances))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sys.stdout.write("\n".join(lines))


def _produce(name: str, endpoint: str, topic: str, until_ms: int, lines: list[str]) -> None:
    number = 0
    with instance(endpoint) as service:
        api = Api(service)
        while now() < until_ms:
            body, number = f"{name}-{number}", number + 1
            key = {"key": name} if number % 2 else {}
            lines.append(json.dumps([body, *_told(api, topic, {"body": body, **key})]))


def _told(api: Api, topic: str, message: dict[str, Any]) -> tuple[int, str | None, str | None]:
    try:
        api.produce(topic, {"messages": [message]})
    except DecantError as error:
        response = refusal(error)
        return response.status, json.loads(response.text).get("outcome"), response.headers.get("Retry-After")
    return 200, None, None


if __name__ == "__main__":
    main(sys.argv[1:])
