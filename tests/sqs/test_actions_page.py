"""docs/doors.md lists the actions of SQS: those that are served, those that are not, and the right that each needs."""

from __future__ import annotations

import re
from pathlib import Path

import boto3

from chalicelib.doors.sqs.actions import ACTIONS

PAGE = Path(__file__).parents[2] / "docs/doors.md"


def _rows(section: str) -> list[list[str]]:
    """The cells of those that begin with a name."""
    text = PAGE.read_text().split(f"\n### {section}\n")[1].split("\n### ")[0]
    return [row.split("|")[1:-1] for row in text.splitlines() if row.startswith("| `")]


def _listed() -> tuple[list[str], list[str]]:
    """The names in the table of actions: served, not served."""
    served, refused = list[str](), list[str]()
    for names, meaning in _rows("Actions"):
        (refused if "not served" in meaning else served).extend(re.findall("`(.*?)`", names))
    return served, refused


def test_the_page_says_which_right_each_action_needs() -> None:
    rows = [row for row in _rows("Access") if len(row) == 3]
    told = {name: right.strip(" `") for names, right, _ in rows for name in re.findall("`(.*?)`", names)}
    assert told == {name: action.right for name, action in ACTIONS.items()}


def test_the_page_lists_each_action_that_is_served_once() -> None:
    served, _ = _listed()
    assert sorted(served) == sorted(ACTIONS)


def test_the_page_lists_every_action_that_the_sdk_knows() -> None:
    served, refused = _listed()
    known = boto3.client("sqs", region_name="us-east-1").meta.service_model.operation_names
    assert sorted(served + refused) == sorted(known)
