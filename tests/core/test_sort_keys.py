"""The sort keys of a partition in memory are in order, whatever comes and goes, and however many they are."""

from __future__ import annotations

from random import Random

import pytest

from local.memory import sort_keys
from local.memory.sort_keys import SortKeys

KEYS = [f"{number:03d}" for number in range(200)]


@pytest.mark.parametrize("block", [2, 3, 8, 1_000])
@pytest.mark.parametrize("at_first", [0, 1, 100])
def test_sort_keys_are_found_in_order_as_in_one_list(
    block: int, at_first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sort_keys, "BLOCK_KEYS_MAX", block)
    chance = Random(block)
    known = set(chance.sample(KEYS, at_first))
    keys = SortKeys(known)
    for step in range(600):
        key = chance.choice(KEYS)
        (keys.remove if key in known else keys.add)(key)
        known ^= {key}
        if step == 400:  # all of them go once
            for each in chance.sample(sorted(known), len(known)):
                keys.remove(each)
            known.clear()
        low, high = chance.choice([*KEYS, "", "~"]), chance.choice([*KEYS, "", "~"])
        expected = [each for each in sorted(known) if low <= each <= high]
        assert list(keys.ascending(low, high)) == expected
        assert list(keys.descending(low, high)) == expected[::-1]
