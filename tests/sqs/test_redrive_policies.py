"""Dead-letter queues: redrive policies, what moves, and how it is received."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.sqs.client import Json, Sqs
from tests.support.client import Client, Topic
from tests.support.clock import Clock

ARN = "arn:aws:sqs:us-east-1:000000000000:"
TARGET_GONE = "Dead letter target does not exist."


def policy(target: str = "dead", count: int | str = 1) -> str:
    return json.dumps({"deadLetterTargetArn": ARN + target, "maxReceiveCount": count})


@pytest.fixture
def made(sqs: Sqs) -> Sqs:
    """A queue, and the dead-letter queue that it has."""
    sqs.CreateQueue(QueueName="dead")
    sqs.CreateQueue(QueueName="orders", Attributes={"RedrivePolicy": policy(), "VisibilityTimeout": "1"})
    return sqs


def get(sqs: Sqs, name: str = "RedrivePolicy", queue: str = "orders") -> Any:
    found = sqs.GetQueueAttributes(QueueUrl=queue, AttributeNames=["All"])["Attributes"]
    return json.loads(found[name]) if name in found and name.startswith("Redrive") else found.get(name)


def put(sqs: Sqs, queue: str = "orders", **attributes: str) -> None:
    assert sqs.SetQueueAttributes(QueueUrl=queue, Attributes=attributes) == {}


def receive(sqs: Sqs, queue: str, **members: Any) -> list[Json]:
    asked = {"AttributeNames": ["All"], "MessageAttributeNames": ["All"], "MaxNumberOfMessages": 10, **members}
    messages: list[Json] = sqs.ReceiveMessage(QueueUrl=queue, **asked).get("Messages", [])
    return messages


def sources(sqs: Sqs, queue: str = "dead", **members: Any) -> list[str]:
    listed = sqs.ListDeadLetterSourceQueues(QueueUrl=queue, **members).get("queueUrls", [])
    return [url.rpartition("/")[2] for url in listed]


# -- what moves -------------------------------------------------------------------------------------------------------


def test_a_message_received_often_enough_is_in_the_dead_letter_queue(made: Sqs, clock: Clock) -> None:
    put(made, RedrivePolicy=policy(count=2))
    kind = {"n": {"DataType": "Number", "StringValue": "7"}}
    sent = made.SendMessage(QueueUrl="orders", MessageBody="hi", MessageAttributes=kind)
    [first] = receive(made, "orders")
    clock.sleep(1_000)
    assert receive(made, "orders")[0]["Attributes"]["ApproximateReceiveCount"] == "2"
    clock.sleep(1_000)
    assert receive(made, "orders") == []
    [dead] = receive(made, "dead")
    assert (dead["MessageId"], dead["Body"]) == (sent["MessageId"], "hi")
    assert dead["MessageAttributes"] == kind
    about = dead["Attributes"]
    assert about["DeadLetterQueueSourceArn"] == f"{ARN}orders"
    assert about["ApproximateReceiveCount"] == "3"
    assert about["SentTimestamp"] == first["Attributes"]["SentTimestamp"]
    made.DeleteMessage(QueueUrl="dead", ReceiptHandle=dead["ReceiptHandle"])
    clock.sleep(60_000)
    assert receive(made, "dead") == receive(made, "orders") == []


def test_a_dead_letter_can_be_sent_back_as_it_was_received(made: Sqs, clock: Clock) -> None:
    given = {f"a{number}": {"DataType": "String", "StringValue": "x"} for number in range(10)}
    sent = made.SendMessage(QueueUrl="orders", MessageBody="hi", MessageAttributes=given)
    receive(made, "orders")
    clock.sleep(1_000)
    assert receive(made, "orders") == []
    [dead] = receive(made, "dead")
    assert dead["MessageAttributes"] == given
    again = made.SendMessage(QueueUrl="orders", MessageBody="hi", MessageAttributes=dead["MessageAttributes"])
    assert dead["MD5OfMessageAttributes"] == again["MD5OfMessageAttributes"] == sent["MD5OfMessageAttributes"]


def test_a_message_that_has_not_moved_shows_an_attribute_like_the_reason(made: Sqs) -> None:
    mine = {"decant.reason": {"DataType": "String", "StringValue": "mine"}}
    made.SendMessage(QueueUrl="orders", MessageBody="hi", MessageAttributes=mine)
    assert receive(made, "orders")[0]["MessageAttributes"] == mine


def test_a_message_that_was_made_visible_has_been_received(made: Sqs) -> None:
    made.SendMessage(QueueUrl="orders", MessageBody="hi")
    [message] = receive(made, "orders")
    made.ChangeMessageVisibility(QueueUrl="orders", ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=0)
    assert receive(made, "orders") == []
    assert len(receive(made, "dead")) == 1


def test_what_has_moved_is_counted_in_one_queue(made: Sqs, clock: Clock) -> None:
    made.SendMessage(QueueUrl="orders", MessageBody="hi")
    receive(made, "orders")
    clock.sleep(1_000)
    receive(made, "orders")
    for queue, count in (("orders", "0"), ("dead", "1")):
        assert get(made, "ApproximateNumberOfMessages", queue) == count
        assert get(made, "ApproximateNumberOfMessagesNotVisible", queue) == "0"
        assert get(made, "ApproximateNumberOfMessagesDelayed", queue) == "0"


def test_a_delete_after_the_move_succeeds_and_leaves_the_dead_letter(made: Sqs, clock: Clock) -> None:
    made.SendMessage(QueueUrl="orders", MessageBody="hi")
    [message] = receive(made, "orders")
    clock.sleep(1_000)
    receive(made, "orders")
    assert made.DeleteMessage(QueueUrl="orders", ReceiptHandle=message["ReceiptHandle"]) == {}
    assert len(receive(made, "dead")) == 1


def test_a_fifo_queue_has_a_fifo_dead_letter_queue(sqs: Sqs, clock: Clock) -> None:
    fifo = {"FifoQueue": "true", "ContentBasedDeduplication": "true"}
    sqs.CreateQueue(QueueName="dead.fifo", Attributes=fifo)
    given = {**fifo, "RedrivePolicy": policy("dead.fifo"), "VisibilityTimeout": "1"}
    sqs.CreateQueue(QueueName="orders.fifo", Attributes=given)
    for body in ("a1", "b1", "a2"):
        sqs.SendMessage(QueueUrl="orders.fifo", MessageBody=body, MessageGroupId=body[0])
    assert len(receive(sqs, "orders.fifo")) == 3
    clock.sleep(1_000)
    assert receive(sqs, "orders.fifo") == []
    dead = receive(sqs, "dead.fifo")
    assert sorted(each["Body"] for each in dead) == ["a1", "a2", "b1"]
    assert [each["Body"] for each in dead if each["Attributes"]["MessageGroupId"] == "a"] == ["a1", "a2"]


def test_a_queue_may_be_its_own_dead_letter_queue(made: Sqs, clock: Clock) -> None:
    put(made, RedrivePolicy=policy("orders", count=2))
    assert get(made) == {"deadLetterTargetArn": f"{ARN}orders", "maxReceiveCount": 2}
    assert sources(made, "orders") == ["orders"]
    sent = [made.SendMessage(QueueUrl="orders", MessageBody=body)["MessageId"] for body in "ab"]
    for count in range(1, 8):
        came = receive(made, "orders", WaitTimeSeconds=1)  # what it moves comes with its next look
        assert sorted(each["MessageId"] for each in came) == sorted(sent)
        assert {each["Attributes"]["ApproximateReceiveCount"] for each in came} == {str(count)}
        assert {"DeadLetterQueueSourceArn" in each["Attributes"] for each in came} == {count > 2}
        assert get(made, "ApproximateNumberOfMessagesNotVisible", "orders") == "2"
        clock.sleep(1_000)
    for message in receive(made, "orders"):
        made.DeleteMessage(QueueUrl="orders", ReceiptHandle=message["ReceiptHandle"])
    clock.sleep(60_000)
    assert receive(made, "orders") == []


def test_a_fifo_queue_may_be_its_own_dead_letter_queue(sqs: Sqs, clock: Clock) -> None:
    fifo = {"FifoQueue": "true", "ContentBasedDeduplication": "true", "VisibilityTimeout": "1"}
    sqs.CreateQueue(QueueName="orders.fifo", Attributes=fifo)
    own = {"RedrivePolicy": policy("orders.fifo", count=1)}
    sqs.SetQueueAttributes(QueueUrl="orders.fifo", Attributes=own)
    assert sqs.CreateQueue(QueueName="orders.fifo", Attributes={**fifo, **own})["QueueUrl"]
    for body in ("a1", "a2"):
        sqs.SendMessage(QueueUrl="orders.fifo", MessageBody=body, MessageGroupId="a")
    assert [each["Body"] for each in receive(sqs, "orders.fifo", MaxNumberOfMessages=1)] == ["a1"]
    clock.sleep(1_000)
    for body, count in (("a2", "1"), ("a1", "2")):
        [message] = receive(sqs, "orders.fifo")
        assert (message["Body"], message["Attributes"]["ApproximateReceiveCount"]) == (body, count)
        sqs.DeleteMessage(QueueUrl="orders.fifo", ReceiptHandle=message["ReceiptHandle"])


def test_while_the_dead_letter_queue_is_gone_messages_are_received_on(made: Sqs, clock: Clock) -> None:
    made.SendMessage(QueueUrl="orders", MessageBody="hi")
    made.DeleteQueue(QueueUrl="dead")
    for count in (1, 2, 3):
        assert receive(made, "orders")[0]["Attributes"]["ApproximateReceiveCount"] == str(count)
        clock.sleep(1_000)
    made.CreateQueue(QueueName="dead")
    assert receive(made, "orders") == []
    assert len(receive(made, "dead")) == 1


def test_a_queue_without_a_policy_keeps_what_it_gives_out(made: Sqs, clock: Clock) -> None:
    made.SendMessage(QueueUrl="orders", MessageBody="hi")
    put(made, RedrivePolicy="")
    for _ in range(20):
        assert len(receive(made, "orders")) == 1
        clock.sleep(1_000)


def test_properties_that_no_move_made_harm_nothing(made: Sqs, client: Client) -> None:
    odd = {"sqs:id": "x", "sqs:sent": "-1", "sqs:count": "many", "sqs:source": "a b"}
    Topic(client, "orders").produce({"body": "hi", "properties": odd})
    [message] = receive(made, "orders")
    about = message["Attributes"]
    assert about["ApproximateReceiveCount"] == "1"
    assert about["SentTimestamp"] != "-1"
    assert "DeadLetterQueueSourceArn" not in about


# -- the policy -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [3, "3"])
def test_a_policy_is_shown_with_its_count_as_a_number(made: Sqs, count: int | str) -> None:
    put(made, RedrivePolicy=f" {policy(count=count)} ")
    assert get(made) == {"deadLetterTargetArn": f"{ARN}dead", "maxReceiveCount": 3}


@pytest.mark.parametrize("nothing", ["", "{}"])
def test_nothing_takes_a_policy_away(made: Sqs, nothing: str) -> None:
    put(made, RedrivePolicy=nothing)
    assert get(made) is None
    assert sources(made) == []


def test_a_policy_is_the_groups_settings(made: Sqs, client: Client) -> None:
    group = Topic(client, "orders").client.get("/topics/orders/groups/orders").json
    assert (group["max_attempts"], group["dead_letters"]) == (1, {"topic": "dead", "source": "orders"})
    assert client.put("/topics/orders/groups/orders", max_attempts=7).status == 200
    assert get(made)["maxReceiveCount"] == 7
    assert client.put("/topics/orders/groups/orders", dead_letters=None).status == 200
    assert get(made) is None
    assert sources(made) == []


def test_a_queue_that_stands_has_the_policy_that_is_asked_for(made: Sqs) -> None:
    assert made.CreateQueue(QueueName="orders", Attributes={"RedrivePolicy": policy()})
    refused = made.refused("CreateQueue", QueueName="orders", Attributes={"RedrivePolicy": policy(count=2)})
    assert refused.shape == "QueueNameExists"


def test_names_that_no_topic_has_can_be_of_both_queues(sqs: Sqs, clock: Clock) -> None:
    sqs.CreateQueue(QueueName="-dead")
    sqs.CreateQueue(QueueName="_orders", Attributes={"RedrivePolicy": policy("-dead"), "VisibilityTimeout": "0"})
    assert get(sqs, queue="_orders")["deadLetterTargetArn"] == f"{ARN}-dead"
    sqs.SendMessage(QueueUrl="_orders", MessageBody="hi")
    receive(sqs, "_orders")
    assert receive(sqs, "_orders") == []
    assert receive(sqs, "-dead")[0]["Attributes"]["DeadLetterQueueSourceArn"] == f"{ARN}_orders"
    assert sources(sqs, "-dead") == ["_orders"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("x", "Redrive policy is not a valid JSON map."),
        ("[]", "Redrive policy is not a valid JSON map."),
        (policy("nowhere"), TARGET_GONE),
        (policy("dead.fifo"), "Dead-letter queue must be same type of queue as the source."),
        (policy("reads"), "Queue 'reads' reads topic 'dead', and nothing is sent to it."),
        (policy("a b"), "Invalid value for deadLetterTargetArn."),
        ('{"deadLetterTargetArn": "dead", "maxReceiveCount": 1}', "Invalid value for deadLetterTargetArn."),
        (policy(count=0), "Invalid value for maxReceiveCount: valid values are from 1 to 1000 both inclusive."),
        (policy(count=1001), "Invalid value for maxReceiveCount: valid values are from 1 to 1000 both inclusive."),
        (policy(count="x"), "Invalid value for maxReceiveCount: valid values are from 1 to 1000 both inclusive."),
        (
            policy(count=7).replace("7", "[" * 1_000 + "]" * 1_000),
            "Invalid value for maxReceiveCount: valid values are from 1 to 1000 both inclusive.",
        ),
        ('{"maxReceiveCount": 1}', "Redrive policy does not contain mandatory attribute: deadLetterTargetArn."),
        ('{"deadLetterTargetArn": "dead"}', "Redrive policy does not contain mandatory attribute: maxReceiveCount."),
        ('{"deadLetterTargetArn": "dead", "maxReceiveCount": 1, "more": 1}', "Unknown key: more."),
    ],
)
def test_a_policy_that_cannot_be_is_refused(made: Sqs, text: str, reason: str) -> None:
    made.CreateQueue(QueueName="dead.fifo", Attributes={"FifoQueue": "true"})
    made.CreateQueue(QueueName="reads", tags={"decant:topic": "dead"})
    refused = made.refused("SetQueueAttributes", QueueUrl="orders", Attributes={"RedrivePolicy": text})
    assert refused.code == "InvalidParameterValue"
    assert refused.message.endswith(f" for parameter RedrivePolicy is invalid. Reason: {reason}")
    assert get(made)["maxReceiveCount"] == 1


def test_the_topic_that_a_queue_reads_cannot_take_its_dead_messages(made: Sqs) -> None:
    made.CreateQueue(QueueName="reads", tags={"decant:topic": "dead"})
    refused = made.refused("SetQueueAttributes", QueueUrl="reads", Attributes={"RedrivePolicy": policy()})
    assert refused.message.endswith("Queue 'reads' reads topic 'dead' itself: its dead messages would come again.")


def test_a_queue_with_a_policy_that_cannot_be_is_not_made(sqs: Sqs) -> None:
    refused = sqs.refused("CreateQueue", QueueName="orders", Attributes={"RedrivePolicy": policy()})
    shown = policy().replace(" ", "")
    assert refused.message == f"Value {shown} for parameter RedrivePolicy is invalid. Reason: {TARGET_GONE}"
    assert sqs.ListQueues() == {}


# -- who may be a source ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("allowed", "is_allowed"),
    [
        ({"redrivePermission": "allowAll"}, True),
        ({"redrivePermission": "denyAll"}, False),
        ({"redrivePermission": "byQueue", "sourceQueueArns": [f"{ARN}orders"]}, True),
        ({"redrivePermission": "byQueue", "sourceQueueArns": [f"{ARN}others"]}, False),
    ],
)
def test_a_dead_letter_queue_says_who_may_name_it(made: Sqs, allowed: Json, is_allowed: bool) -> None:
    put(made, "dead", RedriveAllowPolicy=json.dumps(allowed))
    if is_allowed:
        put(made, RedrivePolicy=policy(count=5))
    else:
        given = {"RedrivePolicy": policy(count=5)}
        refused = made.refused("SetQueueAttributes", QueueUrl="orders", Attributes=given)
        assert "RedriveAllowPolicy of queue 'dead'" in refused.message


def test_the_sources_of_a_dead_letter_queue_are_listed(made: Sqs) -> None:
    for name in ("b", "a", "c"):
        made.CreateQueue(QueueName=name, Attributes={"RedrivePolicy": policy()})
    made.CreateQueue(QueueName="other", tags={"decant:topic": "dead"})
    assert sources(made) == ["a", "b", "c", "orders"]
    assert sources(made, "other") == []
    first = made.ListDeadLetterSourceQueues(QueueUrl="dead", MaxResults=3)
    assert len(first["queueUrls"]) == 3
    assert sources(made, MaxResults=3, NextToken=first["NextToken"]) == ["orders"]
    assert "NextToken" not in made.ListDeadLetterSourceQueues(QueueUrl="dead", MaxResults=4)
    made.DeleteQueue(QueueUrl="b")
    assert sources(made) == ["a", "c", "orders"]


@pytest.mark.parametrize("members", [{"MaxResults": 0}, {"MaxResults": 1001}, {"NextToken": "x"}])
def test_a_page_of_sources_that_cannot_be_is_refused(made: Sqs, members: Json) -> None:
    refused = made.refused("ListDeadLetterSourceQueues", QueueUrl="dead", **members)
    assert refused.code == "InvalidParameterValue"
