"""Observes the calls of one instance: records each, counts it, and writes its log lines.

The log lines of a call, as JSON. They carry metrics in the embedded metric format of CloudWatch.

<https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/CloudWatch_Embedded_Metric_Format_Specification.html>"""

from __future__ import annotations

import json
import logging
import sys
import threading
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import field
from functools import cached_property
from typing import Any, NamedTuple

import orjson

from chalicelib.core.base.errors import DecantError, Internal
from chalicelib.core.base.limits import SECOND_MS
from chalicelib.core.base.records import mutable
from chalicelib.core.base.runtime import Runtime
from chalicelib.core.telemetry.record import Backlog, Json, Record, current, recording

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


NAMESPACE = "Decant"
SWEEP, PUSH = "sweep", "push"
UNASKED = (SWEEP, PUSH)
"""Kinds of runs that no request started."""

COUNTED = ("produced", "popped", "redelivered", "acked", "nacked", "expired", "dead")
"""The counts that are metrics."""
SERVER_ERRORS = (500, 503)
"""504 is not one: it says that no reply to a request came in time."""

Values = Mapping[str, float]


class Ended(NamedTuple):
    """A call that has ended. `table`: the name of the stage's table; None: its lines carry no metrics."""

    record: Record
    at_ms: int
    took_ms: int
    is_cold: bool
    table: str | None

    @property
    def busy_ms(self) -> int:
        """The duration without the deliberate sleep of a long poll."""
        return max(0, self.took_ms - self.record.waited_ms)


def lines(call: Ended) -> Iterator[Json]:
    """One line of the call, and one for each backlog that it measured and found. Without metrics, omits calls that
    found nothing to do."""
    if call.table is None:
        if (
            call.record.operation not in UNASKED
            or call.record.code
            or call.record.counts
            or call.record.about.get("done")
        ):
            yield _line(call)
        return
    yield {**_line(call), **_metrics(call)}
    for backlog in call.record.backlogs or ():
        if backlog.ready or backlog.dead or backlog.is_raised:
            yield _of_backlog(call, backlog)


def counts_of(record: Record) -> dict[str, int]:
    """The counts over all topics and groups."""
    totals: dict[str, int] = {}
    for (name, _, _), number in record.counts.items():
        totals[name] = totals.get(name, 0) + number
    return totals


def _line(call: Ended) -> Json:
    record, counts = call.record, counts_of(call.record)
    fields = {
        "operation": record.operation,
        "topic": record.topic,
        "group": record.group,
        "status": record.status,
        "code": record.code,
        **record.about,
        **counts,
        "waited_ms": record.waited_ms,
        "store_calls": record.store_calls,
        "store_retries": record.store_retries,
        "read_units": record.read_units,
        "write_units": record.write_units,
        "cold": call.is_cold,
    }
    said = {name: value for name, value in fields.items() if value}
    return {"at_ms": call.at_ms, **said, "ms": call.took_ms}


def _metrics(call: Ended) -> Json:
    record, counts = call.record, counts_of(call.record)
    counted = {name.capitalize(): counts[name] for name in COUNTED if name in counts}
    retries = {"StoreRetries": record.store_retries} if record.store_retries else {}
    if record.operation != SWEEP:
        errors = int(record.status in SERVER_ERRORS)
        own = _directive({"Latency": call.busy_ms}, ["Table", "Operation"])
        defects = {"Defects": 1} if record.code == Internal.__name__ else {}
        overall = {"ServerErrors": errors, **defects, **retries, **counted}
        dimensions = {"Operation": record.operation}
        return _embedded(call, {"Latency": call.busy_ms, **overall}, dimensions, own, _directive(overall, ["Table"]))
    worst = {} if record.backlogs is None else _worst(record.backlogs)
    overall = {**retries, **counted, **worst}
    directives = [_directive(overall, ["Table"])] if overall else []
    if record.code:  # it has not come to its end
        return _embedded(call, overall, {}, *directives) if overall else {}
    own = _directive({"SweepDuration": call.took_ms}, ["Table", "Sweep"])
    dimensions = {"Sweep": record.about["sweep"]}
    return _embedded(call, {"SweepDuration": call.took_ms, **overall}, dimensions, own, *directives)


def _worst(backlogs: Sequence[Backlog]) -> dict[str, int]:
    """The worst values over all groups, since CloudWatch charges for each name and dimension of a metric."""
    raised = {"AlarmsRaised": sum(backlog.is_raised for backlog in backlogs)}
    if not backlogs:
        return raised
    return raised | {
        "OldestAge": max(backlog.age_ms for backlog in backlogs),
        "Ready": max(backlog.ready for backlog in backlogs),
        "DeadLetters": max(backlog.dead for backlog in backlogs),
    }


