"""The report: each table, the text where a table is empty, and that no message becomes markup."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from spark import schemas
from spark.frame.job import main
from spark.jobs.report import JOB
from spark.report import charts, formats, sections
from spark.tables.tables import Tables
from spark.tables.versions import TablesChange
from spark.tables.writing import write_part

EXPORT = "01700000000000-abcdef12"
AT = 1_700_000_000_000
EVIL = "<script>alert('x & y')</script>"

TABLES: dict[str, tuple[StructType, list[tuple[Any, ...]]]] = {
    "violations": (schemas.VIOLATIONS, [("hole", "violation", EVIL, "T", 0, 7, "offsets 7 to 9 are missing")]),
    "quarantine": (schemas.QUARANTINE, []),
    "backlog": (
        schemas.BACKLOG,
        [
            ("orders", "T", "billing", 0, "", 1300, 66, 60, 1234, 5, 1, 2, AT - 90_000, 90_000, AT, False, 1239, 60),
            ("orders", "T", "billing", 1, "", 20, 10, 10, 10, 0, 0, 0, AT - 5000, 5000, AT, False, 10, 10),
            ("orders", "T", "audit", 0, "", 1300, 1300, 1300, 0, 0, 0, 0, None, None, AT, False, 0, None),
        ],
    ),
    "traffic": (
        schemas.TRAFFIC,
        [("orders", "T", 0, AT // 60_000 * 60_000 + 60_000 * minute, "eu", 40 + minute, 9000) for minute in range(20)],
    ),
    "requests": (
        schemas.REQUESTS,
        [
            ("orders", "T", minute, 60, 50, 9, 1, 0, 0, *(5, 6, 7, 8), *(20, 30, 40, 50), *(26, 36, slowest, 60))
            for minute, slowest in ((None, 1900), (AT // 60_000 * 60_000, 900), (AT // 60_000 * 60_000 + 60_000, 2100))
        ],
    ),
    "delays": (schemas.LATENESS, [("orders", "T", 9, 12, 80, 2500, 4000, 0)]),
    "delay_waiting": (schemas.WAITING, [("orders", "T", AT, 3, 1, AT)]),
    "dead_letters": (schemas.DEAD_LETTERS, [("orders", "T", "billing", f"no route {EVIL}", AT, 2, 16)]),
}
"""All but `cost`, whose job has not run."""


def arrow(schema: StructType, rows: Sequence[tuple[Any, ...]]) -> pa.Table:
    made = [dict(zip(schema.fieldNames(), row, strict=False)) for row in rows]
    return pa.Table.from_pylist(made, to_arrow_schema(schema))


class _Reader(HTMLParser):
    """The tags of a page, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.text += data + "\n"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    root = tmp_path_factory.mktemp("tables")
    change, tables = TablesChange(), Tables(str(root))
    for table, (schema, rows) in TABLES.items():
        part = "date=2023-11-14" if table in ("traffic", "delays") else f"export={EXPORT}"
        change.put[table, part] = write_part(tables.root, table, part, arrow(schema, rows))
    old = "date=2023-11-13"
    change.put["traffic", old] = write_part(tables.root, "traffic", old, arrow(*TABLES["traffic"]))
    tables.commit(change)
    out = root / "pages" / "report.html"
    given = ["--tables", str(root), "--out", str(out), "--days", "1"]
    assert main(JOB, ["--export", f"s3://gone/AWSDynamoDB/{EXPORT}/", *given]) == 0
    return out.read_text()


def test_the_report_shows_every_number_in_a_chart_and_in_a_table(report: str) -> None:
    read = _Reader(report)
    assert read.tags.count("svg") == 6
    assert read.tags.count("table") == 6
    for said in (
        "orders / billing",
        formats.count(1244),
        formats.span(90_000),
        formats.span(2500),
        "1 violation",
        formats.span(1900),
    ):
        assert said in read.text
    assert f"messages in {formats.span(60_000)}" in read.text
    assert formats.count(sum(40 + minute for minute in range(20))) in read.text


def test_a_cell_names_its_column_for_narrow_screens(report: str) -> None:
    [backlog] = re.findall("<table>.*?</table>", report.partition("<h2>Backlog")[2].partition("</section>")[0])
    titles = re.findall("<th [^>]*>(.*?)</th>", backlog)
    assert titles[:3] == ["Topic", "Group", "Ready"]
    assert re.findall('<td [^>]*data-column="(.*?)"', backlog) == titles * 2


def test_the_report_says_in_words_where_there_is_nothing(report: str) -> None:
    assert "All of it could be read." in report
    assert "The job cost has not run on this export." in report


def test_nothing_that_a_table_holds_becomes_markup(report: str) -> None:
    assert "script" not in _Reader(report).tags
    assert EVIL in _Reader(report).text


def test_the_report_needs_nothing_from_elsewhere(report: str) -> None:
    assert not re.search(r"https?://|@import|url\(|src=|href=", report)


