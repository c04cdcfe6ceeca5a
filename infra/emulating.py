"""What a template must say in other words for emulators of AWS."""

from __future__ import annotations

from typing import Any

from infra.merging import Template

ANY = "x-amazon-apigateway-any-method"
METHODS = ("get", "put", "post", "delete", "patch", "head", "options")


def for_emulators(template: Template) -> Template:
    """With each method of the paths that take any, and with alarms on a metric for those on an expression: ministack
    1.5 knows only these."""
    resources = {name: _RENDERED.get(r.get("Type"), _same)(r) for name, r in template["Resources"].items()}
    return {**template, "Resources": resources}


def _api(resource: dict[str, Any]) -> dict[str, Any]:
    body = resource["Properties"]["DefinitionBody"]
    paths = {path: _each_method(operations) for path, operations in body["paths"].items()}
    return {**resource, "Properties": {**resource["Properties"], "DefinitionBody": {**body, "paths": paths}}}


def _each_method(operations: dict[str, Any]) -> dict[str, Any]:
    if ANY not in operations:
        return operations
    others = {method: operation for method, operation in operations.items() if method != ANY}
    return dict.fromkeys(METHODS, operations[ANY]) | others


def _alarm(resource: dict[str, Any]) -> dict[str, Any]:
    properties = dict(resource["Properties"])
    for watched in properties.pop("Metrics", ()):
        if stat := watched.get("MetricStat"):
            properties |= {**stat["Metric"], "Statistic": stat["Stat"], "Period": stat["Period"]}
    return {**resource, "Properties": properties}


def _same(resource: dict[str, Any]) -> dict[str, Any]:
    return resource


_RENDERED = {"AWS::Serverless::Api": _api, "AWS::CloudWatch::Alarm": _alarm}
