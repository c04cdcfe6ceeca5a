"""Queues: made, found, listed, tagged, purged and deleted by clients of SQS."""

from __future__ import annotations

from typing import Any

import pytest

from tests.sqs.client import Json, Refused, Sqs
from tests.support.client import Client

ACCOUNT = "000000000000"
NO_QUEUE = Refused(400, "QueueDoesNotExist", "NonExistentQueue", "The specified queue does not exist.")
BAD_NAME = "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length"


def url(name: str) -> str:
    return f"http://sqs.test/{ACCOUNT}/{name}"


def make(sqs: Sqs, name: str = "orders", tags: dict[str, str] | None = None, **attributes: str) -> str:
    made: str = sqs.CreateQueue(QueueName=name, Attributes=attributes, tags=tags or {})["QueueUrl"]
    return made


def refused(sqs: Sqs, action: str, **members: Any) -> tuple[str, str]:
    answer = sqs.refused(action, **members)
    assert answer.status == 400
    return answer.code, answer.message


def names(sqs: Sqs, **members: Any) -> list[str]:
    return [each.removeprefix(url("")) for each in sqs.ListQueues(**members).get("QueueUrls", [])]


# -- made -------------------------------------------------------------------------------------------------------------


def test_a_queue_is_a_topic_and_a_group_over_json(sqs: Sqs, client: Client) -> None:
    make(sqs, tags={"decant:queues": "2"}, MessageRetentionPeriod="60", VisibilityTimeout="0")
    topic = client.get("/topics/orders").json
    assert (topic["queues"], topic["retention_ms"]) == (2, 60_000)
    group = client.get("/topics/orders/groups/orders").json
    settings = ("invisible_ms", "max_attempts", "max_in_flight", "settle_by")
    assert [group[setting] for setting in settings] == [0, None, 20_000, "message"]
    make(sqs, "_jobs")
    assert client.get("/topics/q._jobs/groups/q._jobs").status == 200


@pytest.mark.parametrize("name", ["", "a" * 81, "/my/test", "ü", "a.b", "a.fifo", "a b", "a\n"])
def test_other_names_are_refused(sqs: Sqs, name: str) -> None:
    assert refused(sqs, "CreateQueue", QueueName=name) == ("InvalidParameterValue", BAD_NAME)
    assert sqs.refused("GetQueueUrl", QueueName=name) == NO_QUEUE


BAD_FIFO_NAME = (
    "The name of a FIFO queue can only include alphanumeric characters, hyphens, or underscores, must end with .fifo"
    " suffix and be 1 to 80 in length."
)


@pytest.mark.parametrize("name", ["a", ".fifo", "a" * 76 + ".fifo", "a b.fifo"])
def test_a_fifo_queue_needs_a_name_with_its_suffix(sqs: Sqs, name: str) -> None:
    asked = refused(sqs, "CreateQueue", QueueName=name, Attributes={"FifoQueue": "true"})
    assert asked == ("InvalidParameterValue", BAD_FIFO_NAME)


def test_a_queue_made_again_with_what_it_has_is_the_same(sqs: Sqs) -> None:
    made = make(sqs, VisibilityTimeout="10", DelaySeconds="3", MaximumMessageSize="2048")
    alike: list[Json] = [{}, {"VisibilityTimeout": " 10 "}, {"DelaySeconds": "03", "MaximumMessageSize": "2048"}]
    for given in alike:
        assert make(sqs, **given) == made
    assert make(sqs, ReceiveMessageWaitTimeSeconds="0", MessageRetentionPeriod="345600") == made


@pytest.mark.parametrize(
    ("name", "value"), [("VisibilityTimeout", "60"), ("DelaySeconds", "1"), ("KmsMasterKeyId", "a")]
)
def test_a_queue_made_again_with_something_else_is_refused(sqs: Sqs, name: str, value: str) -> None:
    make(sqs, VisibilityTimeout="10")
    text = f"A queue already exists with the same name and a different value for attribute {name}"
    assert sqs.refused("CreateQueue", QueueName="orders", Attributes={name: value}) == Refused(
        400, "QueueNameExists", "QueueAlreadyExists", text
    )


