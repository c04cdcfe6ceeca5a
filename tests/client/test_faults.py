"""Through a proxy that drops requests and answers at random, over the real service: nothing is lost in silence, nothing
is doubled, and each error tells the truth about what is stored."""

from __future__ import annotations

import http.client
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from decant import Decant, OutcomeUnknown, Unreachable
from tests.client.support.faces import Face
from tests.client.support.servers import Ended, Received, Server, serving
from tests.local.serving import Running

SEEDS = range(3)


@contextmanager
def faulty(service: Running, seed: int) -> Iterator[Server]:
    """A proxy that drops a tenth of the requests before they arrive, and two tenths of the answers."""
    chance = random.Random(seed)

    def turn(connection: Any, request: Received) -> None:
        fate = chance.random()
        if fate < 0.1:
            raise Ended
        answer = forwarded(service.port, request)
        if fate < 0.2:
            raise Ended
        if fate < 0.3:
            connection.sendall(answer[: len(answer) // 2])
            raise Ended
        connection.sendall(answer)

    with serving(turn) as server:
        yield server


def forwarded(port: int, request: Received) -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request(request.method, request.target, request.body or None, request.headers)
        response = connection.getresponse()
        body = response.read()
    finally:
        connection.close()
    kept = {name: value for name, value in response.getheaders() if name.lower() in ("content-type", "retry-after")}
    lines = "".join(f"{name}: {value}\r\n" for name, value in kept.items())
    return f"HTTP/1.1 {response.status} So\r\n{lines}content-length: {len(body)}\r\n\r\n".encode() + body


def stored(service: Running, name: str) -> Counter[str]:
    with Decant(f"http://127.0.0.1:{service.port}") as mq:
        pages = mq.each(mq.api.read_messages, name, queue=0, offset=0, limit=1_000)
        return Counter(message["body"] for message in pages)


@pytest.fixture
def topic(service: Running, name: str) -> str:
    with Decant(f"http://127.0.0.1:{service.port}") as mq:
        mq.api.put_topic(name, queues=1)
    return name


@pytest.mark.parametrize("seed", SEEDS)
def test_a_producer_stores_each_message_once_and_in_order(face: Face, service: Running, topic: str, seed: int) -> None:
    bodies = [str(number) for number in range(300)]
    with faulty(service, seed) as proxy:
        mq = face(proxy.url, random=random.Random(seed).random, timeout=30)
        with mq.producer(topic, linger=0.001) as out:
            for body in bodies:
                out.send(body, key="k")
        mq.close()
    assert list(stored(service, topic).items()) == [(body, 1) for body in bodies]


@pytest.mark.parametrize("seed", SEEDS)
def test_each_error_of_a_send_says_what_is_stored(face: Face, service: Running, topic: str, seed: int) -> None:
    sure, unsure = set(), set()
    with faulty(service, seed) as proxy:
        mq = face(proxy.url, random=random.Random(seed).random, timeout=2)
        for number in range(60):
            try:
                mq.send(topic, str(number))
                sure.add(str(number))
            except OutcomeUnknown:
                unsure.add(str(number))
            except Unreachable:
                pass
        mq.close()
    found = stored(service, topic)
    assert max(found.values()) == 1
    assert sure <= found.keys() <= sure | unsure
    assert unsure


@pytest.mark.parametrize("seed", SEEDS)
def test_pops_and_acks_lose_and_double_nothing(face: Face, service: Running, topic: str, seed: int) -> None:
    bodies = {str(number) for number in range(40)}
    with Decant(f"http://127.0.0.1:{service.port}") as mq:
        mq.api.put_group(topic, "readers")
        mq.send_all(topic, sorted(bodies))
    taken: Counter[str] = Counter()
    with faulty(service, seed) as proxy:
        client = face(proxy.url, random=random.Random(seed).random, timeout=30)
        for attempt in range(20):
            popped = client.api.pop(topic, "readers", max_messages=5, attempt_id=f"a{attempt}")["messages"]
            taken.update(message["body"] for message in popped)
            if popped:
                receipts = [message["receipt"] for message in popped]
                assert client.api.ack(topic, "readers", receipts=receipts)["acked"] == len(receipts)
        client.close()
    assert taken == Counter(bodies)
