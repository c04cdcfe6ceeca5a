"""Consumers of both faces: what becomes of messages, their leases, their order, and how a run ends."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from decant import Bury, Message, Outgoing, Reply, Retry, SettingError, Topic, TopicNotFound
from decant.engine import Engine
from decant.errors import GroupIsPushed, GroupNotFound
from decant.testing import Server
from tests.client.support.crews import Crew, until


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        server.client.api.put_topic("orders", queues=2)
        server.client.api.put_group("orders", "billing", backoff_ms=[60_000])
        yield server


@pytest.fixture(params=["threads", "asyncio"])
def crew(request: pytest.FixtureRequest, server: Server) -> Crew:
    return Crew(server, request.param)


class Seen:
    """A handler that records its messages, and returns or raises one result."""

    def __init__(self, result: Any = None) -> None:
        self.values: list[Any] = []
        self.messages: list[Message[Any]] = []
        self.result = result

    def __call__(self, value: Any, message: Message[Any]) -> Any:
        self.values.append(value)
        self.messages.append(message)
        if isinstance(self.result, BaseException):
            raise self.result
        return self.result


class Held:
    """A handler that waits until the test lets it go."""

    def __init__(self) -> None:
        self.begun: list[Message[Any]] = []
        self.done: list[str] = []
        self.go = threading.Event()

    def __call__(self, value: Any, message: Message[Any]) -> None:
        self.begun.append(message)
        assert self.go.wait(30)
        self.done.append(value)


def counts(server: Server, group: str = "billing") -> tuple[int, int, int, int]:
    """Ready, leased, to be retried, dead."""
    found = server.client.api.get_group("orders", group)
    return found["ready"], found["in_flight"], found["retrying"], found["dead"]


def asked_more(crew: Crew, operation: str, before: int) -> bool:
    return len(crew.wire.named(operation)) > before


# -- verdicts ----------------------------------------------------------------------------------------------------------


def test_a_handler_that_returns_acks(server: Server, crew: Crew) -> None:
    seen = Seen()
    crew.consumer(seen, concurrency=3)
    sent = [server.client.send("orders", f"order {number}").id for number in range(10)]
    with crew.running():
        until(lambda: len(seen.values) == 10)
    assert sorted(message.id for message in seen.messages) == sorted(sent)
    assert counts(server) == (0, 0, 0, 0)


@dataclass
class Order:
    number: int


def test_a_handler_gets_the_payload_of_its_topic(server: Server, crew: Crew) -> None:
    orders = Topic[Order]("orders")
    values: list[Order] = []
    crew.consumer(lambda order: values.append(order), orders)
    server.client.send(orders, Order(4711))
    assert crew.work() == 1
    assert values == [Order(4711)]


def test_an_exception_nacks_with_its_text(server: Server, crew: Crew, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "decant.consumer")  # pytest-xdist cannot report half a surrogate pair
    server.client.api.put_group("orders", "billing", max_attempts=1)
    crew.consumer(Seen(ValueError("no such customer \ud800")))
    server.client.send("orders", "4711")
    crew.work()
    [dead] = server.client.api.list_dead("orders", "billing")["messages"]
    assert dead["reason"] == "ValueError: no such customer ?"


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()], ids=repr)
def test_a_handler_cannot_end_the_program(server: Server, crew: Crew, error: BaseException) -> None:
    seen = Seen(error)
    crew.consumer(seen, concurrency=2)
    for number in range(3):
        server.client.send("orders", str(number))
    with crew.running():
        until(lambda: len(seen.values) == 3)
    assert counts(server) == (0, 0, 3, 0)


def test_a_retry_comes_again_after_its_delay(server: Server, crew: Crew) -> None:
    seen = Seen(Retry(delay=7, reason="busy"))
    crew.consumer(seen)
    server.client.send("orders", "4711")
    assert crew.work() == 1
    server.clock.advance(seconds=6)
    assert crew.work() == 0
    server.clock.advance(seconds=1)
    assert crew.work() == 1
    assert [message.attempt for message in seen.messages] == [1, 2]


def test_a_retry_that_is_returned_is_one_that_is_raised(server: Server, crew: Crew) -> None:
    crew.consumer(lambda _order: Retry(delay=7))
    server.client.send("orders", "4711")
    crew.work()
    assert counts(server) == (0, 0, 1, 0)


def test_a_message_is_buried_with_its_reason(server: Server, crew: Crew) -> None:
    crew.consumer(Seen(Bury("malformed")))
    server.client.send("orders", "4711")
    crew.work()
    [dead] = server.client.api.list_dead("orders", "billing")["messages"]
    assert dead["reason"] == "malformed"


def test_a_body_that_is_no_payload_is_nacked(server: Server, crew: Crew) -> None:
    server.client.api.put_group("orders", "billing", max_attempts=1)
    crew.consumer(Seen(), Topic[Order]("orders"))
    server.client.send("orders", "not JSON")
    crew.work()
    [dead] = server.client.api.list_dead("orders", "billing")["messages"]
    assert "JSONDecodeError" in dead["reason"]


@pytest.mark.parametrize("value", [0, "done", {"a": 1}, [1, 2], object()], ids=lambda value: type(value).__name__)
def test_what_a_handler_returns_counts_for_requests_alone(server: Server, crew: Crew, value: Any) -> None:
    crew.consumer(lambda _order: value)
    server.client.send("orders", "4711")
    crew.work()
    assert counts(server) == (0, 0, 0, 0)


@pytest.mark.parametrize(
    ("value", "reply"),
    [("four", "four"), ({"sum": 4}, '{"sum":4}'), (b"\xff", b"\xff"), (Reply("four", {"unit": "m"}), "four"), (0, "0")],
)
def test_the_result_of_a_request_is_its_reply(server: Server, crew: Crew, value: Any, reply: Any) -> None:
    crew.consumer(lambda _sum: value)
    answers: list[Any] = []
    asking = threading.Thread(target=lambda: answers.append(server.client.request("orders", "2+2", timeout=3_000)))
    with crew.running():
        asking.start()
        asking.join(20)
    assert answers == [reply]
    assert counts(server) == (0, 0, 0, 0)


def test_a_reply_that_is_no_json_nacks_the_request(server: Server, crew: Crew) -> None:
    crew.consumer(lambda _sum: object())
    server.client.api.request("orders", body="2+2", wait_ms=0, timeout_ms=100_000)
    crew.work()
    assert counts(server) == (0, 0, 1, 0)


def test_a_reply_that_comes_too_late_acks_and_is_told(server: Server, crew: Crew) -> None:
    refused: list[str] = []

    def answer(_sum: str) -> str:
        server.clock.advance(seconds=10)
        return "late"

    consumer = crew.consumer(answer)
    consumer.on_refused = lambda _message, error: refused.append(error.code)
    server.client.api.request("orders", body="2+2", wait_ms=0, timeout_ms=5_000)
    crew.work()
    assert refused == ["RequestExpired"]
    assert counts(server) == (0, 0, 0, 0)


# -- batches -----------------------------------------------------------------------------------------------------------


def test_a_batch_is_settled_one_by_one(server: Server, crew: Crew) -> None:
    def bill(messages: list[Message[str]]) -> list[Any]:
        return [{"a": None, "b": Retry(7), "c": Bury("no"), "d": ValueError("x")}[each.text] for each in messages]

    crew.consumer(bill, batch=10)
    server.client.send_all("orders", list("abcd"))
    crew.work()
    assert counts(server) == (0, 0, 2, 1)


def test_a_batch_that_raises_is_nacked_whole(server: Server, crew: Crew) -> None:
    crew.consumer(lambda _messages: 1 / 0, batch=10)
    server.client.send_all("orders", list("abc"))
    crew.work()
    assert counts(server) == (0, 0, 3, 0)


def test_results_that_are_not_one_each_nack_the_batch(server: Server, crew: Crew) -> None:
    crew.consumer(lambda _messages: [None], batch=10)
    server.client.send_all("orders", list("abc"))
    crew.work()
    assert counts(server) == (0, 0, 3, 0)


def test_a_tuple_of_results_settles_a_batch_one_by_one(server: Server, crew: Crew) -> None:
    crew.consumer(lambda _messages: (None, Retry(7), Bury("no")), batch=10)
    server.client.send_all("orders", list("abc"))
    crew.work()
    assert counts(server) == (0, 0, 1, 1)


@pytest.mark.parametrize("batch", [1, 10])
def test_a_result_that_has_not_run_yet_nacks(server: Server, crew: Crew, batch: int) -> None:
    crew.consumer(lambda messages: (each for each in messages), batch=batch)
    server.client.send("orders", "4711")
    crew.work()
    assert counts(server) == (0, 0, 1, 0)


# -- fetching ----------------------------------------------------------------------------------------------------------


def test_no_more_messages_are_taken_than_handlers_are_free(server: Server, crew: Crew) -> None:
    held = Held()
    crew.consumer(held, concurrency=3)
    server.client.send_all("orders", list("abcdefg"))
    with crew.running():
        until(lambda: len(held.begun) == 3)
        assert counts(server) == (4, 3, 0, 0)
        held.go.set()
        until(lambda: len(held.done) == 7)


def test_a_lane_that_is_held_up_leaves_messages_to_other_consumers(server: Server, crew: Crew) -> None:
    begun, go = list[Any](), threading.Event()

    def handle(messages: list[Message[str]]) -> None:
        begun.extend(messages)
        assert go.wait(30)

    crew.consumer(handle, concurrency=2, batch=100, ordered=True)
    for _ in range(3):
        server.client.send_all("orders", [Outgoing[Any]("x", queue=0)] * 200)
    with crew.running():
        until(lambda: counts(server)[1] >= 400)
        for _ in range(50):
            assert counts(server) == (200, 400, 0, 0)
        go.set()
        until(lambda: len(begun) == 600)


def test_prefetched_messages_wait_for_a_handler(server: Server, crew: Crew) -> None:
    held = Held()
    crew.consumer(held, concurrency=1, prefetch=4)
    server.client.send_all("orders", list("abcdefg"))
    with crew.running():
        until(lambda: counts(server) == (3, 4, 0, 0) and held.begun)
        assert len(held.begun) == 1
        held.go.set()
        until(lambda: len(held.done) == 7)


def test_acks_ride_on_the_next_pop(server: Server, crew: Crew) -> None:
    seen = Seen()
    crew.consumer(seen)

    def ridden() -> int:
        return sum(len(request.fields.get("ack", ())) for request in crew.wire.named("pop"))

    def send_and_count() -> bool:
        server.client.send("orders", "4711")
        return ridden() >= 4

    with crew.running():
        until(send_and_count)  # on a busy machine, a pop may come too late for some
    alone = sum(len(request.fields["receipts"]) for request in crew.wire.named("ack"))
    assert ridden() + alone == len(seen.values)


def test_an_ack_without_a_pop_goes_after_a_moment(server: Server, crew: Crew) -> None:
    held = Held()
    crew.consumer(held, concurrency=2)
    server.client.send("orders", "4711")
    with crew.running():
        until(lambda: held.begun and len(crew.wire.named("pop")) == 2)
        held.go.set()
        until(lambda: counts(server) == (0, 0, 0, 0))
        assert len(crew.wire.named("pop")) == 2
    assert [len(request.fields["receipts"]) for request in crew.wire.named("ack")] == [1]


def test_an_ack_that_is_due_may_ride_on_a_pop(server: Server, crew: Crew, monkeypatch: pytest.MonkeyPatch) -> None:
    """The settler and the poller want the same ack."""
    held, wait = Held(), Engine._wait_for_settlement

    def wait_and_let_pop(engine: Engine) -> Any:
        found = wait(engine)
        if found and len(held.begun) == 0:
            before = len(crew.wire.named("pop"))
            server.client.send("orders", "held")
            until(partial(asked_more, crew, "pop", before))
        return found

    def handle(value: Any, message: Message[Any]) -> None:
        if value == "held":
            held(value, message)
        else:
            until(lambda: len(crew.wire.named("pop")) == 2)

    monkeypatch.setattr(Engine, "_wait_for_settlement", wait_and_let_pop)
    crew.consumer(handle, concurrency=2)
    server.client.send("orders", "at once")
    with crew.running():
        until(lambda: held.begun)
        until(lambda: counts(server) == (0, 1, 0, 0))
        held.go.set()
        until(lambda: counts(server) == (0, 0, 0, 0))


def test_each_pop_can_be_repeated(server: Server, crew: Crew) -> None:
    """A pop whose answer is lost leases nothing to nobody."""
    seen = Seen()
    lost: list[str] = []

    def lose(request: Any, response: Any) -> Any:
        if request.operation == "pop" and len(lost) < 2 and b'"message_id"' in response.body:
            lost.append(request.fields["attempt_id"])
            return response._replace(status=502, body=b"")
        return response

    crew.wire.after = lose
    crew.consumer(seen)
    server.client.send("orders", "4711")
    with crew.running():
        until(lambda: seen.values)  # a clock that is moved may pass the end of the lease on a busy machine
        until(lambda: len({request.fields["attempt_id"] for request in crew.wire.named("pop")}) > 1)
    assert len(lost) == 2
    assert len(set(lost)) == 1
    assert [message.attempt for message in seen.messages] == [1]


def test_a_paused_group_is_asked_now_and_then(server: Server, crew: Crew) -> None:
    seen = Seen()
    server.client.api.put_group("orders", "billing", paused=True)
    crew.consumer(seen)
    server.client.send("orders", "4711")
    with crew.running():
        for _ in range(5):
            before = len(crew.wire.named("pop"))
            server.clock.advance(seconds=1)
            until(partial(asked_more, crew, "pop", before))
        assert len(crew.wire.named("pop")) < 12
        server.client.api.put_group("orders", "billing", paused=False)
        server.clock.advance(seconds=1)
        until(lambda: seen.values)


# -- leases ------------------------------------------------------------------------------------------------------------


def test_a_lease_lasts_as_long_as_the_handler(server: Server, crew: Crew) -> None:
    held = Held()
    crew.consumer(held)
    server.client.send("orders", "4711")
    with crew.running():
        until(lambda: held.begun)
        for number in range(1, 6):
            server.clock.advance(seconds=18)
            until(partial(asked_more, crew, "extend", number - 1))
        assert counts(server) == (0, 1, 0, 0)
        held.go.set()
        until(lambda: held.done)
    assert counts(server) == (0, 0, 0, 0)
    assert held.begun[0].attempt == 1


def test_the_leases_of_a_queue_are_extended_in_one_call(server: Server, crew: Crew) -> None:
    held = Held()
    crew.consumer(held, concurrency=8)
    for number in range(8):
        server.client.send("orders", str(number), queue=number % 2)
    with crew.running():
        until(lambda: len(held.begun) == 8)
        server.clock.advance(seconds=20)
        until(lambda: len(crew.wire.named("extend")) == 2)
        assert [len(request.fields["receipts"]) for request in crew.wire.named("extend")] == [4, 4]
        held.go.set()
        until(lambda: len(held.done) == 8)
    assert counts(server) == (0, 0, 0, 0)


def test_a_handler_that_ends_in_an_extend_acks_with_the_new_receipt(server: Server, crew: Crew) -> None:
    held = Held()
    crew.consumer(held)

    def finish(request: Any, response: Any) -> Any:
        if request.operation == "extend":
            held.go.set()
            until(lambda: held.done)
        return response

    crew.wire.after = finish
    server.client.send("orders", "4711")
    with crew.running():
        until(lambda: held.begun)
        server.clock.advance(seconds=18)
        until(lambda: held.done)
        server.clock.advance(seconds=1)
        until(lambda: counts(server) == (0, 0, 0, 0))


def test_an_extend_whose_answer_is_lost_is_repeated(server: Server, crew: Crew) -> None:
    held = Held()
    lost: list[Any] = []
    crew.consumer(held)

    def lose(request: Any, response: Any) -> Any:
        if request.operation == "extend" and len(lost) < 3:
            lost.append(request)
            return response._replace(status=502, body=b"")
        return response

    crew.wire.after = lose
    server.client.send("orders", "4711")
    with crew.running():
        until(lambda: held.begun)
        server.clock.advance(seconds=18)
        until(lambda: len(crew.wire.named("extend")) > 3, server.clock, 0.1)
        held.go.set()
        until(lambda: held.done)
    assert counts(server) == (0, 0, 0, 0)
    assert len(held.done) == 1


def test_a_lease_is_let_go_after_its_longest_time(server: Server, crew: Crew, caplog: pytest.LogCaptureFixture) -> None:
    held = Held()
    crew.consumer(held, max_lease=60)
    server.client.send("orders", "4711")
    with crew.running():
        until(lambda: held.begun)
        until(lambda: held.begun[0].lost, server.clock, 6)
        assert 60 / 18 <= len(crew.wire.named("extend")) <= 1 + 60 / 18 + 1
        assert len(held.begun) == 1 or held.begun[1].attempt == 2
        held.go.set()
    assert "lease" in caplog.text


def test_a_lost_lease_is_told_and_not_acked(server: Server, crew: Crew) -> None:
    held = Held()
    crew.consumer(held)
    server.client.send("orders", "4711")
    with crew.running():
        [message] = until(lambda: held.begun)
        server.client.api.reset_group("orders", "billing", to="latest")
        server.clock.advance(seconds=18)
        until(lambda: message.lost)
        held.go.set()
        server.clock.advance(seconds=1)
    acks = [receipt for request in crew.wire.named("ack") for receipt in request.fields["receipts"]]
    ridden = [receipt for request in crew.wire.named("pop") for receipt in request.fields.get("ack", ())]
    assert message.receipt not in acks + ridden


@pytest.mark.parametrize("settle_by", ["receipt", "delivery", "message"])
def test_extended_leases_are_settled_whatever_settles(server: Server, crew: Crew, settle_by: Any) -> None:
    server.client.api.put_group("orders", "billing", settle_by=settle_by)
    held = Held()
    crew.consumer(held)
    server.client.send("orders", "4711")
    with crew.running():
        until(lambda: held.begun)
        server.clock.advance(seconds=18)
        until(lambda: crew.wire.named("extend"))
        held.go.set()
        until(lambda: held.done)
    assert counts(server) == (0, 0, 0, 0)


# -- order -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def ordered(server: Server, request: pytest.FixtureRequest) -> None:
    server.client.api.delete_group("orders", "billing")
    server.client.api.put_group("orders", "billing", ordered=request.param, backoff_ms=[60_000])


@pytest.mark.parametrize("ordered", [True, "key"], indirect=True)
@pytest.mark.usefixtures("ordered")
def test_an_ordered_group_is_handled_in_order(server: Server, crew: Crew) -> None:
    seen = Seen()
    at_once: list[int] = []

    def handle(value: Any, message: Any) -> None:
        at_once.append(message.queue)
        seen(value, message)
        assert at_once.count(message.queue) == 1
        at_once.remove(message.queue)

    crew.consumer(handle, concurrency=4)
    for number in range(20):
        server.client.send("orders", str(number), queue=number % 2, key=str(number % 2))
    with crew.running():
        until(lambda: len(seen.values) == 20)
    for queue in range(2):
        those = [int(message.text) for message in seen.messages if message.queue == queue]
        assert those == sorted(those)
    assert counts(server) == (0, 0, 0, 0)


@pytest.mark.parametrize("ordered", [True, "key"], indirect=True)
@pytest.mark.usefixtures("ordered")
def test_a_message_that_fails_is_not_overtaken(server: Server, crew: Crew) -> None:
    values: list[str] = []

    def handle(value: str) -> None:
        values.append(value)
        if len(values) < 4:
            raise Retry(1)

    crew.consumer(handle, concurrency=4)
    server.client.send_all("orders", [])
    for number in range(6):
        server.client.send("orders", str(number), queue=0, key="k")
    with crew.running():
        until(lambda: len(values) == 9, server.clock, 0.5)
    assert values == [*"000", *"012345"]
    assert counts(server) == (0, 0, 0, 0)


@pytest.mark.parametrize("ordered", [True], indirect=True)
@pytest.mark.usefixtures("ordered")
def test_a_message_that_fails_costs_those_behind_it_few_attempts(server: Server, crew: Crew) -> None:
    attempts: dict[str, int] = {}

    def handle(value: str, message: Message[str]) -> None:
        attempts[value] = message.attempt
        if value == "0" and message.attempt < 10:
            raise Retry(1)

    crew.consumer(handle, concurrency=4)
    server.client.send_all("orders", [])
    for number in range(4):
        server.client.send("orders", str(number), queue=0)
    with crew.running():
        until(lambda: "3" in attempts, server.clock, 0.5)
    assert attempts["0"] == 10
    assert max(attempts[value] for value in "123") <= 3  # of two pops: the one that took it, and the one that waited


# -- the end -----------------------------------------------------------------------------------------------------------


def test_a_stopped_run_finishes_what_it_began(server: Server, crew: Crew) -> None:
    held = Held()
    crew.consumer(held, prefetch=3)
    server.client.send_all("orders", list("abcde"))
    with crew.running():
        until(lambda: len(held.begun) == 1 and counts(server)[1] == 3)
        crew.mq.stop()
        until(lambda: counts(server) == (4, 1, 0, 0))
        held.go.set()
        until(lambda: not crew.is_running, server.clock, 1)
    assert counts(server) == (4, 0, 0, 0)
    assert len(held.done) == 1


def test_leases_are_kept_in_the_grace_time(server: Server, crew: Crew) -> None:
    held = Held()
    crew.consumer(held)
    server.client.send("orders", "4711")
    with crew.running():
        until(lambda: held.begun)
        crew.mq.stop()
        until(lambda: crew.is_stopping)
        server.clock.advance(seconds=18)
        until(lambda: crew.wire.named("extend"))
        held.go.set()
        until(lambda: not crew.is_running, server.clock, 1)
    assert counts(server) == (0, 0, 0, 0)


def test_a_handler_that_hangs_does_not_hold_up_the_end(
    server: Server, crew: Crew, caplog: pytest.LogCaptureFixture
) -> None:
    held = Held()
    crew.consumer(held)
    server.client.send("orders", "4711")
    with crew.running():
        until(lambda: held.begun)
        crew.mq.stop()
        until(lambda: not crew.is_running, server.clock, 5)
        held.go.set()
    if crew.face == "threads":
        assert "1 messages are still at work" in caplog.text
        assert counts(server) == (0, 1, 0, 0)
    else:  # its task was cancelled
        assert counts(server) == (1, 0, 0, 0)


def test_messages_that_come_to_a_stopped_run_go_back(server: Server, crew: Crew) -> None:
    seen = Seen()
    crew.consumer(seen)
    with crew.running():
        until(lambda: crew.wire.named("pop"))
        crew.mq.stop()
        until(lambda: crew.is_stopping)
        server.client.send("orders", "4711")
        until(lambda: not crew.is_running)
    assert seen.values == []
    assert counts(server) == (1, 0, 0, 0)


# -- trouble -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [TopicNotFound, GroupNotFound, GroupIsPushed])
def test_what_no_repeat_mends_ends_the_run(server: Server, crew: Crew, error: type[Exception]) -> None:
    crew.consumer(Seen())
    api = server.client.api
    if error is TopicNotFound:
        api.delete_topic("orders")
    elif error is GroupNotFound:
        api.delete_group("orders", "billing")
    else:
        api.put_group("orders", "billing", push={"url": "http://127.0.0.1:9/"})
    with pytest.raises(error):
        crew.run()


def test_a_group_that_is_deleted_ends_the_run_after_its_messages(server: Server, crew: Crew) -> None:
    held = Held()
    crew.consumer(held, concurrency=2)
    server.client.send("orders", "4711")
    with contextlib.suppress(GroupNotFound), crew.running():
        until(lambda: held.begun)
        server.client.api.delete_group("orders", "billing")
        server.clock.advance(seconds=20)
        held.go.set()
        until(lambda: not crew.is_running, server.clock, 1)
    assert isinstance(crew.error, GroupNotFound)
    assert held.done == ["4711"]


def test_a_service_that_is_down_is_tried_again(server: Server, crew: Crew, caplog: pytest.LogCaptureFixture) -> None:
    from decant.calls import NotSent

    seen, down = Seen(), [True]

    def fail(_request: Any) -> None:
        if down:
            raise NotSent("no route")

    crew.wire.before = fail
    crew.consumer(seen)
    with crew.running():
        until(lambda: len(crew.wire.requests) > 30, server.clock, 1)
        assert "trying again" in caplog.text
        down.clear()
        server.client.send("orders", "4711")
        until(lambda: seen.values, server.clock, 1)


def test_an_ack_is_sent_until_the_service_has_it(server: Server, crew: Crew) -> None:
    from decant.calls import NoAnswer

    seen, down = Seen(), [True]

    def fail(request: Any) -> None:
        if down and (request.fields.get("ack") or request.operation == "ack"):
            raise NoAnswer("reset")

    crew.wire.before = fail
    crew.consumer(seen)
    server.client.send("orders", "4711")
    with crew.running():
        until(lambda: seen.values)
        server.clock.advance(seconds=3)
        down.clear()
        until(lambda: counts(server) == (0, 0, 0, 0), server.clock, 0.5)
    assert len(seen.values) == 1


def test_work_that_outlasts_its_lease_is_told(server: Server, crew: Crew, caplog: pytest.LogCaptureFixture) -> None:
    def bill(_order: str) -> None:
        server.clock.advance(seconds=31)
        server.client.api.pop("orders", "billing")

    crew.consumer(bill)
    server.client.send("orders", "4711")
    assert crew.work() == 1
    assert "a message was not settled: LeaseLost" in caplog.text


# -- declarations ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "text"),
    [
        ({"concurrency": 0}, "concurrency must be an integer from 1"),
        ({"batch": 257}, "batch must be an integer from 1 to 256"),
        ({"prefetch": "2"}, "prefetch must be a number"),
        ({"lease": 0}, "lease must be from"),
        ({"wait": 21}, "wait must be at most 20 s"),
        ({"max_lease": -1}, "max_lease must be a timedelta or seconds"),
        ({"ordered": "queue"}, "ordered must be"),
        ({"executor": "fork"}, "executor must be"),
        ({"group": ""}, "group must be the name"),
        ({"retries": 3}, "no option retries"),
    ],
)
def test_options_that_make_no_sense_are_refused(crew: Crew, how: dict[str, Any], text: str) -> None:
    with pytest.raises(SettingError, match=text):
        crew.consumer(Seen(), **how)


def test_a_run_needs_a_consumer(crew: Crew) -> None:
    with pytest.raises(SettingError, match="no consumer"):
        crew.run()
