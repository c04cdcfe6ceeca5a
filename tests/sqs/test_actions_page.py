"""docs/doors.md lists the actions of SQS: those that are served, and those that are not."""

from __future__ import annotations

import re
from pathlib import Path

import boto3

from chalicelib.protocols.sqs.actions import ACTIONS

PAGE = Path(__file__).parents[2] / "docs/doors.md"


def _listed() -> tuple[list[str], list[str]]:
    """The names in the table of actions: served, not served."""
    section = PAGE.read_text().split("\n### Actions\n")[1].split("\n### ")[0]
    served, refused = [], []
    for row in section.splitlines():
        if row.startswith("| `"):
            _, names, meaning, _ = row.split("|")
            (refused if "not served" in meaning else served).extend(re.findall("`(.*?)`", names))
    return served, refused


def test_the_page_lists_each_action_that_is_served_once() -> None:
    served, _ = _listed()
    assert sorted(served) == sorted(ACTIONS)


def test_the_page_lists_every_action_that_the_sdk_knows() -> None:
    served, refused = _listed()
    known = boto3.client("sqs", region_name="us-east-1").meta.service_model.operation_names
    assert sorted(served + refused) == sorted(known)
