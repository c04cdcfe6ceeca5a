"""`SendMessage` and `SendMessageBatch`, and what of it a receive shows."""

from __future__ import annotations

import base64
import hashlib
import struct
from typing import Any
from uuid import UUID

import pytest

from chalicelib.doors.sqs.registry import GROUP_SETTINGS, NewQueue, queues_of
from tests.sqs.client import Refused, Sqs, queue
from tests.support.client import Client, Group, Topic
from tests.support.clock import Clock

Json = dict[str, Any]
NUMBER = {"DataType": "Number.java.lang.Long", "StringValue": "41"}
TEXT = {"DataType": "String", "StringValue": "grün"}
BINARY = {"DataType": "Binary.gif", "BinaryValue": "AAEC"}
MIB = 1024 * 1024


def received(sqs: Sqs, url: str, **more: Any) -> Json:
    answer = sqs.ReceiveMessage(QueueUrl=url, AttributeNames=["All"], MessageAttributeNames=["All"], **more)
    [message] = answer["Messages"]
    return dict(message)


def invalid(message: str) -> Refused:
    return Refused(400, "InvalidParameterValueException", "InvalidParameterValue", message)


def digest_of(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def md5(*attributes: tuple[str, str, int, bytes]) -> str:
    counted = [
        struct.pack(">I", len(part)) + part if isinstance(part, bytes) else bytes([part])
        for name, type_, kind, value in attributes
        for part in (name.encode(), type_.encode(), kind, value)
    ]
    return digest_of(b"".join(counted))


def test_a_message_comes_out_as_it_went_in(sqs: Sqs, url: str) -> None:
    given = {"n": NUMBER, "t": TEXT, "b": BINARY}
    sent = sqs.SendMessage(QueueUrl=url, MessageBody="grüß <&> \r\n", MessageAttributes=given)
    digest = md5(
        ("b", "Binary.gif", 2, b"\0\1\2"), ("n", "Number.java.lang.Long", 1, b"41"), ("t", "String", 1, "grün".encode())
    )
    assert sent["MD5OfMessageAttributes"] == digest
    assert sent["MD5OfMessageBody"] == digest_of("grüß <&> \r\n".encode())
    assert UUID(sent["MessageId"]).version == 8
    message = received(sqs, url)
    assert message["MessageId"] == sent["MessageId"]
    assert (message["Body"], message["MD5OfBody"]) == ("grüß <&> \r\n", sent["MD5OfMessageBody"])
    assert (message["MessageAttributes"], message["MD5OfMessageAttributes"]) == (given, digest)


def test_attributes_are_properties_over_json_and_back(client: Client, sqs: Sqs, url: str) -> None:
    attributes = {"n": NUMBER, "t": TEXT, "decant.tag": {"DataType": "String", "StringValue": "paid"}}
    sqs.SendMessage(QueueUrl=url, MessageBody="a", MessageAttributes=attributes)
    [message] = Topic(client, "orders").read()["messages"]
    assert message["tag"] == "paid"
    assert message["properties"] == {"n": "41", "t": "grün", "sqs:types": '{"n":"Number.java.lang.Long"}'}
    assert received(sqs, url)["MessageAttributes"] == attributes


@pytest.mark.parametrize("types", ["[]", "{", '{"n": 7}', '{"n": "Binary"}', '{"n": "Strings"}'])
def test_properties_of_json_producers_arrive_as_strings(client: Client, sqs: Sqs, url: str, types: str) -> None:
    Topic(client, "orders").produce("a", properties={"n": "41!", "sqs:types": types, "sqs:x": "own"}, tag="t")
    text = {"n": {"DataType": "String", "StringValue": "41!"}, "decant.tag": {"DataType": "String", "StringValue": "t"}}
    assert received(sqs, url)["MessageAttributes"] == text


@pytest.mark.parametrize("content", [b"\xff\0", b"\0 text"])
def test_a_body_that_sqs_cannot_hold_goes_out_in_base64(client: Client, sqs: Sqs, url: str, content: bytes) -> None:
    encoded = base64.b64encode(content).decode()
    Topic(client, "orders").produce({"body_base64": encoded} if content[0] else {"body": content.decode()})
    message = received(sqs, url)
    assert message["Body"] == encoded
    assert message["MessageAttributes"] == {"decant.encoding": {"DataType": "String", "StringValue": "base64"}}
    assert message["MD5OfBody"] == digest_of(encoded.encode())


def test_a_delay_is_the_messages_or_the_queues(client: Client, sqs: Sqs, clock: Clock) -> None:
    url = queue(client, "late", DelaySeconds="20")
    for seconds, body in ((5, "five"), (0, "now"), (None, "queue's")):
        sqs.SendMessage(QueueUrl=url, MessageBody=body, **({} if seconds is None else {"DelaySeconds": seconds}))
    sent_at_ms = str(clock.now())
    for passed_ms, body in ((0, "now"), (5_000, "five"), (15_000, "queue's")):
        clock.sleep(passed_ms)
        message = received(sqs, url)
        assert (message["Body"], message["Attributes"]["SentTimestamp"]) == (body, sent_at_ms)
        assert sqs.ReceiveMessage(QueueUrl=url) == {}


def test_a_message_that_waited_keeps_its_id(sqs: Sqs, url: str, clock: Clock) -> None:
    sent = sqs.SendMessage(QueueUrl=url, MessageBody="a", DelaySeconds=1)
    clock.sleep(1_000)
    assert received(sqs, url)["MessageId"] == sent["MessageId"]


def test_a_standard_queue_keeps_the_group_id_and_the_trace(sqs: Sqs, url: str) -> None:
    trace = {"AWSTraceHeader": {"DataType": "String", "StringValue": "Root=1-1-2"}}
    sent = sqs.SendMessage(QueueUrl=url, MessageBody="a", MessageGroupId="g!", MessageSystemAttributes=trace)
    assert sent["MD5OfMessageSystemAttributes"] == md5(("AWSTraceHeader", "String", 1, b"Root=1-1-2"))
    assert "MD5OfMessageAttributes" not in sent
    message = received(sqs, url)
    assert message["Attributes"].items() >= {"MessageGroupId": "g!", "AWSTraceHeader": "Root=1-1-2"}.items()
    assert "MessageAttributes" not in message


def test_the_trace_of_the_request_is_the_messages(sqs: Sqs, url: str) -> None:
    sqs.ask("SendMessage", QueueUrl=url, MessageBody="a", headers={"X-Amzn-Trace-Id": "Root=1-7-8"})
    assert received(sqs, url)["Attributes"]["AWSTraceHeader"] == "Root=1-7-8"


def attribute(name: str = "a", **value: Any) -> Json:
    return {"MessageAttributes": {name: {"DataType": "String", "StringValue": "v", **value}}}


ONE = {"DataType": "String", "StringValue": "v"}
NO_TYPE = "has an invalid message attribute type, the set of supported type prefixes is Binary, Number, and String."
BAD_GROUP = (
    "for parameter MessageGroupId is invalid. Reason: MessageGroupId can only include alphanumeric and punctuation"
    " characters. 1 to 128 in length."
)
NOT_HERE = (
    "for parameter MessageDeduplicationId is invalid. Reason: The request include parameter that is not valid for this"
    " queue type."
)
NO_TAG = "without '|' and without white space around it; it is \"a|b\""
REFUSED: list[tuple[Json, str]] = [
    (
        {"DelaySeconds": 901},
        "Value 901 for parameter DelaySeconds is invalid. Reason: DelaySeconds must be >= 0 and <= 900.",
    ),
    (
        {"MessageGroupId": "a b"},
        f"Value a b {BAD_GROUP}",
    ),
    (
        {"MessageDeduplicationId": "a"},
        f"Value a {NOT_HERE}",
    ),
    (
        {"MessageAttributes": {str(number): ONE for number in range(11)}},
        "Number of message attributes [11] exceeds the allowed maximum [10].",
    ),
    (attribute(StringValue="a\x08b"), "Message (user) attribute 'a' has characters not allowed."),
    (attribute(DataType="String.\x0b"), f"The message attribute 'a' {NO_TYPE}"),
    (attribute(DataType="Strings"), f"The message attribute 'a' {NO_TYPE}"),
    (attribute(DataType=""), f"The message attribute 'a' {NO_TYPE}"),
    (attribute(DataType="String." + "x" * 250), f"The message attribute 'a' {NO_TYPE}"),
    (attribute(StringValue=""), "Message (user) attribute 'a' must contain a non-empty value of type 'String'."),
    (attribute(DataType="Binary.x"), "Message (user) attribute 'a' must contain a non-empty value of type 'Binary'."),
    (attribute(DataType="Number"), "Can't cast the value of message (user) attribute 'a' to a number."),
    (
        attribute("decant.tag", StringValue="a|b"),
        f"The message attribute 'decant.tag' must be a string {NO_TAG}",
    ),
    (
        {"MessageSystemAttributes": {"Other": ONE}},
        "Message system attribute name 'Other' is invalid.",
    ),
]


@pytest.mark.parametrize(("given", "text"), REFUSED)
def test_what_a_message_cannot_have_is_refused(sqs: Sqs, url: str, given: Json, text: str) -> None:
    assert sqs.refused("SendMessage", QueueUrl=url, MessageBody="a", **given) == invalid(text)
    failed = sqs.SendMessageBatch(QueueUrl=url, Entries=[{"Id": "1", "MessageBody": "a", **given}])["Failed"]
    assert failed == [{"Id": "1", "SenderFault": True, "Code": "InvalidParameterValue", "Message": text}]
    assert sqs.ReceiveMessage(QueueUrl=url) == {}


@pytest.mark.parametrize("name", [".a", "a.", "a..b", "aws.x", "Amazon.x", "a:b", "ä\u0180", "x" * 257, ""])
def test_names_of_attributes_that_sqs_refuses(sqs: Sqs, url: str, name: str) -> None:
    refused = sqs.refused("SendMessage", QueueUrl=url, MessageBody="a", **attribute(name))
    assert refused.message.startswith(f"The message attribute name '{name}' is invalid.")


@pytest.mark.parametrize("name", ["a", "A.b-c_9", "À", "aÀ.\u017f", "x" * 256, "awsome", "-"])
def test_names_of_attributes_that_sqs_takes(sqs: Sqs, url: str, name: str) -> None:
    sqs.SendMessage(QueueUrl=url, MessageBody="a", **attribute(name))
    assert list(received(sqs, url)["MessageAttributes"]) == [name]


@pytest.mark.parametrize("body", ["\0", "a\x0b", "\ufffe", "\ufffff"[:1]])
def test_characters_that_sqs_does_not_know_are_refused(sqs: Sqs, url: str, body: str) -> None:
    text = "The message contains characters outside the allowed set."
    refused = sqs.refused("SendMessage", QueueUrl=url, MessageBody=body)
    assert refused == Refused(400, "InvalidMessageContents", "InvalidMessageContents", text)


def test_a_message_without_a_body_is_refused(sqs: Sqs, url: str) -> None:
    text = "The request must contain the parameter MessageBody."
    missing = Refused(400, "MissingRequiredParameterException", "MissingParameter", text)
    assert sqs.refused("SendMessage", QueueUrl=url) == missing
    assert sqs.refused("SendMessage", QueueUrl=url, MessageBody="") == missing


def test_the_size_counts_names_types_and_values(client: Client, sqs: Sqs) -> None:
    url = queue(client, "small", MaximumMessageSize="1024")
    full = {"QueueUrl": url, **attribute("ab", StringValue="cdé")}
    sqs.SendMessage(MessageBody="x" * (1024 - 2 - 6 - 4), **full)
    text = "One or more parameters are invalid. Reason: Message must be shorter than 1024 bytes."
    assert sqs.refused("SendMessage", MessageBody="x" * (1024 - 2 - 6 - 3), **full) == invalid(text)
    entry = {"Id": "1", "MessageBody": "x" * 1025}
    text = "One or more parameters cannot be validated. Reason: Message must be shorter than 1024 bytes."
    assert sqs.SendMessageBatch(QueueUrl=url, Entries=[entry])["Failed"][0]["Message"] == text


def test_the_largest_message_comes_back(sqs: Sqs, url: str) -> None:
    body = '"\\' * (MIB // 2)
    sqs.SendMessage(QueueUrl=url, MessageBody=body)
    assert received(sqs, url)["Body"] == body
    refused = sqs.refused("SendMessage", QueueUrl=url, MessageBody=body + "x")
    assert refused.message.endswith("Message must be shorter than 1048576 bytes.")


def test_attributes_may_fill_the_whole_message(client: Client, sqs: Sqs, url: str) -> None:
    value = "x" * (MIB - 10 - len("a" + "String"))
    sqs.SendMessage(QueueUrl=url, MessageBody="b" * 10, **attribute(StringValue=value))
    assert received(sqs, url)["MessageAttributes"]["a"]["StringValue"] == value


def test_a_batch_tells_the_outcome_of_each_entry(sqs: Sqs, url: str) -> None:
    entries = [{"Id": "b", "MessageBody": ""}, {"Id": "a", "MessageBody": "one"}, {"Id": "c", "MessageBody": "two"}]
    answer = sqs.SendMessageBatch(QueueUrl=url, Entries=entries)
    assert [each["Id"] for each in answer["Successful"]] == ["a", "c"]
    text = "The request must contain the parameter MessageBody."
    assert answer["Failed"] == [{"Id": "b", "SenderFault": True, "Code": "MissingParameter", "Message": text}]
    messages = sqs.ReceiveMessage(QueueUrl=url, MaxNumberOfMessages=10)["Messages"]
    assert {each["MessageId"]: each["MD5OfBody"] for each in messages} == {
        each["MessageId"]: each["MD5OfMessageBody"] for each in answer["Successful"]
    }


def test_a_batch_can_be_refused_as_a_whole(sqs: Sqs, url: str) -> None:
    half = {"MessageBody": "x" * (MIB // 2)}
    long = [{"Id": "a", **half}, {"Id": "b", **half}, {"Id": "c", "MessageBody": "y"}]
    refused = sqs.refused("SendMessageBatch", QueueUrl=url, Entries=long)
    text = "Batch requests cannot be longer than 1048576 bytes. You have sent 1048577 bytes."
    assert refused == Refused(400, "BatchRequestTooLong", "BatchRequestTooLong", text)
    assert sqs.ReceiveMessage(QueueUrl=url) == {}


def test_a_subscribed_queue_is_not_sent_to(client: Client, sqs: Sqs, url: str) -> None:
    queues_of(client.api.service).make(NewQueue("billing", "orders", None, "billing", GROUP_SETTINGS, {}, {}))
    refused = sqs.refused("SendMessage", QueueUrl="billing", MessageBody="a")
    text = "queue 'billing' reads topic 'orders': send to 'orders'"
    assert refused == Refused(400, "UnsupportedOperation", "UnsupportedOperation", text)
    sqs.SendMessage(QueueUrl=url, MessageBody="a")
    assert received(sqs, "billing")["Body"] == received(sqs, url)["Body"] == "a"


def test_a_limited_queue_throttles(client: Client, sqs: Sqs, url: str) -> None:
    Topic(client, "orders").produce("a")
    client.put("/topics/orders", max_depth=1)
    refused = sqs.refused("SendMessage", QueueUrl=url, MessageBody="b")
    assert (refused.status, refused.shape, refused.code) == (400, "RequestThrottled", "RequestThrottled")


def test_what_json_clients_produce_and_pop_is_the_same_queue(client: Client, sqs: Sqs, url: str) -> None:
    sqs.SendMessage(QueueUrl=url, MessageBody="a")
    group = Group(client, Topic(client, "orders"), "orders")
    assert group.take_one()["body"] == "a"


def test_a_topic_made_again_by_others_is_not_the_queues(client: Client, sqs: Sqs, url: str) -> None:
    sqs.SendMessage(QueueUrl=url, MessageBody="a")
    client.delete("/topics/orders")
    topic = client.topic("orders")
    for action in ("SendMessage", "ReceiveMessage"):
        assert sqs.refused(action, QueueUrl=url, MessageBody="b").shape == "QueueDoesNotExist"
    assert topic.read()["messages"] == []
    assert sqs.ListQueues() == {}


def test_another_instance_hears_of_a_queue_that_was_made_again(client: Client, sqs: Sqs, url: str) -> None:
    other = Sqs(client.another())
    other.SendMessage(QueueUrl=url, MessageBody="old")
    sqs.DeleteQueue(QueueUrl=url)
    sqs.CreateQueue(QueueName="orders")
    other.SendMessage(QueueUrl=url, MessageBody="new")
    assert received(sqs, url)["Body"] == "new"