def test_over_a_topic_that_stands_a_queue_needs_the_tag_to_read_it(sqs: Sqs, client: Client) -> None:
    client.topic("orders")
    code, text = refused(sqs, "CreateQueue", QueueName="orders")
    assert (code, "decant:topic=orders" in text) == ("QueueAlreadyExists", True)
    make(sqs, tags={"decant:topic": "orders"})
    assert names(sqs) == ["orders"]


def test_a_missing_member_is_named(sqs: Sqs) -> None:
    for action, member in (
        *(("CreateQueue", "QueueName"), ("GetQueueUrl", "QueueName"), ("DeleteQueue", "QueueUrl")),
        *(("StartMessageMoveTask", "SourceArn"), ("ListMessageMoveTasks", "SourceArn")),
        ("CancelMessageMoveTask", "TaskHandle"),
    ):
        text = f"The request must contain the parameter {member}."
        assert refused(sqs, action) == ("MissingParameter", text)


# -- subscribed -------------------------------------------------------------------------------------------------------


def test_a_subscribed_queue_has_its_own_name_or_that_of_its_tag(sqs: Sqs, client: Client) -> None:
    make(sqs)
    make(sqs, "billing", {"decant:topic": "orders"})
    make(sqs, "other", {"decant:topic": "orders", "decant:group": "audit", "decant:start": "earliest"})
    groups = client.get("/topics/orders/groups").json["groups"]
    assert [(group["group"], group["start"]) for group in groups] == [
        ("audit", "earliest"),
        ("billing", "latest"),
        ("orders", "earliest"),
    ]


def test_a_filter_is_a_tag_that_can_change(sqs: Sqs, client: Client) -> None:
    make(sqs, tags={"decant:filter": "paid|sent"})

    def stored() -> Any:
        return client.get("/topics/orders/groups/orders").json["filter"]

    assert stored() == {"tags": ["paid", "sent"]}
    sqs.TagQueue(QueueUrl="orders", Tags={"decant:filter": "key == 'a'"})
    assert stored() == {"expression": "key == 'a'"}
    sqs.UntagQueue(QueueUrl="orders", TagKeys=["decant:filter"])
    assert stored() == {"expression": "'all'"}


@pytest.mark.parametrize(
    "tags",
    [
        {"decant:topic": "none"},
        {"decant:topic": "a b"},
        {"decant:topic": "orders", "decant:start": "now"},
        {"decant:topic": "orders", "decant:queues": "2"},
        {"decant:topic": "orders", "decant:group": ""},
        {"decant:group": "a"},
        {"decant:start": "latest"},
        {"decant:queues": "0"},
        {"decant:queues": "129"},
        {"decant:filter": "a ||"},
        {"decant:other": "a"},
        {"aws:a": "b"},
        {"": "b"},
        {"a": "b" * 257},
    ],
)
def test_tags_without_sense_make_no_queue(sqs: Sqs, tags: dict[str, str]) -> None:
    make(sqs)
    assert refused(sqs, "CreateQueue", QueueName="billing", tags=tags)[0] == "InvalidParameterValue"
    assert names(sqs) == ["orders"]


def test_a_subscribed_queue_has_the_retention_of_its_topic(sqs: Sqs) -> None:
    make(sqs, MessageRetentionPeriod="60")
    make(sqs, "billing", {"decant:topic": "orders"}, MessageRetentionPeriod="60")
    other = {"MessageRetentionPeriod": "61"}
    change = refused(sqs, "SetQueueAttributes", QueueUrl="billing", Attributes=other)
    made = refused(sqs, "CreateQueue", QueueName="new", Attributes=other, tags={"decant:topic": "orders"})
    assert [change[0], made[0]] == ["InvalidAttributeValue"] * 2


