"""The report's sections, one for each table. `None` for a table: its job has not run on this export."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

from spark.report import charts, digests, formats
from spark.report.digests import Row
from spark.report.page import Column, Section
from spark.transforms.audit.findings import VIOLATION

BARS_MAX = 15
ROWS_MAX = 100
"""The most rows in a chart or a table; the largest come first."""


def audit(violations: pa.Table | None) -> Section:
    title, about = "Audit", "The invariants of the table, checked on every item of the export."
    if violations is None:
        return _not_run(title, about, "audit")
    found = len(violations)
    if not found:
        return Section(title, about, "0 findings", "Everything holds. Nothing was found.", "good")
    counted = digests.by_invariant(violations)
    wrong = sum(row["count_all"] for row in counted if row["severity"] == VIOLATION)
    verdict = (
        f"Violations: {formats.count(wrong)} of {formats.counted(found, 'finding')}. The table must never look"
        " like that."
        if wrong
        else "No violations. The findings may come from items read at different moments, or only cost storage."
    )
    counts = _summed((f"{row['invariant']} ({row['severity']})", row["count_all"]) for row in counted)
    titles = _columns("Severity", "Invariant", "Topic", "Queue#", "Offset#", "Finding")
    cells = [
        (row["severity"], row["invariant"], row["topic"], *map(_number, (row["queue"], row["offset"])), row["detail"])
        for row in _first(digests.worst_first(violations))
    ]
    chart = charts.bars(counts[:BARS_MAX], "findings", formats.count)
    headline = formats.counted(wrong, "violation") if wrong else formats.counted(found, "finding")
    return Section(
        title, about, headline, verdict, "bad" if wrong else "odd", chart, titles, cells, _hidden(violations)
    )


def quarantine(rows: pa.Table | None) -> Section:
    title, about = "Quarantine", "Lines and files of the export that could not be read."
    if rows is None:
        return _not_run(title, about, "messages")
    shown, total = _first(digests.ordered(rows, "file", "line")), len(rows)
    if not shown:
        return Section(title, about, "0 lines", "All of it could be read.", "good")
    verdict = f"{formats.count(total)} could not be read; all other figures exclude them."
    reasons = _summed((row["reason"], 1) for row in shown)
    cells = [(row["file"], formats.count(row["line"]), row["reason"]) for row in shown]
    chart = charts.bars(reasons[:BARS_MAX], "lines", formats.count)
    titles, headline = _columns("File", "Line#", "Reason"), formats.counted(total, "line")
    return Section(title, about, headline, verdict, "bad", chart, titles, cells, total - len(shown))


def backlog(rows: pa.Table | None) -> Section:
    title, about = "Backlog", "Messages that wait to be delivered, by group."
    if rows is None:
        return _not_run(title, about, "backlog")
    groups = digests.by_group(rows)
    if not groups:
        return Section(title, about, "0 groups", "There are no consumer groups.")
    shown = _first(groups)
    behind = [(f"{row['topic']} / {row['group']}", row["ready"]) for row in shown if row["ready"]]
    verdict = "" if behind else "No group is behind: all that was stored has been taken."
    titles = _columns("Topic", "Group", "Ready#", "In flight#", "Retrying#", "Dead#", "Oldest#", "Last pop")
    cells = [
        (
            row["topic"],
            row["group"],
            *(formats.count(row[name]) for name in ("ready", "in_flight", "retrying", "dead")),
            formats.span(row["oldest_age_ms"]),
            formats.instant(row["last_pop_at_ms"]),
        )
        for row in shown
    ]
    chart = charts.bars(behind[:BARS_MAX], "messages ready", formats.count) if behind else ""
    headline = f"{formats.count(_sum(groups, 'ready'))} ready"
    return Section(title, about, headline, verdict, "" if behind else "good", chart, titles, cells, _hidden(groups))


def traffic(rows: pa.Table | None) -> Section:
    title, about = (
        "Traffic",
        "Messages stored on these days, including those that have expired from the logs.",
    )
    if rows is None:
        return _not_run(title, about, "traffic")
    topics = digests.by_topic(rows)
    if not topics:
        return Section(title, about, "0 messages", "No message has been stored.")
    step = _step(topics)
    steps = _steps(rows, step, "messages", "sum")
    titles = _columns("Topic", "Messages#", "Bodies#", "First", "Last")
    cells = [
        (
            row["topic"],
            formats.count(row["messages"]),
            formats.size(row["body_bytes"]),
            *map(formats.instant, (row["first_ms"], row["last_ms"])),
        )
        for row in _first(topics)
    ]
    chart = charts.columns(steps, f"messages in {formats.span(step)}", "time stored (UTC)", formats.count)
    headline = formats.counted(_sum(topics, "messages"), "message")
    return Section(title, about, headline, "", "", chart, titles, cells, _hidden(topics))


def requests(rows: pa.Table | None) -> Section:
    title = "Requests"
    about = "Calls that wait for a reply: how long they took from asking until the reply was stored."
    if rows is None:
        return _not_run(title, about, "requests")
    topics = digests.calls_by_topic(rows)
    if not topics:
        return Section(title, about, "none", "No request was made whose reply would still be kept.")
    timed_out, wrong = (int(_sum(topics, name)) for name in ("timed_out", "wrong"))
    slowest_ms = pc.max(topics["replied_p99_ms"]).as_py()
    titles = _columns(
        "Topic", "Calls#", "Replied#", "Timed out#", "Median#", "99 of 100#", "Taken#", "Handled#", "Late#", "Orphaned#"
    )
    cells = [
        (
            row["topic"],
            *(formats.count(row[name]) for name in ("calls", "replied", "timed_out")),
            *(formats.span(row[f"{name}_ms"]) for name in ("replied_p50", "replied_p99", "taken_p99", "handled_p99")),
            *(formats.count(row[name]) for name in ("late", "orphaned")),
        )
        for row in _first(topics)
    ]
    verdict, tone = _of_calls(timed_out, wrong, slowest_ms is not None)
    headline = _of_replies(timed_out, int(_sum(topics, "calls")), wrong, slowest_ms)
    chart = ""
    if slowest_ms is not None:  # of each step, the slowest minute of any topic
        minutes = rows.filter(pc.and_(pc.is_valid(rows["minute_ms"]), pc.greater(rows["replied"], 0)))
        steps = _steps(minutes, _step(topics), "replied_p99_ms", "max")
        chart = charts.columns(steps, "time that 99 of 100 stay within", "time asked (UTC)", formats.span)
    return Section(title, about, headline, verdict, tone, chart, titles, cells, _hidden(topics))


def _of_replies(timed_out: int, calls: int, wrong: int, slowest_ms: float | None) -> str:
    """The headline. The duration of replies says little if some calls got none."""
    if wrong:
        return f"{formats.count(wrong)} wrong"
    if timed_out:
        return f"{formats.count(timed_out)} of {formats.count(calls)} timed out"
    return "0 replies" if slowest_ms is None else f"99 % within {formats.span(slowest_ms)}"


def _of_calls(timed_out: int, wrong: int, has_replies: bool) -> tuple[str, str]:
    """Verdict and tone."""
    if wrong:
        noun = "reply" if wrong == 1 else "replies"
        return f"{formats.count(wrong)} {noun} too late, or without a request, which must never happen.", "bad"
    if timed_out:
        return f"Timed out: {formats.counted(timed_out, 'call')}.", "odd"
    return ("Every call that has ended was answered.", "good") if has_replies else ("No call has ended yet.", "")


def delays(days: pa.Table | None, waiting: pa.Table | None) -> Section:
    title = "Lateness of delays"
    about = (
        "How long after its due time a delayed message entered the log: the next pop or sweep delivers it. Medians and"
        " other percentiles are those of the day on which they were highest."
    )
    if days is None or waiting is None:
        return _not_run(title, about, "delays")
    topics = digests.lateness_by_topic(days, waiting)
    if not topics:
        return Section(title, about, "none", "No message was delayed.")
    shown, early = _first(topics), _sum(topics, "early")
    late = [(row["topic"], row["p99_ms"]) for row in shown if row["messages"]]
    titles = _columns(
        "Topic", "Delivered#", "Median#", "90 of 100#", "99 of 100#", "Latest#", "Early#", "Waiting#", "Overdue#"
    )
    cells = [
        (
            row["topic"],
            formats.count(row["messages"]),
            *(formats.span(row[name]) for name in ("p50_ms", "p90_ms", "p99_ms", "max_ms")),
            *(formats.count(row[name]) for name in ("early", "waiting", "overdue")),
        )
        for row in shown
    ]
    chart = charts.bars(late[:BARS_MAX], "lateness that 99 of 100 stay within", formats.span) if late else ""
    headline, verdict, tone = _of_lateness([p99_ms for _, p99_ms in late], _sum(topics, "overdue"), early)
    return Section(title, about, headline, verdict, tone, chart, titles, cells, _hidden(topics))


def _of_lateness(p99s_ms: list[float], overdue: float, early: float) -> tuple[str, str, str]:
    """Headline, verdict and tone. The lateness of delivered messages says little while others wait."""
    if early:
        return f"{formats.count(early)} early", "Some were delivered early, which must never happen.", "bad"
    if overdue:
        return f"{formats.count(overdue)} overdue", "Some that are due wait for the next pop or sweep.", "odd"
    if not p99s_ms:
        return "none", "None of the delayed messages was due yet.", ""
    return f"99 % within {formats.span(max(p99s_ms))}", "", ""


def dead_letters(rows: pa.Table | None) -> Section:
    title, about = "Dead letters", "Messages that a group gave up, by reason."
    if rows is None:
        return _not_run(title, about, "dead_letters")
    reasons = digests.by_reason(rows)
    if not reasons:
        return Section(title, about, "0 messages", "No group has given up a message.", "good")
    totals = digests.ordered(digests.summed(rows, ["reason"], letters="sum"), "-letters", "reason")
    bars = [(row["reason"], row["letters"]) for row in totals[:BARS_MAX].to_pylist()]
    chart = charts.bars(bars, "messages", formats.count)
    titles = _columns("Topic", "Group", "Reason", "Messages#", "Last, within the hour from")
    cells = [
        (row["topic"], row["group"], row["reason"], formats.count(row["letters"]), formats.instant(row["hour_ms"]))
        for row in _first(reasons)
    ]
    headline = formats.counted(_sum(reasons, "letters"), "message")
    return Section(title, about, headline, "", "odd", chart, titles, cells, _hidden(reasons))


def cost(rows: pa.Table | None) -> Section:
    title, about = "Cost", "The stored items, their storage cost, and the cost so far of writing and reading them."
    if rows is None:
        return _not_run(title, about, "cost")
    kinds = digests.by_kind(rows)
    if not kinds:
        return Section(title, about, "nothing", "The table stores nothing.")
    usd = _sum(kinds, "usd_per_month")
    totals = digests.ordered(digests.summed(kinds, ["kind"], bytes="sum"), "-bytes", "kind")
    sizes = [(row["kind"], row["bytes"]) for row in totals.to_pylist()]
    written, read = (formats.money(_sum(kinds, name)) for name in ("write_usd", "read_usd"))
    verdict = (
        f"{formats.size(_sum(kinds, 'bytes'))} in all: {formats.money(usd)} a month."
        f" Judging by the export, writing it has cost at least {written} and reading it at least {read};"
        " the figures of cursors are estimates."
    )
    titles = _columns("Topic", "Kind of item", "Items#", "Size#", "A month#", "Written for#", "Read for#")
    cells = [
        (
            row["topic"] or "none",
            row["kind"],
            formats.count(row["items"]),
            formats.size(row["bytes"]),
            *(formats.money(row[name]) for name in ("usd_per_month", "write_usd", "read_usd")),
        )
        for row in _first(kinds)
    ]
    chart = charts.bars(sizes[:BARS_MAX], "bytes stored, by kind of item", formats.size)
    return Section(title, about, f"{formats.money(usd)} a month", verdict, "", chart, titles, cells, _hidden(kinds))


def _not_run(title: str, about: str, job: str) -> Section:
    return Section(title, about, "unknown", f"The job {job} has not run on this export.", "odd")


def _step(topics: pa.Table) -> int:
    """The span in ms of one column of a chart over time."""
    first, last = pc.min(topics["first_ms"]).as_py(), pc.max(topics["last_ms"]).as_py()
    return digests.step_ms(last - first + 1)


def _steps(rows: pa.Table, step_ms: int, value: str, function: str) -> list[tuple[str, float]]:
    """The value of each step, 0 where there are no rows; at most the last 201."""
    values = digests.over_time(rows, step_ms, value, function)
    start = max(min(values), max(values) - 200 * step_ms)
    return [(formats.clock(at), values.get(at, 0)) for at in range(start, max(values) + 1, step_ms)]


def _columns(*titles: str) -> list[Column]:
    """Columns with these titles. A title that ends with `#` marks a column of numbers."""
    return [Column(title.removesuffix("#"), title.endswith("#")) for title in titles]


def _summed(values: Iterable[tuple[str, float]]) -> list[tuple[str, float]]:
    """One value a label, the largest first."""
    sums: dict[str, float] = {}
    for label, value in values:
        sums[label] = sums.get(label, 0) + value
    return sorted(sums.items(), key=lambda pair: (-pair[1], pair[0]))


def _number(value: int | None) -> str:
    return formats.NONE if value is None else str(value)


def _first(rows: pa.Table) -> list[Row]:
    first: list[Row] = rows[:ROWS_MAX].to_pylist()
    return first


def _sum(rows: pa.Table, name: str) -> float:
    total: float = pc.sum(rows[name]).as_py() or 0
    return total


def _hidden(rows: pa.Table) -> int:
    return max(len(rows) - ROWS_MAX, 0)
