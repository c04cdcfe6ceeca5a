"""An idle stage costs what docs/operations.md says: counted from its template, for a month of 30 days, at the prices of
us-east-1."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from chalicelib import wiring
from chalicelib.doors.functions import SWEEPS
from infra.packaging import Package, complete
from infra.stage import read_stage
from infra.templates import ALARM
from tests.support.client import Client
from tests.support.ministack import ROOT

MINUTES = 30 * 24 * 60
EACH_ALARM, EACH_METRIC = 0.10, 0.30
INVOCATION, GB_SECOND, READ_UNIT, LOGGED_BYTE = 0.20e-6, 16.67e-6, 0.125e-6, 0.50e-9
GB, MS = 0.5, 150
"""A sweep's memory, and the duration that the page assumes."""
ROWS = {"sweeps": 0, "reads": 1, "metrics": 2, "alarms": 3, "logs": 4}


@pytest.fixture(scope="module")
def documented() -> list[list[str]]:
    """The cells of each row: what it is, `prod`, `dev`."""
    page = (ROOT / "docs/operations.md").read_text()
    table = page.split("| a month, with nothing to do | `prod` | `dev` |\n")[1].split("\n\n")[0]
    return [[cell.strip(" *") for cell in line.strip("|").split("|")] for line in table.splitlines()[1:]]


@pytest.fixture(params=["prod", "dev"])
def stage(request: pytest.FixtureRequest, package: Package, documented: list[list[str]]) -> Any:
    """The resources of its template, and what the page says that each row costs."""
    resources = complete(package.template, read_stage(request.param), [])["Resources"]
    column = 1 + ["prod", "dev"].index(request.param)
    return resources, [float(row[column]) for row in documented]


def test_the_alarms_of_the_template_cost_what_is_said(stage: Any, documented: list[list[str]]) -> None:
    resources, costs = stage
    alarms = sum(_watched(resource) for resource in resources.values() if resource["Type"] == ALARM)
    assert costs[ROWS["alarms"]] == pytest.approx(alarms * EACH_ALARM)
    assert alarms == 0 or documented[ROWS["alarms"]][0].startswith(f"{alarms} alarms")


def _watched(alarm: dict[str, Any]) -> int:
    """Metrics: an alarm on an expression costs as much as one on each metric in it."""
    return sum("MetricStat" in metric for metric in alarm["Properties"].get("Metrics", ())) or 1


def _scheduled(resources: dict[str, Any]) -> int:
    """How many functions run each minute."""
    events = [event for r in resources.values() for event in r.get("Properties", {}).get("Events", {}).values()]
    schedules = [event["Properties"]["Schedule"] for event in events if event["Type"] == "Schedule"]
    return schedules.count("rate(1 minute)")


def _told_by_sweeps() -> list[dict[str, Any]]:
    """The log lines of the sweeps of an idle minute; not of the first, which goes through all topics."""
    client, lines = Client(), []
    client.api.service.telemetry.log_to(lambda line: lines.append(json.loads(line)), "decant-prod")
    wiring.use(client.api)
    for _ in range(2):
        lines.clear()
        client.clock.ms += 60_000
        for name in SWEEPS.keys() - {"export"}:
            SWEEPS[name]()
    wiring.use(None)
    return lines


def test_the_sweeps_of_the_template_cost_what_is_said(stage: Any) -> None:
    resources, costs = stage
    runs = _scheduled(resources) * MINUTES
    assert costs[ROWS["sweeps"]] == pytest.approx(runs * (INVOCATION + GB * MS / 1_000 * GB_SECOND), abs=0.005)
    reads = sum(line.get("read_units", 0) for line in _told_by_sweeps())
    assert costs[ROWS["reads"]] == pytest.approx(reads * MINUTES * READ_UNIT, abs=0.005)


def test_their_log_lines_cost_no_more_than_is_said(stage: Any) -> None:
    """Lambda adds lines of its own, which are only estimated."""
    sizes = [len(json.dumps(line)) for line in _told_by_sweeps()]
    assert 0.04 < sum(sizes) * MINUTES * LOGGED_BYTE < stage[1][ROWS["logs"]]


def test_their_metrics_cost_what_is_said(stage: Any, documented: list[list[str]]) -> None:
    metrics = set()
    for line in _told_by_sweeps():
        for directive in line["_aws"]["CloudWatchMetrics"]:
            for place in directive["Dimensions"]:
                metrics |= {(metric["Name"], *(line[name] for name in place)) for metric in directive["Metrics"]}
    assert documented[ROWS["metrics"]][0].startswith(f"{len(metrics)} metrics")
    assert stage[1][ROWS["metrics"]] == pytest.approx(len(metrics) * EACH_METRIC)


def test_the_rows_make_up_the_sum(stage: Any, documented: list[list[str]]) -> None:
    *rows, total = stage[1]
    assert total == pytest.approx(sum(rows))
    for page, words in (
        ("infra/README.md", "There are (\\d+), of"),
        ("docs/operations.md", "(\\d+) alarms, 0.10 each"),
    ):
        [number] = re.findall(words, (ROOT / page).read_text())
        assert documented[ROWS["alarms"]][0].startswith(number)


def test_a_stage_without_alarms_shows_none(package: Package) -> None:
    resources = complete(package.template, read_stage("dev"), [])["Resources"]
    shown = json.loads(resources["Dashboard"]["Properties"]["DashboardBody"]["Fn::Sub"])
    assert "alarm" not in {widget["type"] for widget in shown["widgets"]}
    assert "AlarmTopic" in resources, "a file of the deployer may have alarms of its own"
