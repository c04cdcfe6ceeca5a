"""Two instances start at once on an empty table: each makes the topic, its group and the key that signs receipts."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from chalicelib.api import Api
from chalicelib.service import Service
from tests.support.stopping import Stage, StoppingStore, finish, requests_of, stop_after


class Start(Stage):
    """`got`: the message and its receipt that each instance got."""

    def __init__(self) -> None:
        super().__init__()
        self.got: list[tuple[str, str]] = []

    def work(self, stop: Callable[[], None]) -> None:
        api = self.api(stop)
        api.put_topic("t", {"queues": 1})
        api.put_group("t", "g", {})
        api.produce("t", {"messages": [{"body": "x"}]})
        taken = (api.pop("t", "g", {"max_messages": 1})["messages"] for _ in range(2))  # what it saw may be gone
        [message] = next(messages for messages in taken if messages)
        self.got.append((message["message_id"], message["receipt"]))

    def api(self, stop: Callable[[], None] = lambda: None) -> Api:
        return Api(Service(StoppingStore(self.store, stop), self.runtime()))


@pytest.mark.parametrize("request_", range(1, requests_of(Start().work) + 1))
def test_two_first_starts_at_once_share_topic_group_and_key(request_: int) -> None:
    start = Start()
    first = stop_after(start.work, request_)
    start.work(lambda: None)
    finish(first, goes_on=True)
    assert len(start.api().list_topics({})["topics"]) == 1
    ids, receipts = zip(*start.got, strict=True)
    assert len({*ids}) == 2
    assert start.api().ack("t", "g", {"receipts": [*receipts]}) == {"acked": 2, "failed": []}
    assert not start.api().pop("t", "g", {})["messages"]