def _of_backlog(call: Ended, backlog: Backlog) -> Json:
    place = {"operation": "backlog", "topic": backlog.topic, "group": backlog.group}
    values = {"ready": backlog.ready, "oldest_age_ms": backlog.age_ms, "dead_letters": backlog.dead}
    return {"at_ms": call.at_ms, **place, **values, "is_raised": backlog.is_raised}


def _embedded(call: Ended, values: Values, dimensions: Mapping[str, str], *directives: Json) -> Json:
    """The members that tell CloudWatch what to extract."""
    about = {"Timestamp": call.at_ms, "CloudWatchMetrics": [*directives]}
    return {"Table": call.table, **dimensions, **values, "_aws": about}


def _directive(values: Values, *dimensions: Sequence[str]) -> Json:
    metrics = [{"Name": name, "Unit": _UNITS.get(name, "Count")} for name in values]
    return {"Namespace": NAMESPACE, "Dimensions": [*dimensions], "Metrics": metrics}


_UNITS = dict.fromkeys(("Latency", "SweepDuration", "OldestAge"), "Milliseconds")


Write = Callable[[str], object]
"""Writes a line."""

_NAME_CHARS = 8


class Telemetry:
    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._write: Write | None = None
        self._table: str | None = None
        self._is_cold = True
        self.totals = Totals()

    @cached_property
    def process(self) -> str:
        """Distinguishes the counters of this instance from those of others."""
        return self._runtime.name(_NAME_CHARS)

    def log_to(self, write: Write, table: str | None = None) -> None:
        """Writes log lines from now on. `table`: the dimension of the metrics in them; None: without metrics."""
        self._write, self._table = write, table

    @contextmanager
    def call(self, operation: str, topic: str = "", group: str = "", **about: Any) -> Iterator[Record]:
        """Records one call. An error that it raises counts as its problem."""
        record = Record(operation, topic, group, about)
        at_ms, began_ms = self._runtime.now(), self._runtime.uptime()
        try:
            with recording(record):
                yield record
        except Exception as error:
            record.code = error.code if isinstance(error, DecantError) else type(error).__name__
            raise
        finally:
            is_cold, self._is_cold = self._is_cold, False
            self._end(Ended(record, at_ms, self._runtime.uptime() - began_ms, is_cold, self._table))

    @contextmanager
    def sweep(self, name: str) -> Iterator[Record]:
        with self.call(SWEEP, sweep=name) as record:
            record.backlogs = [] if name == "check" else None
            yield record

    @property
    def tells_backlogs(self) -> bool:
        """Whether the measurements of a check are written to the log."""
        return self._write is not None and self._table is not None

    def _end(self, call: Ended) -> None:
        self.totals.add(call)
        if self._write:
            with suppress(OSError, ValueError):  # a closed stream must not fail the call
                for line in lines(call):
                    self._write(orjson.dumps(line).decode() + "\n")


# -- records of `logging` ---------------------------------------------------------------------------------------------

_OF_CALL = ("trace_id", "defect", "sweep")
"""The fields of a call's record that its own line has."""


class _Line(logging.Formatter):
    """`trace_id`: of the running invocation, if the call has none; empty if there is none."""

    def __init__(self, trace_id: Callable[[], str]) -> None:
        super().__init__()
        self._trace_id = trace_id

    def format(self, record: logging.LogRecord) -> str:
        fields = {
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            "request_id": getattr(record, "aws_request_id", ""),
            "trace_id": self._trace_id(),
            **_call_fields(),
        }
        if record.exc_info and record.exc_info[0]:
            fields |= {"error": record.exc_info[0].__name__, "stack": self.formatException(record.exc_info)}
        said = {name: value for name, value in fields.items() if value}
        return json.dumps({"at_ms": int(record.created * 1_000), **said})  # unlike orjson, it spells half a character


def _call_fields() -> dict[str, object]:
    call = current()
    if call is None:
        return {}
    about = {name: call.about[name] for name in _OF_CALL if call.about.get(name)}
    return {"operation": call.operation, "topic": call.topic, "group": call.group, **about}


def report_to_stdout(trace_id: Callable[[], str]) -> None:
    """Makes `logging` write a line of JSON for each record, in place of its handlers' output, and for each Python
    warning. Filters stay: that of Lambda's own handler adds the id of the request."""
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(_Line(trace_id))
    for former in logging.getLogger().handlers:
        for each in former.filters:
            handler.addFilter(each)
    logging.basicConfig(handlers=[handler], force=True)
    logging.captureWarnings(True)
