"""The template of each stage and kind of access, as cfn-lint and CloudFormation's own rules see it."""

from __future__ import annotations

import json
import re
import subprocess
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from infra.packaging import Package, complete
from infra.stack import WITH_MESSAGES
from infra.stage import ACCESSES, Stage, read_stage
from infra.templates import ANY, CATCH_ALL, INFRA, WAITS
from tests.support.ministack import ROOT, tool

EXAMPLES = INFRA / "examples"
BODY_BYTES_MAX = 1_000_000
"""CloudFormation's limit on a template."""
METRICS_MAX = 10
"""CloudWatch's limit on an alarm."""
RETAINED = {"Table", "Bodies", "Exports"}


@pytest.fixture(scope="module")
def templates(package: Package) -> dict[str, Any]:
    """The templates, by stage. Laying the parts over a finished template changes only the stage's own settings."""
    size: Any = {"concurrency": 400, "warm_throughput": {"read": 24_000, "write": 20_000}}
    prod, *others = [read_stage("prod"), *(Stage(access, access, **size) for access in ACCESSES)]
    templates = {stage.name: complete(package.template, stage, []) for stage in (prod, *others)}
    return {**templates, "examples": complete(package.template, prod, sorted(EXAMPLES.glob("*.yaml")))}


@pytest.fixture(scope="module")
def resources(templates: dict[str, Any]) -> dict[str, Any]:
    """The resources of the stage prod."""
    resources: dict[str, Any] = templates["prod"]["Resources"]
    return resources


