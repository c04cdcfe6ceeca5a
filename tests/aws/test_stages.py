"""Stages: their files, their access."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from infra.console import Stop
from infra.packaging import complete
from infra.stage import STAGES, Stage, read_stage
from infra.templates import ANY, METHODS, for_emulators


def _stage(folder: Path, text: str) -> Stage:
    (folder / "dev.yaml").write_text(text)
    return read_stage("dev", folder)


def _whole(stage: Stage, own: list[Path]) -> dict[str, Any]:
    return complete({"Resources": {"Extra": {"Type": "A"}}}, stage, own)


@pytest.mark.parametrize("path", sorted(STAGES.glob("*.yaml")), ids=lambda path: path.stem)
def test_stages_of_the_repository_can_be_read(path: Path) -> None:
    assert read_stage(path.stem).stack == f"decant-{path.stem}"


@pytest.mark.parametrize("name", ["staging", "", "../dev", "Dev", "dev.yaml", "a" * 21])
def test_an_unknown_stage_is_refused_with_those_that_are(tmp_path: Path, name: str) -> None:
    (tmp_path / "dev.yaml").write_text("access: tokens")
    with pytest.raises(Stop, match=r"there is no stage .*; stages are dev, each a file in"):
        read_stage(name, tmp_path)


def test_the_access_is_a_setting_of_every_function(tmp_path: Path) -> None:
    stage = _stage(tmp_path, "access: iam\nsettings: {DECANT_LOG: 'off'}\n")
    variables = _whole(stage, [])["Globals"]["Function"]["Environment"]["Variables"]
    assert variables["DECANT_ACCESS"] == "iam"
    assert variables["DECANT_LOG"] == "off"


@pytest.mark.parametrize("text", ["", "settings: {}", "access:", "access: open", "access: false", "access: [iam]"])
def test_a_stage_that_does_not_say_who_may_call_it_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(Stop, match="must have 'access', one of tokens, iam, none"):
        _stage(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "acces: iam",
            "has a key 'acces'; keys are access, alarms, concurrency, warm_throughput, tags, settings, template",
        ),
        ("alarms: none", "'alarms' in .* must be on or off; it is 'none'"),
        ("concurrency: many", "'concurrency' of .* must be a whole number, 1 or more; it is 'many'"),
        ("concurrency: 0", "'concurrency' of .* must be a whole number, 1 or more; it is 0"),
        ("concurrency: yes", "'concurrency' of .* must be a whole number, 1 or more; it is True"),
        ("warm_throughput: 20000", "'warm_throughput' in .* must be a mapping"),
        (
            "warm_throughput: {writes: 9000}",
            "'warm_throughput' in .* 'read' and 'write', in units a second; .* 'writes'",
        ),
        ("warm_throughput: {write: 9e3}", "'write' in 'warm_throughput' of .* whole number, 4000 or more; it is '9e3'"),
        ("warm_throughput: {read: 4000}", "'read' in 'warm_throughput' of .* whole number, 12000 or more; it is 4000"),
        ("tags: text", "'tags' in .* must be a mapping"),
        ("tags: {team: 7}", "'team' in 'tags' of .* must be a text, in quotes, of at most 256 characters; it is 7"),
        ("tags: {aws:team: a}", "'tags' in .* does not begin with 'aws:'; it is 'aws:team'"),
        ("tags: {stage: a}", "'stage' in 'tags' of .* is a tag that each stage has already"),
        (f"tags: {dict.fromkeys(map(str, range(41)), 'a')}", "'tags' in .* can be 40 at most; there are 41"),
        ("settings: [a]", "'settings' in .* must be a mapping"),
        ("template: text", "'template' in .* must be a mapping"),
        ("settings: {DECANT_X: 1}", "'DECANT_X' in 'settings' of .* must be a text, in quotes; it is 1"),
        ("settings: {DECANT_X: yes}", "'DECANT_X' .* it is True"),
        ("settings: {DECANT_LOG: info}", "'DECANT_LOG' .* must be json or off; it is 'info'"),
        ("settings: {DECANT_FUNCTION_ACCESS: none}", "'DECANT_FUNCTION_ACCESS' .* must be iam or tokens; it is 'none'"),
        ("template: {Resources: {Ingest: 5}}", "'Resources.Ingest' in .* must be a mapping; it is 5"),
    ],
)
def test_mistakes_in_a_stage_are_named(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(Stop, match=reason):
        _stage(tmp_path, f"access: tokens\n{text}")


def test_a_stage_caps_the_function_that_answers_http_requests_and_no_other(tmp_path: Path) -> None:
    resources = _whole(_stage(tmp_path, "access: tokens\nconcurrency: 400"), [])["Resources"]
    capped = {name for name, each in resources.items() if "ReservedConcurrentExecutions" in each.get("Properties", ())}
    assert capped == {"APIHandler"}
    assert resources["APIHandler"]["Properties"]["ReservedConcurrentExecutions"] == 400


def test_a_stage_says_what_its_table_serves_from_the_first_second_on(tmp_path: Path) -> None:
    table = _whole(_stage(tmp_path, "access: tokens\nwarm_throughput: {write: 20000}"), [])["Resources"]["Table"]
    assert table["Properties"]["WarmThroughput"] == {"WriteUnitsPerSecond": 20_000}
    table = _whole(_stage(tmp_path, "access: tokens"), [])["Resources"]["Table"]
    assert "WarmThroughput" not in table["Properties"]


def test_files_of_the_deployer_change_the_capacity_too(tmp_path: Path) -> None:
    stage = _stage(tmp_path, "access: tokens\nconcurrency: 400\nwarm_throughput: {read: 24000, write: 20000}")
    own = tmp_path / "own.yaml"
    own.write_text(
        "Resources:\n"
        "  APIHandler: {Properties: {ReservedConcurrentExecutions: null}}\n"
        "  Table: {Properties: {WarmThroughput: {ReadUnitsPerSecond: 30000}}}\n"
    )
    resources = _whole(stage, [own])["Resources"]
    assert "ReservedConcurrentExecutions" not in resources["APIHandler"]["Properties"]
    warm = resources["Table"]["Properties"]["WarmThroughput"]
    assert warm == {"ReadUnitsPerSecond": 30_000, "WriteUnitsPerSecond": 20_000}


def test_a_stage_has_tags_of_its_own_beside_ours(tmp_path: Path) -> None:
    stage = _stage(tmp_path, "access: tokens\ntags: {team: payments, cost-center: '42'}")
    assert stage.tags == {"team": "payments", "cost-center": "42", "application": "decant", "stage": "dev"}


def test_functions_ask_for_tokens_only_where_all_do(tmp_path: Path) -> None:
    settings = "settings: {DECANT_FUNCTION_ACCESS: tokens}"
    assert _stage(tmp_path, f"access: tokens\n{settings}").settings
    with pytest.raises(Stop, match="can be 'tokens' only with access: tokens; that is iam"):
        _stage(tmp_path, f"access: iam\n{settings}")


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("Resources: {Ingest: 5}", "Resources.Ingest"),
        ("Resources: [a]", "Resources"),
        ("Resources: {Mine: text}", "Resources.Mine"),
        ("Resources: {Ingest: {Properties: {Environment: {Variables: [a]}}}}", "Resources.Ingest.*Variables"),
        ("Resources: {Ingest: {Properties: {Events: {Mine: 1}}}}", "Resources.Ingest.Properties.Events.Mine"),
        ("Globals: {Function: {Environment: {Variables: [a]}}}", "Globals.Function.Environment.Variables"),
    ],
)
def test_files_that_are_merged_with_something_else_are_named(tmp_path: Path, text: str, place: str) -> None:
    (tmp_path / "own.yaml").write_text(text)
    with pytest.raises(Stop, match=rf"'{place}' in .*own\.yaml must be a mapping") as stopped:
        _whole(Stage("dev", "iam"), [tmp_path / "own.yaml"])
    assert "\n" not in str(stopped.value)


def test_files_of_the_deployer_change_what_stages_say(tmp_path: Path) -> None:
    stage = _stage(tmp_path, "access: tokens\ntemplate: {Resources: {Queue: {Type: A, Properties: {Size: 1}}}}")
    own = [tmp_path / "own.yaml", tmp_path / "more.yaml"]
    own[0].write_text("Resources: {Queue: {Properties: {Size: 2, Color: red}}}")
    own[1].write_text("Resources: {Queue: {Properties: {Color: blue}}, Extra: {Type: B}}")
    resources = _whole(stage, own)["Resources"]
    assert resources["Queue"] == {"Type": "A", "Properties": {"Size": 2, "Color": "blue"}}
    assert resources["Extra"] == {"Type": "B"}


def test_emulators_get_each_method_where_any_is_taken() -> None:
    paths = {"/any": {ANY: {"x": 1}}, "/one": {"get": {"x": 2}}, "/both": {ANY: {"x": 3}, "get": {"x": 4}}}
    api = {"Type": "AWS::Serverless::Api", "Properties": {"DefinitionBody": {"paths": paths, "swagger": "2.0"}}}
    resources = for_emulators({"Resources": {"RestAPI": api, "Other": {"Type": "A"}}})["Resources"]
    body = resources["RestAPI"]["Properties"]["DefinitionBody"]
    assert body["paths"]["/any"] == {method: {"x": 1} for method in METHODS}
    assert body["paths"]["/one"] == {"get": {"x": 2}}
    assert body["paths"]["/both"] == {method: {"x": 3} for method in METHODS} | {"get": {"x": 4}}
    assert resources["Other"] == {"Type": "A"}


def test_emulators_get_an_alarm_on_a_metric_for_one_on_an_expression() -> None:
    metric = {"Namespace": "AWS/DynamoDB", "MetricName": "ReadThrottleEvents", "Dimensions": []}
    watched = [
        {"Id": "filled", "Expression": "FILL(m, 0)"},
        {"Id": "m", "MetricStat": {"Metric": metric, "Stat": "Sum", "Period": 60}},
    ]
    alarm = {"Type": "AWS::CloudWatch::Alarm", "Properties": {"Metrics": watched, "Threshold": 1}}
    made = for_emulators({"Resources": {"Alarm": alarm}})["Resources"]["Alarm"]
    assert made["Properties"] == {**metric, "Statistic": "Sum", "Period": 60, "Threshold": 1}
