"""Which function answers which path of the REST API."""

from __future__ import annotations

from typing import Any

from infra.merging import Template

WAITS = {
    "/topics/{topic}/groups/{group}/pop": "Pop",
    "/topics/{topic}/requests": "Request",
    "/requests/{correlation_id}": "Request",
}
"""Paths whose requests may wait, and the functions that answer them. All others go to `APIHandler`."""

UNKNOWN = ("/", "/{proxy+}")
"""What matches every path that no other does."""

ANY = "x-amazon-apigateway-any-method"


def with_fronts(template: Template) -> Template:
    """The template of Chalice, with functions of their own for what waits. Any path and any method goes to a function,
    which answers 404 or 405 where it is none: API Gateway itself answers 403 to what it does not know."""
    resources = dict(template["Resources"])
    properties = resources["RestAPI"]["Properties"]
    body = properties["DefinitionBody"]
    known = [path for path in body["paths"] if not path.startswith("/{")]  # the others are paths of `UNKNOWN`
    body = {**body, "paths": {path: {ANY: _operation(path)} for path in (*known, *UNKNOWN)}}
    resources["RestAPI"] = {**resources["RestAPI"], "Properties": {**properties, "DefinitionBody": body}}
    return {**template, "Resources": resources}


def _operation(path: str) -> dict[str, Any]:
    names = [part.strip("{}+") for part in path.split("/") if part.startswith("{")]
    uri = "arn:${AWS::Partition}:apigateway:${AWS::Region}:lambda:path/2015-03-31/functions/${%s.Arn}/invocations"
    return {
        "parameters": [{"name": name, "in": "path", "required": True, "type": "string"} for name in names],
        "x-amazon-apigateway-integration": {
            "type": "aws_proxy",
            "httpMethod": "POST",
            "uri": {"Fn::Sub": uri % WAITS.get(path, "APIHandler")},
            "passthroughBehavior": "when_no_match",
            "contentHandling": "CONVERT_TO_TEXT",
        },
    }