def test_a_report_of_an_export_that_no_job_has_seen_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "report.html"
    assert main(JOB, ["--export", EXPORT, "--tables", str(tmp_path), "--out", str(out)]) == 1
    assert capsys.readouterr().err.count("\n") == 1
    assert not out.exists()


def test_early_messages_come_first_and_days_count_together() -> None:
    days = arrow(
        schemas.LATENESS, [("orders", "T", 5, -12, 80, 900, 4000, 1), ("orders", "T", 4, -9, 70, 2500, 3000, 1)]
    )
    section = sections.delays(
        days, arrow(schemas.WAITING, [("orders", "T", AT, 3, 1, AT), ("later", "L", AT, 1, 0, AT)])
    )
    assert section.rows[0][1:6] == ("9", "-9\u202fms", "80\u202fms", "2.5\u202fs", "4\u202fs")
    assert section.rows[1] == ("later", "0", *["\u2013"] * 4, "0", "1", "0")
    assert (section.headline, section.tone, section.rows[0][6:]) == ("2 early", "bad", ("2", "3", "1"))


def test_cost_sums_storage_writes_and_reads() -> None:
    kinds = [
        ("orders", "T", None, kind, "up to 1 KB", 1, 5, 0.0, 0.0, 1.5, 2.5, 4.0, "") for kind in ("topic", "group")
    ]
    costs = sections.cost(arrow(schemas.COST, kinds))
    assert costs.headline == "$8.00 a month"
    assert "writing it has cost at least $3.00 and reading it at least $5.00" in costs.verdict
    assert [row[-3:] for row in costs.rows] == [("$4.00", "$1.50", "$2.50")] * 2


def test_replies_that_must_not_be_come_before_time_outs() -> None:
    latencies = (*(5, 6, 7, 8), *(20, 30, 40, 50), *(26, 36, 46, 60))
    topics = [("orders", "T", None, 9, 7, 2, 0, 1, 2, *latencies), ("empty", "E", None, 4, 0, 3, 1, 0, 0, *[None] * 12)]
    minutes = [(name, topic_id, 60_000, *rest) for name, topic_id, _, *rest in topics]
    section = sections.requests(arrow(schemas.REQUESTS, [*topics, *minutes]))
    assert (section.headline, section.tone, section.rows[0][-2:]) == ("3 wrong", "bad", ("1", "2"))
    assert section.verdict.startswith("3 replies too late")
    unanswered = sections.requests(arrow(schemas.REQUESTS, [topics[1], minutes[1]]))
    assert (unanswered.headline, unanswered.tone, unanswered.chart) == ("3 of 4 timed out", "odd", "")
    assert unanswered.verdict == "Timed out: 3 calls."


@pytest.mark.parametrize(
    ("timed_out", "tile"), [(3, ("3 of 7 timed out", "odd")), (0, ("99 % within 40\u202fms", "good"))]
)
def test_a_tile_tells_no_latency_where_calls_timed_out(timed_out: int, tile: tuple[str, str]) -> None:
    latencies = (*(5, 6, 7, 8), *(20, 30, 35, 40), *(26, 36, 40, 60))
    rows = [("orders", "T", minute, 7, 7 - timed_out, timed_out, 0, 0, 0, *latencies) for minute in (None, 60_000)]
    section = sections.requests(arrow(schemas.REQUESTS, rows))
    assert (section.headline, section.tone) == tile


@pytest.mark.parametrize(("overdue", "tile"), [(2, ("2 overdue", "odd")), (0, ("99 % within 2.5\u202fs", ""))])
def test_a_tile_tells_no_lateness_while_messages_are_overdue(overdue: int, tile: tuple[str, str]) -> None:
    days = arrow(schemas.LATENESS, [("orders", "T", 9, 12, 80, 2500, 4000, 0)])
    section = sections.delays(days, arrow(schemas.WAITING, [("orders", "T", AT, 3, overdue, AT)]))
    assert (section.headline, section.tone) == tile


@pytest.mark.parametrize(
    ("largest", "last", "ticks"), [(0, 1, 2), (7, 8, 5), (2, 2, 3), (100, 100, 6), (0.04, 1, 2), (1234, 1500, 4)]
)
def test_an_axis_begins_at_0_and_ends_at_a_round_number(largest: float, last: float, ticks: int) -> None:
    axis = charts._ticks(largest)
    assert axis[0] == 0
    assert axis[-1] == pytest.approx(last)
    assert len(axis) == ticks


@pytest.mark.parametrize(
    ("ms", "said"),
    [(0, "0 ms"), (999, "999 ms"), (1500, "1.5 s"), (59_999, "60 s"), (90_000, "1 min 30 s"), (86_400_000, "1 d")],
)
def test_a_span_is_said_in_its_own_unit(ms: int, said: str) -> None:
    assert formats.span(ms).replace("\u202f", " ") == said


@pytest.mark.parametrize(("usd", "said"), [(0, "$0.00"), (6e-7, "under $0.01"), (0.01, "$0.01"), (1234.5, "$1,234.50")])
def test_money_is_said_to_the_cent(usd: float, said: str) -> None:
    assert formats.money(usd) == said
