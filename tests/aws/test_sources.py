"""Sources of events: those of the examples, and mistakes that would lose records."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from infra.console import Stop
from infra.event_sources import check
from infra.templates import INFRA, load

EXAMPLES = sorted(path for path in (INFRA / "examples").glob("*.yaml") if "DECANT_INGEST" in path.read_text())
each_example = pytest.mark.parametrize("path", EXAMPLES, ids=[path.stem for path in EXAMPLES])


@each_example
def test_the_examples_lose_nothing_and_have_sound_rules(path: Path) -> None:
    check(load(path))


def test_there_is_an_example_of_each_source() -> None:
    stems = {path.stem for path in EXAMPLES}
    assert stems == {"sqs", "sns", "eventbridge", "s3", "kinesis", "dynamodb"}


INGEST = [
    {"Ref": "Ingest"},
    {"Fn::GetAtt": ["Ingest", "Arn"]},
    {"Fn::Sub": "${Ingest.Arn}:1"},
    {"Fn::Sub": "${AWS::StackName}-ingest"},
]


@pytest.mark.parametrize("function", INGEST)
@pytest.mark.parametrize("types", [None, [], ["Other"]])
def test_a_source_whose_failures_nobody_heeds_is_refused(function: Any, types: Any) -> None:
    source = {"FunctionName": function, "FunctionResponseTypes": types}
    template = {"Resources": {"Mine": {"Type": "AWS::Lambda::EventSourceMapping", "Properties": source}}}
    with pytest.raises(Stop, match="Mine feeds Ingest and must have FunctionResponseTypes"):
        check(template)
    check({"Resources": {"Mine": {**template["Resources"]["Mine"], "Properties": {"FunctionName": "other"}}}})


def test_so_is_one_that_is_an_event_of_the_function() -> None:
    events = {"Mine": {"Type": "SQS", "Properties": {"Queue": "x"}}, "Other": {"Type": "SNS"}}
    with pytest.raises(Stop, match="Mine feeds Ingest"):
        check({"Resources": {"Ingest": {"Properties": {"Events": events}}}})


def test_a_wrong_rule_is_named_before_anything_is_deployed() -> None:
    variables = {"DECANT_INGEST": json.dumps([{"topic": "orders", "key": "size(@)"}])}
    with pytest.raises(Stop, match=r"'DECANT_INGEST\[0\].key' calls size\(\)"):
        check({"Resources": {"Ingest": {"Properties": {"Environment": {"Variables": variables}}}}})


def test_so_is_one_that_is_said_for_all_functions() -> None:
    variables = {"DECANT_INGEST": "[{}]"}
    with pytest.raises(Stop, match="DECANT_INGEST"):
        check({"Globals": {"Function": {"Environment": {"Variables": variables}}}})


def test_so_is_a_wrong_topic_of_rejects() -> None:
    variables = {"DECANT_INGEST_REJECTS": "a b"}
    with pytest.raises(Stop, match="'DECANT_INGEST_REJECTS' must be a topic's name"):
        check({"Resources": {"Ingest": {"Properties": {"Environment": {"Variables": variables}}}}})


def test_a_template_without_sources_is_fine() -> None:
    check({})
    variables = {"DECANT_INGEST": {"Ref": "Rules"}}
    check({"Resources": {"Ingest": {"Properties": {"Environment": {"Variables": variables}}}}})