@pytest.fixture(scope="module")
def broken(templates: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """The rules that each of these templates breaks, by cfn-lint, which starts slowly."""
    files = {name: tmp_path_factory.mktemp("linted") / f"{name}.json" for name in ("iam", "examples", "planted")}
    for name, file in files.items():
        file.write_text(json.dumps(_with_mistakes(templates["prod"]) if name == "planted" else templates[name]))
    run = subprocess.run([tool("cfn-lint"), "--format", "json", *files.values()], capture_output=True, text=True)
    assert run.stdout, run.stderr
    found: dict[str, set[str]] = {name: set() for name in files}
    for each in json.loads(run.stdout):
        found[Path(each["Filename"]).stem].add(f"{each['Rule']['Id']} {each['Message']}")
    return found


def _alarms(resources: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {name: r["Properties"] for name, r in resources.items() if r["Type"] == "AWS::CloudWatch::Alarm"}


def _with_mistakes(template: dict[str, Any]) -> dict[str, Any]:
    template = deepcopy(template)
    planted = template["Resources"]
    planted["Table"]["Properties"]["BillingMod"] = "PAY_PER_REQUEST"
    planted["Bodies"]["Properties"]["BucketName"] = {"Ref": "Nothing"}
    planted["Pop"]["Properties"]["Timeout"] = "long"
    planted["PopRole"]["Properties"]["Policies"][0]["PolicyDocument"]["Statement"][0]["Effect"] = "Permit"
    planted["PopPermission"]["Properties"].pop("Principal")
    return template


@pytest.mark.parametrize("name", ["iam", "examples"])
def test_the_linter_finds_nothing(broken: dict[str, set[str]], name: str) -> None:
    """`examples`: the stage prod with all of them."""
    assert broken[name] == set()


def test_the_linter_finds_planted_mistakes(broken: dict[str, set[str]]) -> None:
    found = " ".join(broken["planted"])
    for word in ("BillingMod", "Nothing", "long", "Permit", "Principal"):
        assert word in found


def test_what_holds_messages_outlives_the_stack(resources: dict[str, Any]) -> None:
    for name in RETAINED:
        assert {resources[name]["DeletionPolicy"], resources[name]["UpdateReplacePolicy"]} == {"Retain"}
    assert resources["Table"]["Properties"]["DeletionProtectionEnabled"] is True


def test_so_does_what_holds_records_in_the_examples(templates: dict[str, Any]) -> None:
    resources = templates["examples"]["Resources"]
    holding = {name for name, r in resources.items() if r["Type"] in WITH_MESSAGES and name != "Failures"}
    assert holding > RETAINED
    for name in holding:
        assert {resources[name]["DeletionPolicy"], resources[name]["UpdateReplacePolicy"]} == {"Retain"}


def test_names_are_of_the_stack_so_that_stages_do_not_meet(resources: dict[str, Any]) -> None:
    for resource in resources.values():
        for key, value in resource.get("Properties", {}).items():
            if key in ("TableName", "BucketName", "DashboardName", "Name"):
                assert "AWS::StackName" in json.dumps(value)
            if key == "FunctionName" and resource["Type"] == "AWS::Serverless::Function":
                assert value["Fn::Sub"].startswith("${AWS::StackName}-")


def test_no_arn_names_a_partition(templates: dict[str, Any]) -> None:
    """In China and for the government it is not `aws`."""
    assert "arn:aws" not in json.dumps(templates)


def test_each_function_has_a_name_a_log_group_and_rights_of_its_own(resources: dict[str, Any]) -> None:
    functions = {name: r["Properties"] for name, r in resources.items() if r["Type"] == "AWS::Serverless::Function"}
    assert len({json.dumps(each["FunctionName"]) for each in functions.values()}) == len(functions)
    roles = [each["Role"]["Fn::GetAtt"][0] for each in functions.values()]
    assert len({*roles}) == len(functions)
    for role in roles:
        assert resources[role]["Properties"]["Policies"][0]["PolicyName"] != f"{role}Policy", "Chalice's is empty"


def test_what_waits_has_functions_of_its_own(resources: dict[str, Any]) -> None:
    paths = resources["RestAPI"]["Properties"]["DefinitionBody"]["paths"]
    assert {*WAITS, *CATCH_ALL} <= {*paths}
    for path, methods in paths.items():
        uri = methods[ANY]["x-amazon-apigateway-integration"]["uri"]["Fn::Sub"]
        assert f"${{{WAITS.get(path, 'APIHandler')}.Arn}}" in uri
        assert [*methods] == [ANY], "a method that is none goes to the function, too"


def test_access_is_what_the_stage_says_on_both_fronts(templates: dict[str, Any]) -> None:
    for access in ACCESSES:
        resources = templates[access]["Resources"]
        is_iam = access == "iam"
        url = resources["APIHandler"]["Properties"]["FunctionUrlConfig"]
        assert url["AuthType"] == ("AWS_IAM" if is_iam else "NONE")
        auth = resources["RestAPI"]["Properties"].get("Auth", {})
        assert auth.get("DefaultAuthorizer") == ("AWS_IAM" if is_iam else None)
        variables = templates[access]["Globals"]["Function"]["Environment"]["Variables"]
        assert variables["DECANT_ACCESS"] == access


def test_refusals_of_api_gateway_are_problem_documents(templates: dict[str, Any]) -> None:
    for template in templates.values():
        for refusal in template["Resources"]["RestAPI"]["Properties"]["GatewayResponses"].values():
            text = refusal["ResponseTemplates"]["application/json"]
            document = json.loads(text.replace("$context.error.messageString", '"as API Gateway says"'))
            assert document["status"] == refusal["StatusCode"]
            assert document["type"] == f"urn:decant:problem:{document['code']}"
            assert document["title"]
            assert document["detail"]
            assert refusal["ResponseParameters"]["Headers"]["Content-Type"] == "'application/problem+json'"


def test_the_dashboard_is_json_and_names_what_exists(resources: dict[str, Any]) -> None:
    text = resources["Dashboard"]["Properties"]["DashboardBody"]["Fn::Sub"]
    for widget in json.loads(text)["widgets"]:
        assert widget["properties"]["title"]
    assert {name for name in _alarms(resources) if f"${{{name}.Arn}}" not in text} == set()


def test_alarms_are_told_and_within_the_limits_of_cloudwatch(resources: dict[str, Any]) -> None:
    for alarm in _alarms(resources).values():
        assert alarm["AlarmActions"] == alarm["OKActions"] == [{"Ref": "AlarmTopic"}]
        assert alarm["AlarmDescription"]
        assert len(alarm.get("Metrics", [])) <= METRICS_MAX


def test_an_alarm_clears_when_its_metric_has_no_data_any_more(resources: dict[str, Any]) -> None:
    for alarm in _alarms(resources).values():
        if alarm.get("MetricName") != "SweepDuration":
            assert alarm["TreatMissingData"] == "notBreaching"
        assert alarm.get("Namespace") != "AWS/DynamoDB", "there CloudWatch keeps the state, whatever the alarm says"


def test_a_sweep_that_does_not_run_is_told_but_not_in_a_new_stage(resources: dict[str, Any]) -> None:
    """An alarm begins as INSUFFICIENT_DATA, and sends nothing about a state that lasts."""
    sweeps = [alarm for alarm in _alarms(resources).values() if alarm.get("MetricName") == "SweepDuration"]
    assert len(sweeps) == 6
    for alarm in sweeps:
        assert (alarm["TreatMissingData"], alarm["InsufficientDataActions"]) == ("missing", [{"Ref": "AlarmTopic"}])


@pytest.mark.parametrize(("name", "metric"), [("DefectsAlarm", "Defects"), ("DeadLettersAlarm", "Dead")])
def test_one_bad_minute_of_the_whole_service_alarms(resources: dict[str, Any], name: str, metric: str) -> None:
    alarm = _alarms(resources)[name]
    assert (alarm["Namespace"], alarm["MetricName"]) == ("Decant", metric)
    assert alarm["Dimensions"] == [{"Name": "Table", "Value": {"Ref": "Table"}}]
    assert (alarm["Statistic"], alarm["Threshold"], alarm["Period"]) == ("Sum", 1, 60)
    assert alarm["DatapointsToAlarm"] == 1


def test_alarms_and_dashboard_watch_metrics_that_there_are(resources: dict[str, Any]) -> None:
    documented = {*re.findall(r"`(\w+)`", (ROOT / "docs/observing.md").read_text())}
    alarms = _alarms(resources).values()
    watched = {alarm["MetricName"] for alarm in alarms if alarm.get("Namespace") == "Decant"}
    text = resources["Dashboard"]["Properties"]["DashboardBody"]["Fn::Sub"]
    for widget in json.loads(text)["widgets"]:
        namespace = ""
        for metric in widget["properties"].get("metrics", []):
            if isinstance(metric[0], dict):
                watched |= {*re.findall(r'MetricName="(\w+)"', metric[0]["expression"])}
            else:
                namespace = namespace if metric[0] in (".", "...") else metric[0]
                watched |= {metric[1]} if namespace == "Decant" else set()
    assert len(watched) > 10
    assert watched - documented == set()


def test_a_template_is_small_enough(templates: dict[str, Any]) -> None:
    assert max(len(json.dumps(template)) for template in templates.values()) < BODY_BYTES_MAX
