"""Messages sent through one door leave through each: JSON, SQS and MQ over HTTP."""

from __future__ import annotations

import base64
from typing import Any, NamedTuple

import pytest

from tests.mqhttp.client import Mq, properties_of
from tests.sqs.client import Sqs
from tests.support.client import Client, Topic

DOORS = ("json", "sqs", "mq")
each_sender, each_receiver = pytest.mark.parametrize("sender", DOORS), pytest.mark.parametrize("receiver", DOORS)

FIFO = {"FifoQueue": "true", "ContentBasedDeduplication": "true"}
BODY, TAG, KEY, PROPERTIES = "grüß \r\n <&>\"']]>", "paid", "customer-7", {"region": "eu"}


class Seen(NamedTuple):
    body: str
    tag: str | None
    key: str | None
    properties: dict[str, str]
    sent_at_ms: int


class Doors:
    """One topic, which is the queue `name` of SQS, with a group for each of the other doors."""

    def __init__(self, name: str, **attributes: str) -> None:
        self.client = Client()
        self.sqs, self.mq = Sqs(self.client), Mq(self.client, name)
        self.url = self.sqs.CreateQueue(QueueName=name, Attributes=attributes)["QueueUrl"]
        self.topic = Topic(self.client, name)
        self.groups = {door: self.topic.group(f"over-{door}") for door in ("json", "mq")}

    @property
    def now_ms(self) -> int:
        return self.client.clock.ms

    def send(self, door: str, key: str | None = None, delay_ms: int = 0) -> None:
        {"json": self._send_json, "sqs": self._send_sqs, "mq": self._send_mq}[door](key, delay_ms)

    def _send_json(self, key: str | None, delay_ms: int) -> None:
        self.topic.produce(BODY, tag=TAG, key=key, properties=PROPERTIES, delay_ms=delay_ms)

    def _send_sqs(self, key: str | None, delay_ms: int) -> None:
        texts = {**PROPERTIES, "decant.tag": TAG}
        attributes = {name: {"DataType": "String", "StringValue": text} for name, text in texts.items()}
        about = {"MessageGroupId": key} if key else {"DelaySeconds": delay_ms // 1000}
        self.sqs.SendMessage(QueueUrl=self.url, MessageBody=BODY, MessageAttributes=attributes, **about)

    def _send_mq(self, key: str | None, delay_ms: int) -> None:
        known = {"__SHARDINGKEY": key, "__STARTDELIVERTIME": self.now_ms + delay_ms if delay_ms else None}
        self.mq.publish(BODY, TAG, **PROPERTIES, **{name: value for name, value in known.items() if value})

    def received(self, door: str) -> list[Seen]:
        return {"json": self._over_json, "sqs": self._over_sqs, "mq": self._over_mq}[door]()

    def _over_json(self) -> list[Seen]:
        return [self._of_json(each) for each in self.groups["json"].pop()["messages"]]

    def _of_json(self, message: Any) -> Seen:
        shown = {name: text for name, text in message["properties"].items() if not name.startswith("sqs:")}
        sent_at_ms = message.get("sent_at_ms", message["stored_at_ms"])
        return Seen(message["body"], message["tag"], message["key"], shown, sent_at_ms)

    def _over_sqs(self) -> list[Seen]:
        asked = {"AttributeNames": ["All"], "MessageAttributeNames": ["All"]}
        received = self.sqs.ReceiveMessage(QueueUrl=self.url, **asked).get("Messages", [])
        return [self._of_sqs(each) for each in received]

    def _of_sqs(self, message: Any) -> Seen:
        texts = {name: value["StringValue"] for name, value in message.get("MessageAttributes", {}).items()}
        tag, about = texts.pop("decant.tag", None), message["Attributes"]
        return Seen(message["Body"], tag, about.get("MessageGroupId"), texts, int(about["SentTimestamp"]))

    def _over_mq(self) -> list[Seen]:
        return [self._of_mq(each) for each in self.mq.consume("over-mq")]

    def _of_mq(self, message: Any) -> Seen:
        properties = properties_of(message)
        key = properties.pop("__SHARDINGKEY", None)
        return Seen(message["MessageBody"], message.get("MessageTag"), key, properties, int(message["PublishTime"]))


@each_sender
@each_receiver
def test_a_message_is_the_same_at_every_door(sender: str, receiver: str) -> None:
    doors = Doors("orders.fifo", **FIFO)
    doors.send(sender, KEY)
    assert doors.received(receiver) == [Seen(BODY, TAG, KEY, PROPERTIES, doors.now_ms)]


@each_sender
@each_receiver
def test_a_message_waits_before_every_door(sender: str, receiver: str) -> None:
    doors = Doors("orders")
    sent_at_ms = doors.now_ms
    doors.send(sender, delay_ms=60_000)
    doors.client.clock.sleep(59_999)
    assert doors.received(receiver) == []
    doors.client.clock.sleep(1)
    due = {"__STARTDELIVERTIME": str(doors.now_ms)} if receiver == "mq" else {}
    assert doors.received(receiver) == [Seen(BODY, TAG, None, {**PROPERTIES, **due}, sent_at_ms)]


def test_bytes_go_out_in_base64_where_a_door_has_none() -> None:
    doors, data = Doors("orders"), base64.b64encode(bytes(range(256))).decode()
    doors.topic.produce({"body_base64": data})
    for door, name in (("sqs", "decant.encoding"), ("mq", "encoding")):
        [seen] = doors.received(door)
        assert (seen.body, seen.properties) == (data, {name: "base64"})


def test_attributes_of_sqs_are_texts_elsewhere() -> None:
    doors = Doors("orders")
    number, data = {"DataType": "Number.int", "StringValue": "1"}, {"DataType": "Binary", "BinaryValue": "AP8="}
    about: Any = {"MessageGroupId": "g", "MessageAttributes": {"n": number, "b": data}}
    doors.sqs.SendMessage(QueueUrl=doors.url, MessageBody="a", **about)
    for door in ("json", "mq"):
        [seen] = doors.received(door)
        assert (seen.key, seen.properties) == (None, {"n": "1", "b": "AP8="})
