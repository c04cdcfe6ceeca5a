"""Which keys move when the number of queues changes."""

from __future__ import annotations

from collections import Counter

import pytest

from chalicelib.core.producing.produce import queue_of_key

KEYS = [f"key-{number}" for number in range(20_000)]
PAIRS = [(1, 2), (2, 3), (2, 16), (4, 5), (7, 100), (127, 128)]


def places(queues: int) -> list[int]:
    return [queue_of_key(key, queues) for key in KEYS]


@pytest.mark.parametrize("queues", [1, 2, 3, 16, 128])
def test_keys_are_spread_evenly_over_the_queues(queues: int) -> None:
    counts = Counter(places(queues))
    mean = len(KEYS) / queues
    assert counts.keys() == set(range(queues))
    assert all(abs(count - mean) < 5 * mean**0.5 for count in counts.values())


@pytest.mark.parametrize(("few", "many"), PAIRS)
def test_growth_moves_only_keys_that_go_to_new_queues(few: int, many: int) -> None:
    moved = [(before, after) for before, after in zip(places(few), places(many), strict=True) if before != after]
    assert min(after for _, after in moved) >= few
    share = (many - few) / many
    assert abs(len(moved) - share * len(KEYS)) < 5 * (len(KEYS) * share * (1 - share)) ** 0.5 + 1


@pytest.mark.parametrize("key", ["", "a", "customer-42", "ключ", "x" * 256])
def test_a_key_stays_where_it_is_while_the_number_of_queues_does(key: str) -> None:
    assert len({queue_of_key(key, 16) for _ in range(3)}) == 1
    assert queue_of_key(key, 1) == 0
