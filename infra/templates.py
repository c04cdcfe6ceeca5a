"""Templates: read from YAML, laid over one another, and rewritten for a stage, its names, or an emulator."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import yaml

from infra.console import Stop

INFRA = Path(__file__).parent
PARTS = INFRA / "parts"

Template = dict[str, Any]

ANY = "x-amazon-apigateway-any-method"

MAPPINGS = (
    "Globals.Function.Environment.Variables",
    "Outputs.*",
    "Resources.*.Properties",
    "Resources.Ingest.Properties.Environment.Variables",
    "Resources.Ingest.Properties.Events.*.Properties",
)
"""Places in a template, and all above them, that are merged key by key. `*` is any key."""

WAITS = {
    "/topics/{topic}/groups/{group}/pop": "Pop",
    "/topics/{topic}/requests": "Request",
    "/requests/{correlation_id}": "Request",
}
"""Paths whose requests may wait, and the functions that answer them. All others go to `APIHandler`."""

CATCH_ALL = ("/", "/{proxy+}")
"""The paths of all requests that no other path matches."""

NAME_PROPERTIES = ("TableName", "BucketName")

ALARM = "AWS::CloudWatch::Alarm"

EMULATOR_CHANGE_SET = {"DisableValidation": True}
"""ministack 1.5 imports buckets that an earlier stack left, but what it checks before that finds that they exist."""

METHODS = ("get", "put", "post", "delete", "patch", "head", "options")


def merged(below: Any, above: Any) -> Any:
    """Returns `below` with the changes of `above`: dicts key by key, everything else as a whole, lists too. A null
    removes its key, as in a JSON merge patch (RFC 7396)."""
    if not isinstance(above, dict):
        return above
    kept = dict(below) if isinstance(below, dict) else {}
    for key, value in above.items():
        if value is None:
            kept.pop(key, None)
        else:
            kept[key] = merged(kept.get(key), value)
    return kept


def load(path: Path) -> Template:
    """Reads a file that holds a mapping. It may use CloudFormation's short forms (`!Ref`, `!Sub`)."""
    try:
        content = yaml.load(path.read_text(), _Loader)  # noqa: S506 - it is a safe one
    except (OSError, UnicodeDecodeError) as error:
        raise Stop(f"cannot read {path}: {error}") from error
    except yaml.YAMLError as error:
        raise Stop(f"{path} is no YAML: {' '.join(str(error).split())}") from error
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise Stop(f"{path} must be a mapping, as templates are")
    return content


def load_template(path: Path) -> Template:
    template = load(path)
    check_mappings(template, path)
    return template


def check_mappings(template: Any, path: Path) -> None:
    """Raises Stop if a value stands where a mapping must. `path`: the file it is from."""
    for place in MAPPINGS:
        _check_mapping(template, place.split("."), [], path)


def _check_mapping(value: Any, below: list[str], names: list[str], path: Path) -> None:
    if value is None:
        return
    if not isinstance(value, dict):
        raise Stop(f"'{'.'.join(names)}' in {path} must be a mapping; it is {value!r}")
    for name in (value if below[0] == "*" else below[:1]) if below else ():
        _check_mapping(value.get(name), below[1:], [*names, str(name)], path)


class _Loader(yaml.SafeLoader):
    """Reads `!Name value` as `{"Fn::Name": value}`, and dates as text: templates have `Version: 2012-10-17`."""


def _short_form(loader: _Loader, suffix: str, node: yaml.Node) -> Template:
    value: Any = None
    if isinstance(node, yaml.ScalarNode):
        value = loader.construct_scalar(node)
    elif isinstance(node, yaml.SequenceNode):
        value = loader.construct_sequence(node, deep=True)
    elif isinstance(node, yaml.MappingNode):
        value = loader.construct_mapping(node, deep=True)
    if suffix == "GetAtt" and isinstance(value, str):
        value = value.split(".", 1)
    return {suffix if suffix in ("Ref", "Condition") else f"Fn::{suffix}": value}


_Loader.add_multi_constructor("!", _short_form)
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


# -- which function answers which path of the REST API ----------------------------------------------------------------


def with_functions(template: Template) -> Template:
    """The template of Chalice, with separate functions for requests that wait. Any path and any method goes to a
    function, which answers 404 or 405 to unknown ones: API Gateway itself would answer 403."""
    resources = dict(template["Resources"])
    properties = resources["RestAPI"]["Properties"]
    body = properties["DefinitionBody"]
    known = [path for path in body["paths"] if not path.startswith("/{")]  # the others are paths of `CATCH_ALL`
    body = {**body, "paths": {path: {ANY: _operation(path)} for path in (*known, *CATCH_ALL)}}
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


# -- names of what outlives its stack ---------------------------------------------------------------------------------


def with_names(template: Template, known: dict[str, str]) -> Template:
    """Writes out the names of resources that outlive their stack: CloudFormation takes in an earlier stack's resources
    only if the template names them literally. `known`: pseudo parameters, such as `AWS::StackName`, and their
    values."""
    resources = dict(template["Resources"])
    for logical, resource in resources.items():
        if resource.get("DeletionPolicy") == "Retain":
            properties = resource.get("Properties", {})
            names = {name: _written_out(properties[name], known) for name in NAME_PROPERTIES if name in properties}
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


# -- stages without alarms --------------------------------------------------------------------------------------------


def without_alarms(template: Template) -> Template:
    """The template without our alarms and the widget that shows them: CloudWatch charges for each alarm, and nobody
    watches those of a trial stage. The deployer's own alarms stay, and so does the topic."""
    ours = {name for name, part in load(PARTS / "alarms.yaml")["Resources"].items() if part["Type"] == ALARM}
    resources = {name: resource for name, resource in template["Resources"].items() if name not in ours}
    if "Dashboard" in resources:
        resources["Dashboard"] = _without_widget(resources["Dashboard"])
    return {**template, "Resources": resources}


def _without_widget(dashboard: dict[str, Any]) -> dict[str, Any]:
    """Returns the dashboard without the widget. A body in another form is the deployer's, and stays."""
    body = dashboard["Properties"]["DashboardBody"]
    if not isinstance(text := body.get("Fn::Sub"), str):
        return dashboard
    shown = json.loads(text)
    widgets = [widget for widget in shown["widgets"] if widget["type"] != "alarm"]
    body = {"Fn::Sub": json.dumps({**shown, "widgets": widgets})}
    return {**dashboard, "Properties": {**dashboard["Properties"], "DashboardBody": body}}


# -- emulators of AWS -------------------------------------------------------------------------------------------------


def for_emulators(template: Template) -> Template:
    """Returns the template with each method of the paths that take any, and with alarms on a metric for those on an
    expression: ministack 1.5 supports only these. Adds an HTTP API, whose address SQS clients can use: they sign host
    and path, and the functions see others of these at an emulator's other addresses."""
    resources = {name: _RENDERED.get(r.get("Type"), _same)(r) for name, r in template["Resources"].items()}
    whole: Template = merged({**template, "Resources": resources}, load(INFRA / "examples" / "http-api.yaml"))
    return whole


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
