"""FIFO queues: order and deduplication of groups, receives, handles, attributes."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from tests.sqs.client import Sqs
from tests.support.client import Client, Topic
from tests.support.clock import Clock

Json = dict[str, Any]
URL = "orders.fifo"
MISSING = "The request must contain the parameter MessageGroupId."
NOT_OF_QUEUE = "The request include parameter that is not valid for this queue type."
EXPIRED = "Reason: The receipt handle has expired."


def make(sqs: Sqs, name: str = URL, tags: Json | None = None, **attributes: str) -> None:
    sqs.CreateQueue(QueueName=name, Attributes={"FifoQueue": "true", **attributes}, tags=tags or {})


@pytest.fixture
def fifo(sqs: Sqs) -> Sqs:
    """With one queue, which takes the ids of its messages from their bodies."""
    make(sqs, ContentBasedDeduplication="true")
    return sqs


def send(sqs: Sqs, *bodies: str, **more: Any) -> list[Json]:
    """The first letter is the group."""
    return [sqs.SendMessage(QueueUrl=URL, MessageBody=body, MessageGroupId=body[0], **more) for body in bodies]


def receive(sqs: Sqs, most: int = 10, **more: Any) -> list[Json]:
    messages: list[Json] = sqs.ReceiveMessage(QueueUrl=URL, MaxNumberOfMessages=most, **more).get("Messages", [])
    return messages


def bodies(messages: list[Json]) -> list[str]:
    return [message["Body"] for message in messages]


def delete(sqs: Sqs, *messages: Json) -> None:
    for message in messages:
        sqs.DeleteMessage(QueueUrl=URL, ReceiptHandle=message["ReceiptHandle"])


def refusal(sqs: Sqs, action: str, **members: Any) -> tuple[str, str]:
    refused = sqs.refused(action, QueueUrl=URL, **members)
    return refused.code, refused.message


def attributes(sqs: Sqs, *names: str) -> Json:
    shown: Json = sqs.GetQueueAttributes(QueueUrl=URL, AttributeNames=[*names]).get("Attributes", {})
    return shown


# -- order ------------------------------------------------------------------------------------------------------------


def test_a_receive_takes_all_of_a_group_and_then_the_next(fifo: Sqs) -> None:
    send(fifo, "a1", "b1", "a2", "a3")
    assert bodies(receive(fifo)) == ["a1", "a2", "a3", "b1"]


def test_messages_have_their_group_their_id_and_a_rising_number(fifo: Sqs) -> None:
    sent = send(fifo, "a1", "a2")
    received = receive(fifo, AttributeNames=["All"])
    assert [message["Attributes"]["SequenceNumber"] for message in received] == [
        each["SequenceNumber"] for each in sent
    ]
    first, second = (int(each["SequenceNumber"]) for each in sent)
    assert len(str(first)) == 20
    assert first < second
    assert received[0]["Attributes"]["MessageGroupId"] == "a"
    assert received[0]["Attributes"]["MessageDeduplicationId"] == hashlib.sha256(b"a1").hexdigest()


# -- sent once --------------------------------------------------------------------------------------------------------


def test_a_repeat_gets_the_first_answer_and_adds_nothing(fifo: Sqs, clock: Clock) -> None:
    [first] = send(fifo, "a1")
    delete(fifo, *receive(fifo))
    [again] = send(fifo, "a1")
    assert again == first
    [other] = send(fifo, "a2", MessageDeduplicationId=hashlib.sha256(b"a1").hexdigest())
    assert (other["MessageId"], other["SequenceNumber"]) == (first["MessageId"], first["SequenceNumber"])
    assert other["MD5OfMessageBody"] == hashlib.md5(b"a2", usedforsecurity=False).hexdigest()
    assert receive(fifo) == []
    clock.sleep(300_001)
    send(fifo, "a1")
    assert bodies(receive(fifo)) == ["a1"]


@pytest.mark.parametrize(("scope", "count"), [("queue", 1), ("messageGroup", 2)])
def test_ids_are_those_of_the_queue_or_of_the_group(sqs: Sqs, scope: str, count: int) -> None:
    make(sqs, DeduplicationScope=scope)
    send(sqs, "a", "b", MessageDeduplicationId="same")
    assert len(receive(sqs)) == count


def test_a_purge_forgets_what_was_sent(fifo: Sqs, clock: Clock) -> None:
    send(fifo, "a1")
    [message] = receive(fifo)
    fifo.PurgeQueue(QueueUrl=URL)
    clock.sleep(1_000)
    delete(fifo, message)
    send(fifo, "a1")
    assert bodies(receive(fifo)) == ["a1"]


def test_a_queue_made_again_forgets_what_was_sent(fifo: Sqs) -> None:
    fifo.client.put(f"/topics/{URL}/groups/audit")
    send(fifo, "a1")
    fifo.DeleteQueue(QueueUrl=URL)
    make(fifo, ContentBasedDeduplication="true")
    send(fifo, "a1")
    assert bodies(receive(fifo)) == ["a1"]


def test_repeats_in_one_batch_are_stored_once(fifo: Sqs) -> None:
    entries = [{"Id": str(number), "MessageBody": "a", "MessageGroupId": "g"} for number in range(3)]
    answer = fifo.SendMessageBatch(QueueUrl=URL, Entries=entries)
    assert len({each["SequenceNumber"] for each in answer["Successful"]}) == 1
    assert len(receive(fifo)) == 1


# -- refused ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("members", "code", "message"),
    [
        ({}, "MissingParameter", MISSING),
        ({"MessageGroupId": ""}, "InvalidParameterValue", "MessageGroupId can only include"),
        ({"MessageGroupId": "a" * 129}, "InvalidParameterValue", "MessageGroupId can only include"),
        ({"MessageGroupId": "a", "MessageDeduplicationId": " "}, "InvalidParameterValue", "MessageDeduplicationId can"),
        ({"MessageGroupId": "a", "DelaySeconds": 1}, "InvalidParameterValue", NOT_OF_QUEUE),
    ],
)
def test_a_message_that_no_fifo_queue_takes_is_refused(fifo: Sqs, members: Json, code: str, message: str) -> None:
    refused = refusal(fifo, "SendMessage", MessageBody="a", **members)
    assert refused[0] == code
    assert message in refused[1]


# -- received ---------------------------------------------------------------------------------------------------------


def test_a_repeated_receive_attempt_gets_the_same(fifo: Sqs) -> None:
    send(fifo, "a1", "b1", "a2")
    first = receive(fifo, 2, ReceiveRequestAttemptId="x")
    assert receive(fifo, 2, ReceiveRequestAttemptId="x") == first
    assert bodies(first) == ["a1", "a2"]
    assert refusal(fifo, "ReceiveMessage", ReceiveRequestAttemptId=" ")[0] == "InvalidParameterValue"


def test_what_is_visible_again_is_neither_deleted_nor_changed(fifo: Sqs, clock: Clock) -> None:
    send(fifo, "a1")
    [old] = receive(fifo, VisibilityTimeout=1)
    clock.sleep(1_000)
    handle = {"ReceiptHandle": old["ReceiptHandle"]}
    for _ in range(2):
        deleting = refusal(fifo, "DeleteMessage", **handle)
        changing = refusal(fifo, "ChangeMessageVisibility", **handle, VisibilityTimeout=5)
        assert deleting == changing == ("InvalidParameterValue", deleting[1])
        assert EXPIRED in deleting[1]
        receive(fifo)


def test_a_handle_outlives_changes_of_the_visibility(fifo: Sqs, clock: Clock) -> None:
    send(fifo, "a1", "a2")
    [first] = receive(fifo, 1, VisibilityTimeout=2)
    for _ in range(3):
        clock.sleep(1_500)
        fifo.ChangeMessageVisibility(QueueUrl=URL, ReceiptHandle=first["ReceiptHandle"], VisibilityTimeout=2)
        assert receive(fifo) == []
    delete(fifo, first, first)
    assert bodies(receive(fifo)) == ["a2"]
    text = "Message does not exist or is not available for visibility timeout change."
    changing = refusal(fifo, "ChangeMessageVisibility", ReceiptHandle=first["ReceiptHandle"], VisibilityTimeout=5)
    assert text in changing[1]


# -- the queue --------------------------------------------------------------------------------------------------------


def test_a_new_queue_shows_what_it_is(sqs: Sqs, client: Client) -> None:
    make(sqs)
    names = ["FifoQueue", "ContentBasedDeduplication", "DeduplicationScope", "FifoThroughputLimit", "DelaySeconds"]
    assert attributes(sqs, *names) == dict(zip(names, ["true", "false", "queue", "perQueue", "0"], strict=True))
    group = client.get(f"/topics/{URL}/groups/{URL}").json
    assert (group["ordered"], group["settle_by"], group["max_attempts"]) == ("key", "delivery", None)
    assert Topic(client, URL).details()["queues"] == 1


def test_groups_that_are_independent_get_more_queues(sqs: Sqs, client: Client) -> None:
    make(sqs, DeduplicationScope="messageGroup", FifoThroughputLimit="perMessageGroupId")
    assert Topic(client, URL).details()["queues"] == 4


def test_limits_by_group_need_ids_by_group(fifo: Sqs) -> None:
    change = {"FifoThroughputLimit": "perMessageGroupId"}
    code, text = refusal(fifo, "SetQueueAttributes", Attributes=change)
    assert code == "InvalidAttributeValue"
    assert "only when the value for DeduplicationScope is messageGroup" in text
    fifo.SetQueueAttributes(QueueUrl=URL, Attributes={**change, "DeduplicationScope": "messageGroup"})
    assert attributes(fifo, "FifoThroughputLimit") == {"FifoThroughputLimit": "perMessageGroupId"}
    again = refusal(fifo, "SetQueueAttributes", Attributes={"DeduplicationScope": "queue"})
    assert again[0] == "InvalidAttributeValue"


def test_the_kind_of_a_queue_stays(fifo: Sqs) -> None:
    text = "Invalid value for the parameter FifoQueue. Reason: Modifying queue type is not supported."
    refused = refusal(fifo, "SetQueueAttributes", Attributes={"FifoQueue": "false"})
    assert refused == ("InvalidAttributeValue", text)
    fifo.SetQueueAttributes(QueueUrl=URL, Attributes={"FifoQueue": "true", "VisibilityTimeout": "7"})
    make(fifo, ContentBasedDeduplication="true", VisibilityTimeout="7")


def test_the_delay_of_the_queue_is_that_of_its_group_and_counts_at_once(fifo: Sqs, clock: Clock) -> None:
    send(fifo, "a1")
    fifo.SetQueueAttributes(QueueUrl=URL, Attributes={"DelaySeconds": "5"})
    counts = ("ApproximateNumberOfMessages", "ApproximateNumberOfMessagesDelayed", "DelaySeconds")
    assert attributes(fifo, *counts) == dict(zip(counts, "015", strict=True))
    assert receive(fifo) == []
    clock.sleep(5_000)
    assert bodies(receive(fifo)) == ["a1"]


def test_a_subscribed_queue_has_the_groups_that_the_keys_are(sqs: Sqs, client: Client) -> None:
    topic = client.topic("events")
    make(sqs, tags={"decant:topic": "events"})
    topic.produce({"body": "a1", "key": "a"}, {"body": "none"}, {"body": "a2", "key": "a"})
    [[first], [second]] = (receive(sqs, 1, AttributeNames=["MessageGroupId"]) for _ in range(2))
    assert bodies([first, second]) == ["a1", "none"]
    assert first["Attributes"]["MessageGroupId"] == "a"
    assert second["Attributes"]["MessageGroupId"] == second["MessageId"]
    assert receive(sqs) == []


@pytest.mark.parametrize(("ordered", "is_taken"), [("key", True), (True, False), (False, False)])
def test_a_group_that_stands_must_be_ordered_by_key(sqs: Sqs, client: Client, ordered: object, is_taken: bool) -> None:
    client.topic("events").group("g", ordered=ordered)
    tags = {"decant:topic": "events", "decant:group": "g"}
    answer = sqs.ask("CreateQueue", QueueName=URL, Attributes={"FifoQueue": "true"}, tags=tags)
    assert answer.status == (200 if is_taken else 400)
