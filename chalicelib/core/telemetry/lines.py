"""The log lines of a call, as JSON. They carry metrics in the embedded metric format of CloudWatch.

<https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/CloudWatch_Embedded_Metric_Format_Specification.html>
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from chalicelib.core.base.errors import Internal
from chalicelib.core.telemetry.record import Backlog, Json, Record

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
