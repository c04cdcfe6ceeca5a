"""Calls among instances in memory and on an emulator: crowds, crashes, late writes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from chalicelib.api import Api
from chalicelib.core.base.errors import AlreadyReplied, DecantError, ReplyTimeout, RequestExpired

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


def test_of_replies_and_a_timeout_at_once_one_stands(instance: Instance, topic: str) -> None:
    """And everybody is told the same."""
    apis = [instance() for _ in range(3)]
    apis[0].put_topic(topic, {})
    for _ in range(5):
        try:
            correlation_id = apis[0].request(topic, {"body": "a", "timeout_ms": 60, "wait_ms": 0})["correlation_id"]
        except ReplyTimeout as timeout:  # on a busy machine
            correlation_id = timeout.members["correlation_id"]
        outcomes: list[Any] = []

        def outcome(act: Callable[[], Any]) -> None:
            try:
                outcomes.append(act())  # noqa: B023
            except DecantError as error:
                outcomes.append(type(error))  # noqa: B023

        def fetch() -> Any:
            return apis[0].get_reply(correlation_id, {"wait_ms": "1000"})["reply"]["body"]  # noqa: B023

        def reply(number: int) -> Any:
            return (number, apis[number].reply(correlation_id, {"body": str(number)}))  # noqa: B023

        acts: list[Callable[[], Any]] = [fetch, lambda: reply(1), lambda: reply(2)]
        threads = [threading.Thread(target=outcome, args=(act,)) for act in acts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        stored = [each[0] for each in outcomes if isinstance(each, tuple)]
        fetched = [each for each in outcomes if each is ReplyTimeout or isinstance(each, str)]
        assert len(stored) <= 1
        assert fetched == [str(stored[0]) if stored else ReplyTimeout]
        assert {each for each in outcomes if isinstance(each, type)} <= {AlreadyReplied, RequestExpired, ReplyTimeout}