def test_the_delay_of_a_subscribed_queue_is_that_of_its_group(sqs: Sqs, client: Client) -> None:
    make(sqs)
    make(sqs, "billing", {"decant:topic": "orders"}, DelaySeconds="2")
    sqs.SendMessage(QueueUrl="orders", MessageBody="a")
    assert sqs.ReceiveMessage(QueueUrl="billing") == {}
    assert sqs.ReceiveMessage(QueueUrl="orders")["Messages"][0]["Body"] == "a"
    client.clock.sleep(2_000)
    assert sqs.ReceiveMessage(QueueUrl="billing")["Messages"][0]["Body"] == "a"
    shown = sqs.GetQueueAttributes(QueueUrl="billing", AttributeNames=["DelaySeconds"])
    assert shown == {"Attributes": {"DelaySeconds": "2"}}


def test_a_queue_made_again_with_another_topic_is_refused(sqs: Sqs) -> None:
    make(sqs)
    make(sqs, "billing", {"decant:topic": "orders"})
    make(sqs, "billing")
    make(sqs, "billing", {"decant:topic": "orders", "team": "b"})
    made = {"QueueName": "billing", "tags": {"decant:topic": "other"}}
    assert refused(sqs, "CreateQueue", **made)[0] == "QueueAlreadyExists"


# -- listed -----------------------------------------------------------------------------------------------------------


def test_queues_are_listed_in_order_by_the_beginning_of_their_names(sqs: Sqs) -> None:
    assert sqs.ListQueues() == {}
    for name in ("b2", "a", "b1"):
        make(sqs, name)
    assert names(sqs) == ["a", "b1", "b2"]
    assert names(sqs, QueueNamePrefix="b") == ["b1", "b2"]
    assert names(sqs, QueueNamePrefix="ü") == names(sqs, QueueNamePrefix="b" * 81) == []


def test_a_token_comes_only_to_who_asks_for_pages(sqs: Sqs) -> None:
    for name in ("b2", "a", "b1", "b3"):
        make(sqs, name)
    first = sqs.ListQueues(MaxResults=2, QueueNamePrefix="b")
    assert first["QueueUrls"] == [url("b1"), url("b2")]
    rest = sqs.ListQueues(MaxResults=2, QueueNamePrefix="b", NextToken=first["NextToken"])
    assert rest == {"QueueUrls": [url("b3")]}
    assert "NextToken" not in sqs.ListQueues()


@pytest.mark.parametrize(
    "members", [{"MaxResults": 0}, {"MaxResults": 1001}, {"NextToken": "?"}, {"NextToken": "YSBi"}]
)
def test_a_page_that_cannot_be_is_refused(sqs: Sqs, members: dict[str, Any]) -> None:
    assert refused(sqs, "ListQueues", **members)[0] == "InvalidParameterValue"


# -- ended ------------------------------------------------------------------------------------------------------------


def test_a_deleted_queue_is_gone_for_every_action(sqs: Sqs, client: Client) -> None:
    make(sqs)
    sqs.DeleteQueue(QueueUrl=url("orders"))
    assert names(sqs) == []
    assert client.get("/topics/orders").status == 404
    for action, members in (
        ("GetQueueAttributes", {"AttributeNames": ["All"]}),
        ("SetQueueAttributes", {"Attributes": {"DelaySeconds": "1"}}),
        ("TagQueue", {"Tags": {"a": "b"}}),
        ("UntagQueue", {"TagKeys": ["a"]}),
        ("ListQueueTags", {}),
        ("PurgeQueue", {}),
        ("DeleteQueue", {}),
    ):
        assert sqs.refused(action, QueueUrl=url("orders"), **members) == NO_QUEUE
    assert make(sqs) == url("orders")


def test_a_queue_whose_topic_was_deleted_over_json_is_gone(sqs: Sqs, client: Client) -> None:
    make(sqs)
    client.delete("/topics/orders")
    assert sqs.refused("GetQueueAttributes", QueueUrl="orders", AttributeNames=["All"]) == NO_QUEUE
    assert names(sqs) == []


