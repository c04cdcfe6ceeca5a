"""The sources of events that a template has for the function `ingest` (docs/ingest.md), checked before deployment."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from chalicelib.core.base.errors import DecantError
from chalicelib.doors.ingest.rules import REJECTS_SETTING, SETTING, parse, parse_rejects
from infra.console import Stop
from infra.templates import Template

REPORTS = "ReportBatchItemFailures"
READ_BY_LAMBDA = ("SQS", "Kinesis", "DynamoDB")
"""Sources for which Lambda can use the function's report of failed records."""


def check(template: Template) -> None:
    """Raises Stop if records that fail would be lost, or if a rule is wrong."""
    resources = template.get("Resources", {})
    ingest = resources.get("Ingest", {}).get("Properties", {})
    for name, source in [*_mappings(resources), *_events(ingest)]:
        if REPORTS not in (source.get("FunctionResponseTypes") or ()):
            raise Stop(f"{name} feeds Ingest and must have FunctionResponseTypes: [{REPORTS}]: else records are lost")
    variables = {**_variables(template.get("Globals", {}).get("Function", {})), **_variables(ingest)}
    for setting, read in ((SETTING, parse), (REJECTS_SETTING, parse_rejects)):
        if isinstance(variables.get(setting), str):
            _read(read, variables[setting])


def _variables(function: dict[str, Any]) -> dict[str, Any]:
    variables: dict[str, Any] = function.get("Environment", {}).get("Variables", {})
    return variables


def _read(read: Callable[[str], object], text: str) -> None:
    try:
        read(text)
    except DecantError as error:
        raise Stop(error.detail) from None


def _mappings(resources: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, resource in resources.items():
        properties = resource.get("Properties", {})
        is_ingest = re.search(r'"Ingest"|\${Ingest[.}]|-ingest\b', json.dumps(properties.get("FunctionName")))
        if is_ingest and resource.get("Type") == "AWS::Lambda::EventSourceMapping":
            yield name, properties


def _events(ingest: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, event in ingest.get("Events", {}).items():
        if event.get("Type") in READ_BY_LAMBDA:
            yield name, event.get("Properties", {})
