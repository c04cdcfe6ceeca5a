"""Requests wait for their replies, and return them decoded; transactions are all or nothing."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from decant import Decant, OutcomeUnknown, Outgoing, ReplyTimeout, SettingError, Topic, TransactionEnded
from tests.client.support.faces import Face
from tests.client.support.servers import answer, closes, problem, serving


@dataclass
class Sum:
    total: int


@contextmanager
def replying(url: str, name: str, **reply: Any) -> Iterator[None]:
    """Replies to one request."""

    def work() -> None:
        with Decant(url) as mq:
            (message,) = mq.api.pop(name, "readers", wait_ms=10_000)["messages"]
            mq.api.reply(message["correlation_id"], **reply, receipt=message["receipt"])

    thread = threading.Thread(target=work)
    thread.start()
    yield
    thread.join()


@pytest.mark.parametrize(
    ("reply", "kind", "value"),
    [
        ({"body": "3"}, None, "3"),
        ({"body_base64": "/w=="}, None, b"\xff"),
        ({"body": "3"}, int, 3),
        ({"body": '{"total": 3}'}, Sum, Sum(3)),
    ],
)
def test_a_request_returns_its_reply(mq: Any, url: str, name: str, reply: Any, kind: Any, value: Any) -> None:
    with replying(url, name, **reply):
        assert mq.request(name, "1+2", reply=kind, key="k") == value


def test_a_request_that_nobody_answers_times_out(mq: Any, name: str) -> None:
    with pytest.raises(ReplyTimeout, match="300 ms"):
        mq.request(name, "1+2", timeout=0.3)


def test_a_request_that_outlasts_a_call_is_asked_for_again(face: Face) -> None:
    later = answer(202, {"correlation_id": "c/1"})
    reply = answer(200, {"correlation_id": "c/1", "reply": {"body": "3", "properties": {}, "replied_at_ms": 1}})
    with serving(later, later, reply) as server:
        assert face(server.url).request("sums", "1+2", timeout=timedelta(minutes=10)) == "3"
    assert [request.target.partition("?")[0] for request in server.requests] == [
        "/topics/sums/requests",
        *["/requests/c%2F1"] * 2,
    ]
    assert server.requests[0].json == {"body": "1+2", "timeout_ms": 600_000}


def test_a_request_without_an_answer_is_not_sent_twice(face: Face) -> None:
    with serving(closes, answer(202, {"correlation_id": "c"})) as server, pytest.raises(OutcomeUnknown):
        face(server.url).request("sums", "1+2")
    assert len(server.requests) == 1


def test_a_request_that_may_be_sent_is_known_by_its_reply(face: Face) -> None:
    unknown = problem(503, "StoreUnavailable", outcome="unknown", correlation_id="c")
    reply = answer(200, {"correlation_id": "c", "reply": {"body": "3", "properties": {}, "replied_at_ms": 1}})
    with serving(unknown, reply) as server:
        assert face(server.url).request("sums", "1+2") == "3"
    with serving(unknown, problem(404, "RequestNotFound")) as server, pytest.raises(OutcomeUnknown):
        face(server.url).request("sums", "1+2")


def test_a_request_takes_no_delay(face: Face) -> None:
    with pytest.raises(SettingError, match="no dedup_id, delay_ms"):
        face("http://127.0.0.1:1").request("sums", "1+2", delay=1, dedup_id="a")


# -- transactions -----------------------------------------------------------------------------------------------------


def bodies(mq: Any, name: str) -> list[str]:
    return [message["body"] for message in mq.each(mq.api.read_messages, name, queue=0, offset=0)]


def test_messages_of_a_transaction_are_visible_once_its_block_ends(mq: Any, name: str) -> None:
    with mq.transaction(name) as tx:
        tx.send("a", key="k")
        tx.send_all(["b", Outgoing("c", tag="t")])
        assert bodies(mq, name) == []
        assert len(list(mq.each(mq.api.list_transactions, name))) == 2
    assert sorted(bodies(mq, name)) == ["a", "b", "c"]
    assert len(tx.ids) == 2
    assert len(tx.sent) == 3


def raise_in_transaction(mq: Any, name: str) -> None:
    with mq.transaction(name) as tx:
        tx.send("a")
        raise ZeroDivisionError


def test_messages_of_a_block_that_raises_are_never_visible(mq: Any, name: str) -> None:
    with pytest.raises(ZeroDivisionError):
        raise_in_transaction(mq, name)
    assert bodies(mq, name) == []
    assert list(mq.each(mq.api.list_transactions, name)) == []


def test_a_transaction_that_somebody_else_has_ended_is_an_error(mq: Any, name: str) -> None:
    def decide_twice() -> None:
        with mq.transaction(name) as tx:
            mq.api.rollback_transaction(name, tx.send("a"))
            tx.send("b")

    with pytest.raises(TransactionEnded):
        decide_twice()
    assert bodies(mq, name) == ["b"]


def test_a_transaction_is_found_by_a_check(mq: Any, name: str) -> None:
    with mq.transaction(Topic[str](name), check_after=0.001, rollback_after=timedelta(hours=1)) as tx:
        id_ = tx.send("a")
        (found,) = mq.api.check_transactions(name, wait_ms=2_000)["transactions"]
        assert found["transaction_id"] == id_


def test_a_block_that_sends_nothing_commits_nothing(mq: Any, name: str) -> None:
    with mq.transaction(name) as tx:
        pass
    assert tx.ids == []


def test_a_transaction_takes_32_messages_at_a_time(mq: Any, name: str) -> None:
    for values in ([], ["x"] * 33):
        with pytest.raises(SettingError, match="1 to 32"), mq.transaction(name) as tx:
            tx.send_all(values)


def test_the_error_of_the_block_counts_though_the_server_is_gone(face: Face) -> None:
    with serving(answer(201, {"transaction_id": "t"}), closes) as server, pytest.raises(ZeroDivisionError):
        raise_in_transaction(face(server.url, timeout=0.2), "orders")


def test_a_commit_whose_answer_was_lost_is_repeated(face: Face) -> None:
    committed = answer(200, {"messages": [{"message_id": "m", "queue": 0, "offset": 0}]})
    with (
        serving(answer(201, {"transaction_id": "t"}), closes, committed) as server,
        face(server.url).transaction("orders") as tx,
    ):
        tx.send("a")
    assert [place.id for place in tx.sent] == ["m"]
