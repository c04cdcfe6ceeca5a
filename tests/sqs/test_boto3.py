"""boto3, unchanged, against `python -m local` on a port."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

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


@pytest.fixture
def resource(server: Running) -> Any:
    make: Any = boto3.resource
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


def test_a_resource_works_by_the_url_of_its_queue(resource: Any) -> None:
    queue = resource.create_queue(QueueName="batches", Attributes={"VisibilityTimeout": "60"})
    entries = [{"Id": str(number), "MessageBody": f"body {number}"} for number in range(10)]
    assert len(queue.send_messages(Entries=entries)["Successful"]) == 10
    found: dict[str, Any] = {}
    while messages := queue.receive_messages(MaxNumberOfMessages=10, AttributeNames=["All"]):
        found |= {message.body: message for message in messages}
    assert sorted(found) == sorted(entry["MessageBody"] for entry in entries)
    first, *others = found.values()
    first.change_visibility(VisibilityTimeout=120)
    deletions = [{"Id": str(n), "ReceiptHandle": each.receipt_handle} for n, each in enumerate(others)]
    assert len(queue.delete_messages(Entries=deletions)["Successful"]) == 9
    queue.reload()
    assert queue.attributes["ApproximateNumberOfMessagesNotVisible"] == "1"


def test_errors_have_their_types_and_texts(client: Any) -> None:
    with pytest.raises(client.exceptions.QueueDoesNotExist) as caught:
        client.get_queue_url(QueueName="none")
    error = caught.value.response["Error"]
    assert (error["Code"], error["Type"]) == ("AWS.SimpleQueueService.NonExistentQueue", "Sender")
    url = client.create_queue(QueueName="errors")["QueueUrl"]
    with pytest.raises(client.exceptions.ReceiptHandleIsInvalid):
        client.delete_message(QueueUrl=url, ReceiptHandle="x")
    with pytest.raises(client.exceptions.EmptyBatchRequest):
        client.send_message_batch(QueueUrl=url, Entries=[])
    with pytest.raises(ClientError) as refused:
        client.receive_message(QueueUrl=url, MaxNumberOfMessages=11)
    assert refused.value.response["Error"]["Code"] == "InvalidParameterValue"
    with pytest.raises(client.exceptions.InvalidMessageContents):
        client.send_message(QueueUrl=url, MessageBody="\0")


def test_a_receive_hears_of_a_message_while_it_waits(client: Any) -> None:
    url = client.create_queue(QueueName="waiting", Attributes={"ReceiveMessageWaitTimeSeconds": "10"})["QueueUrl"]
    client.send_message(QueueUrl=url, MessageBody="late", DelaySeconds=1)
    [message] = client.receive_message(QueueUrl=url)["Messages"]
    assert message["Body"] == "late"


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
