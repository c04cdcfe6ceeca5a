"""Callers and workers as programs of their own, against a real server."""

from __future__ import annotations

import json
import threading
import time

from decant.worker import Message, Service
from tests.local.serving import Running, running

CALLERS = 20


def test_many_callers_get_their_replies_from_workers_that_pop() -> None:
    with running() as server:
        answers, ends = _call(server)
    assert answers == {str(number): f"re: {number}" for number in range(CALLERS)}
    assert max(ends) < 10


def _call(server: Running) -> tuple[dict[str, str], list[float]]:
    """The replies, and how long each caller waited, in seconds."""
    for path in ("/topics/t", "/topics/t/groups/g"):
        assert server.ask("PUT", path)[0] == 201
    service = Service(f"http://127.0.0.1:{server.port}")
    is_over = threading.Event()
    answers: dict[str, str] = {}
    seconds: list[float] = []

    @service.worker
    def echo(message: Message) -> str:
        return f"re: {message.text}"

    def ask(body: str) -> None:
        began = time.monotonic()
        status, _, raw = server.ask("POST", "/topics/t/requests", json.dumps({"body": body, "timeout_ms": 9_000}))
        assert status == 200, raw
        answers[body] = json.loads(raw)["reply"]["body"]
        seconds.append(time.monotonic() - began)

    pop = {"wait_ms": 300, "max_messages": 5}
    workers = [threading.Thread(target=echo.run, args=("t", "g", is_over.is_set), kwargs=pop) for _ in range(2)]
    callers = [threading.Thread(target=ask, args=(str(number),)) for number in range(CALLERS)]
    for thread in (*workers, *callers):
        thread.start()
    for caller in callers:
        caller.join()
    is_over.set()
    for worker in workers:
        worker.join()
    service.mq.close()
    return answers, seconds