def test_a_group_that_was_made_again_over_json_is_not_the_queues(sqs: Sqs, client: Client) -> None:
    make(sqs)
    sqs.SendMessage(QueueUrl="orders", MessageBody="a")
    client.delete("/topics/orders/groups/orders")
    client.put("/topics/orders/groups/orders")
    assert sqs.refused("ReceiveMessage", QueueUrl="orders") == NO_QUEUE
    assert client.post("/topics/orders/groups/orders/pop").json["messages"][0]["attempt"] == 1


def test_a_purge_takes_what_is_ready_in_flight_and_waiting(sqs: Sqs, client: Client) -> None:
    make(sqs)
    make(sqs, "billing", {"decant:topic": "orders"})
    for body in ("a", "b"):
        client.post("/topics/orders/messages", messages=[{"body": body, "queue": 0}])
    client.post("/topics/orders/messages", messages=[{"body": "c", "delay_ms": 60_000}])
    client.post("/topics/orders/groups/orders/pop", max_messages=1)
    sqs.PurgeQueue(QueueUrl="orders")
    sqs.PurgeQueue(QueueUrl="orders")
    assert counts(sqs) == [0, 0, 0]
    assert counts(sqs, "billing") == [2, 0, 1], "another group of the topic"
    client.post("/topics/orders/messages", messages=[{"body": "d", "delay_ms": 60_000}])
    assert counts(sqs) == [0, 0, 1]


def counts(sqs: Sqs, name: str = "orders") -> list[int]:
    """Ready, in flight, delayed."""
    attributes = [f"ApproximateNumberOfMessages{kind}" for kind in ("", "NotVisible", "Delayed")]
    shown = sqs.GetQueueAttributes(QueueUrl=name, AttributeNames=attributes)["Attributes"]
    return [int(shown[attribute]) for attribute in attributes]


# -- tags -------------------------------------------------------------------------------------------------------------


def test_tags_that_cannot_be_change_nothing(sqs: Sqs) -> None:
    make(sqs, tags={"a": "b"})
    many = {f"k{number}": "" for number in range(50)}
    texts = {
        "Too many tags added for queue orders.": ("InvalidParameterValue", many),
        "The request must contain the parameter Tags.": ("MissingParameter", {}),
        "Tag keys must be between 1 and 128 characters in length.": ("InvalidParameterValue", {"k" * 129: ""}),
    }
    for text, (code, tags) in texts.items():
        assert refused(sqs, "TagQueue", QueueUrl="orders", Tags=tags) == (code, text)
    text = "Tag keys must be between 1 and 128 characters in length."
    assert refused(sqs, "UntagQueue", QueueUrl="orders", TagKeys=[]) == ("InvalidParameterValue", text)
    assert sqs.ListQueueTags(QueueUrl="orders")["Tags"] == {"a": "b"}


def test_a_queue_is_made_with_fifty_tags_at_most(sqs: Sqs) -> None:
    many = {f"k{number}": "" for number in range(50)}
    make(sqs, tags=many)
    text = "Too many tags added for queue billing."
    tags = {**many, "a": ""}
    assert refused(sqs, "CreateQueue", QueueName="billing", tags=tags) == ("InvalidParameterValue", text)


def test_tags_of_creation_stay_as_they_are(sqs: Sqs) -> None:
    make(sqs, tags={"decant:queues": "2"})
    sqs.TagQueue(QueueUrl="orders", Tags={"decant:queues": "2"})
    for key in ("decant:queues", "decant:topic"):
        assert refused(sqs, "TagQueue", QueueUrl="orders", Tags={key: "3"})[0] == "InvalidParameterValue"
    untag = {"QueueUrl": "orders", "TagKeys": ["decant:queues"]}
    assert refused(sqs, "UntagQueue", **untag)[0] == "InvalidParameterValue"
