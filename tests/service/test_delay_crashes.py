"""Callers that deliver and cancel delayed messages, stopped after any of their requests: each message is delivered once
or cancelled, and the answer to each cancel is true."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import islice, product
from typing import Self

import pytest

from chalicelib.core.base.errors import AlreadyDelivered, MessageNotFound
from chalicelib.core.base.message import Message
from chalicelib.core.consuming.request import Pop
from chalicelib.core.delays.decision import PROMOTED_MAX
from chalicelib.core.producing.new_message import Sending
from chalicelib.service import Service
from tests.support.stopping import Stage, Work, die_after, finish, requests_of, stop_after

_LARGE = 3_000
_DELAYS_MS = (100, 100, 200, 300, 90_000)
EVERY = 3
"""Of the pairs of points, one in so many is tried: other ones for other operations."""


class Scene(Stage):
    """A topic of one queue with some messages that are due, large ones among them, and one that is not for long."""

    def __init__(self) -> None:
        super().__init__()
        self.answers: list[tuple[str, str]] = []
        service = self.instance()
        self.topic, _ = service.admin.topics.put("t", {"queues": 1})
        service.admin.groups.put(self.topic, "g", {})
        sizes = (10, _LARGE, 10, _LARGE, 10)
        messages = [
            Sending(Message(f"{number}".ljust(size, "x"), None, None, None, {}, self.now + delay_ms))
            for number, (size, delay_ms) in enumerate(zip(sizes, _DELAYS_MS, strict=True))
        ]
        sent = service.producing.send(self.topic, messages)
        self.ids = [each.message_id or "" for each in sent]
        self.grow(service)
        self.topic = service.env.catalogue.current_topic("t")
        self.now += 400

    def copy(self) -> Self:
        other = super().copy()
        other.answers = []
        return other

    def grow(self, service: Service) -> None:
        """Other messages fill some segments of the log."""
        for number in range(10):
            plain = Message(f"{number}".ljust(300, "y"), None, "k", None, {str(number): "z" * 300})
            service.producing.send(self.topic, [Sending(plain)])

    def cancel(self, service: Service, number: int) -> None:
        """Writes down the answer, where there is one."""
        try:
            service.delays.messages.cancel(self.topic, self.ids[number])
        except (AlreadyDelivered, MessageNotFound) as error:
            self.answers.append((self.ids[number], error.code))
        else:
            self.answers.append((self.ids[number], "cancelled"))

    def verdict(self) -> list[str]:
        """The violations once all messages were due and drained."""
        self.now += 100_000
        service = self.instance()
        service.sweeps.forward()
        came: Counter[str] = Counter()
        while got := service.consuming.pop(self.topic, "g", Pop(256, 600_000)).deliveries:
            came.update(each.stored.message_id for each in got)
        for number in range(len(self.ids)):
            self.cancel(service, number)
        wrong = [f"{message_id} came {count} times" for message_id, count in came.items() if count > 1]
        for message_id in self.ids:
            told = {code for each, code in self.answers if each == message_id}
            allowed = {"AlreadyDelivered"} if came[message_id] else {"cancelled", "MessageNotFound"}
            if not told <= allowed:
                wrong.append(f"{message_id} came {came[message_id]} times, and cancelling it was answered {told}")
            if [code for each, code in self.answers if each == message_id].count("cancelled") > 1:
                wrong.append(f"{message_id} was cancelled twice")
        waiting, _ = service.delays.messages.page(self.topic, 100, None)
        return wrong + [f"{each.message_id} still waits" for each in waiting]


Operation = Callable[[Scene, Service], object]

OPERATIONS: dict[str, Operation] = {
    "forward": lambda _, service: service.sweeps.forward(),
    "pop": lambda scene, service: service.consuming.pop(scene.topic, "g", Pop(2, 1_000)),
    "cancel": lambda scene, service: scene.cancel(service, 0),
    "cancel a large one": lambda scene, service: scene.cancel(service, 1),
    "cancel what is not due": lambda scene, service: scene.cancel(service, 4),
}


def work(scene: Scene, name: str) -> Work:
    return lambda stop: OPERATIONS[name](scene, scene.instance(stop))


def after_two(scene: Scene, names: tuple[str, str], requests: tuple[int, int], goes_on: bool, grows: bool) -> list[str]:
    """The first stops after its request, the second runs to its own and dies. The first dies there too, or goes on.
    `grows`: other messages come into the log, where the first has stopped."""
    fresh = scene.copy()
    running = stop_after(work(fresh, names[0]), requests[0])
    if grows:
        fresh.grow(fresh.instance())
    die_after(work(fresh, names[1]), requests[1])
    finish(running, goes_on)
    return fresh.verdict()


@pytest.fixture(scope="module")
def scene() -> Scene:
    return Scene()


def test_the_scene_itself_is_clean(scene: Scene) -> None:
    assert scene.copy().verdict() == []


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_caller_that_dies_after_any_request_leaves_nothing_wrong(scene: Scene, name: str) -> None:
    for request in range(1, requests_of(work(scene.copy(), name)) + 1):
        fresh = scene.copy()
        die_after(work(fresh, name), request)
        assert fresh.verdict() == [], f"{name}, dead after request {request}"


@pytest.mark.parametrize("first", OPERATIONS)
def test_two_callers_may_each_stop_after_any_request(scene: Scene, first: str) -> None:
    for number, second in enumerate(OPERATIONS):
        # one more than it makes: it runs to its end
        points = product(
            range(1, requests_of(work(scene.copy(), first)) + 1), range(1, requests_of(work(scene.copy(), second)) + 2)
        )
        ways = enumerate(product(points, (False, True)))
        for at, (requests, goes_on) in islice(ways, number % EVERY, None, EVERY):
            grows = bool(at // 2 % 2) != goes_on  # every other of four ways at each point
            found = after_two(scene, (first, second), requests, goes_on, grows)
            assert found == [], f"{first} and {second}, at {requests}; goes on: {goes_on}; grows: {grows}"


def test_a_cancel_is_carried_out_before_others_decide(scene: Scene) -> None:
    name = "cancel what is not due"
    for request in range(1, requests_of(work(scene.copy(), name)) + 1):
        fresh = scene.copy()
        cancelling = stop_after(work(fresh, name), request)
        for _ in range(2):
            fresh.instance().sweeps.forward()
            fresh.now += 100_000
        finish(cancelling, goes_on=True)
        assert fresh.verdict() == [], f"after request {request}"


@pytest.mark.parametrize("count", [1, 10, 11, 22])  # eleven fill a segment
def test_old_promotions_hide_nothing_from_a_pop_that_skips_expired_ones(count: int) -> None:
    scene, service = _begun(retention_ms=60_000)

    def produce(body: str, copies: int, deliver_at_ms: int | None = None) -> None:
        sent = Message(body, None, None, None, {}, deliver_at_ms)
        service.producing.send(scene.topic, [Sending(sent) for _ in range(copies)])

    produce("waits", 32, scene.now + 100)
    scene.topic = service.env.catalogue.current_topic("t")
    scene.now += 200
    die_after(work(scene, "forward"), next(each for each in range(1, 20) if _is_decided(scene, each)))
    for _ in range(6):
        produce(scene.random.randbytes(400).hex(), 200)  # some two fill a segment
    scene.now += 8 * 60_000
    for _ in range(count):
        produce("new".ljust(53), 1)
    popping = scene.instance()
    came = [
        each.stored.message.body.strip()
        for each in popping.consuming.pop(scene.topic, "g", Pop(256, 600_000)).deliveries
    ]
    assert came == [b"new"] * count


@pytest.mark.parametrize(("count", "behind_ms", "not_due_ms"), [(1, 120, -5), (40, 0, 500), (70, 0, 500)])
def test_a_decision_is_carried_out_before_others_that_are_due_earlier(
    count: int, behind_ms: int, not_due_ms: int
) -> None:
    """They were on their way when it was made, and are more than one look finds; or the next caller's clock is behind,
    and the decision is about messages that are not due by it, as others are that nobody has decided about."""
    scene, service = _begun()
    due_ms = scene.now + 100

    def produce(name: str, copies: int, deliver_at_ms: int) -> list[str]:
        messages = [Message(f"{name} {number}", None, None, None, {}, deliver_at_ms) for number in range(copies)]
        service.producing.send(scene.topic, [Sending(message) for message in messages])
        return [message.text or "" for message in messages]

    sent = produce("first", 32, due_ms)
    scene.topic = service.env.catalogue.current_topic("t")
    scene.now += 200
    die_after(work(scene, "forward"), next(each for each in range(1, 20) if _is_decided(scene, each)))
    sent += produce("late", count, due_ms - 50)
    produce("not due", 1, due_ms + not_due_ms)
    scene.now -= behind_ms
    popping, came = scene.instance(), list[str]()
    while deliveries := popping.consuming.pop(scene.topic, "g", Pop(256, 600_000)).deliveries:
        came += [each.stored.message.text or "" for each in deliveries]
    assert came == sent


def _with_many_due() -> Scene:
    """Two decisions have to be made about them."""
    scene, service = _begun()
    scene.grow(service)
    messages = [Message(str(number), None, None, None, {}, scene.now + 100) for number in range(2 * PROMOTED_MAX)]
    sent = service.producing.send(scene.topic, [Sending(message) for message in messages])
    scene.ids = [each.message_id or "" for each in sent]
    scene.topic = service.env.catalogue.current_topic("t")
    scene.now += 200
    return scene


def test_one_sweep_delivers_all_though_a_decision_was_left_undone() -> None:
    scene = _with_many_due()
    die_after(work(scene, "forward"), next(each for each in range(1, 20) if _is_decided(scene, each)))
    service = scene.instance()
    assert service.delays.messages.place(scene.topic, scene.ids[0]) is None
    service.sweeps.forward()
    assert service.delays.messages.page(scene.topic, 1, None) == ([], None)
    assert service.delays.messages.place(scene.topic, scene.ids[0]) is not None


def test_of_two_callers_that_decide_at_once_each_delivers_some() -> None:
    scene, counts = _with_many_due(), list[int]()

    def promote(stop: Callable[[], None]) -> None:
        counts.append(fresh.instance(stop).delays.promoter.promote(fresh.topic, 0))

    fresh = scene.copy()
    for request in range(1, requests_of(promote)):
        fresh = scene.copy()
        first = stop_after(promote, request)
        promote(lambda: None)
        finish(first, goes_on=True)
        came = [
            each.stored.message_id for each in fresh.instance().consuming.pop(fresh.topic, "g", Pop(256)).deliveries
        ]
        assert came[-len(fresh.ids) :] == fresh.ids
    assert set(counts) == {PROMOTED_MAX}


def test_a_large_message_that_two_callers_deliver_comes_once() -> None:
    """It is delivered as it was stored, so that both make the same decision."""
    scene, service = _begun()
    message = Message(scene.noise(_LARGE), None, None, None, {}, scene.now + 100)
    scene.ids = [each.message_id or "" for each in service.producing.send(scene.topic, [Sending(message)])]
    scene.topic = service.env.catalogue.current_topic("t")
    scene.now += 200
    for request in range(1, requests_of(work(scene.copy(), "forward")) + 1):
        fresh = scene.copy()
        first = stop_after(work(fresh, "forward"), request)
        fresh.instance().sweeps.forward()
        fresh.grow(fresh.instance())
        finish(first, goes_on=True)
        assert fresh.verdict() == [], f"after request {request}"


def _begun(**settings: int) -> tuple[Scene, Service]:
    """A topic of one queue in which nothing has happened."""
    scene = Scene.__new__(Scene)
    Stage.__init__(scene)
    service = scene.instance()
    scene.topic, _ = service.admin.topics.put("t", {"queues": 1, **settings})
    service.admin.groups.put(scene.topic, "g", {})
    return scene, service


def _is_decided(scene: Scene, request: int) -> bool:
    """Whether a caller that dies after this request of a delivery has made the decision, and done no more."""
    fresh = Stage.copy(scene)
    die_after(work(fresh, "forward"), request)
    written = [pk for pk, items in fresh.store._items.items() if items]
    return any(pk.startswith("promotions#") for pk in written)
