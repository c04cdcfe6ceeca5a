"""What comes in by one door goes out by each: JSON, SQS and MQ over HTTP."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import pytest

from tests.mqhttp.client import Mq, properties_of
from tests.sqs.client import Sqs
from tests.support.client import Client, Group, Topic

Seen = tuple[str, str | None, dict[str, str]]
"""Body, tag and properties."""


class Doors:
    """One topic: the queue `orders` of SQS, and a group for each of the other doors."""

    def __init__(self) -> None:
        self.client = Client()
        self.sqs, self.mq = Sqs(self.client), Mq(self.client)
        self.url = self.sqs.CreateQueue(QueueName="orders")["QueueUrl"]
        self.topic = Topic(self.client, "orders")
        self.topic.group("over-json")
        self.topic.group("over-mq")

    def send_json(self, body: str) -> None:
        self.topic.produce(body, tag="paid", properties={"region": "eu"})

    def send_sqs(self, body: str) -> None:
        texts = {"region": "eu", "decant.tag": "paid"}
        attributes = {name: {"DataType": "String", "StringValue": text} for name, text in texts.items()}
        self.sqs.SendMessage(QueueUrl=self.url, MessageBody=body, MessageAttributes=attributes)

    def send_mq(self, body: str) -> None:
        self.mq.publish(body, "paid", region="eu")

    def received_json(self) -> Seen:
        taken = Group(self.client, self.topic, "over-json").take_one()
        return taken["body"], taken["tag"], taken["properties"]

    def received_sqs(self) -> Seen:
        [taken] = self.sqs.ReceiveMessage(QueueUrl=self.url, MessageAttributeNames=["All"])["Messages"]
        texts = {name: value["StringValue"] for name, value in taken.get("MessageAttributes", {}).items()}
        return taken["Body"], texts.pop("decant.tag", None), texts

    def received_mq(self) -> Seen:
        [taken] = self.mq.consume("over-mq")
        return taken["MessageBody"], taken.get("MessageTag"), properties_of(taken)


@pytest.mark.parametrize("receive", [Doors.received_json, Doors.received_sqs, Doors.received_mq])
@pytest.mark.parametrize("send", [Doors.send_json, Doors.send_sqs, Doors.send_mq])
def test_a_message_is_the_same_at_every_door(
    send: Callable[[Doors, str], None], receive: Callable[[Doors], Seen]
) -> None:
    doors, body = Doors(), "grüß \r\n <&>\"']]>"
    send(doors, body)
    assert receive(doors) == (body, "paid", {"region": "eu"})


def test_bytes_go_out_in_base64_where_a_door_has_none() -> None:
    doors, data = Doors(), base64.b64encode(bytes(range(256))).decode()
    doors.topic.produce({"body_base64": data})
    assert doors.received_sqs() == (data, None, {"decant.encoding": "base64"})
    assert doors.received_mq() == (data, None, {"encoding": "base64"})


def test_what_one_door_alone_knows_stays_behind_it() -> None:
    doors = Doors()
    number: Any = {"n": {"DataType": "Number.int", "StringValue": "1"}}
    doors.sqs.SendMessage(QueueUrl=doors.url, MessageBody="a", MessageAttributes=number, MessageGroupId="g")
    assert doors.received_mq() == ("a", None, {"n": "1"})
    taken = Group(doors.client, doors.topic, "over-json").take_one()
    assert taken["properties"].keys() == {"n", "sqs:types", "sqs:group"}


def test_a_key_is_the_sharding_key_of_mq() -> None:
    doors = Doors()
    doors.topic.produce("a", key="k")
    assert doors.received_mq() == ("a", None, {"__SHARDINGKEY": "k"})
    assert doors.received_sqs() == ("a", None, {})
