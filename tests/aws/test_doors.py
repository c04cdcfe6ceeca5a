"""Unchanged clients of other services against a deployed stage, with access keys, through its function URL."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import boto3
import pytest
from botocore.exceptions import ClientError

from infra import deploying
from tests.support.deployment import Deployment
from tests.support.ministack import REGION
from tests.support.mq_clients import ROUND, by_node, by_python, puts

RIGHTS = [{"operations": ["produce", "consume", "read", "admin"], "topics": "*"}]
Key = dict[str, Any]


@pytest.fixture(scope="module")
def key(deployed: Deployment) -> Key:
    token: Key
    status, token = deployed.call("POST", "/tokens", {"name": "doors", "rights": RIGHTS})
    assert status == 201
    return token


def found_at(monkeypatch: pytest.MonkeyPatch, host: str | None, address: str, port: int | None = None) -> None:
    """Makes the host found there, as a line in /etc/hosts would; `port`: at another port, too."""
    resolve = socket.getaddrinfo
    monkeypatch.setattr(
        socket,
        "getaddrinfo",
        lambda name, asked, *more, **options: (
            resolve(address, port or asked, *more, **options)
            if name == host
            else resolve(name, asked, *more, **options)
        ),
    )


@pytest.fixture
def url(deployed: Deployment, monkeypatch: pytest.MonkeyPatch) -> str:
    """The function URL under its host in AWS, which clients sign; it leads to the emulator."""
    host = f"{deployed.url.rsplit('/', 1)[1]}.lambda-url.{REGION}.on.aws"
    at = urlsplit(deployed.ministack.endpoint)
    found_at(monkeypatch, host, str(at.hostname), at.port)
    return f"http://{host}"


def options(url: str, key: Key) -> Any:
    return {
        "endpoint_url": url,
        "region_name": REGION,
        "aws_access_key_id": key["access_key_id"],
        "aws_secret_access_key": key["secret_access_key"],
    }


def test_the_client_of_boto3_sends_receives_and_deletes(url: str, key: Key) -> None:
    sqs = boto3.client("sqs", **options(url, key))
    queue = sqs.create_queue(QueueName="by-client")["QueueUrl"]
    assert queue == f"{url}/000000000000/by-client".replace("http:", "https:")
    attributes = {"b": {"DataType": "Binary", "BinaryValue": b"\0\xff"}}
    sent = sqs.send_message(QueueUrl=queue, MessageBody="grüß", MessageAttributes=attributes)
    [message] = sqs.receive_message(QueueUrl=queue, MessageAttributeNames=["All"], WaitTimeSeconds=5)["Messages"]
    assert (message["MessageId"], message["Body"]) == (sent["MessageId"], "grüß")
    assert message["MessageAttributes"] == attributes
    sqs.delete_message(QueueUrl=queue, ReceiptHandle=message["ReceiptHandle"])
    numbers = sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["All"])["Attributes"]
    assert (numbers["ApproximateNumberOfMessages"], numbers["ApproximateNumberOfMessagesNotVisible"]) == ("0", "0")


def test_the_address_that_a_deployment_prints_is_one_for_clients(
    deployed: Deployment, key: Key, monkeypatch: pytest.MonkeyPatch
) -> None:
    found_at(monkeypatch, urlsplit(deployed.sqs_url).hostname, "127.0.0.1")
    sqs = boto3.client("sqs", **options(deployed.sqs_url, key))
    queue = sqs.create_queue(QueueName="as-printed")["QueueUrl"]
    assert queue == f"{deployed.sqs_url}/000000000000/as-printed"
    sent = sqs.send_message(QueueUrl=queue, MessageBody="a")
    [message] = sqs.receive_message(QueueUrl=queue, WaitTimeSeconds=5)["Messages"]
    assert message["MessageId"] == sent["MessageId"]
    sqs.delete_message(QueueUrl=queue, ReceiptHandle=message["ReceiptHandle"])


def test_a_machine_that_does_not_find_that_address_is_told_how(monkeypatch: pytest.MonkeyPatch) -> None:
    host = "a.execute-api.localhost"
    found_at(monkeypatch, host, "nowhere.invalid")
    assert f"add '127.0.0.1 {host}' to /etc/hosts" in deploying._how_to_find(host)
    found_at(monkeypatch, host, "127.0.0.1")
    assert deploying._how_to_find(host) == deploying._how_to_find("sqs.example.org") == ""


def test_the_resource_of_boto3_sends_receives_and_deletes(url: str, key: Key) -> None:
    queue = boto3.resource("sqs", **options(url, key)).create_queue(QueueName="by-resource")
    sent = [{"Id": str(number), "MessageBody": f"body {number}"} for number in range(10)]
    assert len(queue.send_messages(Entries=sent)["Successful"]) == 10
    messages = queue.receive_messages(MaxNumberOfMessages=10, WaitTimeSeconds=5)
    assert sorted(message.body for message in messages) == [each["MessageBody"] for each in sent]
    for message in messages:
        message.delete()
    queue.reload()
    assert queue.attributes["ApproximateNumberOfMessagesNotVisible"] == "0"


@pytest.mark.parametrize("by_sdk", [by_python, by_node])
def test_the_sdks_of_mq_do_all_that_they_can(
    deployed: Deployment, url: str, key: Key, by_sdk: Callable[..., Any]
) -> None:
    for path, settings in puts(by_sdk.__name__).items():
        assert deployed.call("PUT", path, settings)[0] == 201
    at = f"{url}:{urlsplit(deployed.ministack.endpoint).port}"
    assert by_sdk(at, key["access_key_id"], key["secret_access_key"], by_sdk.__name__) == ROUND


def test_the_client_of_boto3_is_refused_with_another_secret(url: str, key: Key) -> None:
    wrong = {**key, "secret_access_key": "x" * 40}
    with pytest.raises(ClientError, match="SignatureDoesNotMatch"):
        boto3.client("sqs", **options(url, wrong)).list_queues()
