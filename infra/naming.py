"""Names of what outlives its stack, written out in the template: only by those does CloudFormation know again what an
earlier stack left, and takes it in."""

from __future__ import annotations

import re
from typing import Any

from infra.merging import Template

NAMES = ("TableName", "BucketName")


def with_names(template: Template, known: dict[str, str]) -> Template:
    """`known`: pseudo parameters, such as `AWS::StackName`, and their values."""
    resources = dict(template["Resources"])
    for logical, resource in resources.items():
        if resource.get("DeletionPolicy") == "Retain":
            properties = resource.get("Properties", {})
            names = {name: _written_out(properties[name], known) for name in NAMES if name in properties}
            resources[logical] = {**resource, "Properties": {**properties, **names}}
    return {**template, "Resources": resources}


def _written_out(value: Any, known: dict[str, str]) -> Any:
    """Values of other kinds stay as they are."""
    if not isinstance(value, dict):
        return value
    if value.get("Ref") in known:
        return known[value["Ref"]]
    text = value.get("Fn::Sub")
    if isinstance(text, str):
        written = re.sub(r"\$\{([^}]+)\}", lambda match: known.get(match[1], match[0]), text)
        return written if "${" not in written else value
    return value
