"""The report's sections, one for each table. `None` for a table: its job has not run on this export."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from spark.report import charts, formats
from spark.report.page import Column, Section
from spark.transforms import digests
from spark.transforms.audit import VIOLATION, worst_first

BARS_MAX = 15
ROWS_MAX = 100
"""The most rows in a chart or a table; the largest come first."""


def audit(violations: DataFrame | None) -> Section:
    title, about = "Audit", "The invariants of the table, checked on every item of the export."
    if violations is None:
        return _not_run(title, about, "audit")
    rows = violations.transform(worst_first).collect()
    if not rows:
        return Section(title, about, "0 findings", "Everything holds. Nothing was found.", "good")
    wrong = sum(row["severity"] == VIOLATION for row in rows)
    verdict = (
        f"Violations: {formats.count(wrong)} of {formats.counted(len(rows), 'finding')}. The table must never look"
        " like that."
        if wrong
        else "No violations. The findings may come from items read at different moments, or only cost storage."
    )
    counts = _summed((f"{row['invariant']} ({row['severity']})", 1) for row in rows)
    titles = _columns("Severity", "Invariant", "Topic", "Queue#", "Offset#", "What was found")
    cells = [
        (row["severity"], row["invariant"], row["topic"], *map(_number, (row["queue"], row["offset"])), row["detail"])
        for row in rows[:ROWS_MAX]
    ]
    chart = charts.bars(counts[:BARS_MAX], "findings", formats.count)
    headline = formats.counted(wrong, "violation") if wrong else formats.counted(len(rows), "finding")
    return Section(title, about, headline, verdict, "bad" if wrong else "odd", chart, titles, cells, _hidden(rows))


def quarantine(rows: DataFrame | None) -> Section:
    title, about = "Quarantine", "Lines and files of the export that could not be read."
    if rows is None:
        return _not_run(title, about, "messages")
    shown = rows.orderBy("file", "line").limit(ROWS_MAX).collect()
    total = rows.count() if len(shown) == ROWS_MAX else len(shown)
    if not shown:
        return Section(title, about, "0 lines", "All of it could be read.", "good")
    verdict = f"{formats.count(total)} could not be read; all other figures exclude them."
    reasons = _summed((row["reason"], 1) for row in shown)
    cells = [(row["file"], formats.count(row["line"]), row["reason"]) for row in shown]
    chart = charts.bars(reasons[:BARS_MAX], "lines", formats.count)
    titles, headline = _columns("File", "Line#", "Reason"), formats.counted(total, "line")
    return Section(title, about, headline, verdict, "bad", chart, titles, cells, total - len(shown))


def backlog(rows: DataFrame | None) -> Section:
    title, about = "Backlog", "Messages that wait to be delivered, by group."
    if rows is None:
        return _not_run(title, about, "backlog")
    groups = rows.transform(digests.by_group).collect()
    if not groups:
        return Section(title, about, "0 groups", "There are no consumer groups.")
    behind = [(f"{row['topic']} / {row['group']}", row["ready"]) for row in groups if row["ready"]]
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
        for row in groups[:ROWS_MAX]
    ]
    chart = charts.bars(behind[:BARS_MAX], "messages ready", formats.count) if behind else ""
    headline = f"{formats.count(sum(ready for _, ready in behind))} ready"
    return Section(title, about, headline, verdict, "" if behind else "good", chart, titles, cells, _hidden(groups))


def traffic(rows: DataFrame | None) -> Section:
    title, about = (
        "Traffic",
        "Messages stored: all in the table messages, including those that have expired from the logs.",
    )
    if rows is None:
        return _not_run(title, about, "traffic")
    topics = rows.transform(digests.by_topic).collect()
    if not topics:
        return Section(title, about, "0 messages", "No message has been stored.")
    step = _step(topics)
    steps = _steps(rows, step, F.sum("messages"))
    titles = _columns("Topic", "Messages#", "Bodies#", "First", "Last")
    cells = [
        (
            row["topic"],
            formats.count(row["messages"]),
            formats.size(row["body_bytes"]),
            *map(formats.instant, (row["first_ms"], row["last_ms"])),
        )
        for row in topics[:ROWS_MAX]
    ]
    chart = charts.columns(steps, f"messages in {formats.span(step)}", "time stored (UTC)", formats.count)
    headline = formats.counted(sum(row["messages"] for row in topics), "message")
    return Section(title, about, headline, "", "", chart, titles, cells, _hidden(topics))


def requests(rows: DataFrame | None) -> Section:
    title = "Requests"
    about = "Calls that wait for a reply: how long they took from asking until the reply was stored."
    if rows is None:
        return _not_run(title, about, "requests")
    topics = rows.transform(digests.calls_by_topic).collect()
    if not topics:
        return Section(title, about, "none", "No request was made whose reply would still be kept.")
    timed_out, wrong = (sum(row[name] for row in topics) for name in ("timed_out", "wrong"))
    slowest = [(row["topic"], row["replied_p99_ms"]) for row in topics if row["replied"]]
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
        for row in topics[:ROWS_MAX]
    ]
    verdict, tone = _of_calls(timed_out, wrong, bool(slowest))
    headline = f"99 % within {formats.span(max(ms for _, ms in slowest))}" if slowest else "0 replies"
    chart = ""
    if slowest:  # of each step, the slowest minute of any topic
        steps = _steps(rows.where("minute_ms is not null and replied > 0"), _step(topics), F.max("replied_p99_ms"))
        chart = charts.columns(steps, "time that 99 of 100 stay within", "time asked (UTC)", formats.span)
    return Section(title, about, headline, verdict, tone, chart, titles, cells, _hidden(topics))


def _of_calls(timed_out: int, wrong: int, has_replies: bool) -> tuple[str, str]:
    """Verdict and tone."""
    if wrong:
        noun = "reply" if wrong == 1 else "replies"
        return f"{formats.count(wrong)} {noun} too late, or without a request, which must never happen.", "bad"
    if timed_out:
        return f"Timed out: {formats.counted(timed_out, 'call')}.", "odd"
    return ("Every call that has ended was answered.", "good") if has_replies else ("No call has ended yet.", "")


def delays(rows: DataFrame | None) -> Section:
    title = "Lateness of delays"
    about = "How long after its due time a delayed message entered the log: the next pop or sweep delivers it."
    if rows is None:
        return _not_run(title, about, "delays")
    topics = rows.orderBy(F.desc("p99_ms"), "topic").collect()
    if not topics:
        return Section(title, about, "none", "No message was delayed.")
    late = [(row["topic"], row["p99_ms"]) for row in topics if row["messages"]]
    early = sum(row["early"] for row in topics)
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
        for row in topics[:ROWS_MAX]
    ]
    chart = charts.bars(late[:BARS_MAX], "lateness that 99 of 100 stay within", formats.span) if late else ""
    verdict = "" if late else "None of the delayed messages was due yet."
    headline = f"99 % within {formats.span(max(lateness for _, lateness in late))}" if late else "none"
    if early:
        headline, verdict = (
            f"{formats.count(early)} early",
            "Some were delivered early, which must never happen.",
        )
    return Section(title, about, headline, verdict, "bad" if early else "", chart, titles, cells, _hidden(topics))


def dead_letters(rows: DataFrame | None) -> Section:
    title, about = "Dead letters", "Messages that a group gave up, by reason."
    if rows is None:
        return _not_run(title, about, "dead_letters")
    reasons = rows.transform(digests.by_reason).collect()
    if not reasons:
        return Section(title, about, "0 messages", "No group has given up a message.", "good")
    total = sum(row["letters"] for row in reasons)
    chart = charts.bars(
        _summed((row["reason"], row["letters"]) for row in reasons)[:BARS_MAX], "messages", formats.count
    )
    titles = _columns("Topic", "Group", "Reason", "Messages#", "Last, within the hour from")
    cells = [
        (row["topic"], row["group"], row["reason"], formats.count(row["letters"]), formats.instant(row["last_hour_ms"]))
        for row in reasons[:ROWS_MAX]
    ]
    headline = formats.counted(total, "message")
    return Section(title, about, headline, "", "odd", chart, titles, cells, _hidden(reasons))


def cost(rows: DataFrame | None) -> Section:
    title, about = "Cost", "What the table stores, what storing it costs, and what writing and reading it has cost."
    if rows is None:
        return _not_run(title, about, "cost")
    kinds = rows.transform(digests.by_kind).collect()
    if not kinds:
        return Section(title, about, "nothing", "The table stores nothing.")
    usd = sum(row["usd_per_month"] for row in kinds)
    sizes = _summed((row["kind"], row["bytes"]) for row in kinds)
    written, read = (formats.money(sum(row[name] for row in kinds)) for name in ("write_usd", "read_usd"))
    verdict = (
        f"{formats.size(sum(size for _, size in sizes))} in all: {formats.money(usd)} a month."
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
        for row in kinds[:ROWS_MAX]
    ]
    chart = charts.bars(sizes[:BARS_MAX], "bytes stored, by kind of item", formats.size)
    return Section(title, about, f"{formats.money(usd)} a month", verdict, "", chart, titles, cells, _hidden(kinds))


def _not_run(title: str, about: str, job: str) -> Section:
    return Section(title, about, "unknown", f"The job {job} has not run on this export.", "odd")


def _step(topics: Sequence[Row]) -> int:
    """The span in ms of one column of a chart over time."""
    first, last = min(row["first_ms"] for row in topics), max(row["last_ms"] for row in topics)
    return digests.step_ms(last - first + 1)


def _steps(rows: DataFrame, step_ms: int, value: SparkColumn) -> list[tuple[str, float]]:
    """The value of each step, 0 where there are no rows; at most the last 201."""
    values = {row["at_ms"]: row["value"] for row in digests.over_time(rows, step_ms, value).collect()}
    start = max(min(values), max(values) - 200 * step_ms)
    return [(formats.clock(at), values.get(at, 0)) for at in range(start, max(values) + 1, step_ms)]


def _columns(*titles: str) -> list[Column]:
    """Columns with these titles; a title that ends with `#` is that of a column of numbers."""
    return [Column(title.removesuffix("#"), title.endswith("#")) for title in titles]


def _summed(values: Iterable[tuple[str, float]]) -> list[tuple[str, float]]:
    """One value a label, the largest first."""
    sums: dict[str, float] = {}
    for label, value in values:
        sums[label] = sums.get(label, 0) + value
    return sorted(sums.items(), key=lambda pair: (-pair[1], pair[0]))


def _number(value: int | None) -> str:
    return formats.NONE if value is None else str(value)


def _hidden(rows: Sequence[Row]) -> int:
    return max(len(rows) - ROWS_MAX, 0)
