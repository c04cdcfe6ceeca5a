"""boto3, unchanged, against `python -m local` on a port."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.config import Config

from tests.local.serving import Running, running

OPTIONS: dict[str, Any] = {
    "region_name": "us-east-1",
    "aws_access_key_id": "123456789012",
    "aws_secret_access_key": "x",
    "config": Config(retries={"max_attempts": 0}),
}


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running() as server:
        yield server


@pytest.fixture
def client(server: Running) -> Any:
    make: Any = boto3.client
    return make("sqs", endpoint_url=f"http://127.0.0.1:{server.port}", **OPTIONS)


def test_a_client_sends_receives_and_deletes(client: Any, server: Running) -> None:
    url = client.create_queue(QueueName="orders")["QueueUrl"]
    assert url == f"http://127.0.0.1:{server.port}/123456789012/orders"
    attributes = {"n": {"DataType": "Number", "StringValue": "1"}, "b": {"DataType": "Binary", "BinaryValue": b"\0\1"}}
    sent = client.send_message(QueueUrl=url, MessageBody="grüß", MessageAttributes=attributes)
    [message] = client.receive_message(QueueUrl=url, MessageAttributeNames=["All"], WaitTimeSeconds=5)["Messages"]
    assert message["MessageId"] == sent["MessageId"]
    assert (message["Body"], message["MessageAttributes"]) == ("grüß", attributes)
    client.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    answer = client.receive_message(QueueUrl=url)
    assert "Messages" not in answer
    assert answer["ResponseMetadata"]["HTTPHeaders"]["date"]


def test_a_queue_is_made_listed_changed_tagged_and_deleted(client: Any) -> None:
    url = client.create_queue(QueueName="made", Attributes={"VisibilityTimeout": "3"}, tags={"team": "shop"})[
        "QueueUrl"
    ]
    client.create_queue(QueueName="made-2", tags={"decant:topic": "made"})
    with pytest.raises(client.exceptions.QueueNameExists):
        client.create_queue(QueueName="made", Attributes={"VisibilityTimeout": "4"})
    client.set_queue_attributes(QueueUrl=url, Attributes={"VisibilityTimeout": "45"})
    shown = client.get_queue_attributes(QueueUrl=url, AttributeNames=["VisibilityTimeout", "QueueArn"])["Attributes"]
    assert shown == {"VisibilityTimeout": "45", "QueueArn": "arn:aws:sqs:us-east-1:123456789012:made"}
    pages = client.get_paginator("list_queues").paginate(QueueNamePrefix="made", PaginationConfig={"PageSize": 1})
    assert [page["QueueUrls"] for page in pages] == [[url], [f"{url}-2"]]
    client.tag_queue(QueueUrl=url, Tags={"cost": ""})
    client.untag_queue(QueueUrl=url, TagKeys=["team"])
    assert client.list_queue_tags(QueueUrl=url)["Tags"] == {"cost": ""}
    client.send_message(QueueUrl=url, MessageBody="a")
    client.purge_queue(QueueUrl=url)
    assert "Messages" not in client.receive_message(QueueUrl=url)
    client.delete_queue(QueueUrl=url)
    with pytest.raises(client.exceptions.QueueDoesNotExist):
        client.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])
