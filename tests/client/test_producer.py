"""A producer sends few calls for many messages, keeps the order of each key, loses and doubles nothing."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest

from decant import AsyncDecant, Decant, InvalidField, OutcomeUnknown, SettingError, TopicNotFound, Unreachable
from decant.aio_transport import InThreads
from decant.producer import Lanes
from tests.client.support.faces import Face
from tests.client.support.servers import Received, Turn, answer, closes, free_port, problem, serving


def stores(count: int | None = None) -> Turn:
    """Stores each message of the call."""

    def turn(connection: Any, request: Received) -> None:
        number = len(request.json["messages"])
        places = [{"message_id": str(place), "queue": 0, "offset": place} for place in range(number)]
        answer(200, {"messages": places})(connection, request)

    return turn


@pytest.fixture
def mq(face: Face, url: str, name: str) -> Any:
    mq = face(url)
    mq.api.put_topic(name, queues=4)
    mq.api.put_group(name, "readers")
    return mq


def stored(mq: Any, name: str) -> list[Any]:
    """All messages of the topic, in the order of each queue."""
    return [message for queue in range(4) for message in mq.each(mq.api.read_messages, name, queue=queue, offset=0)]


def bodies_by_key(messages: list[Any]) -> dict[str, list[str]]:
    found = defaultdict(list)
    for message in messages:
        found[message["key"]].append(message["body"])
    return found


# -- over the service -------------------------------------------------------------------------------------------------


def test_each_future_gets_the_place_of_its_message(mq: Any, name: str) -> None:
    with mq.producer(name, linger=0.01) as out:
        futures = [out.send(f"{number}", key=f"k{number % 7}") for number in range(1_000)]
    places = {(message["queue"], message["offset"]): message["body"] for message in stored(mq, name)}
    sent = [future.result() for future in futures]
    assert [places[place.queue, place.offset] for place in sent] == [f"{number}" for number in range(1_000)]


def test_messages_of_one_key_keep_their_order(mq: Any, name: str) -> None:
    with mq.producer(name, linger=0, in_flight=8) as out:
        for number in range(2_000):
            out.send(f"{number}", key=f"k{number % 5}")
    found = bodies_by_key(stored(mq, name))
    assert found == {f"k{key}": [f"{number}" for number in range(key, 2_000, 5)] for key in range(5)}


def test_threads_share_a_producer(url: str, name: str) -> None:
    mq = Decant(url)
    mq.api.put_topic(name)
    with mq, mq.producer(name, linger=0.005) as out:

        def send(thread: int) -> None:
            for number in range(200):
                out.send(f"{number}", key=f"{thread}")

        threads = [threading.Thread(target=send, args=(thread,)) for thread in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert out.flush()
        found = bodies_by_key(stored(mq, name))
    assert found == {f"{thread}": [f"{number}" for number in range(200)] for thread in range(8)}


def test_one_bad_message_does_not_take_the_others_with_it(mq: Any, name: str) -> None:
    with mq.producer(name, linger=0.05) as out:
        good, bad, fine = out.send("good"), out.send("bad", tag="a|b"), out.send("fine")
    assert good.result().id != fine.result().id
    assert isinstance(bad.exception(), InvalidField)
    assert "tag" in str(bad.exception())
    assert sorted(message["body"] for message in stored(mq, name)) == ["fine", "good"]


def test_a_topic_that_is_missing_fails_all(face: Face, url: str) -> None:
    with face(url).producer("nowhere", linger=0.01) as out:
        futures = [out.send("x") for _ in range(3)]
    assert {type(future.exception()) for future in futures} == {TopicNotFound}


# -- calls ------------------------------------------------------------------------------------------------------------


def test_messages_within_the_linger_share_a_call(face: Face) -> None:
    with serving(stores()) as server, face(server.url).producer("orders", linger=60) as out:
        for number in range(100):
            out.send(str(number))
        out.flush()
        out.send("later")
    assert [len(request.json["messages"]) for request in server.requests] == [100, 1]


def test_a_call_takes_256_messages_or_4_mib(face: Face) -> None:
    with serving(stores()) as server, face(server.url).producer("orders", linger=60, in_flight=1) as out:
        for _ in range(300):
            out.send("small")
        out.flush()
        for _ in range(5):
            out.send("x" * 1_500_000)
    assert [len(request.json["messages"]) for request in server.requests] == [256, 44, 2, 2, 1]


def test_a_thousand_messages_take_four_calls(face: Face) -> None:
    with serving(stores()) as server, face(server.url).producer("orders", linger=30) as out:
        for number in range(1_000):
            out.send(str(number))
    assert sorted(len(request.json["messages"]) for request in server.requests) == [232, 256, 256, 256]


def test_an_answer_that_is_lost_is_asked_for_again_with_the_same_ids(face: Face) -> None:
    with serving(closes, closes, stores()) as server:
        with face(server.url).producer("orders") as out:
            future = out.send("hello")
        assert future.result().id == "0"
    assert len({request.body for request in server.requests}) == 1
    assert len(server.requests) == 3


def test_without_dedup_nothing_is_sent_twice(face: Face) -> None:
    with serving(closes, stores()) as server:
        with face(server.url).producer("orders", dedup=False) as out:
            future = out.send("hello")
        assert isinstance(future.exception(), OutcomeUnknown)
    assert [request.json for request in server.requests] == [{"messages": [{"body": "hello"}]}]


def test_a_dedup_id_of_your_own_is_kept(face: Face) -> None:
    with serving(stores()) as server, face(server.url).producer("orders", linger=0.1) as out:
        out.send("a", dedup_id="mine")
        out.send("b")
        out.send("c")
    ids = [message["dedup_id"] for request in server.requests for message in request.json["messages"]]
    assert ids[0] == "mine"
    assert len(set(ids)) == 3


def test_messages_that_are_refused_for_now_are_sent_again_in_order(face: Face) -> None:
    full = {"error": {"code": "QueueFull", "detail": "full"}}
    partly = answer(207, {"messages": [{"message_id": "0", "queue": 0, "offset": 0}, full, full]})
    with serving(partly, problem(429, "QueueFull"), stores()) as server:
        with face(server.url).producer("orders", linger=0.1) as out:
            futures = [out.send(text, key="k") for text in "abc"]
        assert [future.result().offset for future in futures] == [0, 0, 1]
    assert [[message["body"] for message in request.json["messages"]] for request in server.requests] == [
        ["a", "b", "c"],
        ["b", "c"],
        ["b", "c"],
    ]


def test_a_server_that_is_down_fails_each_future(face: Face) -> None:
    with face(f"http://127.0.0.1:{free_port()}", timeout=0.2).producer("orders") as out:
        futures = [out.send("x") for _ in range(3)]
    assert {type(future.exception()) for future in futures} == {Unreachable}


def test_a_key_is_in_one_call_at_a_time(face: Face) -> None:
    under_way: set[str] = set()
    twice: list[str] = []

    def slow(connection: Any, request: Received) -> None:
        keys = {message["key"] for message in request.json["messages"]}
        twice.extend(keys & under_way)
        under_way.update(keys)
        time.sleep(0.01)
        under_way.difference_update(keys)
        stores()(connection, request)

    with serving(slow) as server, face(server.url).producer("orders", linger=0, in_flight=8) as out:
        for number in range(300):
            out.send(str(number), key=f"{number % 3}")
    assert twice == []
    assert len(server.requests) > 1


# -- back pressure, the end -------------------------------------------------------------------------------------------


def test_a_send_waits_while_too_many_are_pending() -> None:
    with serving("hangs") as server, Decant(server.url, timeout=0.5) as mq:
        out = mq.producer("orders", linger=0, max_pending=10, dedup=False)
        began = time.monotonic()
        for _ in range(11):
            out.send("x")
        assert time.monotonic() - began >= 0.3
        server.over.set()
        out.close()


def test_a_task_waits_while_too_many_are_pending() -> None:
    async def main(url: str) -> float:
        async with (
            AsyncDecant(url, timeout=0.5) as mq,
            mq.producer("orders", linger=0, max_pending=10, dedup=False) as out,
        ):
            began = time.monotonic()
            futures = [await out.send("x") for _ in range(11)]
            await out.flush()
            assert all(future.exception() for future in futures)
            return time.monotonic() - began

    with serving("hangs") as server:
        assert asyncio.run(main(server.url)) >= 0.3


class Broken:
    """A transport with a defect."""

    address = "nowhere"

    def send(self, request: Any, timeout_s: float) -> Any:
        raise RuntimeError("a defect")

    def close(self) -> None:
        pass


def test_a_defect_of_a_transport_fails_each_future() -> None:
    with Decant(transport=Broken()).producer("orders") as out:
        futures = [out.send("x") for _ in range(3)]
    assert {str(future.exception()) for future in futures} == {"RuntimeError: a defect"}

    async def main() -> set[str]:
        async with AsyncDecant(transport=InThreads(Broken())) as mq, mq.producer("orders") as out:
            futures = [await out.send("x") for _ in range(3)]
            await out.flush()
            return {str(future.exception()) for future in futures}

    assert asyncio.run(main()) == {"RuntimeError: a defect"}


def test_a_closed_producer_takes_nothing(face: Face) -> None:
    with serving(stores()) as server:
        with face(server.url).producer("orders") as out:
            out.send("x")
        with pytest.raises(SettingError, match="closed"):
            out.send("y")


def test_a_block_that_raises_still_sends_what_was_taken(face: Face) -> None:
    def send(url: str) -> None:
        with face(url).producer("orders", linger=10) as out:
            out.send("x")
            raise ZeroDivisionError

    with serving(stores()) as server, pytest.raises(ZeroDivisionError):
        send(server.url)
    assert len(server.requests) == 1


@pytest.mark.parametrize("options", [{"max_pending": 0}, {"in_flight": 0}, {"in_flight": 1.5}, {"linger": -1}])
def test_a_setting_that_makes_no_sense_is_named(face: Face, options: dict[str, Any]) -> None:
    with pytest.raises(SettingError, match=next(iter(options))):
        face("http://127.0.0.1:1").producer("orders", **options)


# -- lanes ------------------------------------------------------------------------------------------------------------


def lanes(*keys: str | None) -> Lanes[int]:
    made: Lanes[int] = Lanes(1.0)
    for number, key in enumerate(keys):
        made.add({"body": "x", **({"key": key} if key else {})}, number, 0.0)
    return made


def futures(taken: Iterator[Any] | list[Any]) -> list[int]:
    return [waiting.future for waiting in taken]


def test_a_lane_under_way_is_passed_by_others_and_keeps_its_order() -> None:
    made = lanes("a", "b")
    first = made.take()
    for number, key in enumerate(["a", "c", "a", None], start=2):
        made.add({"body": "x", **({"key": key} if key else {})}, number, 0.0)
    second = made.take()
    assert (futures(first), futures(second)) == ([0, 1], [3, 5])
    made.done(first)
    assert futures(made.take()) == [2, 4]


def test_what_is_left_of_a_lane_stays_before_what_comes_later() -> None:
    made = lanes(*["a"] * 258)
    first = made.take()
    made.add({"body": "x", "key": "a"}, 258, 0.0)
    assert made.take() == []
    made.done(first)
    assert futures(made.take()) == [256, 257, 258]


def test_a_call_is_due_after_the_linger_or_once_it_is_full() -> None:
    made = lanes("a")
    assert made.due_s(0.25) == 0.75
    assert made.due_s(1.0) == 0
    assert made.due_s(0.0, is_hurried=True) == 0
    assert lanes(*["a"] * 256).due_s(0.0) == 0
    assert lanes().due_s(5.0) is None


def test_messages_for_one_queue_are_a_lane() -> None:
    made = lanes()
    made.add({"body": "x", "queue": 0}, 0, 0.0)
    made.take()
    made.add({"body": "x", "queue": 0}, 1, 0.0)
    made.add({"body": "x", "queue": 1}, 2, 0.0)
    assert futures(made.take()) == [2]


def test_a_fork_cannot_send_by_its_parents_producer(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(stores()) as server, Decant(server.url) as mq, mq.producer("orders", linger=60) as out:
        out.send("parents")
        with monkeypatch.context() as patch:
            patch.setattr(out, "_process", -1)  # as it looks after a fork
            with pytest.raises(SettingError, match="after a fork"):
                out.send("childs")
            out.close()
    assert [len(request.json["messages"]) for request in server.requests] == [1]
