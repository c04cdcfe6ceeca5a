"""Deliveries of delayed messages that a caller left undone, and that others make up for."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from chalicelib.core.base.message import Message
from chalicelib.core.consuming.request import Pop
from chalicelib.core.delays.decision import PROMOTED_MAX
from chalicelib.core.producing.new_message import Sending
from tests.support.stopping import Stage, die_after, finish, requests_of, stop_after


class Scene(Stage):
    """A topic of one queue in which nothing has happened."""

    def __init__(self, **settings: int) -> None:
        super().__init__()
        service = self.instance()
        self.topic, _ = service.admin.topics.put("t", {"queues": 1, **settings})
        service.admin.groups.put(self.topic, "g", {})

    def send(self, bodies: list[str], deliver_at_ms: int | None = None) -> list[str]:
        """Returns their ids."""
        service = self.instance()
        messages = [Sending(Message(body, None, None, None, {}, deliver_at_ms)) for body in bodies]
        sent = [each.message_id or "" for each in service.producing.send(self.topic, messages)]
        self.topic = service.env.catalogue.current_topic("t")
        return sent

    def forward(self, stop: Callable[[], None]) -> None:
        self.instance(stop).sweeps.forward()

    def pop_all(self) -> list[str]:
        service, came = self.instance(), list[str]()
        while deliveries := service.consuming.pop(self.topic, "g", Pop(256, 600_000)).deliveries:
            came += [each.stored.message.text or "" for each in deliveries]
        return came

    def decide(self) -> None:
        """A caller decides to deliver what is due, and dies."""
        die_after(self.forward, next(each for each in range(1, 20) if self._is_decided(each)))

    def _is_decided(self, request: int) -> bool:
        fresh = self.copy()
        die_after(fresh.forward, request)
        return any(pk.startswith("promotions#") for pk, items in fresh.store._items.items() if items)


@pytest.mark.parametrize("count", [1, 10, 11, 22])  # eleven fill a segment
def test_old_promotions_hide_nothing_from_a_pop_that_skips_expired_ones(count: int) -> None:
    scene = Scene(retention_ms=60_000)
    scene.send(["waits"] * 32, scene.now + 100)
    scene.now += 200
    scene.decide()
    for _ in range(6):
        scene.send([scene.noise(800)] * 200)  # some two fill a segment
    scene.now += 8 * 60_000
    for _ in range(count):
        scene.send(["new".ljust(53)])
    assert scene.pop_all() == ["new".ljust(53)] * count


@pytest.mark.parametrize(("count", "behind_ms", "not_due_ms"), [(1, 120, -5), (40, 0, 500), (70, 0, 500)])
def test_a_decision_is_carried_out_before_others_that_are_due_earlier(
    count: int, behind_ms: int, not_due_ms: int
) -> None:
    """They were on their way when it was made, and are more than one look finds; or the next caller's clock is behind,
    and the decision is about messages that are not due by it, as others are that nobody has decided about."""
    scene = Scene()
    due_ms = scene.now + 100
    first, late = [f"first {number}" for number in range(32)], [f"late {number}" for number in range(count)]
    scene.send(first, due_ms)
    scene.now += 200
    scene.decide()
    scene.send(late, due_ms - 50)
    scene.send(["not due"], due_ms + not_due_ms)
    scene.now -= behind_ms
    assert scene.pop_all() == [*first, *late]


def _with_many_due() -> tuple[Scene, list[str]]:
    """Two decisions have to be made about them."""
    scene = Scene()
    bodies = [str(number) for number in range(2 * PROMOTED_MAX)]
    scene.send(bodies, scene.now + 100)
    scene.now += 200
    return scene, bodies


def test_one_sweep_delivers_all_though_a_decision_was_left_undone() -> None:
    scene, bodies = _with_many_due()
    scene.decide()
    scene.forward(lambda: None)
    assert scene.instance().delays.messages.page(scene.topic, 1, None) == ([], None)
    assert scene.pop_all() == bodies


def test_of_two_callers_that_decide_at_once_each_delivers_some() -> None:
    scene, bodies = _with_many_due()
    counts = set[int]()

    def promote(on: Scene, stop: Callable[[], None]) -> None:
        counts.add(on.instance(stop).delays.promoter.promote(on.topic, 0))

    for request in range(1, requests_of(partial(promote, scene.copy()))):
        fresh = scene.copy()
        first = stop_after(partial(promote, fresh), request)
        promote(fresh, lambda: None)
        finish(first, goes_on=True)
        assert fresh.pop_all() == bodies
    assert counts == {PROMOTED_MAX}
