"""The cost of a consumer that waits in vain, and the delay of a message that comes then."""

from __future__ import annotations

from chalicelib.core.base.limits import SECOND_MS, WAIT_MS_MAX
from chalicelib.core.consuming.waiters import IDLE_POLL_MS_MAX, POLL_MS_MAX
from tests.budgets.shop import Shop

LOOKS_IF_EVERY_200_MS = 103
"""Within 20 s, by a pop that never looks less often; the first looks come sooner."""
LOOK_UNITS, TOPIC_UNITS = 2.5, 0.5
"""Per look at a group of four queues, and per look at its topic, which precedes each look but the first."""


def pop(shop: Shop, wait_ms: int = WAIT_MS_MAX) -> int:
    return len(shop.consumer.pop("t", "g", {"wait_ms": wait_ms})["messages"])


def test_an_idle_wait_costs_a_quarter_of_looking_every_200_ms() -> None:
    shop = Shop()
    cost = shop.cost(lambda: pop(shop))
    dear = LOOKS_IF_EVERY_200_MS
    assert cost.write_units == 0
    assert cost.round_trips <= (2 * dear - 1) / 4
    assert cost.read_units <= (LOOK_UNITS * dear + TOPIC_UNITS * (dear - 1)) / 4


def test_a_message_that_breaks_a_silence_comes_as_late_as_is_said() -> None:
    """The producer is another instance."""
    lateness_ms = []
    for silence_ms in range(97, WAIT_MS_MAX, 199):
        shop = Shop()
        came_ms = shop.clock.ms + silence_ms
        shop.clock.at(came_ms, lambda: shop.producer.produce("t", {"messages": [{"body": "a"}]}))  # noqa: B023
        assert pop(shop) == 1
        late_ms = shop.clock.ms - came_ms
        assert late_ms <= max(POLL_MS_MAX, min(silence_ms // 3, IDLE_POLL_MS_MAX))
        lateness_ms.append(late_ms)
    assert sum(lateness_ms) / len(lateness_ms) <= 0.7 * SECOND_MS


def test_while_messages_are_held_back_a_wait_looks_every_200_ms() -> None:
    shop = Shop()
    shop.producer.put_group("t", "g", {"max_in_flight": 1})
    shop.produce(["a", "b"], queue=0)
    receipts, _ = shop.pop(most=1)
    freed_ms = shop.clock.ms + 15 * SECOND_MS
    shop.clock.at(freed_ms, lambda: shop.producer.ack("t", "g", {"receipts": receipts}))
    assert pop(shop) == 1
    assert shop.clock.ms - freed_ms <= POLL_MS_MAX
