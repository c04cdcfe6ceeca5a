"""Stages without alarms: CloudWatch charges for each, and nobody hears of those of a stage to try things out."""

from __future__ import annotations

import json
from typing import Any

from infra.merging import Template, load
from infra.stage import PARTS

ALARM = "AWS::CloudWatch::Alarm"


def without_alarms(template: Template) -> Template:
    """The template without our alarms, and without what shows them. The deployer's own stay, and so does the topic."""
    ours = {name for name, part in load(PARTS / "alarms.yaml")["Resources"].items() if part["Type"] == ALARM}
    resources = {name: resource for name, resource in template["Resources"].items() if name not in ours}
    if "Dashboard" in resources:
        resources["Dashboard"] = _without_widget(resources["Dashboard"])
    return {**template, "Resources": resources}


def _without_widget(dashboard: dict[str, Any]) -> dict[str, Any]:
    """A body in another form is the deployer's, and stays as it is."""
    body = dashboard["Properties"]["DashboardBody"]
    if not isinstance(text := body.get("Fn::Sub"), str):
        return dashboard
    shown = json.loads(text)
    widgets = [widget for widget in shown["widgets"] if widget["type"] != "alarm"]
    body = {"Fn::Sub": json.dumps({**shown, "widgets": widgets})}
    return {**dashboard, "Properties": {**dashboard["Properties"], "DashboardBody": body}}
