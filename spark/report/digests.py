"""Reduces tables to the size of a page, with pyarrow. The most important rows come first, nulls last."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from spark.transforms.audit.findings import COST, DOUBT, VIOLATION

Row = dict[str, Any]

_SEVERITIES = pa.array([VIOLATION, DOUBT, COST])
_STEPS_MS = [minutes * 60_000 for minutes in (1, 5, 15, 60, 360, 1440, 10_080)]
"""The spans that one column of a chart over time may cover."""


def step_ms(span_ms: int, columns_max: int = 48) -> int:
    """The smallest step that divides the span into at most `columns_max` columns."""
    return next((step for step in _STEPS_MS if span_ms / step <= columns_max), _STEPS_MS[-1])


def ordered(rows: pa.Table, *keys: str) -> pa.Table:
    """Sorted by these columns; by those with a `-` before their name, the largest first."""
    directed = [(key.removeprefix("-"), "descending" if key.startswith("-") else "ascending") for key in keys]
    return rows.sort_by(directed)


def summed(rows: pa.Table, by: Sequence[str], **functions: str) -> pa.Table:
    """A row for each value of the columns `by`, with the other columns put together: `sum`, `min` or `max`."""
    made = rows.group_by(list(by)).aggregate(list(functions.items()))
    return made.select([*by, *(f"{name}_{function}" for name, function in functions.items())]).rename_columns(
        [*by, *functions]
    )


def worst_first(violations: pa.Table) -> pa.Table:
    ranked = violations.append_column("_rank", pc.index_in(violations["severity"], _SEVERITIES))
    return ordered(ranked, "_rank", "topic", "queue", "offset", "invariant", "detail").select(violations.column_names)


def by_invariant(violations: pa.Table) -> list[Row]:
    counted: list[Row] = violations.group_by(["invariant", "severity"]).aggregate([([], "count_all")]).to_pylist()
    return counted


def by_group(backlog: pa.Table) -> pa.Table:
    """A row a group: all its queues and consumers together."""
    counts = dict.fromkeys(("ready", "in_flight", "retrying", "dead"), "sum")
    groups = summed(backlog, ["topic", "group"], **counts, oldest_age_ms="max", last_pop_at_ms="max")
    return ordered(groups, "-ready", "-oldest_age_ms", "topic", "group")


def by_topic(traffic: pa.Table) -> pa.Table:
    """A row a topic: the stored messages, and the times of the first and the last."""
    twice = traffic.append_column("last_ms", traffic["minute_ms"])
    topics = summed(twice, ["topic"], messages="sum", body_bytes="sum", minute_ms="min", last_ms="max")
    return ordered(topics.rename_columns({"minute_ms": "first_ms"}), "-messages", "topic")


def over_time(minutes: pa.Table, step_ms: int, value: str, function: str) -> dict[int, float]:
    """The values of a column put together, by the beginning of the step in which their `minute_ms` is."""
    at_ms = pc.multiply(pc.divide(minutes["minute_ms"], step_ms), step_ms)
    steps = summed(minutes.append_column("at_ms", at_ms), ["at_ms"], **{value: function})
    return dict(zip(steps["at_ms"].to_pylist(), steps[value].to_pylist(), strict=True))


def calls_by_topic(requests: pa.Table) -> pa.Table:
    """A row a topic: the columns of `schemas.REQUESTS` over all its minutes, the first and the last minute, and
    `wrong`: late or orphaned replies."""
    of_topic = requests.filter(pc.is_null(requests["minute_ms"])).drop_columns(["minute_ms"])
    wrong = pc.add(of_topic["late"], of_topic["orphaned"])
    minutes = requests.append_column("last_ms", requests["minute_ms"])
    bounds = summed(minutes, ["topic_id"], minute_ms="min", last_ms="max").rename_columns({"minute_ms": "first_ms"})
    topics = of_topic.append_column("wrong", wrong).join(bounds, "topic_id")
    return ordered(topics, "-wrong", "-timed_out", "-replied_p99_ms", "topic")


def lateness_by_topic(days: pa.Table, waiting: pa.Table) -> pa.Table:
    """A row a topic: the sums over all its days, the percentiles of the worst day, and the waiting messages."""
    ranks = dict.fromkeys(("p50_ms", "p90_ms", "p99_ms", "max_ms"), "max")
    late = summed(days, ["topic", "topic_id"], messages="sum", early="sum", **ranks)
    due = summed(waiting, ["topic", "topic_id"], messages="sum", overdue="sum").rename_columns({"messages": "waiting"})
    both = late.join(due, ["topic", "topic_id"], join_type="full outer")
    for name in ("messages", "early", "waiting", "overdue"):
        both = both.set_column(both.column_names.index(name), name, pc.fill_null(both[name], 0))
    return ordered(both, "-p99_ms", "topic")


def by_reason(letters: pa.Table) -> pa.Table:
    """A row for each reason of each group."""
    reasons = summed(letters, ["topic", "group", "reason"], letters="sum", hour_ms="max")
    return ordered(reasons, "-letters", "topic", "group", "reason")


def by_kind(cost: pa.Table) -> pa.Table:
    """A row for each kind of item of each topic."""
    sums = dict.fromkeys(("items", "bytes", "usd_per_month", "write_usd", "read_usd"), "sum")
    return ordered(summed(cost, ["topic", "kind"], **sums), "-bytes", "topic", "kind")
