"""What a template must say in other words for emulators of AWS."""

from __future__ import annotations

from typing import Any

from infra.merging import Template

ANY = "x-amazon-apigateway-any-method"
METHODS = ("get", "put", "post", "delete", "patch", "head", "options")


def for_emulators(template: Template) -> Template:
    """With each method of the paths that take any: ministack 1.5 reads only those."""
    resources = dict(template["Resources"])
    for name, resource in resources.items():
        if resource.get("Type") == "AWS::Serverless::Api":
            body = resource["Properties"]["DefinitionBody"]
            paths = {path: _each_method(operations) for path, operations in body["paths"].items()}
            properties = {**resource["Properties"], "DefinitionBody": {**body, "paths": paths}}
            resources[name] = {**resource, "Properties": properties}
    return {**template, "Resources": resources}


def _each_method(operations: dict[str, Any]) -> dict[str, Any]:
    if ANY not in operations:
        return operations
    others = {method: operation for method, operation in operations.items() if method != ANY}
    return dict.fromkeys(METHODS, operations[ANY]) | others
