"""The alert rules for Prometheus, by its own tool: their form, and when they are raised and clear."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from infra.templates import INFRA
from tests.support.emulators import absent

RULES, CASES = INFRA / "alerts.yaml", Path(__file__).with_name("alerts.yaml")


def _says(command: str, file: Path) -> subprocess.CompletedProcess[str]:
    promtool = shutil.which("promtool")
    if promtool is None:
        absent("promtool is not here: Debian's package prometheus has it, see .ci/run")
    assert promtool
    return subprocess.run([promtool, command, "rules", file], capture_output=True, text=True, check=False)


def test_prometheus_can_read_them() -> None:
    checked = _says("check", RULES)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_they_are_raised_and_clear_as_said() -> None:
    tested = _says("test", CASES)
    assert tested.returncode == 0, tested.stdout + tested.stderr


def test_the_tool_notices_a_case_that_is_wrong(tmp_path: Path) -> None:
    wrong = CASES.read_text().replace("../../infra/alerts.yaml", str(RULES)).replace("has 2 dead letters", "has 3")
    (tmp_path / "alerts.yaml").write_text(wrong)
    assert _says("test", tmp_path / "alerts.yaml").returncode != 0


def test_each_has_a_case() -> None:
    rules = set(re.findall(r"alert: (\w+)", RULES.read_text()))
    assert rules == set(re.findall(r"alertname: (\w+)\n", CASES.read_text()))
