"""`mq_http_sdk`, unchanged, against `python -m local` on a port."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
from mq_http_sdk.mq_client import MQClient
from mq_http_sdk.mq_exception import MQServerException
from mq_http_sdk.mq_producer import TopicMessage

from tests.local.serving import Running, running

INSTANCE = "MQ_INST_1"

_numbers = count()


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running() as server:
        yield server


class Sdk:
    """A client of a topic of its own, which has a group for all messages, and one that keeps their order."""

    def __init__(self, server: Running) -> None:
        self.client = MQClient(f"http://127.0.0.1:{server.port}", "an-id", "a-secret")
        self.topic = f"orders-{next(_numbers)}"
        server.ask("PUT", f"/topics/{self.topic}", json.dumps({"queues": 1}))
        for group, settings in {"GID_all": {}, "GID_order": {"ordered": True}}.items():
            server.ask("PUT", f"/topics/{self.topic}/groups/{group}", json.dumps(settings))

    def publish(self, body: str, tag: str = "", **properties: str) -> Any:
        message = TopicMessage(body, tag)
        message.properties = properties
        return self.client.get_producer(INSTANCE, self.topic).publish_message(message)

    def consumer(self, group: str = "GID_all", tag: str = "") -> Any:
        return self.client.get_consumer(INSTANCE, self.topic, group, tag)


@pytest.fixture
def sdk(server: Running) -> Iterator[Sdk]:
    sdk = Sdk(server)
    yield sdk
    sdk.client.close_connection()


def test_a_message_is_published_consumed_and_acked(sdk: Sdk) -> None:
    body = "grüß \r\n<&>]]>"
    sent = sdk.publish(body, "paid", KEYS="k", a="b")
    [taken] = sdk.consumer().consume_message(16, 3)
    assert (taken.message_id, taken.message_body_md5) == (sent.message_id, sent.message_body_md5)
    assert (taken.message_body, taken.message_tag, taken.consumed_times) == (body, "paid", 1)
    assert (taken.get_message_key(), taken.get_property("a"), taken.get_sharding_key()) == ("k", "b", "")
    sdk.consumer().ack_message([taken.receipt_handle])
    with pytest.raises(MQServerException) as nothing:
        sdk.consumer().consume_message(16)
    assert (nothing.value.type, bool(nothing.value.req_id)) == ("MessageNotExist", True)
    with pytest.raises(MQServerException) as failed:
        sdk.consumer().ack_message(["bogus"])
    assert [each["ErrorCode"] for each in failed.value.sub_errors] == ["ReceiptHandleError"]


def test_a_consumer_takes_what_has_its_tags(sdk: Sdk) -> None:
    for tag in ("paid", "other", "due"):
        sdk.publish(tag, tag)
    consumer = sdk.consumer(tag="paid||due")
    assert [taken.message_body for taken in consumer.consume_message(16, 3)] == ["paid", "due"]
    with pytest.raises(MQServerException, match="InvalidArgument"):
        sdk.consumer(tag="paid").consume_message()


def test_messages_come_in_order(sdk: Sdk) -> None:
    consumer = sdk.consumer("GID_order")
    for body in ("a", "b"):
        sdk.publish(body, __SHARDINGKEY="s")
    for body in ("a", "b"):
        [taken] = consumer.consume_message_orderly(1, 3)
        assert (taken.message_body, taken.get_sharding_key()) == (body, "s")
        consumer.ack_message([taken.receipt_handle])
    with pytest.raises(MQServerException, match="InvalidArgument"):
        sdk.consumer().consume_message_orderly()


def test_half_messages_are_committed_or_rolled_back(sdk: Sdk) -> None:
    producer = sdk.client.get_trans_producer(INSTANCE, sdk.topic, "GID_all")
    half = TopicMessage("half")
    half.set_trans_check_immunity_time(10)
    handles = [producer.publish_message(half).receipt_handle for _ in range(2)]
    with pytest.raises(MQServerException, match="MessageNotExist"):
        producer.consume_half_message(1)
    producer.commit(handles[0])
    producer.rollback(handles[1])
    with pytest.raises(MQServerException, match="MessageNotExist"):
        producer.commit(handles[1])
    assert [taken.message_body for taken in sdk.consumer().consume_message(16, 3)] == ["half"]


def test_what_is_not_there_has_its_error(sdk: Sdk) -> None:
    with pytest.raises(MQServerException, match="TopicNotExist"):
        sdk.client.get_producer(INSTANCE, "none").publish_message(TopicMessage("a"))
    with pytest.raises(MQServerException, match="SubscriptionNotExist"):
        sdk.consumer("none").consume_message()
