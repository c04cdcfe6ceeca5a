"""The counters of an instance since it started, for `GET /metrics`."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import Counter, defaultdict
from dataclasses import field

from chalicelib.core.base.limits import SECOND_MS
from chalicelib.core.base.records import mutable
from chalicelib.core.telemetry.lines import SWEEP, Ended

BUCKETS_MS = (5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000)
"""Upper bounds of the latency histograms."""

PLACES_MAX = 2_000
"""Pairs of topic and group with counters of their own: each series costs memory here and in Prometheus."""
OTHER = ("_other", "_other")
"""The name for all further pairs; no topic or group name begins like this."""


@mutable
class Histogram:
    """`counts`: by bucket; the last is above all bounds."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS_MS) + 1))
    sum_ms: int = 0

    def observe(self, ms: int) -> None:
        self.counts[bisect_left(BUCKETS_MS, ms)] += 1
        self.sum_ms += ms


class Totals:
    """`messages`: by event, topic and group. `problems`: error responses, by operation and code. `store`: the store's
    counters. `ran_at_s`: when each sweep last completed."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.messages: Counter[tuple[str, str, str]] = Counter()
        self.problems: Counter[tuple[str, str]] = Counter()
        self.store: Counter[str] = Counter()
        self.durations: dict[tuple[str, str], Histogram] = defaultdict(Histogram)
        """By kind, which is `request` or `sweep`, and name."""
        self.ran_at_s: dict[str, float] = {}
        self._places: set[tuple[str, str]] = set()

    def add(self, call: Ended) -> None:
        record = call.record
        kind, name = (SWEEP, record.about["sweep"]) if record.operation == SWEEP else ("request", record.operation)
        with self.lock:
            for (what, *place), number in record.counts.items():
                self.messages[(what, *self._place(*place))] += number
            if record.code:
                self.problems[name, record.code] += 1
            for what in ("store_calls", "store_retries", "read_units", "write_units"):
                self.store[what] += getattr(record, what)
            self.durations[kind, name].observe(call.busy_ms)
            if kind == SWEEP and not record.code:
                self.ran_at_s[name] = (call.at_ms + call.took_ms) / SECOND_MS

    def _place(self, topic: str, group: str) -> tuple[str, str]:
        if (topic, group) not in self._places and len(self._places) >= PLACES_MAX:
            return OTHER
        self._places.add((topic, group))
        return topic, group
