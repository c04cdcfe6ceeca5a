"""A crowd of callers and the workers that reply to them, in memory and on an emulator."""

from __future__ import annotations

import threading
from collections.abc import Callable

from chalicelib.api import Api

CALLERS = 200
WORKERS = 4

Instance = Callable[[], Api]


def test_each_of_many_callers_gets_its_own_reply(instance: Instance, topic: str) -> None:
    """Half of the workers share the callers' instance."""
    here, there = instance(), instance()
    here.put_topic(topic, {"queues": 2})
    here.put_group(topic, "workers", {})
    replies: dict[int, str] = {}
    is_over = threading.Event()

    def call(number: int) -> None:
        answer = here.request(topic, {"body": str(number), "timeout_ms": 25_000})
        replies[number] = answer["reply"]["body"]

    def work(api: Api) -> None:
        receipts: list[str] = []
        while not is_over.is_set():
            popped = api.pop(topic, "workers", {"max_messages": 50, "wait_ms": 200, "ack": receipts})
            for message in popped["messages"]:
                assert api.reply(message["correlation_id"], {"body": f"re: {message['body']}"}) == {}
            receipts = [message["receipt"] for message in popped["messages"]]

    workers = [threading.Thread(target=work, args=(api,)) for api in [here, there] * (WORKERS // 2)]
    callers = [threading.Thread(target=call, args=(number,)) for number in range(CALLERS)]
    for thread in (*workers, *callers):
        thread.start()
    for caller in callers:
        caller.join()
    is_over.set()
    for worker in workers:
        worker.join()
    assert replies == {number: f"re: {number}" for number in range(CALLERS)}
