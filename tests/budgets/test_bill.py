"""The bill: the cost of a message until it is trimmed; the pages show the output of `python -m benchmarks --only
bill`."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import bill, prices
from benchmarks.bill import Use
from benchmarks.operations import Case
from benchmarks.traffic import traffic

DOCS = Path(__file__).parents[2] / "docs"
PAGES = {
    "Of a message": "costs.md",
    "Dollars of a million messages": "operations.md",
    "What limits allow": "scale.md",
    "What a load takes": "scale.md",
    "Dollars of a month": "scale.md",
}
Rows = list[list[str]]


def rows(text: str) -> Rows:
    """The cells of all tables, without rules."""
    lines = [line for line in text.splitlines() if line.startswith("|") and not set(line) <= set("| -:")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_pages_say_what_the_command_prints() -> None:
    printed = list(bill.tables())
    assert len(printed) == len(PAGES)
    for title, table in zip(PAGES, printed, strict=True):
        assert title in table
        written = rows((DOCS / PAGES[title]).read_text())
        missing = [row for row in rows(table) if row not in written]
        assert missing == [], f"docs/{PAGES[title]} lacks what python -m benchmarks --only bill prints"


@pytest.mark.parametrize(("batch", "writes"), [(1, 0.34), (10, 0.1), (100, 0.0003)])
def test_a_trim_costs_a_delete_a_segment(batch: int, writes: float) -> None:
    assert 0 < traffic(Case(200, batch)).trim_writes <= writes


def test_a_further_group_costs_its_pops() -> None:
    found = traffic(Case(200, 10))
    one, two = (bill.message(found, 10, groups) for groups in (1, 2))
    assert two.writes - one.writes == pytest.approx(found.popped.writes)
    assert (two.calls, one.calls) == pytest.approx((0.3, 0.2))


def test_an_instance_is_busy_for_its_time_or_by_ten_calls_a_second() -> None:
    assert bill.instances(Use(0, 0, calls=100, seconds=2, log_bytes=0)) == 10
    assert bill.instances(Use(0, 0, calls=100, seconds=30, log_bytes=0)) == 30


@pytest.mark.parametrize(("amount", "dollars"), [(0, 0), (10, 20), (15, 25), (30, 35)])
def test_the_cheaper_part_of_a_month_begins_where_the_dearer_one_ends(amount: float, dollars: float) -> None:
    assert prices.tiered(amount, ((10, 2), (10, 1), (float("inf"), 0.5))) == pytest.approx(dollars)


def test_others_are_billed_as_their_pages_say() -> None:
    million = 1_000_000
    assert bill.sqs(million, 1) == pytest.approx(1.2)
    assert bill.sqs(million, 100) == pytest.approx(0.12), "a batch of SQS has ten at most"
    assert bill.kinesis(1_000, 200, False) == pytest.approx(10.8 + 2_592 * 0.014)
    assert bill.kinesis(1_000, 10_000, False) == pytest.approx(108 + 2_592 * 0.014), "a shard takes a megabyte a second"
    assert bill.kinesis(1_000, 200, True) == pytest.approx(10.8 + 2_592 / 125 * 0.014)
    assert bill.msk(1, 200) == pytest.approx(3 * 0.408 * 720, rel=1e-3)
    assert bill.msk(million, 200) == pytest.approx(13 * 0.408 * 720 + 200e6 * 2_592_000 * 0.01e-9)
