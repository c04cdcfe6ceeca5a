"""The counters of an instance and the backlogs of groups, in the format of Prometheus. `docs/observing.md` lists the
metrics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from chalicelib import COMMIT, VERSION
from chalicelib.core.base.limits import SECOND_MS
from chalicelib.core.telemetry.telemetry import BUCKETS_MS, Histogram, Totals

PREFIX = "decant_"

_MESSAGES = {
    "produced": "Messages stored.",
    "popped": "Deliveries of messages to consumers.",
    "redelivered": "Those of them that were not the first of their message to the group.",
    "acked": "Receipts that counted in an ack.",
    "nacked": "Receipts that counted in a nack.",
    "buried": "Receipts that counted in a bury.",
    "extended": "Receipts that counted in an extend.",
    "expired": "Messages that a group settled since they had expired.",
    "dead": "Messages that became dead letters.",
    "moved": "Messages that a move task took out of a dead-letter queue.",
}
_STORE = {
    "store_calls": "Requests to DynamoDB and S3.",
    "store_retries": "Those of them that repeated one that had failed.",
    "read_units": "Read units that DynamoDB reported.",
    "write_units": "Write units that DynamoDB reported.",
}
_BACKLOG = {
    "ready_messages": "Messages that a pop can take now.",
    "in_flight_messages": "Messages that are leased.",
    "retrying_messages": "Messages that wait for their retry after a nack.",
    "lag_messages": "Messages that are ready or in flight.",
    "dead_messages": "Messages in the dead letters.",
    "oldest_age_seconds": "How long ago the oldest ready message was stored; 0 without one.",
}


class GroupGauges(NamedTuple):
    """The backlog of a group: the values of the gauges in their order."""

    topic: str
    group: str
    ready: int
    in_flight: int
    retrying: int
    lag: int
    dead: int
    oldest_age_s: float


class Gauges(NamedTuple):
    """The backlogs at an instant. `is_whole`: they are of all groups, and no look has failed since."""

    at_ms: int
    groups: Sequence[GroupGauges]
    is_whole: bool


class _Collector:
    """A collector of the Prometheus client, which returns all metrics at once."""

    def __init__(self, totals: Totals, process: str, backlogs: Gauges) -> None:
        self._totals, self._process, self._gauges = totals, process, backlogs

    def collect(self) -> Iterator[Metric]:
        yield self._build()
        yield from self._backlogs()
        with self._totals.lock:
            yield from [*self._messages(), *self._store(), *self._durations()]

    def _build(self) -> Metric:
        text = "1, with the release that answers and the commit that it was packaged from."
        gauge = GaugeMetricFamily(f"{PREFIX}build_info", text, labels=["version", "commit"])
        gauge.add_metric([VERSION, COMMIT or "unknown"], 1)
        return gauge

    def _backlogs(self) -> Iterator[Metric]:
        for number, (name, text) in enumerate(_BACKLOG.items()):
            gauge = GaugeMetricFamily(PREFIX + name, text, labels=["topic", "group"])
            for topic, group, *values in self._gauges.groups:
                gauge.add_metric([topic, group], values[number])
            yield gauge
        at_s = self._gauges.at_ms / SECOND_MS
        yield GaugeMetricFamily(f"{PREFIX}backlogs_timestamp_seconds", "When the backlogs were read.", at_s)
        text = "1 if there were more groups than one look reads, or the last look failed."
        yield GaugeMetricFamily(f"{PREFIX}backlogs_incomplete", text, int(not self._gauges.is_whole))

    def _messages(self) -> Iterator[Metric]:
        for name, text in _MESSAGES.items():
            labels = ["topic"] if name == "produced" else ["topic", "group"]
            counted = (
                ([topic, group][: len(labels)], number)
                for (what, topic, group), number in self._totals.messages.items()
                if what == name
            )
            yield self._counter(f"{name}_messages", text, labels, counted)
        problems = ((list(place), number) for place, number in self._totals.problems.items())
        yield self._counter("problems", "Answers with an error, by its code.", ["operation", "code"], problems)

    def _store(self) -> Iterator[Metric]:
        for name, text in _STORE.items():
            yield self._counter(name, text, [], [([], self._totals.store[name])])

    def _counter(
        self, name: str, text: str, labels: Sequence[str], values: Iterable[tuple[Sequence[str], float]]
    ) -> Metric:
        counter = CounterMetricFamily(PREFIX + name, text, labels=[*labels, "process"])
        for place, value in values:
            counter.add_metric([*place, self._process], value)
        return counter

    def _durations(self) -> Iterator[Metric]:
        asked = self._histogram("request", "operation", "Time of a request, without the sleep of long polls.")
        swept = self._histogram("sweep", "sweep", "Time of a sweep.")
        ran = GaugeMetricFamily(
            f"{PREFIX}sweep_timestamp_seconds", "When a sweep came to its end last.", labels=["sweep", "process"]
        )
        for name, at_s in self._totals.ran_at_s.items():
            ran.add_metric([name, self._process], at_s)
        yield from (asked, swept, ran)

    def _histogram(self, kind: str, label: str, text: str) -> Metric:
        family = HistogramMetricFamily(f"{PREFIX}{kind}_duration_seconds", text, labels=[label, "process"])
        for (of, name), histogram in self._totals.durations.items():
            if of == kind:
                family.add_metric([name, self._process], _buckets(histogram), histogram.sum_ms / SECOND_MS)
        return family


def _buckets(histogram: Histogram) -> list[tuple[str, float]]:
    bounds = [*(str(ms / SECOND_MS) for ms in BUCKETS_MS), "+Inf"]
    return [*zip(bounds, accumulate(histogram.counts), strict=True)]


def text(totals: Totals, process: str, backlogs: Gauges) -> str:
    """The metrics of this instance. `process`: distinguishes its counters from those of other instances."""
    return generate_latest(_Collector(totals, process, backlogs)).decode()
