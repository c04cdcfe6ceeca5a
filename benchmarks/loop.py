"""Times the loop of send, take and settle, step by step, on contenders that take turns."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from benchmarks.contender import Contender
from benchmarks.progress import shown
from benchmarks.workload import Workload

_WARM_UP_ROUNDS = 5

Round = dict[str, float]
"""Step -> seconds."""


def in_turns(
    contenders: Mapping[str, Contender], size: int, batch: int, rounds: int, label: str
) -> dict[str, list[Round]]:
    """Returns the rounds of each contender, with messages of `size` bytes. They take turns, so that other load on the
    machine hits all of them."""
    workload = Workload(size)
    taken: dict[str, list[Round]] = {name: [] for name in contenders}
    total = rounds + _WARM_UP_ROUNDS
    for _ in shown(range(total), total, f"{label}, batch {batch}"):
        for name, contender in contenders.items():
            taken[name].append(_round(contender, workload.take(batch)))
    return {name: each[_WARM_UP_ROUNDS:] for name, each in taken.items()}


def _round(contender: Contender, bodies: list[str]) -> Round:
    receipts: list[str] = []
    seconds: Round = {"send": _seconds(lambda: contender.send(bodies))}
    seconds["take"] = _seconds(lambda: receipts.extend(contender.take(len(bodies))))
    assert len(receipts) == len(bodies)
    seconds["settle"] = _seconds(lambda: contender.settle(receipts))
    seconds["whole loop"] = sum(seconds.values())
    return seconds


def _seconds(call: Callable[[], Any]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began
