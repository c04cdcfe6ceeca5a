"""Every source of events, as the examples deploy it: each record becomes a message."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from infra.templates import INFRA, load
from tests.support.deployment import Deployment, deploy

SOURCES = ("dynamodb", "eventbridge", "kinesis", "s3", "sns", "sqs")
EXAMPLES = [INFRA / "examples" / f"{source}.yaml" for source in SOURCES]

ARRIVAL_SECONDS = 60
LOOK_SECONDS = 0.3


@pytest.fixture(scope="module")
def rules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Those of all examples together, in a file of the deployer's."""
    path = tmp_path_factory.mktemp("rules") / "rules.yaml"
    given = json.dumps([{"source": "sqs", "topic": "queued"}, {"topic": "fed"}])
    template = {"Resources": {"Ingest": {"Properties": {"Environment": {"Variables": {"DECANT_INGEST": given}}}}}}
    path.write_text(json.dumps(template))
    return path


@pytest.fixture(scope="module")
def fed(deployed: Deployment, packages: Path, rules: Path) -> Deployment:
    """The deployment with all sources, whose records go to `fed`, and to `rejects`."""
    fed = deploy(deployed.ministack, packages, *EXAMPLES, rules).with_token(deployed.token)
    for topic in ("fed", "rejects"):
        assert fed.call("PUT", f"/topics/{topic}", {"queues": 1})[0] == 201
    return fed


def arrived(fed: Deployment, topic: str, is_it: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The message, once it is there."""
    give_up_at = time.monotonic() + ARRIVAL_SECONDS
    while time.monotonic() < give_up_at:
        status, page = fed.call("GET", f"/topics/{topic}/messages?limit=1000")
        assert status == 200, page
        for message in page["messages"]:
            if is_it(message):
                return dict(message)
        time.sleep(LOOK_SECONDS)
    raise AssertionError(f"nothing arrived; the log ends: {fed.ministack.log.read_text()[-3000:]}")


def logged(fed: Deployment, text: str) -> None:
    """Returns once a function has logged this."""
    give_up_at = time.monotonic() + ARRIVAL_SECONDS
    while text not in fed.ministack.log.read_text():
        assert time.monotonic() < give_up_at, f"nothing logs {text}"
        time.sleep(LOOK_SECONDS)


def physical(fed: Deployment, name: str) -> str:
    """The name, URL or ARN of a resource of the stack."""
    answer = fed.ministack.client("cloudformation").describe_stack_resource(StackName=fed.table, LogicalResourceId=name)
    return str(answer["StackResourceDetail"]["PhysicalResourceId"])


def test_a_message_of_sqs_comes_again_until_it_is_stored(fed: Deployment) -> None:
    """The messages' topic is missing at first. (The emulator gives Kinesis no record again, even if the function
    reports a failure.)"""
    sqs, url = fed.ministack.client("sqs"), physical(fed, "OrdersQueue")
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"VisibilityTimeout": "2"})
    sqs.send_message(QueueUrl=url, MessageBody="from sqs")
    logged(fed, '"topic":"queued","status":404')
    assert fed.call("PUT", "/topics/queued", {"queues": 1})[0] == 201
    message = arrived(fed, "queued", lambda message: message["body"] == "from sqs")
    assert message["properties"]["aws_origin"].startswith("arn:aws:sqs:")


def test_a_message_of_sns_arrives(fed: Deployment) -> None:
    topic = physical(fed, "NoticesTopic")
    fed.ministack.client("sns").publish(TopicArn=topic, Message="from sns")
    message = arrived(fed, "fed", lambda message: message.get("body") == "from sns")
    assert message["properties"]["aws_origin"] == topic


def test_an_event_of_eventbridge_arrives(fed: Deployment) -> None:
    entry = {"Source": "shop", "DetailType": "paid", "Detail": '{"order": 4711}'}
    fed.ministack.client("events").put_events(Entries=[entry])
    message = arrived(fed, "fed", lambda message: message["tag"] == "paid")
    assert json.loads(message["body"])["detail"] == {"order": 4711}


def test_a_change_of_a_bucket_arrives(fed: Deployment) -> None:
    fed.ministack.client("s3").put_object(Bucket=physical(fed, "UploadsBucket"), Key="summer 2026.jpg", Body=b"x")
    message = arrived(fed, "fed", lambda message: message["key"] == "summer 2026.jpg")
    assert message["tag"].startswith("ObjectCreated:")


def test_a_record_of_kinesis_arrives_and_an_empty_one_is_rejected(fed: Deployment) -> None:
    kinesis, stream = fed.ministack.client("kinesis"), physical(fed, "ClicksStream")
    for data in (b"", b"\xff\x00"):
        kinesis.put_record(StreamName=stream, Data=data, PartitionKey="k")
    assert arrived(fed, "fed", lambda message: message.get("body_base64") == "/wA=")["key"] == "k"
    reject = arrived(fed, "rejects", lambda message: message["properties"]["source"] == "kinesis")
    assert json.loads(reject["body"])["kinesis"]["data"] == ""


def test_a_change_of_a_table_arrives(fed: Deployment) -> None:
    table = physical(fed, "CustomersTable")
    fed.ministack.client("dynamodb").put_item(TableName=table, Item={"id": {"S": "c1"}})
    message = arrived(fed, "fed", lambda message: message["tag"] == "INSERT")
    assert json.loads(message["key"]) == {"id": {"S": "c1"}}
    assert json.loads(message["body"])["dynamodb"]["NewImage"] == {"id": {"S": "c1"}}


def test_an_event_of_nobody_fails_and_is_not_lost(fed: Deployment) -> None:
    answer = fed.ministack.client("lambda").invoke(FunctionName=fed.functions["ingest"], Payload=b"{}")
    assert answer["FunctionError"]
    assert "the event must be of one of the sources sqs, sns" in json.loads(answer["Payload"].read())["errorMessage"]


@pytest.mark.parametrize("example", EXAMPLES, ids=SOURCES)
def test_an_example_needs_no_other(example: Path) -> None:
    resources = load(example)["Resources"]
    text = json.dumps(resources)
    named = re.findall(r'"(?:Ref|DependsOn)": "(\w+)"|"Fn::GetAtt": \["(\w+)"|\$\{(\w+)\.', text)
    assert {name for names in named for name in names if name} <= {*resources, "IngestRole"}
